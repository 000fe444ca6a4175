"""Patched images: planned in the dry run, without a daemon, and built and pushed when the app is scheduled."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torchx_pulumi import images
from torchx_pulumi.model.errors import ImageError, ImageOptionError
from torchx_pulumi.model.image_options import image_options
from torchx_pulumi.torchx_adapter import compat

if TYPE_CHECKING:
    from torchx_pulumi.images import ImagePlan

logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Workspaces:
    """Patches, builds and pushes the images of apps."""

    docker_client: Any = None
    """A docker-py client of the caller's. None: made when it is needed."""
    plans: dict[str, ImagePlan] = field(default_factory=dict)
    """Reference to what the image is built from, for the images that roles were given here."""
    _dry_run: threading.local = field(default_factory=threading.local)

    def patch(self, role: Any, workspace: str | Mapping[str, str], config: Mapping[str, Any]) -> None:
        """Give a role the image that it will have with a workspace in it, without building it.

        Args:
            role: The role; its image becomes the patched one's.
            workspace: Folder, URL, or several folders and where each goes.
            config: Run options.

        Raises:
            ImageOptionError: `image_repo` is not set.
            ImageError: The workspace or the base image cannot be read.
        """
        repository = config.get("image_repo")
        if not repository and not config.get("shared_daemon"):
            named = workspace if isinstance(workspace, str) else ", ".join(workspace)
            raise ImageOptionError(
                f"role {role.name!r}: workspace {named!r} would be patched into image {role.image!r}, and "
                'the option image_repo does not say where to push that. Set it, or pass `--workspace ""` to run the '
                "image as it is"
            )
        plan = images.plan_patch(
            role.image,
            workspace,
            repository or None,
            client=self.docker_client,
            **image_options(config),
        )
        for warning in plan.warnings:
            logger.warning("%s", warning)
        if plan.left_out:
            logger.info("%s", images.describe_left_out(plan))
        self.plans[plan.pod_reference] = plan
        role.image = plan.pod_reference

    def warn_of_unpatched(self, roles: Sequence[Any]) -> None:
        """Warn of roles that run their image as it is beside a role that was given the workspace.

        TorchX patches its argument `workspace` onto the first role only: 0.7.0, and nightly, where the others may have
        workspaces of their own.
        """
        patched = [role.name for role in roles if role.image in self.plans]
        others = [role.name for role in roles if not images.is_patched(role.image)]
        if patched and others:
            logger.warning(
                "the workspace is in the image of %s only; %s: the image is run as it is. Give these roles the patched "
                "image (`torchx-pulumi image push` prints its name)%s",
                ", ".join(f"role {name!r}" for name in patched),
                ", ".join(f"role {name!r}" for name in others),
                ", or a workspace of their own" if compat.ROLE_WORKSPACES else "",
            )

    def expect_dry_run(self, roles: object) -> None:
        """Note whose workspaces this thread asks for next, to name their images only."""
        self._dry_run.roles = roles

    def build(self, roles: Sequence[Any], config: Mapping[str, Any]) -> None:
        """Build and push the images that roles were given here, unless a dry run asked for them.

        `Runner.build_workspace` and `Scheduler.submit` want images that are there: they may be used elsewhere.

        Raises:
            ImageError: An image cannot be built or pushed.
        """
        if roles is getattr(self._dry_run, "roles", None):
            return
        needed = {role.image: self.plans[role.image] for role in roles if role.image in self.plans}
        self.make({image: plan.target for image, plan in needed.items()}, needed, config)

    def make(
        self,
        images_to_push: Mapping[str, tuple[str, str]],
        plans: Mapping[str, ImagePlan],
        config: Mapping[str, Any],
        named: Sequence[str] = (),
    ) -> Mapping[str, str]:
        """Build and push what a request needs and its registry does not have.

        Args:
            images_to_push: Image to repository and tag, as the request has them.
            plans: Reference to plan, as the request has them.
            config: Run options; unless they say `quiet`, every line of a build is told.
            named: Images of the roles. One that has a name as made here, and is not to be pushed, must be in its
                registry: an app that was patched in another process came without its request.

        Returns:
            Image reference to its digest.

        Raises:
            ImageError: An image cannot be built or pushed; or nothing says what it is built from.
        """
        repository = config.get("image_repo")
        given = [
            each for each in named if each not in images_to_push and repository and images.is_patched(each, repository)
        ]
        if not images_to_push and not given:
            return {}
        for warning in images.refuse_unplanned(given):
            logger.warning("%s", warning)
        quiet = bool(config.get("quiet"))
        progress = logger.debug if quiet else logger.info
        known = {**self.plans, **plans}
        planned = {name: known[name] for name in images_to_push if name in known}
        for name, plan in planned.items():
            if tuple(images_to_push[name]) != plan.target:
                raise ImageError(
                    f"image {name!r}: images_to_push sends it to {':'.join(images_to_push[name])!r}, and it is built "
                    f"under its own name only; leave {':'.join(plan.target)!r}, or set image_repo"
                )
        others = {name: target for name, target in images_to_push.items() if name not in known}
        client = {} if self.docker_client is None else {"client": self.docker_client}
        digests: dict[str, str] = {}
        if planned:
            digests.update(images.build_plans(list(planned.values()), progress, every_line=not quiet, **client))
        if others:
            digests.update(images.push_local(others, progress, **client))
        return digests
