"""Gets the images that a build takes from outside onto the daemon: those only, and just what the plan has seen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from torchx_pulumi.images.bases import Base, Origin
from torchx_pulumi.images.building.daemon import Daemon, explained, in_our_words, is_passing, read_events
from torchx_pulumi.images.building.progress import Layers, Progress, patiently
from torchx_pulumi.images.reference import parse_reference
from torchx_pulumi.images.registry.retrying import Backoff
from torchx_pulumi.model.errors import ImageError

_SYSTEMS: Final = ("linux", "windows", "darwin", "freebsd")
"""What a platform of one word may be, else it is a processor."""
_PROCESSORS: Final = {"x86_64": "amd64", "x86-64": "amd64", "aarch64": "arm64"}
"""Names that Docker takes for those that it uses."""


def provide(daemon: Daemon, base: Base, platform: str, progress: Progress, backoff: Backoff) -> None:
    """See that the daemon has an image under its name as the plan has seen it; pull it otherwise.

    Raises:
        ImageError: It cannot be pulled, or the name stands for something else by now.
    """
    found = daemon.inspect(base.image)
    if _fits(found, base, platform):
        return
    if base.origin is Origin.DAEMON:
        if found is not None and not runs_on(found, platform):
            raise ImageError(
                f"base image {base.image!r}: only the daemon has it, for {_platform_of(found)}, and the image is to be "
                f"for {platform}; set platform to {_platform_of(found)}, or build the base for {platform}"
            )
        raise ImageError(f"base image {base.image!r}: is no longer what the plan saw on the daemon; run again")
    progress.say(f"pulling {base.image}")
    patiently(lambda: _pull(daemon, base, platform, progress), backoff, progress)
    if not _fits(daemon.inspect(base.image), base, platform):
        raise ImageError(
            f"base image {base.image!r}: stood for {base.digest} when the reference was made and stands for something "
            "else now; run again, or pin it with @sha256:..."
        )


def _fits(found: Mapping[str, Any] | None, base: Base, platform: str) -> bool:
    if found is None:
        return False
    if not runs_on(found, platform):
        return False
    if base.origin is Origin.DAEMON:
        return str(found["Id"]) == base.digest
    return any(each.endswith(f"@{base.digest}") for each in found.get("RepoDigests") or [])


def runs_on(found: Mapping[str, Any], platform: str) -> bool:
    """Return whether an image of the daemon is for a platform."""
    # An image that says nothing of it runs anywhere as far as the daemon knows.
    wanted = platform.lower().split("/")
    if len(wanted) == 1 and wanted[0] not in _SYSTEMS:
        wanted = ["linux", *wanted]
    wanted = [_PROCESSORS.get(each, each) for each in wanted]
    return all(not has or has == want for has, want in zip(_parts(found), wanted, strict=False))


def _platform_of(found: Mapping[str, Any]) -> str:
    return "/".join(_parts(found))


def _parts(found: Mapping[str, Any]) -> tuple[str, str]:
    return str(found.get("Os") or ""), str(found.get("Architecture") or "")


def _pull(daemon: Daemon, base: Base, platform: str, progress: Progress) -> None:
    reference = parse_reference(base.image)
    layers = Layers(f"pulling {base.image},")
    with in_our_words(f"base image {base.image!r}"):
        events = daemon.api.pull(reference.name, tag=reference.version, platform=platform, stream=True, decode=True)
        for event in read_events(events):
            if "error" in event:
                said = str(event["error"])
                text = f"base image {base.image!r}: cannot be pulled: {explained(said)}"
                raise ImageError(text, retryable=is_passing(said))
            layers.take(event)
            progress.say_now_and_then(lambda: str(layers))
