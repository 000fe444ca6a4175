"""What a dry run returns and `schedule` submits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torchx_pulumi.options import Manifest
from torchx_pulumi.plan import JobPlan
from torchx_pulumi.yaml_text import to_yaml


@dataclass
class PulumiJob:
    """The request of one app: as TorchX's `KubernetesJob`, it may be changed before it is submitted."""

    images_to_push: dict[str, tuple[str, str]]
    """Image to its repository and tag, for images that are built or pushed before the launch."""
    resource: Manifest
    """What is created, as plain values: one object, or a `List` of them. Submitted as it is, never rendered again."""
    plan: JobPlan[Any] | None = field(default=None, repr=False, compare=False)
    """The plan that it was rendered from. None: it was read back, or made by hand."""

    def __str__(self) -> str:
        """Return the manifest as YAML."""
        return to_yaml(self.resource)

    def __repr__(self) -> str:
        """Return the manifest as YAML."""
        return str(self)
