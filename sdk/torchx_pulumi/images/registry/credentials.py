"""Credentials of registries, as Docker resolves them, else those of the pod's service account."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass, field
from typing import Any, Final

from torchx_pulumi.images.content.hashing import in_home
from torchx_pulumi.images.reference import DOCKER_HUB
from torchx_pulumi.model.errors import ImageError

_OTHER_TYPES: Final = (AttributeError, TypeError)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryLogin:
    """Credentials for a registry."""

    user: str | None = None
    password: str | None = field(default=None, repr=False)
    identity_token: str | None = field(default=None, repr=False)
    """Exchanged for an access token, instead of user and password."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundLogin:
    """The result of a search for credentials."""

    login: RegistryLogin | None
    """None: there are no credentials."""
    note: str = ""
    """Why credentials of the pod could not be read, for the error after a refusal. Empty: no problem."""


def login_of(registry: str) -> RegistryLogin | None:
    """Return the credentials in Docker's configuration or its credential helper, if there are any.

    Raises:
        ImageError: The configuration cannot be read, a credential helper fails, or it has credentials and the `docker`
            package is missing.
    """
    if not _has_credentials():
        return None
    auth = import_docker().auth
    from docker.errors import DockerException

    # docker-py reads the hub's own key of the file for None.
    key = None if registry == DOCKER_HUB else registry
    try:
        config = auth.load_config()
        helper = config.get_credential_store(key)
        if helper and shutil.which(f"docker-credential-{helper}") is None:
            # docker-py would only warn, and fail later with a less clear message.
            raise FileNotFoundError(f"docker-credential-{helper} is not on PATH")
        found = config.resolve_authconfig(key)
        entry = {str(name).lower(): value for name, value in found.items()} if found else {}
        user, password, token = (entry.get(name) for name in ("username", "password", "identitytoken"))
        if not all(isinstance(each or "", str) for each in (user, password, token)):
            raise TypeError("user, password and token must be texts")
    # docker-py expects what Docker writes, and no other types.
    except (DockerException, OSError, ValueError, LookupError, *_OTHER_TYPES, subprocess.SubprocessError) as error:
        raise ImageError(
            f"credentials of registry {registry}: Docker's configuration or its credential helper failed: {error}; "
            f"see DOCKER_CONFIG or ~/.docker/config.json, then `docker login {registry}`"
        ) from error
    return RegistryLogin(user=user, password=password, identity_token=token) if found else None


def _has_credentials() -> bool:
    """Return whether Docker's configuration has any credentials, so that docker-py has to read them."""
    folder = in_home(os.environ.get("DOCKER_CONFIG") or "~/.docker")
    file = folder / "config.json"
    if not file.is_file():
        return in_home("~/.dockercfg").is_file()
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return True  # docker-py reports it
    known = ("auths", "credHelpers", "credsStore")
    if not isinstance(content, dict) or any(content.get(name) for name in known):
        return True
    # A file of the old format has registries only.
    return any(isinstance(value, dict) and "auth" in value for value in content.values())


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
