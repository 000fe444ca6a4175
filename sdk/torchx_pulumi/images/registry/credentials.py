"""Credentials as Docker has them: its configuration file and its credential helpers. Nothing of ours is stored."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass, field
from typing import Any

from torchx_pulumi.images.reference import DOCKER_HUB
from torchx_pulumi.model.errors import ImageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """What a registry is told."""

    user: str | None = None
    password: str | None = field(default=None, repr=False)
    identity_token: str | None = field(default=None, repr=False)
    """Exchanged for an access token, in place of user and password."""


def credentials_for(registry: str) -> Credentials | None:
    """Return what Docker's configuration has for a registry. None: nothing; it is asked without.

    Raises:
        ImageError: The configuration cannot be read, a credential helper fails, or the `docker` package is absent.
    """
    auth = import_docker().auth
    from docker.errors import DockerException

    try:
        config = auth.load_config()
        helper = config.get_credential_store(None if registry == DOCKER_HUB else registry)
        if helper and shutil.which(f"docker-credential-{helper}") is None:
            # docker-py would only warn, and then fail in words of its own.
            raise FileNotFoundError(f"docker-credential-{helper} is not on PATH")
        # The hub has its own key in the file, which docker-py knows under the empty name.
        found = config.resolve_authconfig(None if registry == DOCKER_HUB else registry)
    except (DockerException, OSError, ValueError, subprocess.SubprocessError) as error:
        raise ImageError(
            f"credentials of registry {registry}: Docker's configuration or its credential helper failed: {error}; "
            f"see DOCKER_CONFIG or ~/.docker/config.json, then `docker login {registry}`"
        ) from error
    if not found:
        return None
    read = {str(key).lower(): value for key, value in found.items()}
    return Credentials(
        user=read.get("username"), password=read.get("password"), identity_token=read.get("identitytoken")
    )


def import_docker() -> Any:
    """Import docker-py.

    Raises:
        ImageError: It is not installed.
    """
    try:
        import docker
        import docker.auth
    except ImportError as error:
        raise ImageError(
            f"patching an image needs the docker package, which cannot be imported ({error}); "
            "install `torchx-pulumi[docker]`, or give an image that needs no patching and no workspace"
        ) from error
    return docker
