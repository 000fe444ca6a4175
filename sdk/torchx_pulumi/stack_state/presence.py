"""Whether a file or a folder is there. What cannot be read is an error, never an absence.

`Path.is_file`, `Path.exists` and `Path.glob` return "no" for some errors of the file system, from Python 3.14 on for
all of them: permissions, a disk that fails, an NFS handle that is stale. A state would then be taken for deleted.
"""

from __future__ import annotations

import stat
from pathlib import Path

ABSENT = (FileNotFoundError, NotADirectoryError)
"""The errors that prove an absence; all others leave it open."""


def is_file(path: Path) -> bool:
    """Return whether there is a file.

    Raises:
        OSError: It cannot be found out.
    """
    mode = _mode(path)
    return mode is not None and stat.S_ISREG(mode)


def is_folder(path: Path) -> bool:
    """Return whether there is a folder.

    Raises:
        OSError: It cannot be found out.
    """
    mode = _mode(path)
    return mode is not None and stat.S_ISDIR(mode)


def is_there(path: Path) -> bool:
    """Return whether there is a file, a folder or anything else.

    Raises:
        OSError: It cannot be found out.
    """
    return _mode(path) is not None


def names_in(folder: Path) -> list[str]:
    """Return the names in a folder, sorted. Empty: there is no such folder.

    Raises:
        OSError: It cannot be read.
    """
    try:
        return sorted(path.name for path in folder.iterdir())
    except ABSENT:
        return []


def _mode(path: Path) -> int | None:
    try:
        return path.stat().st_mode
    except ABSENT:
        return None
