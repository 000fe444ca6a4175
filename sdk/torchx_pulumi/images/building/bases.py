"""Gets the images that a build takes from outside onto the daemon: those only, and just what the plan has seen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchx_pulumi.errors import ImageError
from torchx_pulumi.images.bases import Base, Origin
from torchx_pulumi.images.building.daemon import Daemon, explained, in_our_words, is_passing
from torchx_pulumi.images.building.progress import Layers, Progress, patiently
from torchx_pulumi.images.reference import parse_reference
from torchx_pulumi.images.registry.retrying import Backoff


def provide(daemon: Daemon, base: Base, platform: str | None, progress: Progress, backoff: Backoff) -> None:
    """See that the daemon has an image under its name as the plan has seen it; pull it otherwise.

    Raises:
        ImageError: It cannot be pulled, or the name stands for something else by now.
    """
    if _fits(daemon.inspect(base.image), base, platform):
        return
    if base.origin is Origin.DAEMON:
        raise ImageError(f"base image {base.image!r}: is no longer what the plan saw on the daemon; run again")
    progress.say(f"pulling {base.image}")
    patiently(lambda: _pull(daemon, base, platform, progress), backoff, progress)
    if not _fits(daemon.inspect(base.image), base, platform):
        raise ImageError(
            f"base image {base.image!r}: stood for {base.digest} when the reference was made and stands for something "
            "else now; run again, or pin it with @sha256:..."
        )


def _fits(found: Mapping[str, Any] | None, base: Base, platform: str | None) -> bool:
    if found is None:
        return False
    if platform and not _runs_on(found, platform):
        return False
    if base.origin is Origin.DAEMON:
        return str(found["Id"]) == base.digest
    return any(each.endswith(f"@{base.digest}") for each in found.get("RepoDigests") or [])


def _runs_on(found: Mapping[str, Any], platform: str) -> bool:
    system, _, rest = platform.partition("/")
    return found.get("Os") == system and found.get("Architecture") == rest.partition("/")[0]


def _pull(daemon: Daemon, base: Base, platform: str | None, progress: Progress) -> None:
    reference = parse_reference(base.image)
    layers = Layers(f"pulling {base.image},")
    with in_our_words(f"base image {base.image!r}"):
        events = daemon.api.pull(reference.name, tag=reference.version, platform=platform, stream=True, decode=True)
        for event in events:
            if "error" in event:
                said = str(event["error"])
                text = f"base image {base.image!r}: cannot be pulled: {explained(said)}"
                raise ImageError(text, retryable=is_passing(said))
            layers.take(event)
            progress.say_now_and_then(lambda: str(layers))
