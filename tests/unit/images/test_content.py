"""The context: what goes in, its hashes, its archive, and what cannot go in."""

from __future__ import annotations

import os
import socket
import subprocess
import tarfile
import time
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torchx_pulumi.images import plan_patch
from torchx_pulumi.images.content import files, hashing
from torchx_pulumi.images.content.archive import stream, tar_header
from torchx_pulumi.images.content.hashing import files_address, hash_files
from torchx_pulumi.images.content.tree import Tree, read_tree
from torchx_pulumi.model.errors import ImageError


def paths(tree: Tree) -> list[str]:
    return [entry.path for entry in tree.entries]


def archive(tree: Tree) -> bytes:
    return b"".join(stream(hash_files(tree.entries)))


def hashes(workspace: Path) -> list[str]:
    return [entry.sha256 for entry in hash_files(read_tree(str(workspace)).entries)]


def fill(root: Path, content: dict[str, bytes], order: int = 1) -> Path:
    for name, data in list(content.items())[::order]:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root


def test_what_dockerignore_leaves_out_is_not_sent_and_not_hashed(workspace: Path) -> None:
    fill(
        workspace, {".dockerignore": b"secret\n.git\n!.git/keep\n", "secret/key": b"k", ".git/a": b"", ".git/keep": b""}
    )
    assert paths(read_tree(str(workspace))) == [".dockerignore", ".git/keep", "train.py"]


@pytest.mark.parametrize("ignore_rules", ["docker", "torchx"])
def test_history_caches_environments_and_stack_settings_are_left_out_and_named(
    workspace: Path, ignore_rules: str
) -> None:
    fill(
        workspace,
        {
            ".git/config": b"url = https://token@example.com",
            "lib/.git": b"gitdir: elsewhere",
            "lib/__pycache__/a.pyc": b"",
            "lib/b.pyc": b"",
            "tools/env/pyvenv.cfg": b"home = /usr/bin",
            "tools/env/bin/python": b"",
            ".pulumi/meta.yaml": b"",
            "Pulumi.dev.yaml": b"secret",
            "Pulumi.yaml": b"name: x",
        },
    )
    tree = read_tree(str(workspace), ignore_rules=ignore_rules)
    assert paths(tree) == ["Pulumi.yaml", "lib", "tools", "train.py"]
    left_out = [".git", ".pulumi", "Pulumi.dev.yaml", "lib/.git", "lib/__pycache__", "lib/b.pyc", "tools/env"]
    assert list(tree.left_out) == left_out
    (workspace / ".dockerignore").write_text("!.git\n!tools/env\n!*.yaml\n")
    tree = read_tree(str(workspace), ignore_rules=ignore_rules)
    assert {".git/config", "tools/env/bin/python", "Pulumi.dev.yaml"} <= set(paths(tree))
    assert list(tree.left_out) == [".pulumi", "lib/.git", "lib/__pycache__", "lib/b.pyc"]


@pytest.mark.parametrize(
    ("rules", "text"), [("docker", "*\n!src"), ("docker", "**\n!src/**"), ("torchx", "*\n!src\n!src/*")]
)
def test_an_allow_list_leaves_history_environments_and_stack_settings_out_and_names_them(
    workspace: Path, rules: str, text: str
) -> None:
    sent = {"src/train.py": b""}
    kept_out = {"src/.git/config": b"", "src/venv/pyvenv.cfg": b"", "src/venv/x.py": b"", "src/Pulumi.dev.yaml": b""}
    fill(workspace, {".dockerignore": text.encode(), **sent, **kept_out})
    tree = read_tree(str(workspace), ignore_rules=rules)
    assert [path for path in paths(tree) if path.startswith("src/")] == ["src/train.py"]
    assert list(tree.left_out) == ["src/.git", "src/Pulumi.dev.yaml", "src/venv"]


def test_what_the_rules_leave_out_is_not_named_as_left_out_by_default(workspace: Path) -> None:
    fill(workspace, {".dockerignore": b".git\n**/env\n", ".git/config": b"", "env/pyvenv.cfg": b""})
    assert list(read_tree(str(workspace)).left_out) == []


def test_below_a_folder_left_out_only_what_an_exception_names_is_sent(workspace: Path) -> None:
    fill(workspace, {".dockerignore": b"!.git/keep\n", ".git/keep": b"", ".git/config": b"", ".git/deep/a.pyc": b""})
    tree = read_tree(str(workspace))
    assert paths(tree) == [".dockerignore", ".git/keep", "train.py"]
    assert list(tree.left_out) == [".git"]


def test_fresh_clones_of_one_commit_have_one_tag(tmp_path: Path) -> None:
    def git(*words: str, umask: int = 0o022) -> None:
        who = ("-c", "user.name=n", "-c", "user.email=e@example.com", "-c", "init.defaultBranch=main")
        subprocess.run(["git", *who, *words], check=True, capture_output=True, umask=umask)

    origin = fill(tmp_path / "origin", {"train.py": b"one", "lib/run.sh": b"two", "Pulumi.yaml": b"name: x"})
    (origin / "lib/run.sh").chmod(0o755)
    (origin / "lib/link").symlink_to("run.sh")
    git("init", str(origin))
    git("-C", str(origin), "add", "-A")
    git("-C", str(origin), "commit", "-m", "one")
    clones = [tmp_path / "a", tmp_path / "deep/er/b", tmp_path / "c"]
    for clone, umask in zip(clones, (0o022, 0o077, 0o002), strict=True):
        git("clone", "--no-local", str(origin), str(clone), umask=umask)
    git("-C", str(clones[0]), "gc")
    git("-C", str(clones[2]), "fetch", "origin", "main:other")
    (clones[0] / "lib/__pycache__").mkdir()
    (clones[0] / "lib/__pycache__/x.pyc").write_bytes(b"x")
    base = f"reg.example.com/base@sha256:{'1' * 64}"
    assert len({plan_patch(base, str(clone), "reg.example.com/app").tag for clone in clones}) == 1


def test_dockerfile_and_dockerignore_are_sent_for_the_daemon_though_ignored(workspace: Path) -> None:
    fill(workspace, {".dockerignore": b"*\n!train.py", "Dockerfile.torchx": b"FROM scratch"})
    tree = read_tree(str(workspace), dockerfile="Dockerfile.torchx")
    assert paths(tree) == ["train.py"]
    assert [entry.path for entry in tree.sent_only] == [".dockerignore", "Dockerfile.torchx"]


def test_files_that_torchx_would_leave_out_are_named(workspace: Path) -> None:
    fill(workspace, {".dockerignore": b"*.bin", "data/model.bin": b"x", "root.bin": b"y"})
    tree = read_tree(str(workspace))
    assert "data/model.bin" in paths(tree)
    assert len(tree.warnings) == 1
    assert "'data/model.bin'" in tree.warnings[0]
    assert "root.bin" not in tree.warnings[0]
    old = read_tree(str(workspace), ignore_rules="torchx")
    assert (paths(old), list(old.warnings)) == ([".dockerignore", "data", "train.py"], [])


def test_links_stay_links_and_are_not_followed(workspace: Path) -> None:
    (workspace / "out").symlink_to("/etc")
    (workspace / "broken").symlink_to("nowhere")
    with tarfile.open(fileobj=BytesIO(archive(read_tree(str(workspace))))) as tar:
        assert {info.name: info.linkname for info in tar if info.issym()} == {"out": "/etc", "broken": "nowhere"}


def test_all_that_cannot_be_sent_is_named_at_once(workspace: Path) -> None:
    os.mkfifo(workspace / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        here = Path.cwd()
        os.chdir(workspace)
        try:
            listening.bind("sock")
        finally:
            os.chdir(here)
    with pytest.raises(ImageError) as caught:
        read_tree(str(workspace))
    assert "'pipe'" in str(caught.value)
    assert "'sock'" in str(caught.value)
    (workspace / ".dockerignore").write_text("pipe\nsock")
    assert "train.py" in paths(read_tree(str(workspace)))


def test_files_that_cannot_be_read_are_named(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(workspace, {"a": b"", "b": b""})

    def refuse(self: object, path: str) -> None:
        raise PermissionError(13, "Permission denied")

    tree = read_tree(str(workspace))
    monkeypatch.setattr(files.LocalSource, "open", refuse)
    with pytest.raises(ImageError, match=r"(?s)cannot be hashed.*'a'.*'b'.*'train.py'"):
        hash_files(tree.entries)


def test_names_of_any_bytes_go_through(workspace: Path) -> None:
    name = b"caf\xe9 \n.txt"
    (workspace / os.fsdecode(name)).write_text("latin")
    (workspace / ("x" * 200)).write_text("long")
    with tarfile.open(fileobj=BytesIO(archive(read_tree(str(workspace))))) as tar:
        assert {os.fsencode(info.name) for info in tar} == {name, b"x" * 200, b"train.py"}


@given(
    content=st.dictionaries(
        st.lists(st.sampled_from(["a", "b", "ä", "x y"]), min_size=1, max_size=3).map(
            lambda parts: "/".join(parts) + "_"
        ),
        st.binary(max_size=2000),
        min_size=1,
        max_size=6,
    ),
    other=st.booleans(),
)
@settings(max_examples=25, deadline=None)
def test_equal_content_gives_equal_bytes(
    tmp_path_factory: pytest.TempPathFactory, content: dict[str, bytes], other: bool
) -> None:
    one = fill(tmp_path_factory.mktemp("one"), content)
    two = fill(tmp_path_factory.mktemp("two"), content, order=-1)
    for path in two.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
        os.utime(path, (1, 1))
    first, second = read_tree(str(one)), read_tree(str(two))
    assert archive(first) == archive(second)
    assert files_address(hash_files(first.entries)) == files_address(hash_files(second.entries))
    changed = next(path for path in two.rglob("*") if path.is_file())
    if other:
        changed.chmod(0o700)
    else:
        changed.write_bytes(changed.read_bytes() + b"!")
    third = read_tree(str(two))
    assert archive(third) != archive(first)
    assert files_address(hash_files(third.entries)) != files_address(hash_files(first.entries))


def test_an_archive_has_fixed_times_and_owners(workspace: Path) -> None:
    (workspace / "run.sh").touch(mode=0o777)
    with tarfile.open(fileobj=BytesIO(archive(read_tree(str(workspace))))) as tar:
        members = list(tar)
    assert [(i.name, i.mode, i.uid, i.gid, i.uname) for i in members] == [
        ("run.sh", 0o755, 0, 0, ""),
        ("train.py", 0o644, 0, 0, ""),
    ]
    assert all(1980 <= time.gmtime(each.mtime).tm_year < 2020 for each in members)


NAMES = st.builds(lambda text, times: text * times, st.text("aé\udc80/ ", min_size=1, max_size=4), st.integers(1, 60))


@given(
    NAMES,
    st.sampled_from([tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE]),
    st.one_of(st.integers(0, 9000), st.integers(8**11 - 2, 8**11 + 2)),
    st.one_of(st.just(""), NAMES),
    st.one_of(st.integers(0, 2000), st.integers(8**7 - 2, 8**7 + 2)),
)
def test_headers_have_the_bytes_that_tarfile_makes(name: str, kind: bytes, size: int, target: str, owner: int) -> None:
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.size, info.linkname, info.uid, info.mtime = (
        kind,
        0o755,
        size,
        target,
        owner,
        1_000_000_000,
    )
    made = tar_header(name, kind, 0o755, size=size, target=target, owner=(owner, 0), modified=1_000_000_000)
    assert made == info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")


class Opened:
    """Counts the files that are read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: list[str] = []
        really = files.LocalSource.open

        def count(source: files.LocalSource, path: str) -> object:
            if path != ".dockerignore":
                self.names.append(path)
            return really(source, path)

        monkeypatch.setattr(files.LocalSource, "open", count)


def age(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the clock say that everything was written a while ago."""
    now = time.time_ns() + 10_000_000_000
    monkeypatch.setattr(hashing.time, "time_ns", lambda: now)


def test_the_second_hash_reads_only_what_changed(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(workspace, {"a": b"1", "b/c": b"2"})
    age(workspace, monkeypatch)
    opened = Opened(monkeypatch)
    first = hashes(workspace)
    assert opened.names == ["a", "b/c", "train.py"]
    opened.names.clear()
    assert hashes(workspace) == first
    assert opened.names == []
    (workspace / "b/c").write_bytes(b"3")  # of the same size
    assert hashes(workspace) != first
    assert opened.names == ["b/c"]


def test_a_file_written_just_now_is_not_trusted_the_next_time(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = (workspace / "train.py").stat().st_mtime_ns
    monkeypatch.setattr(hashing.time, "time_ns", lambda: now)
    opened = Opened(monkeypatch)
    hashes(workspace)
    hashes(workspace)
    assert opened.names == ["train.py", "train.py"]


@pytest.mark.parametrize("text", ["", "{", '{"version": 9, "files": {}}', '{"version": 1}', "[]"])
def test_a_cache_that_is_broken_is_as_good_as_none(workspace: Path, tmp_path: Path, text: str) -> None:
    first = hashes(workspace)
    for file in hashing.cache_folder().glob("*.json"):
        file.write_text(text)
    assert hashes(workspace) == first


def test_a_file_that_changes_while_it_is_read_is_named(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    really = files.LocalSource.open

    def touch(source: files.LocalSource, path: str) -> object:
        opened = really(source, path)
        with (workspace / "train.py").open("a") as file:
            file.write("more\n")
        return opened

    tree = read_tree(str(workspace))
    monkeypatch.setattr(files.LocalSource, "open", touch)
    with pytest.raises(ImageError, match=r"'train.py': changed while it was read"):
        hash_files(tree.entries)


def test_a_file_that_changes_before_it_is_sent_ends_the_stream(workspace: Path) -> None:
    tree = read_tree(str(workspace))
    hashed = hash_files(tree.entries)
    (workspace / "train.py").write_text("print('two')\n")
    with pytest.raises(ImageError, match="changed after it was hashed"):
        list(stream(hashed))


def test_several_places_are_laid_over_each_other(workspace: Path, tmp_path: Path) -> None:
    shared = fill(tmp_path / "shared", {"lib.py": b"shared", "train.py": b"over", ".dockerignore": b"lib.py"})
    tree = read_tree({str(workspace): "", str(shared): "deep/er", str(shared / "lib.py"): "single.py"})
    assert paths(tree) == [
        *("deep", "deep/er", "deep/er/.dockerignore", "deep/er/lib.py", "deep/er/train.py", "single.py", "train.py"),
    ]
    over = read_tree({str(workspace): "", str(shared): ""})
    assert paths(over) == [".dockerignore", "train.py"]
    assert hash_files(over.entries)[1].sha256 == hash_files(read_tree(str(shared)).entries)[-1].sha256


def test_a_file_or_link_over_a_folder_replaces_it(workspace: Path, tmp_path: Path) -> None:
    fill(workspace, {"sub/a.py": b"a", "sub/deep/b.py": b"b", "other/c.py": b"c", "subway": b""})
    over = fill(tmp_path / "over", {"one.py": b"one"})
    (over / "other").symlink_to("one.py")
    tree = read_tree({str(workspace): "", str(over / "one.py"): "sub", str(over): ""})
    assert paths(tree) == ["one.py", "other", "sub", "subway", "train.py"]
    back = read_tree({str(over / "one.py"): "sub", str(workspace): ""})
    assert paths(back) == ["other", "other/c.py", "sub", "sub/a.py", "sub/deep", "sub/deep/b.py", "subway", "train.py"]


def test_a_file_url_may_be_escaped_or_not(tmp_path: Path) -> None:
    fill(tmp_path / "a b", {"blank.py": b""})
    assert paths(read_tree(f"file://{tmp_path}/a%20b")) == paths(read_tree(f"file://{tmp_path}/a b")) == ["blank.py"]
    # TorchX and fsspec take the text as it is, which is first.
    fill(tmp_path / "a%20b", {"literal.py": b""})
    assert paths(read_tree(f"file://{tmp_path}/a%20b")) == ["literal.py"]


@pytest.mark.parametrize(
    ("workspace", "said"),
    [
        ("", "workspace is empty"),
        ({}, "workspace is empty"),
        ("/no/such/folder", "there is no such folder"),
        ("memory://nowhere/at/all", "there is nothing at that URL"),
        ("nosuchscheme://x", "cannot be opened"),
        ({".": "../out"}, "must be a relative path"),
        ({".": "/abs"}, "must be a relative path"),
    ],
)
def test_a_workspace_that_is_none_is_refused(workspace: str | dict[str, str], said: str) -> None:
    with pytest.raises(ImageError, match=said):
        read_tree(workspace)


def test_an_archive_is_what_tar_reads(workspace: Path, tmp_path: Path) -> None:
    fill(workspace, {"sub/empty": b"", "sub/big": b"z" * 70_000})
    done = subprocess.run(
        ["tar", "--list", "--file", "-"], input=archive(read_tree(str(workspace))), capture_output=True, check=True
    )
    assert done.stdout.decode().split() == ["sub/", "sub/big", "sub/empty", "train.py"]
