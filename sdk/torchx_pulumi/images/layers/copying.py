"""COPY and ADD as the daemon's classic builder does them, without the files of the base. Pure.

The daemon looks at the base to see whether a destination is a folder, a file or a link. What the Dockerfile itself does
not tell is refused here.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from torchx_pulumi.images.content.archive import Member
from torchx_pulumi.images.content.files import Entry, FileKind
from torchx_pulumi.images.content.patterns import expression_of, parts_of
from torchx_pulumi.images.content.tree import path_order
from torchx_pulumi.images.layers.interpreting import Copy, HidesLinkError, NeedsDaemonError, absolute
from torchx_pulumi.model.errors import ImageError

SYSTEM_LINKS: Final = (
    *("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/var/run", "/var/lock"),
    *("/dev", "/proc", "/sys"),
)
"""Folders that are links in many images, or that the container runtime mounts."""
_WHITEOUT: Final = ".wh."
_MOST_LINKS: Final = 255
"""Links that are followed for one path."""


class Context:
    """The files of a build as COPY looks at them: paths, links that are followed within the context, wildcards."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        nodes = {entry.path: entry for entry in entries}
        # A file that `.dockerignore` brings back may be in a folder that it excludes. The daemon makes that folder.
        for path, entry in list(nodes.items()):
            above = posixpath.dirname(path)
            while above and above not in nodes:
                nodes[above] = Entry(entry.source, above, FileKind.FOLDER, path=above)
                above = posixpath.dirname(above)
        is_complete = len(nodes) == len(entries)
        self._nodes = nodes if is_complete else {path: nodes[path] for path in sorted(nodes, key=path_order)}

    def find(self, path: str) -> tuple[str, Entry | None] | None:
        """Return the path and the entry of a path after following links, or None if there is no such file.

        The entry of the context itself is None. A link that leads out of the context ends at its top, and `..` after a
        folder that does not exist is that folder's parent: both as for the daemon.
        """
        followed, done, left = 0, "", _parts(path)
        while left:
            part = left.pop(0)
            if part == "..":
                done = posixpath.dirname(done)
                continue
            above = self._nodes.get(done)
            if above is not None and above.kind is not FileKind.FOLDER:
                return None
            here = f"{done}/{part}" if done else part
            node = self._nodes.get(here)
            if node is not None and node.kind is FileKind.LINK:
                followed += 1
                if followed > _MOST_LINKS:
                    return None
                target = node.target
                done = "" if target.startswith("/") else done
                left = [*_parts(target), *left]
                continue
            done = here
        if done and done not in self._nodes:
            return None
        return done, self._nodes.get(done)

    def matches(self, pattern: str) -> list[str]:
        """Return the paths that match a pattern of Go's `filepath.Match`, folders and links included."""
        try:
            expression = re.compile("".join(map(expression_of, parts_of(pattern))), re.DOTALL)
        except ValueError:
            return []  # as in Docker, a pattern that is not valid matches nothing
        return [path for path in self._nodes if expression.fullmatch(path)]

    def below(self, folder: str) -> Iterator[tuple[str, Entry]]:
        """Yield what is below a folder, in order, with its path relative to the folder."""
        prefix = f"{folder}/" if folder else ""
        for path, node in self._nodes.items():
            if path.startswith(prefix):
                yield path[len(prefix) :], node


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


class KnownPaths:
    """The files of the image that a Dockerfile tells about. Paths begin with `/`."""

    def __init__(self, *, is_complete: bool) -> None:
        self.is_complete = is_complete
        """There are no other files: the image begins with `FROM scratch`."""
        self._kinds = {"/": FileKind.FOLDER}

    def kind(self, path: str) -> FileKind | None:
        """Return the kind of a path, or None if it is unknown."""
        return self._kinds.get(path)

    def is_folder(self, path: str) -> bool:
        """Return whether a path is known to be a folder."""
        return self.kind(path) is FileKind.FOLDER

    def add_folder(self, path: str) -> None:
        """Note a folder and those above it."""
        while path not in self._kinds:
            self._kinds[path] = FileKind.FOLDER
            path = posixpath.dirname(path)

    def add_copied(self, members: Mapping[str, Member]) -> None:
        """Note the members of a layer.

        Raises:
            HidesLinkError: A member would hide a link of the base. The text names it.
            NeedsDaemonError: A folder replaces a link or a file of an earlier instruction.
        """
        hidden = [] if self.is_complete else [link for link in SYSTEM_LINKS if link[1:] in members]
        if hidden:
            raise HidesLinkError(
                f"puts {members[hidden[0][1:]].entry.path!a} of the workspace in the place of {hidden[0]}, where many "
                "images have a link to what they need; copy into a folder of its own, as with `WORKDIR /app`"
            )
        for path, member in members.items():
            place, kind = f"/{path}", member.entry.kind
            before = self._kinds.get(place, kind)
            if kind is FileKind.FOLDER and before is not kind:
                raise NeedsDaemonError(
                    f"puts the folder {member.entry.path!a} in the place of {place}, which an earlier instruction made "
                    "a link or a file"
                )
            if before is FileKind.FOLDER and before is not kind:
                for below in [each for each in self._kinds if each.startswith(f"{place}/")]:
                    del self._kinds[below]
            self._kinds[place] = kind

    def check_way(self, path: str) -> None:
        """Refuse a folder that is reached through a link or a file.

        Raises:
            NeedsDaemonError: It is, or may be in the base.
        """
        if not self.is_complete and any(path == each or path.startswith(f"{each}/") for each in SYSTEM_LINKS):
            raise NeedsDaemonError(
                f"copies into {path}, where many images have a link; name the folder behind it, as /usr/bin"
            )
        above = path
        while above != "/":
            kind = self.kind(above) or FileKind.FOLDER
            if kind is FileKind.LINK:
                raise NeedsDaemonError(f"copies into {path}, and an earlier instruction made {above} a link")
            if kind is not FileKind.FOLDER and above != path:
                raise NeedsDaemonError(f"copies into {path}, and an earlier instruction made {above} a file")
            above = posixpath.dirname(above)


@dataclass(frozen=True, slots=True)
class _Source:
    name: str
    """Name that a file gets in a folder."""
    path: str
    """Path in the context, after links."""
    entry: Entry | None
    """None: the context itself."""


def members_of(copy: Copy, context: Context, known: KnownPaths) -> tuple[list[Member], list[Entry]]:
    """Return the entries that a copy adds to the image, in the order of the archive, and the sources that are files.

    The known paths are extended.

    Raises:
        NeedsDaemonError: The result depends on files of the base.
        ImageError: A source does not exist.
    """
    sources = list(_sources(copy, context))
    if len(sources) > 1 and not copy.destination.endswith("/"):
        raise ImageError("several sources need a destination that ends with `/`")
    if copy.destination.startswith("/") and ".." in copy.destination.split("/"):
        raise NeedsDaemonError(f"copies into {copy.destination}, whose `..` depends on links of the base")
    destination = absolute(posixpath.join("/", copy.folder, copy.destination))
    known.check_way(destination)
    owner = copy.owner or (0, 0)
    members: dict[str, Member] = {}
    files: list[Entry] = []
    folders: list[str] = []
    for source in sources:
        if source.entry is None or source.entry.kind is FileKind.FOLDER:
            if known.kind(destination) not in (None, FileKind.FOLDER):
                raise NeedsDaemonError(f"copies a folder to {destination}, which an earlier instruction made a file")
            _check_owner(copy, destination, known)
            prefix = "" if destination == "/" else f"{destination[1:]}/"
            for path, entry in context.below(source.path):
                _put(members, Member(prefix + path, entry, owner))
            folders.append(destination)
        else:
            target = destination
            if copy.destination.endswith("/") or _is_folder(source, destination, known):
                target = posixpath.join(destination, source.name)
            known.check_way(posixpath.dirname(target))
            _check_owner(copy, posixpath.dirname(target), known)
            _put(members, Member(target[1:], source.entry, owner))
            folders.append(posixpath.dirname(target))
            files.append(source.entry)
    if not members and not known.is_folder(destination):
        # The daemon makes the folder if the base does not have it.
        raise NeedsDaemonError(f"copies no files to {destination}, which may be a folder of the base or not")
    known.add_copied(members)
    for folder in folders:
        known.add_folder(folder)
    paths = members if len(sources) == 1 else sorted(members, key=path_order)
    return [members[path] for path in paths], files


def _sources(copy: Copy, context: Context) -> Iterator[_Source]:
    for written in copy.sources:
        plain = written.removeprefix("/").removeprefix("./")
        has_wildcard = re.match(r"(?:\\.|[^\\*?\[])*[*?\[]", plain, re.DOTALL) is not None
        paths = context.matches(plain) if has_wildcard else [plain]
        if not paths:
            raise ImageError(f"{written!r}: matches no file of the workspace, or .dockerignore excludes all of them")
        for path in map(posixpath.normpath, paths):
            if path == ".." or path.startswith("../"):
                raise ImageError(f"{written!r}: is outside the workspace; name a path in it")
            found = context.find(path)
            if found is None:
                raise ImageError(f"{path!r}: is not in the workspace, or .dockerignore excludes it")
            yield _Source(posixpath.basename(path), *found)


def _check_owner(copy: Copy, folder: str, known: KnownPaths) -> None:
    # The daemon gives the owner to folders that it makes, and leaves those of the base as they are.
    if copy.owner is not None and copy.owner != (0, 0) and not known.is_folder(folder):
        raise NeedsDaemonError(f"has --chown and copies into {folder}; put `WORKDIR {folder}` before it")


def _is_folder(source: _Source, destination: str, known: KnownPaths) -> bool:
    """Return whether a destination that does not end with `/` is a folder.

    Raises:
        NeedsDaemonError: It depends on the base.
    """
    kind = known.kind(destination)
    if kind is not None:
        return kind is FileKind.FOLDER
    suffix = posixpath.splitext(destination)[1]
    # Folders have names like `conf.d`.
    if known.is_complete or (suffix == posixpath.splitext(source.name)[1] and suffix not in ("", ".d")):
        return False
    raise NeedsDaemonError(
        f"copies the file {source.name} to {destination}, which may be a folder of the base; end it with / for a folder"
    )


def _put(members: dict[str, Member], member: Member) -> None:
    """Add a member as a later file replaces an earlier one."""
    if _WHITEOUT in member.path and f"/{_WHITEOUT}" in f"/{member.path}":
        raise ImageError(f"{member.path!r}: a name that begins with {_WHITEOUT} deletes a file of an image; rename it")
    if member.path in members and member.entry.kind is not FileKind.FOLDER:
        for below in [path for path in members if path.startswith(f"{member.path}/")]:
            del members[below]
    members[member.path] = member
