"""Builds and pushes planned images that their registries lack, each name once, several at the same time."""

from __future__ import annotations

import contextlib
import contextvars
import importlib.metadata
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from typing_extensions import Unpack

from torchx_pulumi.images.bases import connected
from torchx_pulumi.images.building.build import build
from torchx_pulumi.images.building.daemon import Daemon, translated_errors
from torchx_pulumi.images.building.progress import Progress
from torchx_pulumi.images.building.transfer import provide, push, runs_on
from torchx_pulumi.images.content.archive import stream
from torchx_pulumi.images.plan import CONTENT_LABEL, Builder, ImagePlan, describe_left_out
from torchx_pulumi.images.planning import place_of, plan_patch
from torchx_pulumi.images.reference import LOCAL_REPOSITORY, is_patched, parse_reference
from torchx_pulumi.images.registry import RegistryClient, push_image
from torchx_pulumi.images.registry.retries import Retries
from torchx_pulumi.model.errors import ImageError
from torchx_pulumi.model.image_options import PatchKeywords
from torchx_pulumi.model.progress import ProgressCallback

VERSION_LABEL: Final = "torchx-pulumi/version"
"""Label of an image that the daemon built: the release of this package."""
TORCHX_VERSION_LABEL: Final = "torchx.pytorch.org/version"
"""Label that TorchX sets on images that it builds: the release of TorchX."""
FOUND_FOR_S: Final = 60.0
"""Seconds for which an image that its registry had when it was planned is not asked for again."""
AT_ONCE: Final = 4
"""Images that are built or pushed at the same time."""
Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchedImage:
    """An image in its registry or on the daemon."""

    reference: str
    """Name of the image for pods: the tag is its content address; with the digest for the builder `registry`."""
    digest: str
    """Digest of its manifest in the registry. Without a repository: the id of the image on the daemon."""
    built: bool
    """Whether it was built now."""
    pushed: bool
    """Whether it was pushed now."""
    warnings: Sequence[str] = ()
    """Warnings for the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageBuilder:
    """Builds and pushes images."""

    report: ProgressCallback
    """Receives lines of progress, from several threads."""
    registry: RegistryClient = field(default_factory=RegistryClient)
    client: Any = None
    """docker-py client for one image at a time. None: each thread connects when it needs the daemon."""
    every_line: bool = False
    """Report every line of a build. False: its steps, and at most one line per second."""
    retries: Retries = field(default_factory=lambda: Retries(tries=3, first_wait_s=1.0))
    """Attempts of pulls and pushes by the daemon."""

    def build(self, plans: Iterable[ImagePlan]) -> list[PatchedImage]:
        """Build and push missing images, each name of pods once.

        Raises:
            ImageError: Images could not be built or pushed. The message lists all of them.
        """
        distinct = {plan.pod_reference: plan for plan in plans}
        return self._for_each(list(distinct.values()), self._build_and_push)

    def push_local(self, images: Mapping[str, tuple[str, str]]) -> dict[str, str]:
        """Push images of the daemon; see `push_local`."""
        pairs = list(images.items())
        digests = self._for_each(pairs, self._push_local)
        names = [image if is_patched(image, name) else f"{name}:{tag}" for image, (name, tag) in pairs]
        return dict(zip(names, digests, strict=True))

    def _for_each(self, items: Sequence[Item], work: Callable[[Item], Result]) -> list[Result]:
        """Call a function for all items and return its results in order.

        Raises:
            ImageError: All errors in one message.
        """
        results: list[Result] = []
        failures: list[ImageError] = []
        workers = 1 if self.client is not None else AT_ONCE
        with ThreadPoolExecutor(max_workers=workers, thread_name_prefix="image") as pool:
            # Pulumi finds the engine by the caller's context.
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
                f"{len(distinct)} images cannot be built:\n{lines}", retryable=all(each.retryable for each in failures)
            )
        return results

    def _build_and_push(self, plan: ImagePlan) -> PatchedImage:
        progress = Progress(self.report, plan.reference, plan.build_args)
        if plan.builder is Builder.REGISTRY:
            return self._push_layers(plan, progress)
        if plan.repository is not None:
            # The address covers all inputs of a build, whose digest is known after it only.
            there = self.registry.digest(parse_reference(plan.reference))
            if there:
                progress.say("is in the registry already, nothing to build")
                return _patched(plan, there)
        with contextlib.ExitStack() as stack:
            try:
                daemon = stack.enter_context(connected(self.client))
            except ImageError as error:
                why = f"; the builder `registry` cannot build it: {plan.why_docker}" if plan.why_docker else ""
                raise ImageError(f"image {plan.reference}: {error}{why}", retryable=error.retryable) from error
            found = daemon.inspect(plan.reference)
            labels = ((found or {}).get("Config") or {}).get("Labels") or {}
            # A build whose push failed, or a local image. The label tells it from other images of that name.
            done = found is not None and labels.get(CONTENT_LABEL) == plan.address and runs_on(found, plan.platform)
            image_id = str((found or {})["Id"]) if done else self._build(daemon, plan, progress)
            if plan.repository is not None:
                digest = push(daemon, image_id, plan.repository, plan.tag, progress, self.retries)
                return _patched(plan, digest, built=not done, pushed=True)
            if not done:
                with translated_errors(f"image {plan.reference}"):
                    daemon.api.tag(image_id, LOCAL_REPOSITORY, tag=plan.tag, force=True)
            progress.say("is on this machine's daemon only; set image_repo for clusters that do not share it")
            return _patched(plan, image_id, built=not done)

    def _push_layers(self, plan: ImagePlan, progress: Progress) -> PatchedImage:
        """Push an image without a daemon, unless the registry has the planned digest."""
        digest, layered = plan.digest, plan.layered
        if layered is None or digest is None:
            raise ImageError(unplanned(plan.pod_reference))
        is_fresh = plan.found_at is not None and time.time() - plan.found_at < FOUND_FOR_S
        place = None if is_fresh else place_of(plan, self.registry)
        if place is None or place.found == digest:
            progress.say("is in the registry already, nothing to push")
            return _patched(plan, digest)
        stored = push_image(self.registry, layered, place.target, progress=progress.say)
        # Another push of the same content may have moved the tag since.
        if stored != digest and self.registry.digest(replace(place.target, digest=digest)) != digest:
            raise ImageError(
                f"image {plan.reference}: was pushed as {digest} and the registry has {stored}, so that pods "
                "would not find it; the registry changes what is pushed: turn that off, or set the option builder to "
                "`docker`"
            )
        return _patched(plan, digest, built=True, pushed=True)

    def _build(self, daemon: Daemon, plan: ImagePlan, progress: Progress) -> str:
        for base in plan.bases:
            provide(daemon, base, plan.platform, progress, self.retries)
        progress.say(f"building on {plan.base}")
        labels = {**plan.all_labels, VERSION_LABEL: _version("torchx-pulumi") or "unreleased"}
        if torchx := _version("torchx") or _version("torchx-nightly"):
            labels[TORCHX_VERSION_LABEL] = torchx
        image_id = ""
        for is_cached in (True, False):
            image_id = build(
                daemon,
                stream([*plan.sent_only, *plan.entries]),
                dockerfile=plan.dockerfile,
                build_args=plan.build_args,
                labels=labels,
                platform=plan.platform,
                progress=progress,
                every_line=self.every_line,
                cached=is_cached,
            )
            # The daemon's cache ignores the platform of an image `FROM scratch`.
            if plan.bases or runs_on(daemon.inspect(image_id) or {}, plan.platform):
                break
        return image_id

    def _push_local(self, pair: tuple[str, tuple[str, str]]) -> str:
        image, (name, tag) = pair
        reference = f"{name}:{tag}"
        progress = Progress(self.report, reference, {})
        is_ours = is_patched(image, name)
        # A tag of the content never changes its meaning; another tag may.
        if is_ours or image == f"sha256:{tag}":
            there = self.registry.digest(parse_reference(image if is_ours else reference))
            if there:
                progress.say("is in the registry already, nothing to push")
                return there
        if is_ours:
            raise ImageError(unplanned(image))
        with connected(self.client) as daemon:
            if daemon.inspect(image) is None:
                raise ImageError(
                    f"image {image!r}: the Docker daemon does not have it; build it, or name another image"
                )
            return push(daemon, image, name, tag, progress, self.retries)


def unplanned(image: str) -> str:
    """Return the error message for a patched image that no registry has and that has no plan."""
    return (
        f"image {image!r}: no registry has it, and the request has no build plan for it; make the dry run again where "
        "the workspace is, and schedule what it returns"
    )


def known_digests(references: Sequence[str]) -> Mapping[str, str]:
    """Return the digests of the images that their registries have. A registry that does not answer is skipped."""
    found = {}
    with contextlib.closing(RegistryClient(tries=1)) as registry:
        for reference in dict.fromkeys(references):
            # Used by a preview only. The build asks again and reports the error.
            with contextlib.suppress(ImageError):
                digest = registry.digest(parse_reference(reference))
                if digest:
                    found[reference] = digest
    return found


def refuse_unplanned(images: Sequence[str]) -> Sequence[str]:
    """Refuse images that are named as `plan_patch` names them, have no plan here, and are not in their registry.

    Args:
        images: References of such images, without those that are built or pushed now.

    Returns:
        A warning for each image whose registry does not answer. The cluster may still reach it.

    Raises:
        ImageError: A registry does not have one of the images.
    """
    unknown = []
    registry = RegistryClient(tries=1)
    for image in dict.fromkeys(images):
        try:
            found = registry.digest(parse_reference(image))
        except ImageError as error:
            unknown.append(f"image {image}: whether it is in its registry is not known: {error}")
            continue
        if found is None:
            raise ImageError(unplanned(image))
    return unknown


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None  # a checkout on the path, or not installed


def _patched(plan: ImagePlan, digest: str, *, built: bool = False, pushed: bool = False) -> PatchedImage:
    return PatchedImage(
        reference=plan.pod_reference, digest=digest, built=built, pushed=pushed, warnings=tuple(plan.warnings)
    )


def build_plans(
    plans: Sequence[ImagePlan], report: ProgressCallback, *, every_line: bool = False, client: Any = None
) -> Mapping[str, str]:
    """Build and push images that their registries lack. Plans with the same name for pods are built once.

    Args:
        plans: Results of `plan_patch`.
        report: Receives lines of progress, from several threads.
        every_line: Report every line of a build, not only its steps and one line per second.
        client: docker-py client to use, for one image at a time. None: the daemon of Docker's environment.

    Returns:
        Name of the image for pods to digest; without a repository, to the id of the image.

    Raises:
        ImageError: Images could not be built or pushed. The message lists all of them. No incomplete tag remains.
    """
    images = ImageBuilder(report=report, client=client, every_line=every_line).build(plans)
    return {image.reference: image.digest for image in images}


def push_local(
    images: Mapping[str, tuple[str, str]], report: ProgressCallback, *, client: Any = None
) -> Mapping[str, str]:
    """Push images of the daemon that their registries lack.

    Args:
        images: Id on the daemon to repository and tag, as `plan_push` returns them.
        report: Receives lines of progress, from several threads.
        client: docker-py client to use. None: the daemon of Docker's environment.

    Returns:
        Reference to digest.

    Raises:
        ImageError: An image does not exist or cannot be pushed. The message lists all of them.
    """
    return ImageBuilder(report=report, client=client).push_local(images)


def patch_image(
    base: str,
    workspace: str | Mapping[str, str],
    repository: str | None,
    *,
    tell: ProgressCallback | None = None,
    client: Any = None,
    **options: Unpack[PatchKeywords],
) -> PatchedImage:
    """Patch an image with a workspace: build and push it if its registry does not have it.

    The arguments are those of `plan_patch`, next to `tell`, which receives lines of progress. The docker-py client
    `client` also builds; by default, it is that of Docker's environment.

    Returns:
        The reference and the digest of the image, and whether it was built and pushed.

    Raises:
        ImageError: As for `plan_patch` and `build_plans`.
    """
    plan = plan_patch(base, workspace, repository, client=client, **options)
    report = tell or (lambda _line: None)
    for line in (*plan.warnings, *([describe_left_out(plan)] if plan.left_out else [])):
        report(line)
    return ImageBuilder(report=report, client=client).build([plan])[0]
