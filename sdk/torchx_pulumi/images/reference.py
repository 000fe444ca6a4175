"""Names of images and repositories, their parts, and what a name says of an image. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from torchx_pulumi.model.errors import ImageError, ImageOptionError
from torchx_pulumi.model.job_spec import JobSpec

DOCKER_HUB: Final = "docker.io"
"""The registry of a name without one."""
DIGEST: Final = r"sha256:[0-9a-f]{64}"
"""Expression of a digest."""
LOCAL_REPOSITORY: Final = "torchx-pulumi-local"
"""Repository of images that exist on this machine's daemon only."""
_PREFIX: Final = "patched-"
"""Begin of the tags of patched images."""
_TAG_DIGITS: Final = 40
_PATCHED: Final = re.compile(rf"([^@]+:{_PREFIX}[0-9a-f]{{{_TAG_DIGITS}}})(?:@({DIGEST}))?")
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


def patched_tag(address: str) -> str:
    """Return the tag of a patched image: `patched-` and the first 40 digits of its content address."""
    return _PREFIX + address[:_TAG_DIGITS]


def is_patched(image: str, repository: str = "") -> bool:
    """Return whether an image is named as a patched one, in a repository if one is given."""
    return image.startswith(f"{repository}:" if repository else "") and _PATCHED.fullmatch(image) is not None


def split_patched(image: str) -> tuple[str, str | None]:
    """Return the name of an image and its digest apart, if it is named as a patched one.

    The tag of a patched image identifies its content, so the digest after it is not a part of a run's identity. The
    digest of any other image is, and stays in the name.

    >>> split_patched("r/app:1@sha256:" + "0" * 64)[1], split_patched("r/app:patched-" + "0" * 40)[1]
    (None, None)
    """
    found = _PATCHED.fullmatch(image)
    return (found[1], found[2]) if found else (image, None)


def with_digests_apart(spec: JobSpec) -> JobSpec:
    """Return a job whose patched images have their digests apart: a digest is no part of the job's identity."""
    apart = [(role, *split_patched(role.image)) for role in spec.roles]
    roles = [replace(role, image=image, image_digest=digest) if digest else role for role, image, digest in apart]
    return replace(spec, roles=roles)


def plan_push(image: str, repository: str | None) -> tuple[str, str]:
    """Return the repository and the tag to which an image of the daemon is pushed, as TorchX names them.

    Args:
        image: Id of the image, `sha256:...`.
        repository: The option `image_repo`.

    Raises:
        ImageOptionError: There is no repository.
        ImageError: The repository is not valid, or the image is not an id.
    """
    if not repository:
        raise ImageOptionError(
            f"must specify the image repository via `image_repo` config to be able to upload local image {image}"
        )
    if not is_local_id(image):
        raise ImageError(f"image {image!r}: is not an id of an image on the daemon (sha256: and 64 hex digits)")
    return parse_repository(repository).name, image.removeprefix("sha256:")


def refuse_local_only(images: Sequence[str], *, shared_daemon: bool) -> None:
    """Refuse images that exist on this machine's daemon only.

    Args:
        images: References of the job's images.
        shared_daemon: The nodes of the cluster use this machine's daemon, so that they have these images.

    Raises:
        ImageOptionError: There are such images.
    """
    local = [image for image in images if image.startswith(f"{LOCAL_REPOSITORY}:") or is_local_id(image)]
    if local and not shared_daemon:
        raise ImageOptionError(
            f"{', '.join(dict.fromkeys(local))}: only this machine's daemon has it, and the cluster would not find it; "
            'set image_repo to a repository that both reach, run without a workspace (`--workspace ""`), or set '
            "shared_daemon where the cluster's nodes use this daemon"
        )


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
