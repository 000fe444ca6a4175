"""The Docker daemon, with docker-py's low-level client; its errors are translated to `ImageError`."""

from __future__ import annotations

import contextlib
import os
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from torchx_pulumi.images.registry import import_docker
from torchx_pulumi.model.errors import ImageError

TIMEOUT_S: Final = 600
"""Timeout between two reads of a response. A build has no limit."""

DEFAULT_SOCKET: Final = "/var/run/docker.sock"
"""Socket of the daemon where DOCKER_HOST and the context name none."""


DaemonJson = Mapping[str, Any]
"""A JSON object that the daemon sent: an event, or the description of an image."""


class Daemon:
    """One connection to the daemon. Threads must not share it."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.api = getattr(client, "api", client)
        """The low-level client."""

    @classmethod
    def connect(cls) -> Daemon:
        """Connect to the daemon of DOCKER_HOST, of the docker command's context, or of this machine.

        Raises:
            ImageError: The daemon cannot be reached, or the `docker` package is missing.
        """
        docker = import_docker()
        try:
            # Releases of docker-py before 7.2 do not support contexts.
            of_context: Callable[[], DaemonJson] = getattr(docker.ContextAPI, "kwargs_from_context", dict)
            host = os.environ.get("DOCKER_HOST") or str(of_context().get("base_url") or "unix://")
            if host.startswith("unix://"):
                _check_socket(host.removeprefix("unix://") or DEFAULT_SOCKET)
            return cls(docker.from_env(timeout=TIMEOUT_S))
        except docker.errors.DockerException as error:
            raise ImageError(_unreachable(error), retryable=True) from error

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def inspect(self, image: str) -> DaemonJson | None:
        """Return the daemon's description of an image, or None if the daemon does not have it."""
        from docker.errors import ImageNotFound, NotFound

        with translated_errors(f"image {image!r}"):
            try:
                found: DaemonJson = self.api.inspect_image(image)
            except (ImageNotFound, NotFound):
                return None
            return found


@contextlib.contextmanager
def translated_errors(where: str) -> Iterator[None]:
    """Translate errors of docker-py and of its connection.

    Raises:
        ImageError: Instead of the original error.
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


def read_events(events: Iterable[DaemonJson]) -> Iterator[DaemonJson]:
    """Yield the events of an operation, an error last. Reading them to the end closes the connection."""
    failed = None
    for event in events:
        if failed is None and "error" in event:
            failed = event
        elif failed is None:
            yield event
    if failed is not None:
        yield failed


def explained(text: object) -> str:
    """Return a message of the daemon with the next step for the user."""
    message = str(text).strip().rstrip(".")
    low = message.lower()
    if "no space left" in low:
        return f"{message}; the disk is full: `docker system prune` frees what the daemon does not need, then run again"
    if "unauthorized" in low or "authentication required" in low or "denied" in low or "no basic auth" in low:
        return f"{message}; run `docker login` for this registry with an account that may use the repository"
    if "connection refused" in low or "no such host" in low or "i/o timeout" in low:
        return f"{message}; check that the registry runs and that the daemon may reach it, then run again"
    if "http response to https client" in low:
        return f"{message}; name the registry under insecure-registries in the daemon's configuration"
    return message


def is_passing(text: str) -> bool:
    """Return whether the error of a push or pull may be temporary."""
    low = text.lower()
    signs = ("eof", "connection reset", "timeout", "toomanyrequests", "429", "500", "502", "503", "504", "broken pipe")
    return any(sign in low for sign in signs)


def _check_socket(path: str) -> None:
    """Raise an error if nothing listens on a socket. That of docker-py is long, and it leaves a socket open."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except OSError as error:
            absent = isinstance(error, FileNotFoundError)
            reason = f"there is no {path}" if absent else f"{path}: {error.strerror or error}"
            raise ImageError(_unreachable(reason), retryable=True) from error


def _unreachable(error: object) -> str:
    # docker-py wraps the system's message several times.
    found = re.search(r"(?:Error|error)\(-?\d+, '([^']+)'", str(error))
    reason = found[1] if found else str(error).rstrip(".")
    return f"the Docker daemon cannot be reached ({reason}); start it, or name it in DOCKER_HOST, then run again"
