"""The images of a repository that no stack references: which of them may be deleted.

Everything that a stack knows is in the text of its checkpoint: objects, outputs, the AppDef of an app, the record of a
run. An image counts as referenced if its tag, its digest, or the digest of its name in a record is a word of that text.
An image that is only in a value that Pulumi encrypted is not seen, unless a record has it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from torchx_pulumi.images.oci import Descriptor
from torchx_pulumi.images.plan import CONTENT_LABEL
from torchx_pulumi.images.reference import DOCKER_HUB, Reference, parse_reference, parse_repository
from torchx_pulumi.images.registry import RegistryClient
from torchx_pulumi.model.app_entry import write_entry
from torchx_pulumi.model.errors import DeployError, ImageError
from torchx_pulumi.model.progress import ProgressCallback
from torchx_pulumi.model.run_record import IDENTITY_VERSIONS
from torchx_pulumi.runs.identity import digest
from torchx_pulumi.runs.index import RunIndex
from torchx_pulumi.stack_state.backend import backend_folder
from torchx_pulumi.stack_state.checkpoint import DAMAGED, UnreadableStateError, read_notes
from torchx_pulumi.stack_state.folder_stack import check_there
from torchx_pulumi.stack_state.stacks import StackName, Stacks, open_stacks

_CONTENT_TAG: Final = re.compile(r"[0-9a-f]{40}")
_WORD: Final = re.compile(r"(?<![0-9a-f])(?:[0-9a-f]{12}|[0-9a-f]{40}|[0-9a-f]{64})(?![0-9a-f])")
"""A digest of a field, a tag, or the digest of an image, without `sha256:`."""
REQUESTS_AT_ONCE: Final = 8
_MOST_NAMED: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredImage:
    """An image of a repository."""

    digest: str
    """Digest of its manifest."""
    tags: Sequence[str]
    """All tags of the manifest, sorted. Deleting it deletes all of them."""
    used_by: str | None
    """First place that references it: a stack, an app of this machine, or another tag. None: no place does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TagReport:
    """The images of a repository, by whether something references them."""

    repository: str
    """As the user wrote it."""
    images: Sequence[StoredImage]
    """Images with a tag that stands for their content, by tag."""
    others: Sequence[str]
    """Tags that torchx-pulumi did not make. They are never deleted."""
    stacks: int
    """Number of stacks that were read."""

    @property
    def unused(self) -> Sequence[StoredImage]:
        """Return the images that nothing references."""
        return [image for image in self.images if image.used_by is None]


def find_unused(
    repository: str, backends: Sequence[str], registry: RegistryClient, *, index: RunIndex | None = None
) -> TagReport:
    """Return which images of a repository the stacks of backends reference.

    The tags are listed first, so that an image that is pushed meanwhile is no candidate.

    Args:
        repository: Repository without a tag.
        backends: URLs of Pulumi backends (`choose_backend`).
        registry: The client of the registry.
        index: Apps of this machine, which count whatever their backend is. None: this user's.

    Raises:
        ImageError: The repository is not valid, or its registry does not answer.
        DeployError: A stack cannot be read or is being updated, or a backend has no stacks: what is used is not known.
    """
    place = parse_repository(repository)
    found = {tag: _digest_of(each) for tag, each in _digests(place, registry).items() if each is not None}
    content = {tag: each for tag, each in found.items() if _CONTENT_TAG.fullmatch(tag)}
    used: dict[str, str] = {each: f"tag {tag}" for tag, each in found.items() if tag not in content}
    words = {word: each for tag, each in content.items() for word in _words(place, tag, each)}
    stacks = 0
    for where, text in _texts(backends, index or RunIndex()):
        stacks += where.startswith("stack ")
        for word in words.keys() & set(_WORD.findall(text)):
            used.setdefault(words[word], where)
    tags: dict[str, list[str]] = {}
    for tag, each in sorted(found.items()):
        tags.setdefault(each, []).append(tag)
    # A commit's hash as a tag looks like an address.
    theirs = _made_elsewhere(place, {each: tags[each] for each in content.values() if each not in used}, registry)
    images = [
        StoredImage(digest=f"sha256:{each}", tags=tags[each], used_by=used.get(each))
        for each in dict.fromkeys(content[tag] for tag in sorted(content))
        if each not in theirs
    ]
    others = sorted(tag for tag, each in found.items() if tag not in content or each in theirs)
    return TagReport(repository=repository, images=images, others=others, stacks=stacks)


def delete_unused(report: TagReport, registry: RegistryClient, progress: ProgressCallback) -> None:
    """Delete the images that nothing references.

    Args:
        report: What `find_unused` returned a moment ago.
        registry: The client of the registry.
        progress: Receives a line for each image.

    Raises:
        ImageError: The registry refused; what was deleted before is gone.
    """
    place = parse_repository(report.repository)
    for image in report.unused:
        registry.delete(place, image.digest)
        progress(f"deleted {image.digest} ({', '.join(image.tags)})")


def _digests(place: Reference, registry: RegistryClient) -> Mapping[str, str | None]:
    tags = sorted(set(registry.tags(place)))
    with ThreadPoolExecutor(REQUESTS_AT_ONCE) as pool:
        found = pool.map(lambda tag: registry.digest(parse_reference(f"{place.name}:{tag}")), tags)
        return dict(zip(tags, found, strict=True))


def _made_elsewhere(place: Reference, tags: Mapping[str, Sequence[str]], registry: RegistryClient) -> set[str]:
    """Return the digests of the images whose label is not the address that one of their tags begins."""

    def is_ours(each: str) -> bool:
        address = _content_label(replace(place, digest=f"sha256:{each}"), registry)
        return any(address.startswith(tag) for tag in tags[each])

    with ThreadPoolExecutor(REQUESTS_AT_ONCE) as pool:
        return {each for each, ours in zip(tags, pool.map(is_ours, tags), strict=True) if not ours}


def _content_label(image: Reference, registry: RegistryClient) -> str:
    """Return the label of an image with its address. Empty: it has none, or is no single image."""
    manifest = registry.manifest(image)
    try:
        found = json.loads(manifest.content)["config"] if manifest is not None else None
        if found is None:
            return ""
        config = Descriptor(media_type=str(found.get("mediaType")), digest=found["digest"], size=int(found["size"]))
        return str(json.loads(registry.read_blob(image, config))["config"]["Labels"][CONTENT_LABEL])
    except (ValueError, KeyError, TypeError):
        return ""


def _digest_of(text: str) -> str:
    """Return the hex digits of a digest.

    Raises:
        ImageError: The registry names images by other digests than those of SHA-256.
    """
    name, _, digits = text.partition(":")
    if name != "sha256":
        raise ImageError(f"the registry names an image {text!r}, must be sha256: and 64 hex digits")
    return digits


def _words(place: Reference, tag: str, digits: str) -> Iterator[str]:
    """Yield the words of a text that references an image."""
    yield tag
    yield digits
    for name in _names(place):
        for image in (f"{name}:{tag}", f"{name}:{tag}@sha256:{digits}", f"{name}@sha256:{digits}"):
            yield from (digest(image, version) for version in IDENTITY_VERSIONS)


def _names(place: Reference) -> set[str]:
    """Return the ways to write the name of a repository."""
    names = {place.name, f"{place.registry}/{place.path}"}
    if place.registry == DOCKER_HUB:
        names |= {f"{host}{place.path.removeprefix('library/')}" for host in ("", f"{DOCKER_HUB}/", "index.docker.io/")}
        names |= {place.path, f"index.docker.io/{place.path}"}
    return names


def _texts(backends: Sequence[str], index: RunIndex) -> Iterator[tuple[str, str]]:
    """Yield name and text of everything that may reference an image.

    Raises:
        DeployError: Something cannot be read; the message lists everything.
    """
    problems: list[str] = []
    for entry in index.all(problem=problems.append):
        yield f"app {entry.app_id} of this machine", json.dumps(write_entry(entry))
    for backend in dict.fromkeys(backends):
        yield from _stack_texts(backend, problems)
    if problems:
        lines = "".join(f"\n  - {line}" for line in problems[:_MOST_NAMED])
        more = f"\n  - and {len(problems) - _MOST_NAMED} more" if len(problems) > _MOST_NAMED else ""
        raise DeployError(
            f"which images are used is not known ({len(problems)} in all):{lines}{more}\nnothing was deleted; make "
            "them readable, or remove stacks that are not needed with `pulumi stack rm`, then run again"
        )


def _stack_texts(backend: str, problems: list[str]) -> Iterator[tuple[str, str]]:
    stacks, folder = open_stacks(backend), backend_folder(backend)
    names = stacks.names(None)
    if not names and folder is not None:
        check_there(folder, backend)
    if not names:
        problems.append(
            f"backend {backend}: has no stacks; name the backend of the launches with --backend or PULUMI_BACKEND_URL"
        )
    problems += [
        f"stack {name}: is being updated; wait for its end, or remove a lock that is left with `pulumi cancel`"
        for name in sorted(stacks.updating(), key=str)
    ]
    read: Callable[[StackName], str | Exception] = partial(_read, stacks)
    with ThreadPoolExecutor(stacks.reads_at_once) as pool:
        for name, text in zip(names, pool.map(read, names), strict=True):
            if isinstance(text, str):
                yield f"stack {name}", text
            else:
                problems.append(f"stack {name}: {text}")


def _read(stacks: Stacks, name: StackName) -> str | Exception:
    """Return the text of a checkpoint, or why it cannot be read."""
    try:
        text = stacks.read(name)
        # Notes that are encrypted, or that a newer release wrote, may hide a reference.
        read_notes(text)
    except (UnreadableStateError, DeployError) as error:
        return error
    except DAMAGED as error:
        return UnreadableStateError(f"its checkpoint is damaged: {error}")
    return text
