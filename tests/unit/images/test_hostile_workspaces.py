"""Workspaces with what stands in nobody's plan: pipes where files are read, names of any bytes, folders for files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from torchx_pulumi.images import describe_left_out, plan_patch
from torchx_pulumi.images.building.transfer import runs_on
from torchx_pulumi.images.content.files import LocalSource
from torchx_pulumi.images.content.tree import read_tree
from torchx_pulumi.images.plan import ImagePlan
from torchx_pulumi.model.errors import ImageError

BASE = f"reg.example.com/base@sha256:{'1' * 64}"


def planned(workspace: Path | str) -> ImagePlan:
    return plan_patch(BASE, str(workspace), "reg.example.com/app")


@pytest.mark.parametrize("name", [".dockerignore", "Dockerfile.torchx"])
def test_a_pipe_that_a_link_leads_to_is_refused_and_not_waited_for(workspace: Path, name: str) -> None:
    os.mkfifo(workspace.parent / "pipe")
    (workspace / name).symlink_to(workspace.parent / "pipe")
    with pytest.raises(ImageError, match=r"cannot be read \(is a socket, a pipe or a device\)"):
        planned(workspace)


def test_a_pipe_that_took_the_place_of_a_file_is_not_waited_for(workspace: Path) -> None:
    source = LocalSource(str(workspace))
    (workspace / "train.py").unlink()
    os.mkfifo(workspace / "train.py")
    with pytest.raises(OSError, match="is a socket, a pipe or a device"):
        source.open("train.py")


@pytest.mark.parametrize(("target", "said"), [(None, "Is a directory"), ("gone", "No such file"), ("", "Too many")])
def test_a_dockerfile_that_is_none_is_refused(workspace: Path, target: str | None, said: str) -> None:
    file = workspace / "Dockerfile.torchx"
    file.mkdir() if target is None else file.symlink_to(target or file.name)
    with pytest.raises(ImageError, match=rf"dockerfile 'Dockerfile.torchx': cannot be read \({said}"):
        planned(workspace)


@pytest.mark.parametrize("name", ["a\0b", "~nosuchuser/code"])
def test_a_workspace_that_is_no_path_is_refused(name: str) -> None:
    with pytest.raises(ImageError, match="is not a path"):
        planned(name)


def test_rules_for_one_dockerfile_alone_are_named_as_not_read(workspace: Path) -> None:
    (workspace / "Dockerfile.torchx").write_text("FROM scratch\n")
    assert planned(workspace).warnings == []
    (workspace / "Dockerfile.torchx.dockerignore").write_text("key.pem\n")
    assert [each.partition(",")[0] for each in planned(workspace).warnings] == [
        "Dockerfile.torchx.dockerignore is not read"
    ]


def test_what_is_left_out_is_told_in_one_line_of_text_whatever_it_is_called(workspace: Path) -> None:
    for name in (b"caf\xe9", b"two\nlines"):
        (workspace / os.fsdecode(name) / ".git").mkdir(parents=True)
    told = describe_left_out(planned(workspace))
    assert told.encode("utf-8").endswith(
        rb"default: caf\xe9/.git, 'two\nlines/.git' (a line `!caf\xe9/.git` in .dockerignore keeps it)"
    )


@pytest.mark.parametrize(
    ("platform", "fits"),
    [
        ("linux/amd64", True),
        ("linux/x86_64", True),
        ("Linux/AMD64", True),
        ("linux/amd64/v2", True),
        ("linux/aarch64", False),
        ("windows/amd64", False),
    ],
)
def test_a_platform_may_be_written_as_docker_takes_it(platform: str, fits: bool) -> None:
    assert runs_on({"Os": "linux", "Architecture": "amd64"}, platform) is fits


def test_links_that_leave_the_workspace_are_named(workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (workspace / "sub").mkdir()
    for path, target in {"in": "train.py", "sub/in": "../train.py", "out": "../data", "sub/out": "../../data"}.items():
        (workspace / path).symlink_to(target)
    (workspace / "absolute").symlink_to(tmp_path / "data")
    (warning,) = planned(workspace).warnings
    assert "3 links lead out of the workspace" in warning
    named = [line.partition(" -> ")[0].strip(" -") for line in warning.splitlines()[1:]]
    assert named == ["'absolute'", "'out'", "'sub/out'"]


def test_links_that_leave_one_of_several_places_are_named_unless_the_image_has_their_target(tmp_path: Path) -> None:
    for name in ("code", "shared", "unsent"):
        (tmp_path / name).mkdir()
    (tmp_path / "code/train.py").write_text("")
    (tmp_path / "unsent/data").write_text("")
    for name, target in {"there": "../code/train.py", "above": "..", "gone": "../unsent/data"}.items():
        (tmp_path / "shared" / name).symlink_to(target)
    tree = read_tree({str(tmp_path / "code"): "code", str(tmp_path / "shared"): "shared"})
    assert [line.splitlines()[1:] for line in tree.warnings] == [["  - 'shared/gone' -> '../unsent/data'"]]
