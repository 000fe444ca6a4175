"""`.torchxconfig` has one meaning, for launches, which TorchX reads it for, and for all that we read it for."""

from __future__ import annotations

import copy
import io
import json
import typing
from pathlib import Path
from typing import Any

import pytest
from torchx import specs
from torchx.runner.config import load
from torchx_pulumi.model.errors import InvalidJobError
from torchx_pulumi.runs.index import RunIndex
from torchx_pulumi.torchx_adapter import compat, torchxconfig

from tests.unit.torchx_adapter.run_options import run_options

from .conftest import ECHO, World, run

SECTION = "[pulumi_volcano]\nqueue = test\n"


def files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *texts: str) -> None:
    """Write one configuration per folder, the first of which wins."""
    for number, text in enumerate(texts):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / ".torchxconfig").write_text(text)
    folders = [str(tmp_path / str(number)) for number in range(len(texts))]
    monkeypatch.delenv("TORCHXCONFIG", raising=False)
    monkeypatch.setattr("torchx.runner.config.DEFAULT_CONFIG_DIRS", folders)


def forget_types() -> None:
    """Do what many other types do: Python keeps 128 of each kind, and an equal one of later is another object."""
    for forget in typing._cleanups:  # type: ignore[attr-defined]
        forget()


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (typing.List[str], "a;b:1", ["a", "b:1"]),  # noqa: UP006 - the types of TorchX's options
        (typing.Dict[str, str], "a:1,b:2", {"a": "1", "b": "2"}),  # noqa: UP006
    ],
)
def test_an_option_is_read_by_its_type_however_many_types_the_process_has(kind: Any, text: str, value: Any) -> None:
    options = specs.runopts()
    options.add("names", type_=kind, default=None, help="names")
    forget_types()
    assert compat.read_file_option(text, options.get("names")) == value


@pytest.mark.parametrize(
    "texts",
    [
        ["pulumi_backend = s3://a?x=%%20b"],
        ["region = eu\npulumi_backend = s3://a-%(region)s"],
        ["list_states = RUNNING;PENDING", "list_states = FAILED"],
        ["list_states = RUNNING,PENDING"],
        ["list_states ="],
        ["list_all = YES\nquiet = off"],
        ["efa_device_count = None", "efa_device_count = 2"],
        ["efa_device_count = 3", "efa_device_count = soon"],
        ["labels = a:1,b:2:3;c:4"],
        ["serviceAccount = a", "service_account = b"],
        ["service_account =\nkubeconfig = ~/x # y"],
        ["unknown = None\nalso = 1"],
        ["[DEFAULT]\nnamespace = team\n[pulumi_volcano]\nqueue = q"],
    ],
)
def test_a_file_says_the_same_to_a_launch_and_to_us(
    texts: list[str], world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    whole = [text if "[pulumi_volcano]" in text else SECTION + text for text in texts]
    files(monkeypatch, tmp_path, *whole)
    forget_types()
    options = run_options("volcano")
    launch = options.cfg_from_str("")
    for text in whole:
        load("pulumi_volcano", io.StringIO(text), launch)
    theirs = {name: value for name, value in options.resolve(launch).items() if name in launch}
    ours = torchxconfig.section("pulumi_volcano", options)
    assert ours == {name: value for name, value in theirs.items() if value is not None}


def test_a_percent_sign_leads_to_the_same_backend(
    installed: World, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a%20b").mkdir()
    files(monkeypatch, tmp_path, SECTION + f"pulumi_backend = file://{tmp_path}/a%%20b\n")
    run("run", "-s", "pulumi_volcano", "--workspace", "", *ECHO)
    handle = capsys.readouterr().out.split()[-1]
    (entry,) = RunIndex().all()
    assert entry.place.backend == world_backend(installed)
    run("list", "-s", "pulumi_volcano")
    assert handle in capsys.readouterr().out


def world_backend(world: World) -> str:
    return str(world.scheduler()._ambient()["pulumi_backend"])


@pytest.mark.parametrize("line", ["serviceAccount = fromfile", "service_account = fromfile"])
@pytest.mark.parametrize("option", ["service_account", "serviceAccount"])
def test_the_command_line_wins_over_the_other_spelling_of_the_file(
    installed: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, line: str, option: str
) -> None:
    files(monkeypatch, tmp_path, SECTION + line)
    run("run", "-s", "pulumi_volcano", "-cfg", f"{option}=given", "--workspace", "", *ECHO)
    (entry,) = RunIndex().all()
    assert entry.options["service_account"] == "given"


@pytest.mark.parametrize("line", ["efaDeviceCount = soon", "efa_device_count = soon"])
@pytest.mark.parametrize("option", ["efa_device_count", "efaDeviceCount"])
def test_what_the_command_line_gives_is_not_read_in_the_file_in_any_spelling(
    installed: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, line: str, option: str
) -> None:
    files(monkeypatch, tmp_path, SECTION + line)
    run("run", "-s", "pulumi_volcano", "-cfg", f"{option}=0", "--workspace", "", *ECHO)
    (entry,) = RunIndex().all()
    assert entry.options["efa_device_count"] == 0


def test_given_options_have_all_spellings_and_stay_a_dict() -> None:
    given: Any = run_options("volcano").cfg_from_str("service_account=a")
    given["imageRepo"] = "r"
    given["serviceAccount"] = "b"
    expected = {"service_account": "b", "image_repo": "r"}
    assert dict(given) == {**given} == json.loads(json.dumps(given)) == copy.deepcopy(given) == expected
    names = given.keys()
    assert sorted(names) == sorted(expected)
    assert [each for each in ("imageRepo", "image_repo", "queue", "unknown") if each in names] == [
        "imageRepo",
        "image_repo",
    ]


def test_an_option_that_is_unknown_and_unset_in_the_file_is_left_out(
    installed: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    files(monkeypatch, tmp_path, SECTION + "rank0_env = None\n")
    run("run", "-s", "pulumi_volcano", "--workspace", "", *ECHO)
    assert len(RunIndex().all()) == 1
    if compat.FILES_HOLD_UNKNOWN_OPTIONS:
        # `torchx.runner.config.apply` on a plain dict, as programs call it.
        assert "rank0_env" not in run_options("volcano").resolve({"queue": "q", "rank0_env": None})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("efa_device_count = soon", r"\[pulumi_volcano\] efa_device_count"),
        ("labels = team", "must be name:value"),
        ("list_all = perhaps", "list_all"),
        (
            "pulumi_backend = postgres://u:hunter2%20@b",
            r"\[pulumi_volcano\] pulumi_backend: write a percent sign as %%",
        ),
        ("postgres hunter2", "line 3 is neither"),
        ("queue = twice", "cannot be parsed"),
        ("build_args = hunter2", "must be name:value"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, said: str
) -> None:
    files(monkeypatch, tmp_path, SECTION + text)
    with pytest.raises(InvalidJobError, match=said) as caught:
        world.scheduler().list()
    assert ".torchxconfig" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_file_that_is_not_there_is_named_with_its_variable(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(torchxconfig.FILE_VARIABLE, str(tmp_path / "none"))
    with pytest.raises(InvalidJobError, match="TORCHXCONFIG: names a file that is not there"):
        world.scheduler().list()


def test_two_spellings_of_a_file_that_differ_mean_what_torchx_makes_of_them(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    files(monkeypatch, tmp_path, SECTION + "list_session = a\nlistSession = b\n")
    options: Any = run_options("volcano")
    if compat.ONE_SPELLING_PER_FILE:
        with pytest.raises(InvalidJobError, match="another spelling of list_session"):
            torchxconfig.section("pulumi_volcano", options)
    else:
        assert torchxconfig.section("pulumi_volcano", options)["list_session"] == "a"
