"""The pieces of Pulumi's Python SDK on whose code jobs in a program rely, and what a release changed of them.

The SDK does not promise them, so a release may change them without notice. docs/decisions/0022 has the reasons. Pulumi
is not imported: its source files are read.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import re
import symtable
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from torchx_pulumi.model.versions import VERSIONS, sdk_problem

_SDK: Final = VERSIONS["pulumi-sdk"]

RELEASES: Final = tuple(f"3.{minor}.0" for minor in range(_SDK.oldest[1], _SDK.newest[1] + 1))
"""The tested releases, whose pieces are in the table. Of these nothing is looked at."""

PIECES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "pulumi.output.Output": ("333db11adf637a04", "317f8cb5e6d1b713", "0c408ce1d31f80b6"),
        "pulumi.provider.experimental.component.ComponentProvider": ("6b55661e9afc8bd5",),
        "pulumi.resource.ComponentResource": ("f79f9462aba351b2",),
        "pulumi.resource.Resource": ("a088695127c1887d", "554abc1f41e9f5e3"),
        "pulumi.runtime.config.get_config_env": ("5c7260676c514b1e",),
        "pulumi.runtime.mocks.MockMonitor": ("516debc98758fa35", "df8149e6d7f9e6ed", "ad92f23047b95a72"),
        "pulumi.runtime.resource.collapse_alias_to_urn": ("8b3aee9618287f45",),
        "pulumi.runtime.rpc._add_dependency": ("b50d4e89b84fc331",),
        "pulumi.runtime.rpc._expand_dependencies": ("da6fc43c44bf6fdf",),
        "pulumi.runtime.rpc_manager.RPCManager": ("0a28ceff6a29d914",),
        "pulumi.runtime.settings.Settings": ("24ef304f884d08ce", "e5eb3efeafcb4e4a"),
        "pulumi.runtime.settings.get_monitor": ("4da64317b4413dbb",),
        "pulumi.runtime.stack.Stack": ("eb7bf9c1292b8468",),
        "pulumi.runtime.stack.run_pulumi_func": ("fb3aa4434f6baa81",),
        "pulumi.runtime.stack.wait_for_rpcs": ("f4eadaf422f41194", "833cb0c78cb2ee52"),
    }
)
"""Each piece to the digests that it has in `RELEASES`, the oldest first. tests/e2e/test_pulumi_versions.py makes the
table of the releases."""

_MEMBERS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "pulumi.resource.Resource": ("_aliases", "_childResources", "_protect"),
        "pulumi.runtime.rpc_manager.RPCManager": ("exception_traceback", "rpcs", "unhandled_exception"),
        "pulumi.runtime.settings.Settings": ("outputs", "rpc_manager"),
    }
)
"""Members of the pieces that are used by name."""

_SILENT_FIELDS: Final = frozenset({"ctx", "kind", "type_comment"})
"""Fields of syntax nodes that change nothing in what the code does."""


class SdkCheck(NamedTuple):
    """What is known about a release of the SDK."""

    problem: str | None = None
    """Why it is refused."""
    warning: str | None = None
    """What it changed."""


@functools.cache
def examine_sdk(version: str) -> SdkCheck:
    """Examine the installed release of the Python package `pulumi`. One that was not tested takes some 40 ms.

    Args:
        version: Its version.
    """
    if version in RELEASES:
        return SdkCheck()
    if refusal := sdk_problem(version):
        return SdkCheck(problem=refusal)
    folder, missing, changed, unreadable = _sdk_folder(), list[str](), list[str](), list[str]()
    for piece, digests in PIECES.items():
        try:
            found = read_piece(folder, piece)
        except LookupError:
            missing.append(piece)
        except (OSError, SyntaxError, ValueError):
            unreadable.append(piece)
        else:
            if digest(found) not in digests:
                changed.append(piece)
                missing += [f"{piece}.{name}" for name in _MEMBERS.get(piece, ()) if name not in _names(found)]
    untested = f"the Python package pulumi {version} was not tested with torchx-pulumi, only {_SDK.supported}"
    if missing:
        return SdkCheck(problem=f"{untested}, and lacks {', '.join(missing)}, which jobs in a program need")
    told = [("it changed", changed), ("the source cannot be read of", unreadable)]
    said = ", and ".join(f"{what} {', '.join(pieces)}" for what, pieces in told if pieces)
    return SdkCheck(warning=f"{untested}; of what jobs in a program need, {said}" if said else None)


def read_piece(folder: Path, piece: str) -> ast.stmt:
    """Return the syntax tree of a piece.

    Args:
        folder: The package `pulumi`.
        piece: Name of the piece, a key of `PIECES`.

    Raises:
        LookupError: Its module lacks the name.
        OSError: The source cannot be read.
        ValueError: The source is no text, or the module has the name in another way.
        SyntaxError: The source is damaged.
    """
    module, _, name = piece.rpartition(".")
    text = folder.joinpath(*module.split(".")[1:]).with_suffix(".py").read_text(encoding="utf-8")
    begin = re.search(rf"^(?:@.*\n)*(?:async def|def|class) {name}\b", text, re.MULTILINE)
    if begin is None:
        symbol = symtable.symtable(text, piece, "exec").lookup(name)
        raise (ValueError if symbol.is_assigned() or symbol.is_imported() else LookupError)(piece)
    # To parse whole modules takes three times as long. A line that seems to begin a statement may be in a text.
    ends = [begin.end() + each.start() for each in re.finditer(r"^[^\s#)\]}]", text[begin.end() :], re.MULTILINE)]
    for end in ends:
        try:
            return ast.parse(text[begin.start() : end]).body[0]
        except SyntaxError:
            continue
    return ast.parse(text[begin.start() :]).body[0]


def digest(tree: ast.stmt) -> str:
    """Return a digest of names, fields and constants. It is the same on every version of Python."""
    return hashlib.sha256("".join(_words(tree)).encode()).hexdigest()[:16]


def _words(value: object) -> Iterator[str]:
    """Yield a syntax tree as words: without texts that document, and without fields that an older Python lacks."""
    if isinstance(value, ast.Constant):
        # `repr` escapes what this Python's version of Unicode cannot print.
        yield ascii(value.value)
    elif isinstance(value, ast.AST):
        yield f"{type(value).__name__}("
        for name, field in ast.iter_fields(value):
            if field is not None and field != [] and name not in _SILENT_FIELDS:
                yield f"{name}="
                yield from _words(field)
                yield ","
        yield ")"
    elif isinstance(value, list):
        yield "["
        for each in value:
            if not _documents(each):
                yield from _words(each)
                yield ","
        yield "]"
    else:
        yield ascii(value)


def _documents(node: object) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _names(tree: ast.stmt) -> set[str]:
    nodes = [*ast.walk(tree)]
    return {getattr(node, field) for node in nodes for field in ("attr", "id", "name") if hasattr(node, field)}


def _sdk_folder() -> Path:
    spec = find_spec("pulumi")
    return Path(((spec and spec.submodule_search_locations) or ["pulumi"])[0])
