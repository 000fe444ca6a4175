"""The modules of the distributions, each parsed once."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = [path for name in ("sdk", "components", "stacks", "fleet") for path in sorted((ROOT / name).rglob("*.py"))]


@functools.cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """Return all nodes of a module, the module first."""
    return tuple(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
