"""The context of an image: the files of all sources, without those that the rules exclude."""

from __future__ import annotations

import contextlib
import os
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from torchx_pulumi.images.content.files import Entry, FileKind, GeneratedFile, Source, open_source
from torchx_pulumi.images.content.ignore import (
    DEFAULTS,
    ENVIRONMENT_FILE,
    IGNORE_FILE,
    Rules,
    docker_rules,
    torchx_rules,
)
from torchx_pulumi.model.errors import ImageError

MOST_NAMED: Final = 20
"""Files that a message lists. It counts the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """Entries of the context."""

    entries: Sequence[Entry]
    """Files that COPY sees, sorted by the bytes of paths. A folder precedes its contents."""
    sent_only: Sequence[Entry] = ()
    """Files that the rules exclude from the image and that are sent because the daemon reads them."""
    warnings: Sequence[str] = ()
    """Warnings for the user."""
    left_out: Sequence[str] = ()
    """Files and folders that are excluded by default, not by a rule of the workspace."""


def read_tree(
    workspace: str | Mapping[str, str],
    *,
    ignore_rules: str = "docker",
    dockerfile: str | None = None,
    default: bytes | None = None,
) -> Tree:
    """Return the context of a workspace.

    Args:
        workspace: Folder or URL; or a mapping of folders, URLs and files to their places in the context.
        ignore_rules: `docker`, or `torchx` for the rules of TorchX's patching.
        dockerfile: Path in the context that is always sent.
        default: Content of the Dockerfile, if the workspace has none.

    Raises:
        ImageError: Files are missing, unreadable, or not supported by images. The message lists all of them.
    """
    places = {workspace: ""} if isinstance(workspace, str) else dict(workspace)
    if not places or not all(places):
        raise ImageError("workspace is empty; name a folder, or give no workspace to run the image as it is")
    sources = [(open_source(place), _destination(place, to)) for place, to in places.items()]
    text = _read_text(sources, IGNORE_FILE)
    rules = (docker_rules if ignore_rules == "docker" else torchx_rules)(text, DEFAULTS)
    # The daemon removes the Dockerfile and `.dockerignore` by Docker's rules, and skips a file with wrong lines.
    of_the_daemon = docker_rules("")
    with contextlib.suppress(ImageError):
        of_the_daemon = docker_rules(text)
    walk = _Walk(rules, of_the_daemon, {IGNORE_FILE, *([dockerfile] if dockerfile else [])})
    for source, prefix in sources:
        walk.add(source, prefix)
    if dockerfile and default is not None and dockerfile not in {*walk.entries, *walk.kept}:
        walk.take(Entry(GeneratedFile(default), "", FileKind.FILE, len(default)), dockerfile)
    if walk.problems:
        raise ImageError(f"workspace {', '.join(map(repr, places))}: " + _listed("cannot be sent", walk.problems))
    entries = [walk.entries[path] for path in sorted(walk.entries, key=path_order)]
    is_docker = ignore_rules == "docker" and text.strip()
    return Tree(
        entries=entries,
        sent_only=[walk.kept[path] for path in sorted(walk.kept) if path not in walk.entries],
        left_out=sorted(walk.left_out),
        warnings=[*(_differences(entries, text) if is_docker else []), *_links_out(entries)],
    )


def path_order(path: str) -> bytes:
    """Return the key by which paths are sorted."""
    # `/` sorts first, so a folder precedes its contents.
    return os.fsencode(path).replace(b"/", b"\0")


def _destination(place: str, to: str) -> str:
    plain = posixpath.normpath(to) if to else "."
    if plain.startswith(("/", "../")) or plain == "..":
        raise ImageError(f"workspace {place!r}: its place is {to!r}, must be a relative path inside the image's folder")
    return "" if plain == "." else plain


class _Walk:
    """The entries of the sources that were walked so far."""

    def __init__(self, rules: Rules, of_the_daemon: Rules, keep: set[str]) -> None:
        self._rules, self._of_the_daemon, self._keep = rules, of_the_daemon, keep
        self.left_out: set[str] = set()
        """Paths that are excluded by default, without their contents."""
        self.entries: dict[str, Entry] = {}
        self.kept: dict[str, Entry] = {}
        """Files that are always sent."""
        self.problems: list[str] = []

    def add(self, source: Source, prefix: str) -> None:
        """Walk a source. Its files are laid over those of earlier sources."""
        if source.is_file:
            for found in source.children(""):
                self.take(found, prefix or posixpath.basename(source.name))
            return
        for index in range(prefix.count("/") + 1 if prefix else 0):
            self.take(Entry(source, "", FileKind.FOLDER), "/".join(prefix.split("/")[: index + 1]))
        pending = [""]
        while pending:
            folder = pending.pop()
            try:
                children = list(source.children(folder))
                if folder and self._is_skipped_environment(children, posixpath.join(prefix, folder)):
                    continue
                for found in children:
                    if self.take(found, f"{prefix}/{found.inside}" if prefix else found.inside):
                        pending.append(found.inside)
            except OSError as error:
                self.problems.append(f"{_quoted(posixpath.join(prefix, folder) or '.')}: {_said(error)}")

    def take(self, found: Entry, path: str) -> bool:
        """Record one path. Return whether its contents must be read."""
        entry = Entry(
            found.source, found.inside, found.kind, found.size, found.executable, found.target, found.mark, path
        )
        is_hidden = False
        if path in self._keep and found.kind is FileKind.FILE:
            self.kept[path] = entry
            is_hidden = self._of_the_daemon.ignores(path)
        if is_hidden or self._rules.ignores(path):
            self._note_left_out(path)
            return found.kind is FileKind.FOLDER and self._must_enter(path)
        if found.kind is FileKind.SPECIAL:
            self.problems.append(f"{_quoted(path)}: is a socket, a pipe or a device; add it to {IGNORE_FILE}")
            return False
        before = self.entries.get(path)
        if before is not None and before.kind is FileKind.FOLDER and found.kind is not FileKind.FOLDER:
            # A file or a link of a later source replaces a folder.
            for known in (self.entries, self.kept):
                for below in [each for each in known if each.startswith(f"{path}/")]:
                    del known[below]
        self.entries[path] = entry
        return found.kind is FileKind.FOLDER

    def _must_enter(self, folder: str) -> bool:
        """Return whether an excluded folder may contain files that are sent."""
        return not self._rules.may_skip(folder) or any(path.startswith(f"{folder}/") for path in self._keep)

    def _is_skipped_environment(self, children: Sequence[Entry], folder: str) -> bool:
        """Exclude a folder if it is a virtual environment. Return whether its contents need not be read."""
        if not any(
            each.kind is FileKind.FILE and posixpath.basename(each.inside) == ENVIRONMENT_FILE for each in children
        ):
            return False
        self._rules.leave_out(folder)
        if not self._rules.ignores(folder):
            return False
        self.entries.pop(folder, None)
        self._note_left_out(folder)
        return not self._must_enter(folder)

    def _note_left_out(self, path: str) -> None:
        """Record a path that is excluded by default, unless a folder above it is recorded."""
        if not self._rules.by_default(path):
            return
        above = path
        while above := posixpath.dirname(above):
            if above in self.left_out:
                return
        self.left_out.add(path)


def _read_text(sources: Sequence[tuple[Source, str]], path: str) -> str:
    """Return the text of a file of the context, of the last source that has it; empty if there is none."""
    for source, prefix in reversed(sources):
        if source.is_file:
            inside = "" if (prefix or posixpath.basename(source.name)) == path else None
        else:
            inside = path if not prefix else None
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
    files = [entry.path for entry in entries if entry.kind is not FileKind.FOLDER and rules.ignores(entry.path)]
    if not files:
        return []
    head = f"{IGNORE_FILE}, read by Docker's rules, sends {len(files)} that TorchX's own rules leave out"
    return [_listed(head, [_quoted(path) for path in files]) + "\n(ignore_rules=torchx leaves them out)"]


def _links_out(entries: Sequence[Entry]) -> list[str]:
    """Return a warning about links that lead out of the workspace: TorchX sends their targets."""
    found, paths = [], {".", *(entry.path for entry in entries)}
    for entry in entries:
        if not entry.target:
            continue
        in_source = _led_to(entry.inside, entry.target)
        leads_out = in_source == ".." or in_source.startswith(("/", "../"))
        # A link may lead from one place to another one, as they are in the image.
        if leads_out and _led_to(entry.path, entry.target) not in paths:
            found.append(f"{_quoted(entry.path)} -> {_quoted(entry.target)}")
    head = f"{len(found)} links lead out of the workspace. The image has the links, and not the files behind them"
    return [_listed(head, found)] if found else []


def _led_to(link: str, target: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(link), target))


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
