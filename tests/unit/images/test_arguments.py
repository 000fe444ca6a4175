"""Arguments of other types, and a user without a home: one message, or no difference."""

from __future__ import annotations

import json
import pwd
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.images import plan_patch
from torchx_pulumi.images.content import hashing
from torchx_pulumi.images.content.hashing import cache_folder
from torchx_pulumi.images.registry import RegistryClient, login_of
from torchx_pulumi.model.errors import ImageError
from torchx_pulumi.model.image_options import PatchKeywords, PatchOptions
from torchx_pulumi.model.options import rows_of

PINNED = f"registry.example.com/base@sha256:{'1' * 64}"


def plan(workspace: Any, **changed: Any) -> str:
    given = {"base": PINNED, "repository": "registry.example.com/team/app", "builder": "docker", **changed}
    return plan_patch(workspace=workspace, **given, registry=RegistryClient()).reference


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"base": 5}, "base is of the type int, must be a text"),
        ({"base": None}, "base is of the type NoneType, must be a text"),
        ({"repository": b"x"}, "image_repo is of the type bytes, must be a text"),
        ({"dockerfile": 5}, "dockerfile is of the type int"),
        ({"platform": 5}, "platform is of the type int"),
        ({"platform": "linux"}, "platform is 'linux', must be OS/ARCHITECTURE"),
        # It is read before a registry is asked for the base.
        ({"platform": "linux", "base": "registry.invalid/base:1"}, "platform is 'linux', must be OS/ARCHITECTURE"),
        ({"platform": ""}, "platform is '', must be OS/ARCHITECTURE"),
        ({"build_args": ["A=1"]}, "build_args is of the type list, must be a mapping"),
        ({"build_args": {5: "x"}}, "build_args: the name 5 must be a text"),
        ({"build_args": {"": "x"}}, "build_args: the name '' must be a text that is not empty"),
        ({"build_args": {"A": 5}}, "build_args: A: a value must be text"),
        ({"ignore_rules": "git"}, "ignore_rules is 'git', must be one of docker, torchx"),
        ({"ignore_rules": 5}, "ignore_rules is of the type int, must be a text"),
        ({"labels": "x"}, "labels is of the type str, must be a mapping"),
        ({"labels": {"a": None}}, "labels: a: a value must be text"),
    ],
)
def test_an_argument_of_another_type_is_named(workspace: Path, changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ImageError, match=message):
        plan(str(workspace), **changed)


@pytest.mark.parametrize("workspace", [None, 5, b"/tmp", Path("/tmp"), {5: ""}, {"/tmp": 5}])
def test_a_workspace_of_another_type_is_named(workspace: Any) -> None:
    with pytest.raises(ImageError, match=r"workspace is .*, must be a text, or a mapping of texts to texts"):
        plan(workspace)


def test_all_arguments_are_in_one_message_and_no_value_of_a_build_argument(workspace: Path) -> None:
    with pytest.raises(ImageError) as raised:
        plan(str(workspace), dockerfile=5, build_args={"A": ["hunter2"], "B": b"hunter2"})
    assert len(str(raised.value).splitlines()) == 3
    assert "hunter2" not in str(raised.value)


def test_type_checkers_know_the_options_of_the_table() -> None:
    assert [*PatchKeywords.__annotations__] == [row.name for row in rows_of(PatchOptions)]


def test_none_is_unset(workspace: Path) -> None:
    assert plan(str(workspace), **dict.fromkeys(PatchKeywords.__annotations__)) == plan(str(workspace))


def test_a_build_argument_may_be_any_text(workspace: Path) -> None:
    assert plan(str(workspace), build_args={"A": "\ud800"}) != plan(str(workspace))


def test_a_user_without_a_home_has_no_cache(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = plan(str(workspace))
    for name in ("HOME", "XDG_CACHE_HOME", "DOCKER_CONFIG"):
        monkeypatch.delenv(name, raising=False)

    def unknown(_uid: int) -> None:
        raise KeyError

    # As in a pod whose user is a number: OpenShift chooses one.
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.chdir(workspace)
    assert plan(".") == expected
    assert login_of("registry.example.com") is None
    assert not cache_folder().exists()
    assert [each.name for each in workspace.iterdir()] == ["train.py"]


@pytest.mark.parametrize(
    "damaged", ["5", '{"train.py": 5}', '{"train.py": ""}', '{"train.py": [1]}', "[" * 100_000, "{"]
)
def test_a_damaged_cache_is_read_again(workspace: Path, monkeypatch: pytest.MonkeyPatch, damaged: str) -> None:
    # A file that was written a moment ago is not kept.
    monkeypatch.setattr(hashing, "_FINE_NS", -(10**12))
    monkeypatch.setattr(hashing, "_COARSE_NS", -(10**12))
    expected = plan(str(workspace))
    files = list(cache_folder().glob("*.json"))
    assert files
    for file in files:
        version = json.loads(file.read_text())[0]
        file.write_text(f"[{version}, {damaged}]")
    assert plan(str(workspace)) == expected
