"""Patched images: planned in the dry run, without a daemon, and built and pushed when the app is scheduled."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torchx_pulumi.driver import Tell
from torchx_pulumi.errors import ImageOptionError

logger = logging.getLogger(__name__)


_PLANS: dict[str, Any] = {}
"""Reference to plan, of all schedulers of this process: an app that was patched for one may be launched by another."""


@dataclass(slots=True, kw_only=True)
class Workspaces:
    """The images that were planned in this process, by their references."""

    docker_client: Any = None
    """A docker-py client of the caller's. None: made when it is needed."""
    _plans: dict[str, Any] = field(default_factory=lambda: _PLANS)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def patch(self, role: Any, workspace: str | Mapping[str, str], config: Mapping[str, Any]) -> None:
        """Give a role the image that it will have with a workspace in it. Nothing is built or pushed.

        Args:
            role: The role; its image becomes the patched one's.
            workspace: Folder, URL, or several folders and where each goes.
            config: Run options.

        Raises:
            ImageOptionError: There is no `image_repo` to push it to.
            ImageError: The workspace or the base image cannot be read.
        """
        from torchx_pulumi import images

        repository = config.get("image_repo")
        if not repository and not config.get("shared_daemon"):
            raise ImageOptionError(
                f"role {role.name!r}: workspace {_named(workspace)} would be patched into image {role.image!r}, and "
                'the option image_repo does not say where to push that. Set it, or pass `--workspace ""` to run the '
                "image as it is"
            )
        plan = images.plan_patch(
            role.image,
            workspace,
            repository or None,
            dockerfile=config.get("dockerfile"),
            build_args=config.get("build_args"),
            platform=config.get("platform"),
            ignore_rules=config.get("ignore_rules") or "docker",
            **({} if self.docker_client is None else {"client": self.docker_client}),
        )
        for warning in plan.warnings:
            logger.warning("%s", warning)
        if plan.left_out:
            logger.info("%s", images.describe_left_out(plan))
        with self._guard:
            self._plans[plan.reference] = plan
        role.image = plan.reference

    def patched(self) -> Mapping[str, tuple[str, str]]:
        """Return the planned images and their repositories and tags."""
        with self._guard:
            names = list(self._plans)
        return {name: _parted(name) for name in names}

    def make(self, images_to_push: Mapping[str, tuple[str, str]], tell: Tell) -> Mapping[str, str]:
        """Build and push what a request needs and its registry does not have.

        Args:
            images_to_push: Image to repository and tag, as the request has them.
            tell: Takes progress.

        Returns:
            Image reference to its digest.

        Raises:
            ImageError: An image cannot be built or pushed.
        """
        if not images_to_push:
            return {}
        from torchx_pulumi import images

        with self._guard:
            plans = [self._plans[name] for name in images_to_push if name in self._plans]
        local = {name: target for name, target in images_to_push.items() if images.is_local_id(name)}
        client = {} if self.docker_client is None else {"client": self.docker_client}
        digests: dict[str, str] = {}
        if plans:
            digests.update(images.build_plans(plans, tell, **client))
        if local:
            digests.update(images.push_local(local, tell, **client))
        return digests


def _parted(reference: str) -> tuple[str, str]:
    repository, _, tag = reference.rpartition(":")
    return repository, tag


def _named(workspace: str | Mapping[str, str]) -> str:
    return repr(workspace if isinstance(workspace, str) else ", ".join(workspace))
