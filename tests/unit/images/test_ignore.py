"""`.dockerignore` by Docker's rules, next to docker-py's own matcher, and by TorchX's rules, next to TorchX."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torchx_pulumi.images.content.ignore import DEFAULTS, docker_rules, torchx_rules
from torchx_pulumi.model.errors import ImageError

TABLE = [
    ("*.log", "a.log", True),
    ("*.log", "deep/a.log", False),
    ("**/*.log", "deep/er/a.log", True),
    ("**/*.log", "a.log", True),
    ("build", "build/x/y", True),
    ("/build/", "build", True),
    ("./build", "build", True),
    ("a/../build", "build", True),
    ("build", "rebuild", False),
    ("foo/**", "foo/bar/baz", True),
    ("foo/**", "foo", False),
    ("foo/**/bar", "foo/bar", True),
    ("foo/**/bar", "foo/a/b/bar", True),
    ("**/bar", "foo/bar", True),
    ("**", "anything/at/all", True),
    ("*", "a/b", True),
    ("a?c", "abc", True),
    ("a?c", "a/c", False),
    ("[a-c]x", "bx", True),
    ("[^a-c]x", "bx", False),
    ("[^a-c]x", "dx", True),
    (r"\*", "*", True),
    (r"\*", "a", False),
    ("a.c", "abc", False),
    ("# note\nb", "# note", False),
    (" # no comment", "# no comment", True),
    ("\ufeffa", "a", True),
    ("a\r\nb", "a", True),
    (".", "a", False),
    ("*\n!keep", "keep", False),
    ("*\n!keep", "keep/all/of/it", False),
    ("docs\n!docs/keep.md", "docs/keep.md", False),
    ("docs\n!docs/keep.md", "docs/other.md", True),
    ("!keep\n*", "keep", True),
    ("* \n ! keep ", "keep", False),
    ("*.md\n!README*\nREADME-secret.md", "README-secret.md", True),
    ("*.md\n!README*\nREADME-secret.md", "README-1.md", False),
    ("**.pem", "key.pem", True),
    ("**.pem", "a/b/key.pem", True),
    ("**.pem", "key.pem/inside", True),
    ("**.pem", "key.pemx", False),
    ("**x/y", "a/bx/y", True),
    ("**key*", "a/key.pem", True),
    ("**key*", "a/mykey", False),
    ("foo**", "foobar/x", True),
    ("^a", "^a", True),
    ("a|b", "a|b", True),
    (".git /", ".git/config", True),
    # Beside wildcards, moby takes these for signs of its expression.
    ("^a*", "^ab", None),
    (r"\^a*", "^ab", True),
    ("a|b*", "a", None),
    ("a{2}*", "aab", None),
    (r"\d", "7", None),
    (r"\x41*", "Ab", None),
    (r"\.x", ".x", True),
    ("a[^b]c", "a/c", True),
    # Docker tries an exception only where the path is left out so far, and a folder passes that on.
    ("x/y\n!x", "x/y", True),
    ("x\n!x", "x/y", False),
    # What moby checks and what it compiles differ inside of a class: `*` and `?` become `[^/]*` and `[^/]` there.
    ("[a*]", "a", None),
    ("[ab?/[a-c]", "a/b", None),
    (r"[\d]x", "7x", None),
    ("[[:alpha:]]*", "a1", None),
    (r"[\]a]x", "]x", True),
    ("a{2}", "a{2}", True),
    ("x*[ab", "x", None),
    ("/ *", "a", True),
    ("/!a\nb", "a", False),
    ("**a", "x\na", True),
    ("**a*", "x\n/a", False),
    ("x\n!/ /", "x", None),
    ("a\x1cb", "a", None),
    ("a\nx[c-a]", "a", None),
    (r"\y", "y", None),
    ("!/", "b", None),
    ("a[", "b", None),
    ("!", "b", None),
    ("a\\", "b", None),
]


@pytest.mark.parametrize(("text", "path", "ignored"), TABLE)
def test_docker_rules(text: str, path: str, ignored: bool | None) -> None:
    if ignored is None:
        with pytest.raises(ImageError, match=r"line \d"):
            docker_rules(text)
    else:
        assert docker_rules(text).ignores(path) is ignored


def test_all_wrong_lines_are_named_at_once() -> None:
    with pytest.raises(ImageError, match=r"(?s)line 1.*line 3"):
        docker_rules("a[\nfine\n!")


NAMES = st.sampled_from(["a", "b", "ab", "a.log", "b.log", "keep"])
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)
PATTERNS = st.lists(
    st.tuples(
        st.sampled_from(["", "!"]),
        st.lists(st.sampled_from(["a", "b", "*", "**", "*.log", "a*", "?", "keep"]), min_size=1, max_size=3),
    ).map(lambda both: both[0] + "/".join(both[1])),
    max_size=4,
)


@pytest.mark.parametrize(
    ("text", "skipped"),
    [
        ("docs", True),
        ("docs\n!docs/keep.md", False),
        ("docs\n!docs/deep/keep.md", False),
        ("docs\n!docs-other/keep.md", True),
        ("**\n!**/keep.md", True),
        ("docs\n!doc*/keep.md", True),
    ],
)
def test_docker_looks_into_an_ignored_folder_only_where_an_exception_names_it(text: str, skipped: bool) -> None:
    assert docker_rules(text).may_skip("docs") is skipped


@given(patterns=PATTERNS.map(lambda each: [p for p in each if "**" not in p]), path=PATHS)
def test_docker_rules_agree_with_docker_py(patterns: list[str], path: str) -> None:
    # docker-py reads `**` in its own way, and matches a pattern against one parent only; both are left out.
    from docker.utils.build import PatternMatcher

    assert docker_rules("\n".join(patterns)).ignores(path) == PatternMatcher(patterns).matches(path)


@given(
    patterns=st.lists(
        st.sampled_from(["*.log", "!keep*", "a", "a/*", "!a/b", "*", "b/", "keep", "!a", "# x"]), max_size=5
    ),
    paths=st.sets(PATHS, min_size=1, max_size=6),
)
@settings(max_examples=30, deadline=None)
def test_torchx_rules_agree_with_torchx(
    tmp_path_factory: pytest.TempPathFactory, patterns: list[str], paths: set[str]
) -> None:
    import fsspec
    from torchx.workspace.api import walk_workspace

    root = tmp_path_factory.mktemp("walked")
    for path in sorted(paths, key=len, reverse=True):
        if (root / path).exists() or any((root / part).is_file() for part in parents(path)):
            continue
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()
    (root / ".dockerignore").write_text("\n".join(patterns))
    theirs = {
        str((Path(folder) / name).relative_to(root))
        for folder, _, files in walk_workspace(fsspec.filesystem("file"), str(root), ".dockerignore")
        for name in files
    }
    rules = torchx_rules("\n".join(patterns))
    every = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    assert {path for path in every if not rules.ignores(path)} == theirs


def parents(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:end]) for end in range(1, len(parts))]


DEFAULT_TABLE = [
    ("", ".git/config", True),
    ("", "vendor/lib/.git", True),
    ("", "a/__pycache__/b.cpython-311.pyc", True),
    ("", "a/b.pyc", True),
    ("", "Pulumi.dev.yaml", True),
    ("", "infra/Pulumi.prod.eu.yaml", True),
    ("", "a/Pulumi.dev.yml", True),
    ("", "Pulumi.dev.json", True),
    ("", "Pulumi.yaml", False),
    ("", ".pulumi/stacks/a.json", True),
    ("", ".gitignore", False),
    ("", ".github/workflows/x.yml", False),
    ("!.git", ".git/config", False),
    ("!.git", "vendor/.git/config", True),
    ("!**/*.pyc", "a/b.pyc", False),
    ("!Pulumi.dev.yaml", "Pulumi.dev.yaml", False),
    ("!.git\n.git/hooks", ".git/hooks/x", True),
]


@pytest.mark.parametrize("rules", [docker_rules, torchx_rules])
@pytest.mark.parametrize(("text", "path", "ignored"), DEFAULT_TABLE)
def test_some_files_are_left_out_unless_a_line_brings_them_back(
    rules: Any, text: str, path: str, ignored: bool
) -> None:
    assert rules(text, DEFAULTS).ignores(path) is ignored
    assert rules(text, DEFAULTS).by_default(path) is (ignored and path != ".git/hooks/x")


BELOW_SRC = (
    "src/.git",
    "src/.git/config",
    "src/a/__pycache__/b.pyc",
    "src/b.pyc",
    "src/Pulumi.dev.yaml",
    "src/venv/x.py",
)


@pytest.mark.parametrize("rules", [docker_rules, torchx_rules])
@pytest.mark.parametrize("text", ["*\n!src\n!src/*", "**\n!src\n!src/**", "*\n!*", "**\n!**", "*\n!src*", "*\n!src**"])
def test_an_allow_list_does_not_bring_back_what_is_left_out_by_default(rules: Any, text: str) -> None:
    judge = rules(text, DEFAULTS)
    judge.leave_out("src/venv")
    assert not judge.ignores("src/train.py")
    assert [path for path in BELOW_SRC if not (judge.ignores(path) and judge.by_default(path))] == []


@pytest.mark.parametrize("text", ["*\n!src", "**\n!src/**", "**\n!src/**/*.py"])
def test_an_allow_list_of_docker_does_not_bring_back_what_is_left_out_by_default(text: str) -> None:
    judge = docker_rules(text, DEFAULTS)
    judge.leave_out("src/venv")
    assert not judge.ignores("src/train.py")
    assert [path for path in BELOW_SRC if not judge.ignores(path)] == []
    assert judge.by_default("src/venv/x.py")


@pytest.mark.parametrize("rules", [docker_rules, torchx_rules])
@pytest.mark.parametrize(
    ("exception", "path"),
    [
        ("!src/.git", "src/.git/config"),
        ("!**/.git", "src/.git/config"),
        ("!**/Pulumi.dev.yaml", "src/Pulumi.dev.yaml"),
        ("!src/*.pyc", "src/b.pyc"),
        ("!*.pyc", "b.pyc"),
        ("!src/venv", "src/venv/x.py"),
    ],
)
def test_an_exception_that_names_it_brings_back_what_is_left_out_by_default(
    rules: Any, exception: str, path: str
) -> None:
    judge = rules(f"*\n!src\n{exception}", DEFAULTS)
    judge.leave_out("src/venv")
    assert not judge.ignores(path)


@pytest.mark.parametrize("exception", ["!.git/keep", "!.git/**", "!.g[i]t/keep"])
def test_an_exception_below_a_named_folder_brings_back_what_it_matches(exception: str) -> None:
    judge = docker_rules(exception, DEFAULTS)
    assert (judge.ignores(".git"), judge.ignores(".git/keep"), judge.ignores("a/.git/keep")) == (True, False, True)
