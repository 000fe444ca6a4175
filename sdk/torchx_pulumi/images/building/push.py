"""Pushes images that the daemon has. A registry shows a tag only when all of the image is there."""

from __future__ import annotations

from torchx_pulumi.images.building.daemon import Daemon, explained, in_our_words, is_passing, read_events
from torchx_pulumi.images.building.progress import Layers, Progress, patiently
from torchx_pulumi.images.registry.retrying import Backoff
from torchx_pulumi.model.errors import ImageError


def push(daemon: Daemon, image: str, repository: str, tag: str, progress: Progress, backoff: Backoff) -> str:
    """Give an image its name and push it; return its digest.

    Raises:
        ImageError: The registry refuses, or cannot be reached after several tries.
    """
    with in_our_words(f"image {repository}:{tag}"):
        daemon.api.tag(image, repository, tag=tag, force=True)
    return patiently(lambda: _push(daemon, repository, tag, progress), backoff, progress)


def _push(daemon: Daemon, repository: str, tag: str, progress: Progress) -> str:
    layers, digest = Layers("pushing,"), ""
    where = f"image {repository}:{tag}"
    with in_our_words(where):
        for event in read_events(daemon.api.push(repository, tag=tag, stream=True, decode=True)):
            if "error" in event:
                said = str(event["error"])
                raise ImageError(f"{where}: the push failed: {explained(said)}", retryable=is_passing(said))
            layers.take(event)
            digest = (event.get("aux") or {}).get("Digest") or digest
            progress.say_now_and_then(lambda: str(layers))
    if not digest:
        raise ImageError(f"{where}: the push broke off before the registry had all of it", retryable=True)
    progress.say(f"pushed, {digest}")
    return digest
