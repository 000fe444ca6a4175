"""What tests of the product's parts share."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def unreadable(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path, int], None]:
    """Let the file system refuse to say anything of a path; root is refused nothing. `Path` is as in Python 3.14."""
    refused: dict[str, int] = {}

    def refusing(real: Any) -> Any:
        def call(path: Any, *args: Any, **kwargs: Any) -> Any:
            number = refused.get(os.fspath(path)) if isinstance(path, (str, os.PathLike)) else None
            if number is not None:
                raise OSError(number, os.strerror(number), os.fspath(path))
            return real(path, *args, **kwargs)

        return call

    for name in ("stat", "lstat", "listdir", "scandir", "open"):
        monkeypatch.setattr(os, name, refusing(getattr(os, name)))
    monkeypatch.setattr(io, "open", refusing(io.open))
    if sys.version_info < (3, 11):  # its pathlib keeps the functions that it found when it was imported
        for name, home in (("stat", os), ("listdir", os), ("scandir", os), ("open", io)):
            monkeypatch.setattr(f"pathlib._NormalAccessor.{name}", staticmethod(getattr(home, name)))
    for name, real in (("is_file", os.path.isfile), ("is_dir", os.path.isdir), ("exists", os.path.exists)):
        monkeypatch.setattr(Path, name, lambda path, ask=real: ask(path))
    return lambda path, number: refused.update({os.fspath(path): number})
