"""The files of an image as a table: of a mounted folder, and of an archive that the daemon exports."""

from __future__ import annotations

import hashlib
import os
import stat
import tarfile
from pathlib import Path
from typing import IO

File = tuple[str, int, int, int, str]
"""Kind, mode, user, group; target of a link or hash of a file."""
Tree = dict[str, File]

FOLDER = "folder"


def tree_of_folder(root: Path) -> Tree:
    """Return the files below a folder, with links as they are."""
    tree: Tree = {}
    for folder, folders, files in os.walk(root):
        for name in [*folders, *files]:
            path = os.path.join(folder, name)  # noqa: PTH118  a name of any bytes
            status = os.lstat(path)
            kind, what = FOLDER, ""
            mode = stat.S_IMODE(status.st_mode)
            if stat.S_ISLNK(status.st_mode):
                kind, mode, what = "link", 0, os.readlink(path)  # noqa: PTH115
            elif stat.S_ISREG(status.st_mode):
                with open(path, "rb") as file:  # noqa: PTH123
                    kind, what = "file", hashlib.sha256(file.read()).hexdigest()
            tree[os.path.relpath(path, root)] = (kind, mode, status.st_uid, status.st_gid, what)
    return tree


def tree_of_archive(file: IO[bytes]) -> Tree:
    """Return the files of an archive."""
    tree: Tree = {}
    with tarfile.open(fileobj=file, errors="surrogateescape") as archive:
        for member in archive:
            kind, mode, what = FOLDER, member.mode, ""
            if member.issym():
                kind, mode, what = "link", 0, member.linkname
            elif member.isreg():
                content = archive.extractfile(member)
                assert content is not None
                kind, what = "file", hashlib.sha256(content.read()).hexdigest()
            elif not member.isdir():
                kind = f"type {member.type!r}"
            path = os.path.normpath(member.name)
            if path != ".":
                tree[path] = (kind, mode & 0o7777, member.uid, member.gid, what)
    return tree
