"""The builder `registry` for schedulers that are not of this package: patched images without a Docker daemon."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from torchx import specs
from torchx.workspace.api import WorkspaceMixin

from torchx_pulumi.model.errors import ImageError
from torchx_pulumi.torchx_adapter import compat
from torchx_pulumi.torchx_adapter.plain_errors import show_plainly
from torchx_pulumi.torchx_adapter.run_opts import workspace_options

logger = logging.getLogger(__name__)

WORKSPACE_TYPE: Final = "workspace_type"
"""Run option that chooses the builder, named as in TorchX nightly."""
DOCKER: Final = "docker"
"""Builder of TorchX, which is the default."""
REGISTRY: Final = "registry"
"""Builder of this package."""
_NOT_OFFERED: Final = ("builder", "shared_daemon")
"""Options of our schedulers that make no sense for a builder without a daemon."""


class RegistryWorkspace(WorkspaceMixin):  # type: ignore[misc]
    """Builds patched images without a Docker daemon and pushes them at once.

    It has no push step: a role's image is in the registry, and its name has the digest, when the build returns. That is
    so in a dry run too, as for TorchX's own builders. One scheduler may have it as its only `WorkspaceMixin`; with
    TorchX nightly's `MultiWorkspaceMixin` it is one of several:

        def __init__(...):
            self.builders = {"docker": DockerWorkspaceMixin(), "registry": RegistryWorkspace()}

        def workspace_builders(self):
            return self.builders
    """

    def workspace_opts(self) -> specs.runopts:
        """Return the run options: those of our schedulers' images that need no daemon."""
        opts = specs.runopts()
        for name, option in workspace_options():
            if name not in _NOT_OFFERED:
                opts.add(name, type_=option.opt_type, help=option.help, default=option.default)
        return opts

    def build_workspace_and_update_role(
        self, role: Any, workspace: str | Mapping[str, str], cfg: Mapping[str, Any]
    ) -> None:
        """Push an image with the workspace in it, unless the registry has it, and make it the role's.

        Raises:
            ImageOptionError: The option `image_repo` is not set.
            ImageError: The image cannot be built without a daemon, or cannot be pushed.
        """
        from torchx_pulumi.torchx_adapter.workspaces import Workspaces

        show_plainly()
        workspaces, config = Workspaces(), {**cfg, "builder": REGISTRY}
        workspaces.patch(role, workspace, config)
        workspaces.build([role], config)
        logger.info("role %s: image %s", role.name, role.image)

    def caching_build_workspace_and_update_role(
        self,
        role: Any,
        cfg: Mapping[str, Any],
        build_cache: dict[object, object],
    ) -> None:
        """Do the same for a role that has its own workspace, which TorchX 0.7.0 does not know.

        Roles with the same image and workspace are planned once.
        """
        workspace = compat.workspace_of(role)
        if workspace is None:
            return
        key = (REGISTRY, role.image, repr(workspace))
        if key not in build_cache:
            self.build_workspace_and_update_role(role, workspace, cfg)
            build_cache[key] = role.image
        role.image = build_cache[key]


class WorkspaceTypes(WorkspaceMixin):  # type: ignore[misc]
    """Adds the builder `registry` to a scheduler of TorchX that builds with Docker; a base class before that one.

    Without `workspace_type=registry` the scheduler does what it does without this class, and its requests have the same
    form. Nightly's `MultiWorkspaceMixin` would change their form, and 0.7.0 does not have it.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._registry_workspace = RegistryWorkspace()

    def workspace_opts(self) -> specs.runopts:
        """Return the options of both builders, and the one that chooses."""
        opts = self._registry_workspace.workspace_opts()
        opts.update(super().workspace_opts())
        opts.add(
            WORKSPACE_TYPE,
            type_=str,
            default=DOCKER,
            help=f"which workspace builder patches the image: one of {DOCKER}, {REGISTRY} (without a Docker daemon)",
        )
        return opts

    def build_workspace_and_update_role(self, role: Any, workspace: Any, cfg: Mapping[str, Any]) -> None:
        """Patch a role's image with the chosen builder."""
        self._builder(cfg).build_workspace_and_update_role(role, workspace, cfg)

    def caching_build_workspace_and_update_role(
        self, role: Any, cfg: Mapping[str, Any], build_cache: dict[object, object]
    ) -> None:
        """Do the same for a role that has its own workspace, which TorchX 0.7.0 does not know."""
        self._builder(cfg).caching_build_workspace_and_update_role(role, cfg, build_cache)

    def _builder(self, cfg: Mapping[str, Any]) -> Any:
        """Return the builder that the options choose.

        Raises:
            ImageError: The builder is unknown.
        """
        name = cfg.get(WORKSPACE_TYPE) or DOCKER
        if name not in (DOCKER, REGISTRY):
            show_plainly()
            raise ImageError(f"run option `{WORKSPACE_TYPE}` is {name!r}, must be one of {DOCKER}, {REGISTRY}")
        return self._registry_workspace if name == REGISTRY else super()
