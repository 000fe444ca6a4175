"""What a release of Pulumi's SDK changed of its private pieces is told by name; without a change nothing is said."""

from __future__ import annotations

import ast
import re
import shutil
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from torchx_pulumi.model import pulumi_pieces
from torchx_pulumi.model.pulumi_pieces import PIECES, RELEASES, SdkCheck, digest, examine_sdk, read_piece

INSTALLED = Path((find_spec("pulumi").submodule_search_locations or [""])[0])  # type: ignore[union-attr]
UNTESTED = "the Python package pulumi 3.999.0 was not tested with torchx-pulumi, only 3.259 to 3.272"


@pytest.fixture
def sdk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the sources of the installed SDK that have pieces."""
    for piece in PIECES:
        path = source(INSTALLED, piece).relative_to(INSTALLED)
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(INSTALLED / path, tmp_path / path)
    monkeypatch.setattr(pulumi_pieces, "_sdk_folder", lambda: tmp_path)
    examine_sdk.cache_clear()
    yield tmp_path
    examine_sdk.cache_clear()


def source(folder: Path, piece: str) -> Path:
    return folder.joinpath(*piece.split(".")[1:-1]).with_suffix(".py")


def alter(path: Path, change: Callable[[ast.Module], None]) -> None:
    """Change the syntax tree of a file; comments and the form of the source go as well."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    change(tree)
    path.write_text(ast.unparse(ast.fix_missing_locations(tree)), encoding="utf-8")


def rename(path: Path, name: str) -> None:
    text = path.read_text(encoding="utf-8")
    path.write_text(re.sub(rf"\b{name}\b", f"{name}_2", text), encoding="utf-8")


def test_every_version_of_python_makes_the_digests_of_the_table() -> None:
    found = {piece: digest(read_piece(INSTALLED, piece)) for piece in PIECES}
    assert {piece: found[piece] in digests for piece, digests in PIECES.items()} == dict.fromkeys(PIECES, True)


def test_fields_that_only_some_versions_of_python_have_are_no_change() -> None:
    plain, newer = (ast.parse('def f(a: int) -> None:\n    """Do."""\n    return f"{a!r:>{a}}"').body[0] for _ in "ab")
    for node in ast.walk(newer):
        node._fields = (*node._fields, "type_params", "later")
        node.type_params, node.later = [], None  # type: ignore[attr-defined]
    assert digest(newer) == digest(plain)
    assert digest(newer) != digest(ast.parse('def f(a: int) -> None:\n    return f"{a!s:>{a}}"').body[0])


def test_nothing_is_looked_at_of_a_tested_release(sdk: Path) -> None:
    shutil.rmtree(sdk)
    assert [examine_sdk(version) for version in RELEASES] == [SdkCheck()] * 14
    assert examine_sdk("3.272.1").warning is not None


def test_a_release_with_the_same_pieces_is_taken_in_silence(sdk: Path) -> None:
    spent = []
    for _ in range(5):
        examine_sdk.cache_clear()
        began = time.process_time()
        assert examine_sdk("3.999.0") == SdkCheck()
        spent.append(time.process_time() - began)
    # The fastest run: on a shared core the same work can take twice the CPU time.
    assert min(spent) < 0.1


def test_docstrings_comments_and_form_are_no_change(sdk: Path) -> None:
    def document(tree: ast.Module) -> None:
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                node.body.insert(0, ast.Expr(ast.Constant("Another text.")))

    for path in {source(sdk, piece) for piece in PIECES}:
        alter(path, document)
    assert examine_sdk("3.999.0") == SdkCheck()


@pytest.mark.parametrize("piece", PIECES)
def test_a_changed_piece_is_named_in_one_warning(sdk: Path, piece: str) -> None:
    def change(tree: ast.Module) -> None:
        (found,) = (each for each in tree.body if getattr(each, "name", None) == piece.rpartition(".")[2])
        last = [each for each in ast.walk(found) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)][-1]
        last.body.append(ast.Return(ast.Constant(None)))

    alter(source(sdk, piece), change)
    assert examine_sdk("3.999.0") == SdkCheck(warning=f"{UNTESTED}; of what jobs in a program need, it changed {piece}")


@pytest.mark.parametrize("piece", PIECES)
def test_a_release_that_lacks_a_piece_is_refused(sdk: Path, piece: str) -> None:
    rename(source(sdk, piece), piece.rpartition(".")[2])
    problem = examine_sdk("3.999.0").problem
    assert re.fullmatch(rf"{UNTESTED}, and lacks (\S+, )*{piece}(, \S+)*, which jobs in a program need", str(problem))


@pytest.mark.parametrize(
    ("piece", "member"),
    [(piece, member) for piece, members in pulumi_pieces._MEMBERS.items() for member in members],
)
def test_a_release_that_lacks_a_member_of_a_piece_is_refused(sdk: Path, piece: str, member: str) -> None:
    rename(source(sdk, piece), member)
    assert f"lacks {piece}.{member}, which" in str(examine_sdk("3.999.0").problem)


@pytest.mark.parametrize("kind", ["without", "damaged", "elsewhere", "no text"])
def test_a_piece_whose_source_cannot_be_read_is_named_in_the_warning(sdk: Path, kind: str) -> None:
    path = sdk / "runtime/rpc_manager.py"
    if kind == "without":
        path.unlink()
    elif kind == "elsewhere":
        path.write_text("from .another import RPCManager\n", encoding="utf-8")
    else:
        path.write_bytes(b"class RPCManager(:\n" if kind == "damaged" else b"\xff\xfe\x00")
    said = "the source cannot be read of pulumi.runtime.rpc_manager.RPCManager"
    assert examine_sdk("3.999.0") == SdkCheck(warning=f"{UNTESTED}; of what jobs in a program need, {said}")


def test_what_changed_and_what_cannot_be_read_are_in_one_warning(sdk: Path) -> None:
    (sdk / "output.py").unlink()
    rename(sdk / "runtime/stack.py", "asyncio")
    assert str(examine_sdk("3.999.0").warning).endswith(
        "it changed pulumi.runtime.stack.wait_for_rpcs, and the source cannot be read of pulumi.output.Output"
    )


@pytest.mark.parametrize("version", ["3.258.9", "4.0.0", "2.0", "unreadable"])
def test_a_release_outside_the_range_is_refused_whatever_is_in_it(sdk: Path, version: str) -> None:
    wanted = f"the Python package pulumi {version} is not supported, only 3.259 or newer below 4"
    assert examine_sdk(version) == SdkCheck(problem=wanted)
