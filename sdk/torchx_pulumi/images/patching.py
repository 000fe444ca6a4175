"""From plans to images: what the registry lacks is built and pushed, each reference once, several side by side."""

from __future__ import annotations

import contextvars
import importlib.metadata
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from torchx_pulumi.images.bases import Registry
from torchx_pulumi.images.building.bases import provide, runs_on
from torchx_pulumi.images.building.build import build
from torchx_pulumi.images.building.daemon import Daemon, in_our_words
from torchx_pulumi.images.building.progress import Progress
from torchx_pulumi.images.building.push import push
from torchx_pulumi.images.content.archive import stream
from torchx_pulumi.images.plan import CONTENT_LABEL, LOCAL_REPOSITORY, ImagePlan, image_labels
from torchx_pulumi.images.reference import parse_reference
from torchx_pulumi.images.registry.retrying import Backoff
from torchx_pulumi.model.errors import ImageError
from torchx_pulumi.model.progress import ProgressCallback

_PLANNED_TAG: Final = re.compile(r"[0-9a-f]{40}")
AT_ONCE: Final = 4
"""Images that are built or pushed side by side."""
Item = TypeVar("Item")
Made = TypeVar("Made")


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchedImage:
    """An image that is where it belongs."""

    reference: str
    """Its name; the tag is its content address."""
    digest: str
    """Digest of its manifest in the registry; without a repository the image's id on the daemon."""
    built: bool
    """Whether it was built now."""
    pushed: bool
    """Whether it was pushed now."""
    warnings: Sequence[str] = ()
    """What the user should know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageBuilder:
    """What images are made with."""

    registry: Registry
    tell: ProgressCallback
    client: Any = None
    """docker-py client to use. None: each thread connects when it needs the daemon."""
    every_line: bool = False
    """Whether every line of a build is told. False: its steps, and a line now and then."""
    backoff: Backoff = field(default_factory=lambda: Backoff(tries=3, first_s=1.0))

    def make(self, plans: Iterable[ImagePlan]) -> list[PatchedImage]:
        """Make what is missing; each reference once.

        Raises:
            ImageError: Some could not be made; all of them in one message.
        """
        distinct = {plan.reference: plan for plan in plans}
        return side_by_side(list(distinct.values()), self._make, 1 if self.client is not None else AT_ONCE)

    def push_local(self, images: Mapping[str, tuple[str, str]]) -> dict[str, str]:
        """Push images that are on the daemon; `torchx_pulumi.images.push_local` describes it."""
        pairs = list(images.items())
        digests = side_by_side(pairs, self._push_local, 1 if self.client is not None else AT_ONCE)
        return {f"{name}:{tag}": digest for (_, (name, tag)), digest in zip(pairs, digests, strict=True)}

    def _make(self, plan: ImagePlan) -> PatchedImage:
        progress = Progress(self.tell, plan.reference, plan.build_args)
        if plan.repository is not None:
            there = self.registry.digest(parse_reference(plan.reference))
            if there:
                progress.say("is in the registry already, nothing to build")
                return _patched(plan, there)
        with _connected(self.client) as daemon:
            found = daemon.inspect(plan.reference)
            labels = ((found or {}).get("Config") or {}).get("Labels") or {}
            # It was built and its push broke off, or it stays local; anybody could have given its name to another.
            done = found is not None and labels.get(CONTENT_LABEL) == plan.address and runs_on(found, plan.platform)
            image_id = str((found or {})["Id"]) if done else self._build(daemon, plan, progress)
            if plan.repository is None:
                return self._keep(daemon, plan, image_id, progress, built=not done)
            digest = push(daemon, image_id, plan.repository, plan.tag, progress, self.backoff)
            return _patched(plan, digest, built=not done, pushed=True)

    def _build(self, daemon: Daemon, plan: ImagePlan, progress: Progress) -> str:
        for base in plan.bases:
            provide(daemon, base, plan.platform, progress, self.backoff)
        progress.say(f"building on {plan.base}")
        image_id = self._build_once(daemon, plan, progress, cached=True)
        if not plan.bases and not runs_on(daemon.inspect(image_id) or {}, plan.platform):
            # The daemon's cache knows no platform of what begins from scratch.
            return self._build_once(daemon, plan, progress, cached=False)
        return image_id

    def _build_once(self, daemon: Daemon, plan: ImagePlan, progress: Progress, *, cached: bool) -> str:
        return build(
            daemon,
            stream([*plan.sent_only, *plan.entries], plan.hashes, plan.extra),
            dockerfile=plan.dockerfile,
            build_args=plan.build_args,
            labels=image_labels(plan, _version("torchx-pulumi") or "unreleased", _torchx_version()),
            platform=plan.platform,
            progress=progress,
            every_line=self.every_line,
            cached=cached,
        )

    def _keep(self, daemon: Daemon, plan: ImagePlan, image_id: str, progress: Progress, *, built: bool) -> PatchedImage:
        if built:
            with in_our_words(f"image {plan.reference}"):
                daemon.api.tag(image_id, LOCAL_REPOSITORY, tag=plan.tag, force=True)
        progress.say("is on this machine's daemon only; set image_repo for clusters that do not share it")
        return _patched(plan, image_id, built=built)

    def _push_local(self, pair: tuple[str, tuple[str, str]]) -> str:
        image, (name, tag) = pair
        reference = f"{name}:{tag}"
        progress = Progress(self.tell, reference, {})
        is_planned = image == reference and _PLANNED_TAG.fullmatch(tag) is not None
        # Such tags are made of the content; what another one stands for may have changed.
        if (is_planned and name != LOCAL_REPOSITORY) or image == f"sha256:{tag}":
            there = self.registry.digest(parse_reference(reference))
            if there and not (is_planned and self._is_own(image)):
                progress.say("is in the registry already, nothing to push")
                return there
        if is_planned and not self._is_own(image):
            raise ImageError(unplanned(image))
        with _connected(self.client) as daemon:
            if daemon.inspect(image) is None:
                raise ImageError(
                    f"image {image!r}: the Docker daemon does not have it; build it, or name another image"
                )
            return push(daemon, image, name, tag, progress, self.backoff)

    def _is_own(self, image: str) -> bool:
        """Return whether the daemon has an image that we did not build under a tag of our form, as of a commit."""
        try:
            with _connected(self.client) as daemon:
                found = daemon.inspect(image)
        except ImageError:
            return False  # without a daemon there is nothing that could be pushed
        return found is not None and CONTENT_LABEL not in ((found.get("Config") or {}).get("Labels") or {})


class _connected:  # noqa: N801  reads as what it is
    """A daemon for one image: the caller's own, or one that is closed in the end."""

    def __init__(self, client: Any) -> None:
        self._given = client is not None
        self._daemon = Daemon(client) if self._given else Daemon.connect()

    def __enter__(self) -> Daemon:
        return self._daemon

    def __exit__(self, *_: object) -> None:
        if not self._given:
            self._daemon.close()


def is_planned_name(image: str, repository: str) -> bool:
    """Return whether an image has the name of a patched one; an image that is tagged with a commit has such a name."""
    return image.startswith(f"{repository}:") and bool(_PLANNED_TAG.fullmatch(image[len(repository) + 1 :]))


def unplanned(image: str) -> str:
    """Return what is said of a patched image that is in no registry and comes without its plan."""
    return (
        f"image {image!r}: no registry has it, and the request has no build plan for it; make the dry run again where "
        "the workspace is, and schedule what it returns"
    )


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None  # a checkout on the path, or not there at all


def _torchx_version() -> str | None:
    return _version("torchx") or _version("torchx-nightly")


def _patched(plan: ImagePlan, digest: str, *, built: bool = False, pushed: bool = False) -> PatchedImage:
    return PatchedImage(
        reference=plan.reference, digest=digest, built=built, pushed=pushed, warnings=tuple(plan.warnings)
    )


def side_by_side(items: Sequence[Item], work: Callable[[Item], Made], at_once: int) -> list[Made]:
    """Do the same with several things, and report all failures at once.

    Raises:
        ImageError: Of the only failure, or of all of them together.
    """
    if not items:
        return []
    results: list[Made] = []
    failures: list[ImageError] = []
    with ThreadPoolExecutor(max_workers=min(at_once, len(items)), thread_name_prefix="image") as pool:
        # The caller's context goes along: Pulumi finds the engine by it.
        for future in [pool.submit(contextvars.copy_context().run, work, item) for item in items]:
            try:
                results.append(future.result())
            except ImageError as error:
                failures.append(error)
    distinct = list(dict.fromkeys(str(failure) for failure in failures))
    if len(distinct) == 1:
        raise failures[0]
    if failures:
        lines = "\n".join(f"- {text}" for text in distinct)
        raise ImageError(
            f"{len(distinct)} images cannot be made:\n{lines}", retryable=all(each.retryable for each in failures)
        )
    return results
