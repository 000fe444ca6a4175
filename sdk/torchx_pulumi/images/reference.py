"""Names of images and repositories, and their parts. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from torchx_pulumi.model.errors import ImageError

DOCKER_HUB: Final = "docker.io"
"""The registry of a name without one."""
DIGEST: Final = r"sha256:[0-9a-f]{64}"
"""Expression of a digest."""
_HOST: Final = r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9a-fA-F:]+\])(?::[0-9]{1,5})?"
_COMPONENT: Final = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_PATH: Final = re.compile(rf"{_COMPONENT}(?:/{_COMPONENT})*")
_HOST_ONLY: Final = re.compile(_HOST)
_TAG: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The parts of an image's name."""

    registry: str
    """Host of the registry, with its port if it has one."""
    path: str
    """Path of the repository in the registry, for example `library/busybox`."""
    name: str
    """The repository as the user wrote it."""
    tag: str | None = None
    """Tag. None: none was written, which means `latest` unless there is a digest."""
    digest: str | None = None
    """`sha256:...` of a pinned reference. None: it is not pinned."""

    @property
    def version(self) -> str:
        """Return the reference in the registry's API: the digest, else the tag."""
        return self.digest or self.tag or "latest"


def is_local_id(image: str) -> bool:
    """Return whether a name is an image's id on the daemon, as TorchX's patching sets it.

    >>> is_local_id("sha256:" + "0" * 64), is_local_id("busybox:1")
    (True, False)
    """
    return bool(re.fullmatch(DIGEST, image))


def parse_reference(text: str) -> Reference:
    """Parse the name of an image.

    >>> parse_reference("busybox").path
    'library/busybox'
    >>> parse_reference("localhost:5000/team/app:1").registry
    'localhost:5000'

    Raises:
        ImageError: The name is not valid.
    """
    rest, at, digest = text.partition("@")
    if at and not re.fullmatch(DIGEST, digest):
        raise ImageError(f"image {text!r}: after @ is {digest!r}, must be sha256: and 64 hex digits")
    head, slash, last = rest.rpartition("/")
    last, colon, tag = last.partition(":")
    if colon and not _TAG.fullmatch(tag):
        raise ImageError(f"image {text!r}: the tag is {tag!r}, must be letters, digits, `_`, `.` and `-`, up to 128")
    name = f"{head}{slash}{last}"
    registry, path = _split(name)
    _check(name, registry, path, f"image {text!r}")
    return Reference(registry=registry, path=path, name=name, tag=tag if colon else None, digest=digest if at else None)


def parse_repository(text: str) -> Reference:
    """Parse the name of a repository, which has no tag.

    >>> parse_repository("registry.example.com:5000/team/app").path
    'team/app'

    Raises:
        ImageError: The name is not valid, or has a tag or a digest.
    """
    where = f"image_repo {text!r}"
    if not text.strip():
        raise ImageError(f"{where}: is empty; name a repository, for example registry.example.com/team/app")
    last = text.rpartition("/")[2]
    if "@" in text or (":" in last and "/" in text):
        bare = text.partition("@")[0]
        bare = bare.rpartition(":")[0] if ":" in bare.rpartition("/")[2] else bare
        raise ImageError(
            f"{where}: has a tag or a digest, which torchx-pulumi derives from the content; write {bare!r}"
        )
    if ":" in last:
        host, _, port = last.partition(":")
        hint = f"write {host!r}" if not port.isdigit() else f"write {last}/NAME for a registry, or {host!r}"
        raise ImageError(f"{where}: {port!r} is a tag, which torchx-pulumi derives from the content; {hint}")
    if "://" in text:
        raise ImageError(f"{where}: has a scheme; write {text.partition('://')[2]!r}")
    registry, path = _split(text)
    _check(text, registry, path, where)
    return Reference(registry=registry, path=path, name=text)


def _split(name: str) -> tuple[str, str]:
    first, slash, rest = name.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost" or first != first.lower()):
        if first in ("index.docker.io", DOCKER_HUB):
            return DOCKER_HUB, rest if "/" in rest else f"library/{rest}"
        return first, rest
    return DOCKER_HUB, name if slash else f"library/{name}"


def _check(name: str, registry: str, path: str, where: str) -> None:
    if not _HOST_ONLY.fullmatch(registry):
        raise ImageError(f"{where}: {registry!r} is not a host of a registry; write host/path or host:port/path")
    if not _PATH.fullmatch(path):
        hint = f"; did you mean {name.lower()!r}?" if _PATH.fullmatch(path.lower()) else ""
        raise ImageError(
            f"{where}: {path!r} is not a path of a repository, must be lower-case letters and digits, "
            f"with `.`, `_`, `-` inside and `/` between{hint}"
        )
