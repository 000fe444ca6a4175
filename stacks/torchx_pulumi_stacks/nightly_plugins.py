"""Hide entry points from TorchX nightly that only TorchX 0.7.0 needs.

TorchX 0.7.0 replaces its own schedulers by the entry points that it finds, so that the wheel has entry points which
forward to them (`builtins`). Nightly adds entry points to its own schedulers: ours would hide those of other packages,
and offer six schedulers that it no longer has. Entry points are fixed in the wheel: they are filtered when read.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from importlib import metadata
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

DISTRIBUTION = "torchx-pulumi"
GROUP = "torchx.schedulers"
DEFAULT = "local_docker"
"""TorchX's default scheduler. It stays the first plugin: the first one is the default."""

SOURCES = "TORCHX_PLUGINS_SOURCE"
"""Variable for the sources of plugins in TorchX nightly: 1 the namespace package, 2 entry points, 3 both."""

_ENTRY_POINTS = 2
_FORWARDER = re.compile(r"^(\w+)\s*=\s*torchx_pulumi_stacks\.builtins:.*\n?", re.MULTILINE)


def entry_points_are_read() -> bool:
    """Return whether TorchX finds our schedulers as entry points."""
    if not int(os.environ.get(SOURCES, "3")) & _ENTRY_POINTS:
        return False
    return bool(metadata.entry_points(group=GROUP, name="pulumi_volcano"))


def leave_out_forwarders() -> None:
    """Remove the entry points that forward from what `importlib.metadata` lists."""
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    try:
        found = metadata.distribution(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return
    # Of distributions of one name, the first one counts.
    sys.meta_path.insert(0, _Finder(_WithoutForwarders(found)))


class _WithoutForwarders(metadata.Distribution):
    """Our distribution without the entry points that forward."""

    def __init__(self, whole: metadata.Distribution) -> None:
        self._whole = whole

    def read_text(self, filename: str) -> str | None:
        text = self._whole.read_text(filename)
        if not text or filename != "entry_points.txt":
            return text
        return _FORWARDER.sub(lambda line: line[0] if line[1] == DEFAULT else "", text)

    def locate_file(self, path: Any) -> Any:
        return self._whole.locate_file(path)


class _Finder(metadata.DistributionFinder):
    """Finds our distribution, and no modules."""

    def __init__(self, ours: metadata.Distribution) -> None:
        self._ours = ours

    def find_spec(self, *_: Any) -> ModuleSpec | None:
        return None

    def find_distributions(self, context: Any = None) -> Iterable[metadata.Distribution]:
        context = context or metadata.DistributionFinder.Context()
        named = context.name is None or re.sub(r"[-_.]+", "-", context.name).lower() == DISTRIBUTION
        there = Path(str(self._ours.locate_file(""))) in map(Path, context.path)
        return [self._ours] if named and there else []
