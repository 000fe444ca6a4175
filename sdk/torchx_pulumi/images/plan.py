"""The plan of a patched image: its reference and all that it is made of, known before any daemon is asked."""

from __future__ import annotations

import platform as machine
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from torchx_pulumi.images import dockerfile as dockerfiles
from torchx_pulumi.images.bases import Base, Registry, resolve
from torchx_pulumi.images.content.address import files_address, image_address
from torchx_pulumi.images.content.hashing import hash_files
from torchx_pulumi.images.content.ignore import IGNORE_FILE, TORCHX_DOCKERFILE
from torchx_pulumi.images.content.tree import Entry, Tree, read_first_tree, read_tree, shown_path
from torchx_pulumi.images.reference import parse_repository
from torchx_pulumi.model.errors import ImageError
from torchx_pulumi.model.text import listed

LOCAL_REPOSITORY: Final = "torchx-pulumi-local"
"""Repository of images that are on this machine's daemon only."""
CONTENT_LABEL: Final = "torchx-pulumi/content"
"""Label of an image: its whole content address."""
WORKSPACE_LABEL: Final = "torchx-pulumi/workspace"
"""Label of an image: address of the workspace's files alone."""
VERSION_LABEL: Final = "torchx-pulumi/version"
"""Label of an image: release of this package that built it."""
TORCHX_VERSION_LABEL: Final = "torchx.pytorch.org/version"
"""Label that TorchX gives to the images that it builds: its own release."""
_TAG_DIGITS: Final = 40
_MOST_NAMED: Final = 8
"""Files and folders that a line about what is left out names."""
_PROCESSORS: Final = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ImagePlan:
    """An image to be, and where it will be found."""

    base: str
    """The image that is patched, as it was written."""
    repository: str | None
    """Where it is pushed. None: it stays on this machine's daemon."""
    address: str
    """64 hex digits: the content address."""
    workspace_address: str
    """64 hex digits of the workspace's files alone."""
    bases: Sequence[Base]
    """The images that the build takes from outside. Empty: it begins from scratch."""
    dockerfile: str
    """Path of the Dockerfile in the context."""
    platform: str
    """What bases are pulled and the image is built for, for example `linux/arm64`."""
    build_args: Mapping[str, str] = field(default_factory=dict, repr=False)
    """All of them, with their values."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """The user's own labels."""
    warnings: Sequence[str] = ()
    """What the user should know."""
    left_out: Sequence[str] = ()
    """Files and folders of the workspace that are left out by default, for example `.git`."""
    has_rules: bool = False
    """The workspace has rules of its own, which release 0.1.0 may have read otherwise."""
    is_recorded: bool = False
    """A run that release 0.1.0 recorded has this image, which is never built again."""
    entries: Sequence[Entry] = field(default=(), repr=False)
    """What the image's files come from."""
    sent_only: Sequence[Entry] = field(default=(), repr=False)
    """Files that are sent for the daemon to read and that do not come into the image."""
    hashes: Mapping[str, str] = field(default_factory=dict, repr=False)
    """SHA-256 of every file that is sent, by its path."""
    extra: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """Files that are made here: the default Dockerfile."""

    @property
    def tag(self) -> str:
        """Return the tag: the first 40 digits of the address."""
        return self.address[:_TAG_DIGITS]

    @property
    def reference(self) -> str:
        """Return the image's name, which pods use and which is the same on every machine."""
        return ":".join(self.target)

    @property
    def target(self) -> tuple[str, str]:
        """Return the repository and the tag, as TorchX parts an image's name."""
        return self.repository or LOCAL_REPOSITORY, self.tag

    @property
    def local_only(self) -> bool:
        """Say whether only pods on this machine's daemon can see the image."""
        return self.repository is None


def make_plan(
    base: str,
    workspace: str | Mapping[str, str],
    repository: str | None,
    *,
    registry: Registry,
    dockerfile: str | None = None,
    build_args: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    platform: str | None = None,
    ignore_rules: str = "docker",
    client: Any = None,
) -> ImagePlan:
    """Plan an image; `torchx_pulumi.images.plan_patch` describes the arguments."""
    if repository is not None:
        repository = parse_repository(repository).name
    arguments = _arguments(base, build_args or {})
    name = posixpath.normpath(dockerfile or TORCHX_DOCKERFILE)
    tree = read_tree(workspace, ignore_rules=ignore_rules, dockerfile=name)
    sent = [*tree.sent_only, *tree.entries]
    hashes = hash_files(sent)
    text = _dockerfile(tree, name, required=dockerfile is not None)
    used = dockerfiles.images_of(text or dockerfiles.DEFAULT, arguments, name)
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
        # The address names it, so that pull and build must be told, too: a daemon may be of another platform.
        platform=platform or _own_platform(),
        warnings=[*tree.warnings, *_unread_rules(tree, name)],
        left_out=tree.left_out,
        has_rules=tree.has_rules,
        entries=tree.entries,
        sent_only=tree.sent_only,
        hashes=hashes,
        extra={} if text else {name: dockerfiles.DEFAULT.encode()},
    )
    return replace(plan, address=_address(plan, text or dockerfiles.DEFAULT, files))


def first_plan(
    plan: ImagePlan, workspace: str | Mapping[str, str], *, ignore_rules: str = "docker"
) -> ImagePlan | None:
    """Return a plan with the tag that release 0.1.0 gave to the same workspace, base and arguments.

    That release knew nothing of what is left out by default, and read some patterns otherwise.

    Args:
        plan: The plan of this release.
        workspace: What it was made of.
        ignore_rules: As it was made.

    Returns:
        A plan that names the image and cannot build it. None: the tag is the same.

    Raises:
        ImageError: The workspace cannot be read.
    """
    if not plan.left_out and not plan.has_rules:
        return None
    tree = read_first_tree(workspace, ignore_rules=ignore_rules, dockerfile=plan.dockerfile)
    if tree is None:
        return None
    files = files_address(tree.entries, hash_files([*tree.sent_only, *tree.entries]))
    if files == plan.workspace_address:
        return None
    text = _dockerfile(tree, plan.dockerfile, required=False)
    address = _address(plan, text or dockerfiles.DEFAULT, files)
    return replace(plan, address=address, workspace_address=files, entries=(), sent_only=(), is_recorded=True)


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


def describe_left_out(plan: ImagePlan) -> str:
    """Return a line about what is left out by default."""
    paths = [shown_path(each) for each in plan.left_out]
    names = [path if path.isprintable() else repr(path) for path in paths]
    kept = f"a line `!{names[0]}` in .dockerignore keeps it"
    return f"image {plan.reference}: left out by default: {listed(names, _MOST_NAMED)} ({kept})"


def image_labels(plan: ImagePlan, version: str, torchx_version: str | None) -> dict[str, str]:
    """Return the labels that the image is built with. None of them has a value of a build argument.

    Args:
        plan: Of the image.
        version: Release of this package.
        torchx_version: Release of TorchX. None: it is not installed.
    """
    own = {CONTENT_LABEL: plan.address, WORKSPACE_LABEL: plan.workspace_address, VERSION_LABEL: version}
    if torchx_version:
        own[TORCHX_VERSION_LABEL] = torchx_version
    return {**plan.labels, **own}


def _arguments(base: str, given: Mapping[str, str]) -> dict[str, str]:
    ours = sorted(set(given) & set(dockerfiles.SHOWN_ARGUMENTS))
    if ours:
        raise ImageError(
            f"build_args: {', '.join(ours)} is set here, to the role's image and to a fixed word; leave it"
        )
    wrong = sorted(name for name, value in given.items() if not isinstance(value, str))
    if wrong:
        raise ImageError(f"build_args: {', '.join(wrong)}: a value must be text; quote it")
    return {"IMAGE": base, "WORKSPACE": dockerfiles.WORKSPACE, **given}


def _dockerfile(tree: Tree, path: str, *, required: bool) -> str | None:
    """Return the workspace's Dockerfile. None: it has none."""
    # Also where the rules keep it out of the image, the daemon reads it.
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
        raise ImageError(f"dockerfile {path!r}: is no file of the workspace; give its path from the workspace's folder")
    return None


def _unread_rules(tree: Tree, dockerfile: str) -> list[str]:
    """Return a warning where the workspace has rules for its Dockerfile alone, as BuildKit reads them."""
    file = f"{dockerfile}{IGNORE_FILE}"
    if not any(entry.path == file for entry in tree.entries):
        return []
    return [f"{file} is not read, and what it would leave out is sent; write its lines into {IGNORE_FILE}"]


def _own_platform() -> str:
    """Return the platform of this machine, as Docker calls it."""
    processor = machine.machine().lower()
    return f"linux/{_PROCESSORS.get(processor, processor)}"
