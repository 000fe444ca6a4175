"""The context of an image: the files of all sources, without those that the rules exclude."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from torchx_pulumi.images.content.files import FileKind, Found, Source, open_source
from torchx_pulumi.images.content.ignore import (
    DEFAULTS,
    ENVIRONMENT_FILE,
    IGNORE_FILE,
    Rules,
    docker_rules,
    torchx_rules,
)
from torchx_pulumi.model.errors import ImageError

IGNORE_RULES: Final = ("docker", "torchx")
"""Values of the option `ignore_rules`."""
MOST_NAMED: Final = 20
"""Files that a message lists. It counts the others."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One path of the image's context."""

    path: str
    """Path in the context, with `/`."""
    found: Found
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """Entries of the context."""

    entries: Sequence[Entry]
    """Sorted by the bytes of their paths. A folder precedes its contents."""
    sent_only: Sequence[Entry] = ()
    """Files that the rules exclude from the image and that are sent because the daemon reads them."""
    warnings: Sequence[str] = ()
    """Warnings for the user."""
    left_out: Sequence[str] = ()
    """Files and folders that are excluded by default, not by a rule of the workspace."""


@dataclass(slots=True)
class _Walk:
    """State of a walk."""

    rules: Rules
    keep: frozenset[str]
    left_out: set[str] = field(default_factory=set)
    """Paths that are excluded by default, without their contents."""
    entries: dict[str, Entry] = field(default_factory=dict)
    kept: dict[str, Entry] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def read_tree(
    workspace: str | Mapping[str, str], *, ignore_rules: str = "docker", dockerfile: str | None = None
) -> Tree:
    """Return the context of a workspace.

    Args:
        workspace: Folder or URL; or a mapping of folders, URLs and files to their places in the context.
        ignore_rules: `docker`, or `torchx` for the rules of TorchX's patching.
        dockerfile: Path in the context that is always sent.

    Raises:
        ImageError: Files are missing, unreadable, or not supported by images. The message lists all of them.
    """
    if ignore_rules not in IGNORE_RULES:
        raise ImageError(f"ignore_rules is {ignore_rules!r}, must be {' or '.join(map(repr, IGNORE_RULES))}")
    sources = [(open_source(place), _destination(place, to)) for place, to in _places(workspace).items()]
    text = _read_text(sources, IGNORE_FILE)
    rules: Rules = (docker_rules if ignore_rules == "docker" else torchx_rules)(text, DEFAULTS)
    tree = _read(workspace, sources, rules, dockerfile)
    warnings = _differences(tree.entries, text) if ignore_rules == "docker" and text.strip() else []
    return replace(tree, warnings=warnings)


def _read(
    workspace: str | Mapping[str, str],
    sources: Sequence[tuple[Source, str]],
    rules: Rules,
    dockerfile: str | None,
) -> Tree:
    keep = frozenset((IGNORE_FILE, dockerfile)) if dockerfile else frozenset((IGNORE_FILE,))
    walk = _Walk(rules=rules, keep=keep)
    for source, prefix in sources:
        _walk(walk, source, prefix)
    if walk.problems:
        places = ", ".join(map(repr, _places(workspace)))
        raise ImageError(f"workspace {places}: " + _listed("cannot be sent", walk.problems))
    return Tree(
        entries=[walk.entries[path] for path in sorted(walk.entries, key=path_order)],
        sent_only=[walk.kept[path] for path in sorted(walk.kept) if path not in walk.entries],
        left_out=sorted(walk.left_out),
    )


def path_order(path: str) -> bytes:
    """Return the key by which paths are sorted."""
    # `/` sorts first, so a folder precedes its contents.
    return os.fsencode(path).replace(b"/", b"\0")


def _places(workspace: str | Mapping[str, str]) -> Mapping[str, str]:
    places = {workspace: ""} if isinstance(workspace, str) else dict(workspace)
    if not places or not all(places):
        raise ImageError("workspace is empty; name a folder, or give no workspace to run the image as it is")
    return places


def _destination(place: str, to: str) -> str:
    plain = posixpath.normpath(to) if to else "."
    if plain.startswith(("/", "../")) or plain == "..":
        raise ImageError(f"workspace {place!r}: its place is {to!r}, must be a relative path inside the image's folder")
    return "" if plain == "." else plain


def _walk(walk: _Walk, source: Source, prefix: str) -> None:
    if source.is_file:
        for found in source.children(""):
            _take(walk, source, found, prefix or posixpath.basename(source.name))
        return
    for index in range(prefix.count("/") + 1 if prefix else 0):
        above = "/".join(prefix.split("/")[: index + 1])
        _take(walk, source, Found("", FileKind.FOLDER, 0, True), above)
    pending = [""]
    while pending:
        folder = pending.pop()
        try:
            children = list(source.children(folder))
            if folder and _is_environment(children) and not _enter_environment(walk, posixpath.join(prefix, folder)):
                continue
            for found in children:
                path = f"{prefix}/{found.path}" if prefix else found.path
                if _take(walk, source, found, path):
                    pending.append(found.path)
        except OSError as error:
            walk.problems.append(f"{_quoted(posixpath.join(prefix, folder) or '.')}: {_said(error)}")


def _is_environment(children: Sequence[Found]) -> bool:
    return any(found.kind is FileKind.FILE and posixpath.basename(found.path) == ENVIRONMENT_FILE for found in children)


def _enter_environment(walk: _Walk, folder: str) -> bool:
    """Exclude a virtual environment. Return whether its contents must be read nevertheless."""
    rules = walk.rules
    rules.leave_out(folder)
    if not rules.ignores(folder):
        return True
    walk.entries.pop(folder, None)
    _note_left_out(walk, folder)
    return not rules.may_skip(folder) or _holds(folder, walk.keep)


def _note_left_out(walk: _Walk, path: str) -> None:
    """Record a path that is excluded by default, unless a folder above it is recorded."""
    if not walk.rules.by_default(path):
        return
    above = path
    while above := posixpath.dirname(above):
        if above in walk.left_out:
            return
    walk.left_out.add(path)


def _take(walk: _Walk, source: Source, found: Found, path: str) -> bool:
    """Record one path. Return whether its contents must be read."""
    rules = walk.rules
    ignored = rules.ignores(path)
    entry = Entry(path, found, source)
    if path in walk.keep and found.kind is FileKind.FILE:
        walk.kept[path] = entry
    if ignored:
        _note_left_out(walk, path)
        return found.kind is FileKind.FOLDER and (not rules.may_skip(path) or _holds(path, walk.keep))
    if found.kind is FileKind.SPECIAL:
        walk.problems.append(f"{_quoted(path)}: is a socket, a pipe or a device; add it to {IGNORE_FILE}")
        return False
    before = walk.entries.get(path)
    if before is not None and before.found.kind is FileKind.FOLDER and found.kind is not FileKind.FOLDER:
        _drop_below(walk, path)
    walk.entries[path] = entry
    return found.kind is FileKind.FOLDER


def _drop_below(walk: _Walk, path: str) -> None:
    """Remove the entries of earlier sources below a path that is a file or a link in a later source."""
    for known in (walk.entries, walk.kept):
        for below in [each for each in known if each.startswith(f"{path}/")]:
            del known[below]


def _holds(folder: str, kept: frozenset[str]) -> bool:
    return any(path.startswith(f"{folder}/") for path in kept)


def _read_text(sources: Sequence[tuple[Source, str]], path: str) -> str:
    """Return the text of a file of the context. Empty: there is none. The last source that has it wins."""
    for source, prefix in reversed(sources):
        if source.is_file:
            inside = "" if (prefix or posixpath.basename(source.name)) == path else None
        else:
            inside = path if not prefix else path.removeprefix(f"{prefix}/") if path.startswith(f"{prefix}/") else None
        if inside is None:
            continue
        try:
            with source.open(inside) as file:
                return file.read().decode("utf-8", "surrogateescape")
        except (FileNotFoundError, IsADirectoryError):
            continue
        except OSError as error:
            raise ImageError(f"workspace {source.name!r}: {path}: {_said(error)}") from error
    return ""


def _differences(entries: Sequence[Entry], text: str) -> list[str]:
    """Return a warning about the files that TorchX's patching would exclude."""
    rules = torchx_rules(text)
    files = [entry.path for entry in entries if entry.found.kind is not FileKind.FOLDER and rules.ignores(entry.path)]
    if not files:
        return []
    head = f"{IGNORE_FILE}, read by Docker's rules, sends {len(files)} that TorchX's own rules leave out"
    return [_listed(head, [_quoted(path) for path in files]) + "\n(ignore_rules=torchx leaves them out)"]


def _listed(head: str, lines: Sequence[str]) -> str:
    shown = [*lines[:MOST_NAMED], *([f"and {len(lines) - MOST_NAMED} more"] if len(lines) > MOST_NAMED else [])]
    return f"{head}:\n" + "\n".join(f"  - {line}" for line in shown)


def _quoted(path: str) -> str:
    return repr(shown_path(path))


def shown_path(path: str) -> str:
    """Return a path as text. Bytes that are not UTF-8 are escaped."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _said(error: OSError) -> str:
    return f"cannot be read ({error.strerror or error}); make it readable, or add it to {IGNORE_FILE}"
