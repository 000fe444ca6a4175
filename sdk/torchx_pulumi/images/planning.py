"""Plans patched images: reads workspace and base, computes the name of the image, and chooses its builder.

Nothing is built or pushed.
"""

from __future__ import annotations

import contextlib
import platform as machine
import posixpath
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from torchx_pulumi.images import dockerfile as dockerfiles
from torchx_pulumi.images.bases import DigestSource, resolve
from torchx_pulumi.images.content.hashing import files_address, hash_files, image_address
from torchx_pulumi.images.content.ignore import IGNORE_FILE, TORCHX_DOCKERFILE
from torchx_pulumi.images.content.tree import Tree, read_tree
from torchx_pulumi.images.layers import BaseImage, UnsupportedError, compose, copied_files, read_base, unsupported
from torchx_pulumi.images.plan import BUILDERS, Builder, ImagePlan, content_labels
from torchx_pulumi.images.reference import parse_reference, parse_repository
from torchx_pulumi.images.registry import RegistryClient
from torchx_pulumi.model.errors import ImageError

_PLATFORM: Final = re.compile(r"[A-Za-z0-9]+/[A-Za-z0-9_]+(/[A-Za-z0-9_.]+)?")
_PROCESSORS: Final = {"x86_64": "amd64", "aarch64": "arm64"}


def plan_patch(
    base: str,
    workspace: str | Mapping[str, str],
    repository: str | None,
    *,
    dockerfile: str | None = None,
    build_args: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    platform: str | None = None,
    ignore_rules: str = "docker",
    builder: str = "auto",
    client: Any = None,
    registry: RegistryClient | None = None,
) -> ImagePlan:
    """Return the plan of a patched image. Nothing is built or pushed. The registry of the base image is asked.

    Args:
        base: Image to patch. With `@sha256:...` its registry is not asked.
        workspace: Folder, or URL that fsspec opens; or a mapping of folders, URLs and files to their places in the
            image's folder, for example `{"~/train": "", "~/shared": "shared"}`.
        repository: Repository to push to, without a tag. None: the image stays on this machine's daemon.
        dockerfile: Path in the workspace. None: `Dockerfile.torchx`, or a default that copies the workspace into the
            base's working directory.
        build_args: Arguments for the Dockerfile, next to IMAGE (the base) and WORKSPACE (a constant). The tag contains
            only a hash of their values.
        labels: Labels of the image, in addition to those of this package.
        platform: For example `linux/arm64`. None: the platform of this machine.
        ignore_rules: Rules of `.dockerignore`: `docker`, or `torchx` for the simpler rules of TorchX's patching.
        builder: `registry` pushes layers without a daemon, `docker` uses the Docker daemon, `auto` uses the daemon only
            for images that `registry` cannot build. The tag is the same.
        client: docker-py client that is asked for a base image that no registry has. None: created on demand.
        registry: Client for registries. None: created on demand.

    Returns:
        The plan. Its `reference` is the image's name, which is the same for the same content on every machine, and its
        `pod_reference` is the name for pods, with the digest if the builder `registry` builds it.

    Raises:
        ImageError: The workspace cannot be read, the Dockerfile or a name is not valid, the base is not found, or the
            builder cannot build the image.
    """
    _check_types(
        text={"base": base, "image_repo": repository, "dockerfile": dockerfile, "platform": platform},
        mappings={"build_args": build_args, "labels": labels},
        workspace=workspace,
    )
    if builder not in BUILDERS:
        raise ImageError(f"builder {builder!r}: must be one of {', '.join(BUILDERS)}")
    if platform is not None and not _PLATFORM.fullmatch(platform):
        raise ImageError(f"platform is {platform!a}, must be OS/ARCHITECTURE, for example linux/arm64")
    if repository is not None:
        repository = parse_repository(repository).name
    arguments = _arguments(base, build_args or {})
    name = posixpath.normpath(dockerfile or TORCHX_DOCKERFILE)
    tree = read_tree(workspace, ignore_rules=ignore_rules, dockerfile=name)
    sent = [*tree.sent_only, *tree.entries]
    hashes = hash_files(sent)
    text = _dockerfile(tree, name, required=dockerfile is not None)
    used = dockerfiles.images_of(text or dockerfiles.DEFAULT, arguments, name)
    registry = registry or RegistryClient()
    bases = [resolve(image, registry, client) for image in used]
    files = files_address(tree.entries, hashes)
    plan = ImagePlan(
        base=base,
        repository=repository,
        address="",
        workspace_address=files,
        bases=bases,
        dockerfile=name,
        build_args=arguments,
        labels=dict(labels or {}),
        # The address contains the platform, so pull and build must use it too: the daemon may have another one.
        platform=platform or _own_platform(),
        warnings=[*tree.warnings, *_unread_rules(tree, name)],
        left_out=tree.left_out,
        entries=tree.entries,
        sent_only=tree.sent_only,
        hashes=hashes,
        extra={} if text else {name: dockerfiles.DEFAULT.encode()},
    )
    text = text or dockerfiles.DEFAULT
    plan = replace(plan, address=_address(plan, text, files))
    return choose_builder(plan, text, registry, builder)


def _address(plan: ImagePlan, dockerfile: str, files: str) -> str:
    return image_address(
        bases=[each.digest for each in plan.bases],
        dockerfile=dockerfile,
        dockerfile_path=plan.dockerfile,
        build_args={key: value for key, value in plan.build_args.items() if key not in dockerfiles.SHOWN_ARGUMENTS},
        labels=dict(plan.labels),
        platform=plan.platform,
        files=files,
    )


def _check_types(*, text: Mapping[str, Any], mappings: Mapping[str, Any], workspace: Any) -> None:
    """Check what the types of arguments promise. Their values are not shown: they may be secret.

    Raises:
        ImageError: Arguments have another type. The message lists all of them.
    """
    problems = [
        f"{name} is of the type {type(value).__name__}, must be a text"
        for name, value in text.items()
        if not isinstance(value, str) and (value is not None or name == "base")
    ]
    places = workspace if isinstance(workspace, Mapping) else {workspace: ""} if isinstance(workspace, str) else None
    if places is None or not all(isinstance(each, str) for pair in places.items() for each in pair):
        problems.append(f"workspace is {workspace!a}, must be a text, or a mapping of texts to texts")
    for name, value in mappings.items():
        if value is not None and not isinstance(value, Mapping):
            problems.append(f"{name} is of the type {type(value).__name__}, must be a mapping of texts to texts")
            continue
        for key, each in (value or {}).items():
            if not isinstance(key, str) or not key:
                problems.append(f"{name}: the name {key!a} must be a text that is not empty")
            elif not isinstance(each, str):
                problems.append(f"{name}: {key}: a value must be text; quote it")
    if problems:
        raise ImageError("\n".join(problems))


def _arguments(base: str, given: Mapping[str, str]) -> dict[str, str]:
    ours = sorted(set(given) & set(dockerfiles.SHOWN_ARGUMENTS))
    if ours:
        raise ImageError(
            f"build_args: {', '.join(ours)} is set by torchx-pulumi, to the role's image and to a constant; remove it"
        )
    return {"IMAGE": base, "WORKSPACE": dockerfiles.WORKSPACE, **given}


def _dockerfile(tree: Tree, path: str, *, required: bool) -> str | None:
    """Return the text of the workspace's Dockerfile. None: it has no Dockerfile."""
    # The daemon reads it even if the rules exclude it from the image.
    for entry in (*tree.sent_only, *tree.entries):
        if entry.path == path:
            try:
                with entry.source.open(entry.found.path) as file:
                    return file.read().decode("utf-8", "surrogateescape")
            except OSError as error:
                raise ImageError(
                    f"dockerfile {path!r}: cannot be read ({error.strerror or error}); make it a readable file, "
                    "or name another one with the option dockerfile"
                ) from error
    if required:
        raise ImageError(
            f"dockerfile {path!r}: is not a file of the workspace; give its path from the workspace's folder"
        )
    return None


def _unread_rules(tree: Tree, dockerfile: str) -> list[str]:
    """Return a warning if the workspace has an ignore file for its Dockerfile, which only BuildKit reads."""
    file = f"{dockerfile}{IGNORE_FILE}"
    if not any(entry.path == file for entry in tree.entries):
        return []
    return [f"{file} is not read, and the files that it excludes are sent; write its lines into {IGNORE_FILE}"]


def _own_platform() -> str:
    """Return the platform of this machine in Docker's notation."""
    processor = machine.machine().lower()
    return f"linux/{_PROCESSORS.get(processor, processor)}"


def choose_builder(plan: ImagePlan, text: str, registry: RegistryClient, wanted: str) -> ImagePlan:
    """Return the plan with its builder and, if the builder is `registry`, the digest of the image.

    Args:
        plan: The plan with its address.
        text: Text of the Dockerfile.
        registry: Client that is asked for the tag, and for the base if the tag does not exist.
        wanted: `auto`, `registry` or `docker`.

    Raises:
        ImageError: `registry` is wanted and cannot build the image, the base cannot be used, or files changed.
    """
    if wanted == Builder.DOCKER.value:
        return plan
    reasons = _reasons(plan, text)
    if not reasons:
        digest = _pushed_digest(plan, registry)
        if digest is not None:
            return replace(plan, builder=Builder.REGISTRY, digest=digest, found_at=time.time())
        try:
            return compose_image(plan, text, registry)
        except UnsupportedError as error:
            reasons = list(error.reasons)
        except ImageError as error:
            # The daemon may have the base that the registry does not give now.
            if wanted == Builder.REGISTRY.value or not error.retryable:
                raise
            reasons = [str(error)]
    if wanted == Builder.REGISTRY.value:
        lines = "".join(f"\n  - {reason}" for reason in reasons)
        raise ImageError(
            f"image {plan.reference}: the builder `registry` cannot build it:{lines}\n"
            "change that, or set the option builder to `docker` or `auto`"
        )
    return replace(plan, why_docker="; ".join(reasons))


def compose_image(plan: ImagePlan, text: str, registry: RegistryClient) -> ImagePlan:
    """Return the plan with the layers of the image and its computed digest.

    Raises:
        UnsupportedError: The image needs the daemon, by its base or by its files.
        ImageError: The base cannot be read or used, or files of the workspace changed.
    """
    base: BaseImage | None = read_base(registry, plan.bases[0], plan.platform) if plan.bases else None
    entries, extra = copied_files(plan.entries, plan.sent_only, plan.extra, plan.dockerfile)
    layered = compose(
        base,
        text=text,
        where=plan.dockerfile,
        build_args=plan.build_args,
        labels=content_labels(plan),
        platform=plan.platform,
        entries=entries,
        extra=extra,
        hashes=plan.hashes,
    )
    return replace(plan, builder=Builder.REGISTRY, digest=layered.manifest.digest, layered=layered)


def _reasons(plan: ImagePlan, text: str) -> Sequence[str]:
    """Return why the daemon is needed, as far as the Dockerfile and the names of the images say."""
    reasons = [] if plan.repository is not None else ["without image_repo, the image exists on the daemon only"]
    local = [each.image for each in plan.bases if each.source is DigestSource.DAEMON]
    if local:
        reasons.append(f"base image {', '.join(local)}: no registry has it, only the daemon")
    return [*reasons, *unsupported(text, plan.dockerfile)]


def _pushed_digest(plan: ImagePlan, registry: RegistryClient) -> str | None:
    # A registry that does not answer now is asked again before the image is pushed, which reports the error.
    with contextlib.suppress(ImageError):
        return registry.digest(parse_reference(plan.reference))
    return None
