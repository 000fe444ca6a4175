"""What a dry run returns and `schedule` submits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torchx_pulumi.kube.yaml_text import to_yaml
from torchx_pulumi.model.job_plan import JobPlan
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.torchx_adapter.api_object import attributed, plain

if TYPE_CHECKING:
    from torchx_pulumi.images import ImagePlan


@dataclass(init=False)
class PulumiJob:
    """The request of one app: as TorchX's `KubernetesJob`, it may be changed before it is submitted.

    It has the fields of TorchX's, which `torchx run --dryrun --json` prints. What else a launch needs are attributes
    that are no fields; they are copied and pickled with it.
    """

    images_to_push: dict[str, tuple[str, str]]
    """Image to its repository and tag, for images that are built or pushed before the launch."""
    resource: Manifest
    """What is created: one object, or a `List` of them; submitted as it is, never rendered again. Its mappings have the
    attributes of the official client's models, and models may be put into it."""

    def __init__(
        self,
        images_to_push: dict[str, tuple[str, str]],
        resource: Manifest,
        plan: JobPlan[Any] | None = None,
        app: Mapping[str, Any] | None = None,
        config: Mapping[str, Any] | None = None,
        image_plans: Mapping[str, ImagePlan] | None = None,
    ) -> None:
        """Make a request.

        Args:
            images_to_push: As the field.
            resource: As the field.
            plan: The plan that it was rendered from. None: it was read back, or made by hand.
            app: Its AppDef, as `write_app` writes it. None: only the dry run has it.
            config: The resolved run options of the dry run. None: only the dry run has them.
            image_plans: Reference to what the image is built from, for the patched ones of `images_to_push`.
        """
        self.images_to_push = images_to_push
        self.resource = attributed(resource)
        self.plan = plan
        self.app = app
        self.config = config
        self.image_plans = dict(image_plans or {})

    def manifest(self) -> Manifest:
        """Return what is created, as plain values."""
        made: Manifest = plain(self.resource)
        return made

    def __str__(self) -> str:
        """Return the manifest as YAML."""
        return to_yaml(self.manifest())

    def __repr__(self) -> str:
        """Return the manifest as YAML."""
        return str(self)
