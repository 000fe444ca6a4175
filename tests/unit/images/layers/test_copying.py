"""Where COPY and ADD put files, and which copies need the daemon."""

from __future__ import annotations

import bz2
import gzip
import os
from pathlib import Path

import pytest
from torchx_pulumi.images.content.hashing import hash_files
from torchx_pulumi.images.content.tree import read_tree
from torchx_pulumi.images.layers import UnsupportedError
from torchx_pulumi.model.errors import ImageError

from tests.unit.images.layers.images import build, layers_of, make_base, paths_of


@pytest.fixture
def files(workspace: Path) -> Path:
    """Return a workspace with folders, links and odd names."""
    (workspace / "src" / "deep").mkdir(parents=True)
    (workspace / "src" / "a.py").write_text("a")
    (workspace / "src" / "deep" / "b.py").write_text("b")
    (workspace / "empty").mkdir()
    (workspace / "run.sh").write_text("run")
    (workspace / "run.sh").chmod(0o700)
    (workspace / "b[1].txt").write_text("x")
    (workspace / "link").symlink_to("src/a.py")
    (workspace / "folder-link").symlink_to("/src")
    return workspace


@pytest.mark.parametrize(
    ("copy", "paths"),
    [
        ("COPY train.py .", ["base/train.py"]),
        ("COPY train.py /", ["train.py"]),
        ("COPY train.py sub/", ["base/sub/train.py"]),
        ("COPY train.py /opt/main.py", ["opt/main.py"]),
        ("COPY src lib", ["base/lib/a.py", "base/lib/deep/", "base/lib/deep/b.py"]),
        ("COPY /src/ ./lib/", ["base/lib/a.py", "base/lib/deep/", "base/lib/deep/b.py"]),
        ("COPY ./src/../src/deep /opt", ["opt/b.py"]),
        ("COPY train.py run.sh /opt/", ["opt/run.sh", "opt/train.py"]),
        ("COPY *.py run.* ./", ["base/run.sh", "base/train.py"]),
        ("COPY sr? ./", ["base/a.py", "base/deep/", "base/deep/b.py"]),
        ("COPY src/*/[a-c].py ./", ["base/b.py"]),
        ("COPY src/[^b].py ./", ["base/a.py"]),
        ("COPY b[[]1].txt ./", ["base/b[1].txt"]),
        ('COPY ["train.py", "./"]', ["base/train.py"]),
        ("COPY link ./", ["base/link"]),
        ("COPY folder-link ./", ["base/a.py", "base/deep/", "base/deep/b.py"]),
        ("COPY folder-link/a.py ./", ["base/a.py"]),
        ("COPY empty .", []),
        ("ADD src /opt/", ["opt/a.py", "opt/deep/", "opt/deep/b.py"]),
        ("COPY --chown=7 train.py ./", ["base/train.py"]),
        ("COPY src .\nCOPY train.py deep", ["base/a.py", "base/deep/", "base/deep/b.py", "base/deep/train.py"]),
        ("COPY train.py /opt/x.py\nCOPY run.sh /opt/x.py", ["opt/x.py", "opt/x.py"]),
        ("WORKDIR /a\nWORKDIR b/../c\nCOPY train.py .", ["a/c/train.py"]),
        ("WORKDIR /a/b\nCOPY train.py /a", ["a/train.py"]),
    ],
)
def test_where_files_are_copied(files: Path, copy: str, paths: list[str]) -> None:
    assert paths_of(build(files, f"FROM base\n{copy}", make_base())) == paths


def test_the_default_copies_all(files: Path) -> None:
    found = paths_of(build(files, "FROM base\nCOPY . .", make_base()))
    assert found == [
        *("base/b[1].txt", "base/empty/", "base/folder-link", "base/link", "base/run.sh", "base/src/", "base/src/a.py"),
        *("base/src/deep/", "base/src/deep/b.py", "base/train.py"),
    ]


def test_a_link_is_kept_in_a_folder_and_followed_as_a_source(files: Path) -> None:
    kept, followed = layers_of(build(files, "FROM base\nCOPY . .\nCOPY link /opt/", make_base()))
    assert {each.name: each.linkname for each in kept if each.issym()} == {
        "base/folder-link": "/src",
        "base/link": "src/a.py",
    }
    assert [(each.name, each.isfile(), each.size) for each in followed] == [("opt/link", True, 1)]


def test_modes_owners_and_times(files: Path) -> None:
    (layer,) = layers_of(build(files, "FROM base\nCOPY --chown=7:8 . .", make_base()))
    assert {(each.uid, each.gid, each.uname, each.gname) for each in layer} == {(7, 8, "", "")}
    assert {
        each.name: oct(each.mode) for each in layer if each.name in ("base/run.sh", "base/train.py", "base/src")
    } == {
        "base/run.sh": "0o755",
        "base/src": "0o755",
        "base/train.py": "0o644",
    }


def test_a_folder_that_only_the_rules_exclude_is_copied_with_what_is_brought_back(files: Path) -> None:
    (files / ".dockerignore").write_text("*\n!src/a.py\n")
    assert paths_of(build(files, "FROM base\nCOPY . .", make_base())) == ["base/src/", "base/src/a.py"]


def test_a_generated_file_is_copied_like_the_others(files: Path) -> None:
    tree = read_tree(str(files), dockerfile="Dockerfile.torchx", default=b"FROM base")
    image = build(files, "FROM base\nCOPY . .\nCOPY D* /opt/", make_base(), entries=hash_files(tree.entries))
    assert [path for path in paths_of(image) if "Docker" in path] == ["base/Dockerfile.torchx", "opt/Dockerfile.torchx"]


def test_a_later_source_replaces_an_earlier_one(workspace: Path) -> None:
    for path in ("one/x/y", "two/z"):
        (workspace / path).parent.mkdir(parents=True)
        (workspace / path).write_text(path)
    (workspace / "two" / "x").write_text("file")
    assert paths_of(build(workspace, "FROM base\nCOPY one two ./", make_base())) == ["base/x", "base/z"]
    assert paths_of(build(workspace, "FROM base\nCOPY two one ./", make_base())) == ["base/x/", "base/x/y", "base/z"]


def test_without_a_base_every_destination_is_known(workspace: Path) -> None:
    assert paths_of(build(workspace, "FROM scratch\nCOPY train.py /lib\nCOPY train.py /bin/a")) == ["lib", "bin/a"]


@pytest.mark.parametrize(
    ("copy", "said"),
    [
        ("COPY run.sh /usr/local/tool", "may be a folder of the base; end it with / for a folder"),
        ("COPY train.py /etc/conf.d", "may be a folder of the base"),
        ("COPY train.py /bin/", "where many images have a link"),
        ("COPY train.py /var/run/x.py", "where many images have a link"),
        ("COPY --chown=1000 . /srv", "put `WORKDIR /srv` before it"),
        ("COPY --chown=1000 train.py /srv/", "put `WORKDIR /srv` before it"),
        ("COPY . .\nCOPY train.py folder-link/", "an earlier instruction made /base/folder-link a link"),
        ("COPY . .\nCOPY src train.py", "which an earlier instruction made a file"),
        ("COPY . .\nCOPY src train.py/x", "made /base/train.py a file"),
        ("COPY train.py /opt/../x/", "whose `..` depends on links of the base"),
        ("COPY empty /srv/", "copies no files to /srv, which may be a folder of the base or not"),
        ("WORKDIR /one\nWORKDIR /two", "makes an empty folder /one that is not the last working directory"),
        ("ADD data.txt.gz /opt/", "unpacks data.txt.gz"),
        ("ADD data.bz2 /opt/", "unpacks data.bz2"),
        ("ADD $URL /opt/", "downloads a source"),
        ("COPY --chown=$URL . .", "numbers of names are in the base's files"),
    ],
)
def test_what_depends_on_the_base_needs_the_daemon(files: Path, copy: str, said: str) -> None:
    (files / "data.txt.gz").write_bytes(gzip.compress(b"x"))
    (files / "data.bz2").write_bytes(bz2.compress(b"x"))
    with pytest.raises(UnsupportedError) as refused:
        build(files, f"FROM base\nARG URL=https://example.com/x\n{copy}", make_base())
    (reason,) = refused.value.reasons
    line = 3 if copy.startswith("WORKDIR") else 3 + copy.count("\n")
    assert reason.startswith(f"Dockerfile line {line}: {copy.split()[0]} ")
    assert said in reason
    assert reason.endswith("which needs the builder docker")


def test_an_archive_is_added_as_part_of_a_folder(workspace: Path) -> None:
    (workspace / "data").mkdir()
    (workspace / "data" / "x.gz").write_bytes(gzip.compress(b"x"))
    assert paths_of(build(workspace, "FROM base\nADD data /opt/", make_base())) == ["opt/x.gz"]


@pytest.mark.parametrize(
    ("copy", "said"),
    [
        ("COPY absent .", "'absent': is not in the workspace, or .dockerignore excludes it"),
        ("COPY *.none .", r"'\*.none': matches no file"),
        ("COPY [.py .", r"'\[.py': matches no file"),
        ("COPY dangling .", "'dangling': is not in the workspace"),
        ("COPY round .", "'round': is not in the workspace"),
        ("COPY ../train.py .", "'../train.py': is outside the workspace"),
        ("COPY src/../../x .", "'src/../../x': is outside the workspace"),
        ("COPY train.py/x .", "'train.py/x': is not in the workspace"),
        ("COPY src train.py .", "several sources need a destination that ends with `/`"),
    ],
)
def test_a_source_that_does_not_exist_is_an_error(files: Path, copy: str, said: str) -> None:
    (files / "dangling").symlink_to("nowhere")
    (files / "round").symlink_to("round")
    with pytest.raises(ImageError, match=f"Dockerfile line 2: COPY: {said}"):
        build(files, f"FROM base\n{copy}", make_base())


def test_all_errors_are_told_at_once(workspace: Path) -> None:
    with pytest.raises(ImageError) as refused:
        build(workspace, "FROM base\nCOPY one .\nCOPY two .", make_base())
    assert [line.split("'")[1] for line in str(refused.value).splitlines()] == ["one", "two"]


def test_a_name_that_deletes_files_of_an_image_is_an_error(workspace: Path) -> None:
    (workspace / ".wh.data").touch()
    with pytest.raises(ImageError, match=r"begins with \.wh\. deletes a file of an image; rename it"):
        build(workspace, "FROM base\nCOPY . .", make_base())


def test_names_of_any_bytes_and_any_length(workspace: Path) -> None:
    names = [b"\xff\xfe", b"a\nb", b" ", "é".encode(), b"x" * 200]
    for name in names:
        Path(os.fsdecode(os.path.join(os.fsencode(workspace), name))).write_text("x")  # noqa: PTH118
    found = paths_of(build(workspace, "FROM base\nCOPY . .", make_base()))
    assert {os.fsencode(path) for path in found} == {b"base/" + name for name in [*names, b"train.py"]}


@pytest.mark.parametrize(
    ("copy", "path", "said"),
    [
        ("COPY . /", "lib/a.py", "puts 'lib' of the workspace in the place of /lib"),
        ("COPY . .", "var/run/a.pid", "puts 'var/run' of the workspace in the place of /var/run"),
        ("COPY tree/ /var/", "tree/lock/a", "puts 'tree/lock' of the workspace in the place of /var/lock"),
        ("COPY bin/ /", "bin/bin", "puts 'bin/bin' of the workspace in the place of /bin"),
        ("COPY . /app/\nCOPY deep/ /app/", "deep/folder-link/x", "puts the folder 'deep/folder-link' in the place of"),
    ],
)
def test_what_would_hide_a_link_of_the_base_needs_the_daemon(files: Path, copy: str, path: str, said: str) -> None:
    (files / path).parent.mkdir(parents=True, exist_ok=True)
    (files / path).write_text("x")
    with pytest.raises(UnsupportedError) as refused:
        build(files, f"FROM base\n{copy}", make_base({"WorkingDir": ""}))
    assert said in refused.value.reasons[0]
    # The daemon replaces a link of the base as well.
    assert [said in warning for warning in refused.value.warnings] == (
        [] if copy.startswith("COPY . /app/") else [True]
    )
    # In a folder of its own, and in an image that has nothing else, nothing is hidden.
    build(files, f"FROM base\nWORKDIR /own\n{copy.splitlines()[0].split()[0]} . .", make_base())
    build(files, "FROM scratch\nCOPY . /")
