"""Docker's daemon over docker-py's low-level client: what it has, what it pulls, and its errors in our words."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from torchx_pulumi.images.registry.credentials import import_docker
from torchx_pulumi.model.errors import ImageError

TIMEOUT_S: Final = 600
"""Seconds that the daemon may be silent; a build step and a push have no limit."""


DEFAULT_HOST: Final = "unix:///var/run/docker.sock"
"""Where the daemon is when DOCKER_HOST does not say."""


class Daemon:
    """One connection; not shared between threads."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.api = getattr(client, "api", client)
        """The low-level client."""

    @classmethod
    def connect(cls) -> Daemon:
        """Connect to the daemon that DOCKER_HOST names, else the docker command's context, else to this machine's.

        Raises:
            ImageError: It cannot be reached, or the `docker` package is absent.
        """
        docker = import_docker()
        try:
            host = _host(docker)
            if host.startswith("unix://") and not Path(host.removeprefix("unix://")).exists():
                # docker-py would say so at length, and leave a socket open.
                raise ImageError(_unreachable(f"there is no {host.removeprefix('unix://')}"), retryable=True)
            return cls(docker.from_env(timeout=TIMEOUT_S))
        except docker.errors.DockerException as error:
            raise ImageError(_unreachable(error), retryable=True) from error

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def inspect(self, image: str) -> Mapping[str, Any] | None:
        """Return what the daemon knows of an image. None: it does not have it."""
        from docker.errors import ImageNotFound, NotFound

        with in_our_words(f"image {image!r}"):
            try:
                found: Mapping[str, Any] = self.api.inspect_image(image)
            except (ImageNotFound, NotFound):
                return None
            return found


def _host(docker: Any) -> str:
    """Return the address that docker-py will use."""
    given = os.environ.get("DOCKER_HOST")
    if given:
        return given
    # Releases before 7.2 know no contexts.
    of_context: Callable[[], Mapping[str, Any]] | None = getattr(docker.ContextAPI, "kwargs_from_context", None)
    return str((of_context() if of_context else {}).get("base_url") or DEFAULT_HOST)


@contextlib.contextmanager
def in_our_words(where: str) -> Iterator[None]:
    """Turn errors of docker-py and of its connection into ours.

    Raises:
        ImageError: In place of what was raised.
    """
    import requests
    from docker.errors import APIError, DockerException

    try:
        yield
    except APIError as error:
        raise ImageError(f"{where}: the Docker daemon refuses: {explained(error.explanation or error)}") from error
    except DockerException as error:
        raise ImageError(f"{where}: Docker fails: {error}") from error
    except (requests.RequestException, ConnectionError, TimeoutError) as error:
        raise ImageError(f"{where}: {_unreachable(error)}", retryable=True) from error


def read_events(events: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield what the daemon says of some work, an error last: a connection that is not read to its end stays open."""
    failed = None
    for event in events:
        if failed is None and "error" in event:
            failed = event
        elif failed is None:
            yield event
    if failed is not None:
        yield failed


def explained(text: object) -> str:
    """Add to what the daemon says what to do about it."""
    said = str(text).strip().rstrip(".")
    low = said.lower()
    if "no space left" in low:
        return f"{said}; the disk is full: `docker system prune` frees what the daemon does not need, then run again"
    if "unauthorized" in low or "authentication required" in low or "denied" in low or "no basic auth" in low:
        return f"{said}; run `docker login` for this registry with an account that may use the repository"
    if "connection refused" in low or "no such host" in low or "i/o timeout" in low:
        return f"{said}; see that the registry runs and that the daemon may reach it, then run again"
    if "http response to https client" in low:
        return f"{said}; name the registry under insecure-registries in the daemon's configuration"
    return said


def is_passing(text: str) -> bool:
    """Say whether what a push said may be gone at the next try."""
    low = text.lower()
    signs = ("eof", "connection reset", "timeout", "toomanyrequests", "429", "500", "502", "503", "504", "broken pipe")
    return any(sign in low for sign in signs)


def _unreachable(error: object) -> str:
    # docker-py wraps the reason several times.
    found = re.search(r"(?:Error|error)\(-?\d+, '([^']+)'", str(error))
    reason = found[1] if found else str(error).rstrip(".")
    return f"the Docker daemon cannot be reached ({reason}); start it, or name it in DOCKER_HOST, then run again"
