"""Pulls of base images and pushes of built images."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from torchx_pulumi.images.bases import Base, DigestSource, uses_role_image
from torchx_pulumi.images.building.daemon import (
    Daemon,
    DaemonJson,
    explained,
    is_passing,
    read_events,
    translated_errors,
)
from torchx_pulumi.images.building.progress import Layers, Progress
from torchx_pulumi.images.platforms import Platform
from torchx_pulumi.images.reference import parse_reference
from torchx_pulumi.images.registry.retries import Attempts, Retries, on_wait
from torchx_pulumi.model.errors import ImageError

Result = TypeVar("Result")


def provide(daemon: Daemon, base: Base, platform: str, progress: Progress, retries: Retries) -> None:
    """Pull a base image if the daemon does not have it as planned.

    Raises:
        ImageError: The image cannot be pulled, its name refers to another image now, or its ONBUILD instructions use
            the name of the role's image and the plan does not know it.
    """
    found = daemon.inspect(base.image)
    if _fits(found, base, platform):
        _refuse_uncovered(found, base)
        return
    if base.source is DigestSource.DAEMON:
        if found is not None and not runs_on(found, platform):
            raise ImageError(
                f"base image {base.image!r}: only the daemon has it, for {_platform_of(found)}, and the image must be "
                f"for {platform}; set platform to {_platform_of(found)}, or build the base for {platform}"
            )
        raise ImageError(f"base image {base.image!r}: changed on the daemon since it was planned; run again")
    reference, where = parse_reference(base.image), f"base image {base.image!r}"

    def pull() -> None:
        with translated_errors(where):
            events = daemon.api.pull(reference.name, tag=reference.version, platform=platform, stream=True, decode=True)
            _follow(events, Layers(f"pulling {base.image},"), f"{where}: cannot be pulled", progress)

    progress.say(f"pulling {base.image}")
    _repeated(pull, retries, progress)
    found = daemon.inspect(base.image)
    if not _fits(found, base, platform):
        raise ImageError(
            f"base image {base.image!r}: was {base.digest} when it was planned and is another image "
            "now; run again, or pin it with @sha256:..."
        )
    _refuse_uncovered(found, base)


def _refuse_uncovered(found: DaemonJson | None, base: Base) -> None:
    """Refuse ONBUILD that uses the base's name: one tag would stand for different images."""
    if not base.uses_role_image and uses_role_image((found or {}).get("Config")):
        raise ImageError(
            f"base image {base.image!r}: its ONBUILD instructions use IMAGE, the name of the role's image, which was "
            "not known when the image was planned, so that its tag does not cover that name; name the base by a tag "
            "that its registry has, and run again when the registry answers"
        )


def _fits(found: DaemonJson | None, base: Base, platform: str) -> bool:
    if found is None or not runs_on(found, platform):
        return False
    if base.source is DigestSource.DAEMON:
        return str(found["Id"]) == base.digest
    return any(each.endswith(f"@{base.digest}") for each in found.get("RepoDigests") or [])


def runs_on(found: DaemonJson, platform: str) -> bool:
    """Return whether an image of the daemon is for a platform. An image without a platform is for all of them."""
    has, wanted = _platform_of(found), Platform.parse(platform)
    return has.os in ("", wanted.os) and has.architecture in ("", wanted.architecture)


def _platform_of(found: DaemonJson) -> Platform:
    return Platform.of({"os": found.get("Os"), "architecture": found.get("Architecture")})


def _follow(events: Iterable[DaemonJson], layers: Layers, failed: str, progress: Progress) -> list[DaemonJson]:
    """Read the events of a pull or push and report its progress. Return the results that the daemon sent.

    Raises:
        ImageError: The daemon sent an error. The message begins with `failed`.
    """
    results = []
    for event in read_events(events):
        if "error" in event:
            message = str(event["error"])
            raise ImageError(f"{failed}: {explained(message)}", retryable=is_passing(message))
        layers.take(event)
        if event.get("aux"):
            results.append(event["aux"])
        progress.say_now_and_then(lambda: str(layers))
    return results


def push(daemon: Daemon, image: str, repository: str, tag: str, progress: Progress, retries: Retries) -> str:
    """Tag and push an image. Return its digest. The registry lists the tag only after the whole image is there.

    Raises:
        ImageError: The registry refuses the image, or cannot be reached after several attempts.
    """
    where = f"image {repository}:{tag}"

    def push_once() -> str:
        with translated_errors(where):
            events = daemon.api.push(repository, tag=tag, stream=True, decode=True)
            results = _follow(events, Layers("pushing,"), f"{where}: the push failed", progress)
        digests = [str(result["Digest"]) for result in results if result.get("Digest")]
        if not digests:
            raise ImageError(f"{where}: the push ended before the registry had the whole image", retryable=True)
        return digests[-1]

    with translated_errors(where):
        daemon.api.tag(image, repository, tag=tag, force=True)
    digest = _repeated(push_once, retries, progress)
    progress.say(f"pushed, {digest}")
    return digest


def _repeated(work: Callable[[], Result], retries: Retries, progress: Progress) -> Result:
    """Call a function again after errors that may pass.

    Raises:
        ImageError: The error of the last attempt.
    """
    attempts = Attempts(retries)
    on_wait.set(progress.say)
    while True:
        try:
            return work()
        except ImageError as error:
            attempts.wait(error)
