"""Plans patched images: reads workspace and base, computes name and digest, and chooses the builder.

Nothing is built or pushed.
"""

from __future__ import annotations

import contextlib
import json
import posixpath
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final, NamedTuple

from typing_extensions import Unpack

from torchx_pulumi.images import dockerfile as dockerfiles
from torchx_pulumi.images.bases import DigestSource, resolve, uses_role_image
from torchx_pulumi.images.content.files import GeneratedFile
from torchx_pulumi.images.content.hashing import files_address, hash_files, image_address
from torchx_pulumi.images.content.ignore import IGNORE_FILE, TORCHX_DOCKERFILE
from torchx_pulumi.images.content.tree import Tree, read_tree
from torchx_pulumi.images.layers import UnsupportedError, compose, read_base, unsupported
from torchx_pulumi.images.oci import LayeredImage
from torchx_pulumi.images.plan import Builder, ImagePlan, shown_left_out
from torchx_pulumi.images.platforms import Platform
from torchx_pulumi.images.reference import Reference, parse_reference, parse_repository
from torchx_pulumi.images.registry import RegistryClient
from torchx_pulumi.model.errors import ImageError
from torchx_pulumi.model.image_options import PatchKeywords, PatchOptions
from torchx_pulumi.model.options import other_word, rows_of

REQUESTS_AT_ONCE: Final = 8


def plan_patch(
    base: str,
    workspace: str | Mapping[str, str],
    repository: str | None,
    *,
    client: Any = None,
    registry: RegistryClient | None = None,
    **options: Unpack[PatchKeywords],
) -> ImagePlan:
    """Return the plan of a patched image. Nothing is built or pushed. The registry of the base image is asked.

    Args:
        base: Image to patch. With `@sha256:...` its registry is not asked for the digest.
        workspace: Folder, or URL that fsspec opens; or a mapping of folders, URLs and files to their places in the
            image's folder, for example `{"~/train": "", "~/shared": "shared"}`.
        repository: Repository to push to, without a tag. None: the image stays on this machine's daemon.
        client: docker-py client that is asked for a base image that no registry has. None: created on demand.
        registry: Client for registries. None: created on demand.
        options: Those of `PatchOptions`: `dockerfile`, `build_args`, `labels`, `platform`, `ignore_rules`, `builder`.
            None is unset.

    Returns:
        The plan. Its `reference` is the image's name, which is the same for the same content on every machine, and its
        `pod_reference` is the name for pods, with the digest if the builder `registry` builds it.

    Raises:
        ImageError: The workspace cannot be read, the Dockerfile or a name is not valid, the base is not found, or the
            builder cannot build the image.
    """
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    chosen = PatchOptions(**given)
    _check_types({"base": base, "image_repo": repository}, workspace, chosen)
    if repository is not None:
        repository = parse_repository(repository).name
    # The address contains the platform, so pull and build must use it too: the daemon may have another one.
    platform = str(Platform.own() if chosen.platform is None else Platform.parse(chosen.platform))
    arguments = _arguments(base, chosen.build_args)
    name = posixpath.normpath(TORCHX_DOCKERFILE if chosen.dockerfile is None else chosen.dockerfile)
    default = dockerfiles.DEFAULT.encode() if chosen.dockerfile is None else None
    tree = read_tree(workspace, ignore_rules=chosen.ignore_rules, dockerfile=name, default=default)
    # Together, because the cache keeps what one call has used of a source.
    hashed = hash_files([*tree.entries, *tree.sent_only])
    entries, sent_only = hashed[: len(tree.entries)], hashed[len(tree.entries) :]
    text, is_default = _dockerfile(tree, name)
    registry = registry or RegistryClient()
    bases = [resolve(image, registry, client) for image in dockerfiles.images_of(text, arguments, name)]
    plan = ImagePlan(
        base=base,
        repository=repository,
        address="",
        workspace_address=files_address(entries),
        bases=bases,
        dockerfile=name,
        text=text,
        is_default=is_default,
        build_args=arguments,
        labels=dict(chosen.labels),
        platform=platform,
        warnings=[*tree.warnings, *_unread_rules(tree, name)],
        left_out=tree.left_out,
        entries=entries,
        sent_only=sent_only,
    )
    plan = replace(plan, address=_address(plan, with_role_image=dockerfiles.uses_role_image(text)))
    return choose_builder(plan, registry, chosen.builder)


def _address(plan: ImagePlan, *, with_role_image: bool) -> str:
    """Return the content address. The digest of the base stands for the name of the role's image.

    Args:
        plan: The plan with all inputs.
        with_role_image: That name itself gets into the image.
    """
    unseen = dockerfiles.SHOWN_ARGUMENTS[1:] if with_role_image else dockerfiles.SHOWN_ARGUMENTS
    return image_address(
        bases=[each.digest for each in plan.bases],
        dockerfile=plan.text,
        dockerfile_path=plan.dockerfile,
        build_args={key: value for key, value in plan.build_args.items() if key not in unseen},
        labels=dict(plan.labels),
        platform=plan.platform,
        files=plan.workspace_address,
    )


def _check_types(names: Mapping[str, Any], workspace: Any, chosen: PatchOptions) -> None:
    """Check the types of arguments. Values of mappings are not shown: they may be secret.

    Raises:
        ImageError: Arguments have another type or value. The message lists all of them.
    """
    values = [(row, getattr(chosen, row.name)) for row in rows_of(PatchOptions)]
    text = {**names, **{row.name: value for row, value in values if row.kind is str}}
    problems = [
        f"{name} is of the type {type(value).__name__}, must be a text"
        for name, value in text.items()
        if not isinstance(value, str) and (value is not None or name == "base")
    ]
    problems += [
        f"{row.name} {other_word(value, row.allowed)}"
        for row, value in values
        if row.allowed and isinstance(value, str) and value not in row.allowed
    ]
    if chosen.dockerfile == "":
        problems.append("dockerfile is empty; give its path from the workspace's folder, or leave it out")
    places = workspace if isinstance(workspace, Mapping) else {workspace: ""} if isinstance(workspace, str) else None
    if places is None or not all(isinstance(each, str) for pair in places.items() for each in pair):
        problems.append(f"workspace is {workspace!a}, must be a text, or a mapping of texts to texts")
    for row, value in values:
        if row.kind is str:
            continue
        if not isinstance(value, Mapping):
            problems.append(f"{row.name} is of the type {type(value).__name__}, must be a mapping of texts to texts")
            continue
        for key, each in value.items():
            if not isinstance(key, str) or not key:
                problems.append(f"{row.name}: the name {key!a} must be a text that is not empty")
            elif not isinstance(each, str):
                problems.append(f"{row.name}: {key}: a value must be text; quote it")
    if problems:
        raise ImageError("\n".join(problems))


def _arguments(base: str, given: Mapping[str, str]) -> dict[str, str]:
    ours = sorted(set(given) & set(dockerfiles.SHOWN_ARGUMENTS))
    if ours:
        raise ImageError(
            f"build_args: {', '.join(ours)} is set by torchx-pulumi, to the role's image and to a constant; remove it"
        )
    return {"IMAGE": base, "WORKSPACE": dockerfiles.WORKSPACE, **given}


def _dockerfile(tree: Tree, path: str) -> tuple[str, bool]:
    """Return the text of the Dockerfile, and whether it is the generated one."""
    # The daemon reads it even if the rules exclude it from the image.
    entry = next((each for each in (*tree.sent_only, *tree.entries) if each.path == path), None)
    if entry is None:
        raise ImageError(
            f"dockerfile {path!r}: is not a file of the workspace; give its path from the workspace's folder"
        )
    try:
        with entry.open() as file:
            return file.read().decode("utf-8", "surrogateescape"), isinstance(entry.source, GeneratedFile)
    except OSError as error:
        raise ImageError(
            f"dockerfile {path!r}: cannot be read ({error.strerror or error}); make it a readable file, or name "
            "another one with the option dockerfile"
        ) from error


def _unread_rules(tree: Tree, dockerfile: str) -> list[str]:
    """Return a warning if the workspace has an ignore file for its Dockerfile, which only BuildKit reads."""
    file = f"{dockerfile}{IGNORE_FILE}"
    if not any(entry.path == file for entry in tree.entries):
        return []
    return [f"{file} is not read, and the files that it excludes are sent; write its lines into {IGNORE_FILE}"]


def choose_builder(plan: ImagePlan, registry: RegistryClient, wanted: str) -> ImagePlan:
    """Return the plan with its builder and, if the builder is `registry`, the digest of the image.

    Args:
        plan: The plan with its address.
        registry: Client that is asked for the base, and for the tag.
        wanted: `auto`, `registry` or `docker`.

    Raises:
        ImageError: `registry` is wanted and cannot build the image, the base cannot be used, or files changed.
    """
    if wanted == Builder.DOCKER.value:
        return _for_daemon(plan, registry)
    reasons = [] if plan.repository is not None else ["without image_repo, the image exists on the daemon only"]
    local = [each.image for each in plan.bases if each.source is DigestSource.DAEMON]
    if local:
        reasons.append(f"base image {', '.join(local)}: no registry has it, only the daemon")
    reasons += unsupported(plan.text, plan.dockerfile)
    answering: RegistryClient | None = registry
    if not reasons:
        try:
            return _found(_composed(plan, registry), registry)
        except UnsupportedError as error:
            reasons = list(error.reasons)
            plan = replace(plan, warnings=[*plan.warnings, *error.warnings])
        except ImageError as error:
            # The daemon may have the base that the registry does not give now.
            if wanted == Builder.REGISTRY.value or not error.retryable:
                raise
            reasons, answering = [str(error)], None
    if wanted == Builder.REGISTRY.value:
        lines = "".join(f"\n  - {reason}" for reason in reasons)
        raise ImageError(
            f"image {plan.reference}: the builder `registry` cannot build it:{lines}\n"
            "change that, or set the option builder to `docker` or `auto`"
        )
    return replace(_for_daemon(plan, answering), why_docker="; ".join(reasons))


def _for_daemon(plan: ImagePlan, registry: RegistryClient | None) -> ImagePlan:
    """Return the plan with an address that covers the ONBUILD instructions of its bases, which only the daemon runs.

    Args:
        plan: The plan.
        registry: Client for the registries of the bases. None: they do not answer.
    """
    bases = []
    for base in plan.bases:
        # The daemon reads the base as well, and refuses what was not known here.
        with contextlib.suppress(ImageError):
            if base.uses_role_image is None and registry is not None:
                config = read_base(registry, base, plan.platform).config.get("config")
                base = replace(base, uses_role_image=uses_role_image(config))
        bases.append(base)
    if any(base.uses_role_image for base in bases):
        plan = replace(plan, address=_address(plan, with_role_image=True))
    return replace(plan, bases=bases)


def _composed(plan: ImagePlan, registry: RegistryClient) -> ImagePlan:
    """Return the plan with the layers of the image and its computed digest.

    Raises:
        UnsupportedError: The image needs the daemon, by its base or by its files.
        ImageError: The base cannot be read or used, or files of the workspace changed.
    """
    layered = compose(
        read_base(registry, plan.bases[0], plan.platform) if plan.bases else None,
        text=plan.text,
        where=plan.dockerfile,
        build_args=plan.build_args,
        labels=plan.all_labels,
        platform=plan.platform,
        entries=plan.entries,
    )
    return replace(plan, builder=Builder.REGISTRY, digest=layered.manifest.digest, layered=layered)


class Place(NamedTuple):
    """The place of a composed image in a registry."""

    target: Reference
    """Its name in the registry."""
    found: str | None
    """Digest that the registry has under that name, if any."""
    other: str | None
    """Another digest, which the tag of the content has. None: it has none, or that of the image."""


def place_of(plan: ImagePlan, registry: RegistryClient) -> Place:
    """Return where an image with a computed digest is pushed: under its tag, unless that has another digest.

    A tag is believed only if its digest is the computed one. Another builder may have pushed it, and its pods name the
    tag, so it stays as it is; the image then gets a tag of its own.

    Raises:
        ImageError: The registry does not answer.
    """
    target = parse_reference(plan.reference)
    found = registry.digest(target)
    if found is None or found == plan.digest:
        return Place(target, found, None)
    target = replace(target, tag=plan.own_tag)
    return Place(target, registry.digest(target), found)


def _found(plan: ImagePlan, registry: RegistryClient) -> ImagePlan:
    """Return the plan with the image's state in the registry."""
    # A registry that does not answer now is asked again before the image is pushed, which reports the error.
    with contextlib.suppress(ImageError):
        place = place_of(plan, registry)
        if place.found == plan.digest:
            plan = replace(plan, found_at=time.time())
        if place.other is not None:
            warning = (
                f"image {plan.reference}: the registry has {place.other} under this tag, and the workspace makes "
                f"{plan.digest}: another builder pushed the tag, or it was overwritten. Pods name {plan.digest}"
            )
            plan = replace(plan, warnings=[*plan.warnings, warning])
    return plan


def report_plan(plan: ImagePlan, registry: RegistryClient) -> dict[str, Any]:
    """Return the known properties of a planned image before it is built, as `image plan --json` prints them.

    Args:
        plan: Result of `plan_patch`.
        registry: Client for the registry, which is asked for the image and its layers.

    Returns:
        Plain values. `digest`: the computed one, else the one that the registry has under the tag; None: not known
        before the build. `is_pushed`: the registry has the image; None: it does not answer. `upload_bytes`: bytes of
        the layers, the configuration and the manifest that the registry lacks, without layers of a base that it has in
        another repository; None: not known. `layers`: in order, each with `digest`, `size` (bytes, compressed), `new`
        (it has files of the workspace, and the image is not pushed) and `known` (the repository has it); None: the
        daemon builds the image, or the registry does not answer.
    """
    found: dict[str, Any] = {"digest": plan.digest, "is_pushed": None, "upload_bytes": None, "layers": None}
    warnings = list(plan.warnings)
    try:
        if plan.layered is None:
            digest = registry.digest(parse_reference(plan.reference))
            found |= {"digest": digest, "is_pushed": digest is not None, "upload_bytes": 0 if digest else None}
        else:
            found |= _layers(plan, plan.layered, registry)
    except ImageError as error:
        warnings.append(f"what the registry has is not known: {error}")
    return {
        "reference": plan.pod_reference,
        "tag_reference": plan.reference,
        "digest": found["digest"],
        "is_pushed": found["is_pushed"],
        "builder": plan.builder.value,
        "why_docker": plan.why_docker or None,
        "base": plan.base,
        "bases": [{"image": base.image, "digest": base.digest, "source": base.source.value} for base in plan.bases],
        "dockerfile": None if plan.is_default else plan.dockerfile,
        "platform": plan.platform,
        "upload_bytes": found["upload_bytes"],
        "layers": found["layers"],
        "left_out": shown_left_out(plan),
        "warnings": warnings,
    }


def _layers(plan: ImagePlan, image: LayeredImage, registry: RegistryClient) -> dict[str, Any]:
    target = parse_reference(plan.reference)
    is_pushed = plan.found_at is not None or place_of(plan, registry).found == plan.digest
    new = {blob.digest: blob.size for blob in image.new_blobs}
    sizes = {**{layer.digest: layer.size for layer in image.base_layers}, **new}
    if is_pushed:
        known = dict.fromkeys(sizes, True)
    else:
        with ThreadPoolExecutor(REQUESTS_AT_ONCE) as pool:
            known = dict(zip(sizes, pool.map(lambda digest: registry.has_blob(target, digest), sizes), strict=True))
    is_mounted = image.base is not None and image.base.registry == target.registry
    # Layers with addresses of their own are in no registry.
    copied = {} if is_mounted else {layer.digest: layer.size for layer in image.base_layers if not layer.urls}
    missing = sum(size for digest, size in {**copied, **new}.items() if not known[digest])
    config = json.loads(image.manifest.content)["config"]["digest"]
    return {
        "is_pushed": is_pushed,
        "upload_bytes": 0 if is_pushed else len(image.manifest.content) + missing,
        "layers": [
            {"digest": each, "size": sizes[each], "new": each in new and not is_pushed, "known": known[each]}
            for each in (*(layer.digest for layer in image.base_layers), *new)
            if each != config
        ],
    }
