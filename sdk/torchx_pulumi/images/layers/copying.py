"""COPY and ADD as the daemon's classic builder does them, without the files of the base. Pure, but for ADD.

The daemon looks at the base to see whether a destination is a folder, a file or a link. What the Dockerfile itself does
not tell is refused here.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from torchx_pulumi.images.content.archive import Member
from torchx_pulumi.images.content.files import FileKind
from torchx_pulumi.images.content.tree import Entry, path_order
from torchx_pulumi.images.layers.context import Context, Node, has_wildcard
from torchx_pulumi.images.layers.support import is_url
from torchx_pulumi.model.errors import ImageError

SYSTEM_LINKS: Final = (
    *("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/var/run", "/var/lock"),
    *("/dev", "/proc", "/sys"),
)
"""Folders that are links in many images, or that the container runtime mounts."""
_WHITEOUT: Final = ".wh."


class NeedsDaemonError(Exception):
    """A copy that depends on the files of the base, or that the daemon refuses. The text says why."""


class KnownPaths:
    """What a Dockerfile tells of the files of the image. Paths begin with `/`."""

    def __init__(self, *, is_complete: bool) -> None:
        self.is_complete = is_complete
        """There are no other files: the image begins with `FROM scratch`."""
        self._kinds = {"/": FileKind.FOLDER}
        self._copied: list[Sequence[Member]] = []

    def kind(self, path: str) -> FileKind | None:
        """Return the kind of a path. None: it is not known."""
        for members in self._copied:
            for member in members:
                self._add(member)
        self._copied.clear()
        return self._kinds.get(path)

    def is_folder(self, path: str) -> bool:
        """Return whether a path is known to be a folder."""
        return self.kind(path) is FileKind.FOLDER

    def add_folder(self, path: str) -> None:
        """Note a folder and those above it."""
        while self.kind(path) is None:
            self._kinds[path] = FileKind.FOLDER
            path = posixpath.dirname(path)

    def add_copied(self, members: Sequence[Member]) -> None:
        """Note the members of a layer. They are looked at when a path is asked for: most images have one copy."""
        self._copied.append(members)

    def _add(self, member: Member) -> None:
        path = f"/{member.path}"
        kind = FileKind.FILE if isinstance(member.source, bytes) else member.source.found.kind
        if kind is not FileKind.FOLDER and self._kinds.get(path) is FileKind.FOLDER:
            for below in [each for each in self._kinds if each.startswith(f"{path}/")]:
                del self._kinds[below]
        self._kinds[path] = kind
        above = posixpath.dirname(path)
        while above not in self._kinds:
            self._kinds[above] = FileKind.FOLDER
            above = posixpath.dirname(above)


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """One COPY or ADD, expanded."""

    word: str
    sources: Sequence[str]
    destination: str
    """As it is written; relative paths begin at the working directory."""
    folder: str
    """Working directory. Empty: none is set."""
    owner: tuple[int, int] | None
    """User and group of what is copied. None: 0, and existing parents are not asked about."""


@dataclass(frozen=True, slots=True)
class _Source:
    name: str
    """Name that a file gets in a folder."""
    path: str
    """Path in the context, after links."""
    node: Node | None
    """None: the context itself."""

    @property
    def is_folder(self) -> bool:
        return isinstance(self.node, Entry) and self.node.found.kind is FileKind.FOLDER


def members_of(copy: Copy, context: Context, known: KnownPaths) -> tuple[list[Member], list[Node]]:
    """Return what a copy adds to the image in the order of the archive, and the sources that are files.

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
    destination = posixpath.normpath(posixpath.join("/", copy.folder, copy.destination))
    destination = "/" + destination.lstrip("/")
    _check_way(destination, known)
    owner = copy.owner or (0, 0)
    members: dict[str, Member] = {}
    files: list[Node] = []
    for source in sources:
        if source.node is None or source.is_folder:
            _enter(copy, destination, known)
            prefix = "" if destination == "/" else f"{destination[1:]}/"
            for path, node in context.below(source.path):
                _put(members, Member(prefix + path, node, owner))
        else:
            target = destination
            if copy.destination.endswith("/") or _is_folder(source, destination, known):
                target = posixpath.join(destination, source.name)
            _check_way(posixpath.dirname(target), known)
            _check_owner(copy, posixpath.dirname(target), known)
            _put(members, Member(target[1:], source.node, owner))
            files.append(source.node)
    if not members and not known.is_folder(destination):
        # The daemon makes the folder if the base does not have it.
        raise NeedsDaemonError(f"copies no files to {destination}, which may be a folder of the base or not")
    paths = members if len(sources) == 1 else sorted(members, key=path_order)
    made = [members[path] for path in paths]
    known.add_copied(made)
    return made, files


def _sources(copy: Copy, context: Context) -> Iterator[_Source]:
    for written in copy.sources:
        if is_url(written):
            raise NeedsDaemonError("downloads a source")
        plain = written.removeprefix("/").removeprefix("./")
        paths = context.matches(plain) if has_wildcard(plain) else [plain]
        if not paths:
            raise ImageError(f"{written!r}: matches no file of the workspace, or .dockerignore excludes all of them")
        for path in map(posixpath.normpath, paths):
            if path == ".." or path.startswith("../"):
                raise ImageError(f"{written!r}: is outside the workspace; name a path in it")
            found = context.find(path)
            if found is None:
                raise ImageError(f"{path!r}: is not in the workspace, or .dockerignore excludes it")
            yield _Source(posixpath.basename(path), *found)


def _check_way(path: str, known: KnownPaths) -> None:
    """Refuse a folder that is reached through a link or a file."""
    if not known.is_complete and any(path == each or path.startswith(f"{each}/") for each in SYSTEM_LINKS):
        raise NeedsDaemonError(
            f"copies into {path}, where many images have a link; name the folder behind it, as /usr/bin"
        )
    above = path
    while above != "/":
        kind = known.kind(above) or FileKind.FOLDER
        if kind is FileKind.LINK:
            raise NeedsDaemonError(f"copies into {path}, and an earlier instruction made {above} a link")
        if kind is not FileKind.FOLDER and above != path:
            raise NeedsDaemonError(f"copies into {path}, and an earlier instruction made {above} a file")
        above = posixpath.dirname(above)


def _enter(copy: Copy, destination: str, known: KnownPaths) -> None:
    if known.kind(destination) not in (None, FileKind.FOLDER):
        raise NeedsDaemonError(f"copies a folder to {destination}, which an earlier instruction made a file")
    _check_owner(copy, destination, known)


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
    before = members.get(member.path)
    is_folder = isinstance(member.source, Entry) and member.source.found.kind is FileKind.FOLDER
    if before is not None and not is_folder:
        for below in [path for path in members if path.startswith(f"{member.path}/")]:
            del members[below]
    members[member.path] = member
