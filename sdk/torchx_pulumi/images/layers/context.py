"""The context of a build as COPY and ADD look at it: paths, links that are followed within it, and wildcards."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from torchx_pulumi.images.content.files import FileKind, Found
from torchx_pulumi.images.content.ignore import IGNORE_FILE, docker_rules
from torchx_pulumi.images.content.patterns import expression_of, parts_of
from torchx_pulumi.images.content.tree import Entry, path_order
from torchx_pulumi.model.errors import ImageError

Node = Entry | bytes
"""An entry, or the content of a generated file."""
_MOST_LINKS: Final = 255
"""Links that are followed for one path."""


class Context:
    """The files of a build."""

    def __init__(self, entries: Sequence[Entry], extra: Mapping[str, bytes]) -> None:
        nodes: dict[str, Node] = {entry.path: entry for entry in entries}
        added = [path for path in extra if path not in nodes]
        nodes.update({path: extra[path] for path in added})
        # A file that `.dockerignore` brings back may be in a folder that it excludes. The daemon makes that folder.
        for path in list(nodes):
            above = posixpath.dirname(path)
            while above and above not in nodes:
                nodes[above] = Entry(above, Found(above, FileKind.FOLDER, 0, True), entries[0].source)
                added.append(above)
                above = posixpath.dirname(above)
        self._nodes = {path: nodes[path] for path in sorted(nodes, key=path_order)} if added else nodes

    def find(self, path: str) -> tuple[str, Node | None] | None:
        """Return the path and the node of a path after following links. None: there is no such file.

        The node of the context itself is None. A link that leads out of the context ends at its top, and `..` after a
        folder that does not exist is that folder's parent: both as for the daemon.
        """
        followed, done, left = 0, "", _parts(path)
        while left:
            part = left.pop(0)
            if part == "..":
                done = posixpath.dirname(done)
                continue
            here = f"{done}/{part}" if done else part
            if done and not self._may_contain(done):
                return None
            node = self._nodes.get(here)
            if isinstance(node, Entry) and node.found.kind is FileKind.LINK:
                followed += 1
                if followed > _MOST_LINKS:
                    return None
                target = node.found.target
                done = "" if target.startswith("/") else done
                left = [*_parts(target), *left]
                continue
            done = here
        if done and done not in self._nodes:
            return None
        return done, self._nodes[done] if done else None

    def _may_contain(self, path: str) -> bool:
        node = self._nodes.get(path)
        return node is None or (isinstance(node, Entry) and node.found.kind is FileKind.FOLDER)

    def matches(self, pattern: str) -> list[str]:
        """Return the paths that match a pattern of Go's `filepath.Match`, folders and links included."""
        try:
            expression = re.compile("".join(map(expression_of, parts_of(pattern))), re.DOTALL)
        except ValueError:
            return []  # as in Docker, a pattern that is not valid matches nothing
        return [path for path in self._nodes if expression.fullmatch(path)]

    def below(self, folder: str) -> Iterator[tuple[str, Node]]:
        """Yield what is below a folder, in order, with its path relative to the folder."""
        prefix = f"{folder}/" if folder else ""
        for path, node in self._nodes.items():
            if path.startswith(prefix):
                yield path[len(prefix) :], node


def copied_files(
    entries: Sequence[Entry], sent_only: Sequence[Entry], extra: Mapping[str, bytes], dockerfile: str
) -> tuple[Sequence[Entry], Mapping[str, bytes]]:
    """Return the files that COPY sees: the daemon removes an excluded Dockerfile and `.dockerignore` from the context.

    The daemon reads the rules as Docker does, also if the workspace is read by TorchX's rules.

    Args:
        entries: Files of the context.
        sent_only: Files that are excluded, and that are sent because the daemon reads them.
        extra: Generated files by path.
        dockerfile: Path of the Dockerfile.

    Raises:
        ImageError: The `.dockerignore` can no longer be read.
    """
    rules = next((each for each in (*entries, *sent_only) if each.path == IGNORE_FILE), None)
    if rules is None:
        return entries, extra
    try:
        with rules.source.open(rules.found.path) as file:
            judge = docker_rules(file.read().decode("utf-8", "surrogateescape"))
    except OSError as error:
        raise ImageError(f"{IGNORE_FILE}: can no longer be read ({error.strerror or error}); run again") from error
    except ImageError:
        return entries, extra  # lines that Docker refuses, which the daemon skips here
    removed = [path for path in (IGNORE_FILE, dockerfile) if judge.ignores(path)]
    if not removed:
        return entries, extra
    return (
        [each for each in entries if each.path not in removed],
        {path: content for path, content in extra.items() if path not in removed},
    )


def has_wildcard(path: str) -> bool:
    """Return whether a source has a wildcard that is not escaped."""
    return re.match(r"(?:\\.|[^\\*?\[])*[*?\[]", path, re.DOTALL) is not None


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]
