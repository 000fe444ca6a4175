"""Rules of the tree: each section enforces one rule of the architecture (docs/architecture.md)."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = [path for name in ("sdk", "components", "stacks") for path in sorted((ROOT / name).rglob("*.py"))]


def strings_of(path: Path) -> set[str]:
    """Return the string constants of a module."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


# One module reads checkpoints.

CHECKPOINT_KEYS = {"checkpoint", "deployment", "pending_operations"}
CHECKPOINT_MODULE = "sdk/torchx_pulumi/stack_state/checkpoint.py"


def test_one_module_parses_checkpoints() -> None:
    found = {str(path.relative_to(ROOT)) for path in SOURCES if strings_of(path) & CHECKPOINT_KEYS}
    assert found == {CHECKPOINT_MODULE}
