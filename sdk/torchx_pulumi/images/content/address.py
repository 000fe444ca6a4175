"""The content address: one hash of all that makes the image what it is. Pure."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

from torchx_pulumi.images.content.files import Kind
from torchx_pulumi.images.content.tree import Entry

_VERSION: Final = "torchx-pulumi image 1"
"""Goes into every address; another one gives every image a new tag."""


def files_address(entries: Sequence[Entry], hashes: Mapping[str, str]) -> str:
    """Return 64 hex digits of paths, kinds, executable bits and bytes; equal content has an equal address."""
    digest = hashlib.sha256()
    for entry in entries:
        found = entry.found
        if found.kind is Kind.FOLDER:
            what, content = b"d", b""
        elif found.kind is Kind.LINK:
            what, content = b"l", os.fsencode(found.target)
        else:
            what, content = b"x" if found.executable else b"f", hashes[entry.path].encode()
        # Neither names nor targets hold a NUL.
        digest.update(b"\0".join((what, os.fsencode(entry.path), content, b"")))
    return digest.hexdigest()


def image_address(**parts: Any) -> str:
    """Return 64 hex digits of all parts of an image, which are plain JSON values."""
    text = json.dumps({"version": _VERSION, **parts}, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()
