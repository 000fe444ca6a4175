"""The whole `torchx` command line and the Runner, in process, over the fakes."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torchx.runner import get_runner
from torchx_pulumi.cli import main
from torchx_pulumi.runs.index import RunIndex
from torchx_pulumi.stack_state.checkpoint import checkpoint_text

from .conftest import ECHO, World, app, run


def launch(capsys: pytest.CaptureFixture[str], *words: str, kind: str = "volcano") -> str:
    given = ["-cfg", "queue=test"] if kind == "volcano" else []
    run("run", "-s", f"pulumi_{kind}", *given, "--workspace", "", *words, *ECHO)
    handle = capsys.readouterr().out.split()[-1]
    assert handle.startswith(f"pulumi_{kind}://torchx/default:echo-")
    return handle


def test_a_day_at_the_command_line(
    installed: World, kind: str, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    handle = launch(capsys, kind=kind)
    run("status", handle)
    run("describe", handle)
    run("list", "-s", f"pulumi_{kind}")
    said = capsys.readouterr().out
    assert "echo" in said
    assert handle in said
    run("cancel", handle)
    run("status", handle)
    assert "CANCELLED" in capsys.readouterr().out
    assert installed.command(["delete", handle]) == 0
    assert installed.driver.stacks == {}
    with pytest.raises(SystemExit):
        run("status", handle)


def test_dry_run_prints_the_manifest(installed: World, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["-cfg", "queue=test"] if kind == "volcano" else []
    run("run", "-s", f"pulumi_{kind}", *given, "--workspace", "", "--dryrun", *ECHO)
    said = capsys.readouterr().out
    assert "apiVersion: batch.volcano.sh/v1alpha1" in said or "kind: AppWrapper" in said
    assert installed.driver.stacks == {}


def test_a_section_of_torchxconfig_holds(
    installed: World, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / ".torchxconfig"
    config.write_text("[pulumi_volcano]\nqueue = fromfile\npriority_class = high\nlist_states = FAILED\n")
    monkeypatch.setenv("TORCHXCONFIG", str(config))
    run("run", "-s", "pulumi_volcano", "--workspace", "", *ECHO)
    app_id = capsys.readouterr().out.split()[-1].rpartition("/")[2]
    head = installed.head(app_id)
    assert head is not None
    assert (head["spec"]["queue"], head["spec"]["priorityClassName"]) == ("fromfile", "high")
    run("list", "-s", "pulumi_volcano")
    assert "echo" not in capsys.readouterr().out


def test_runopts_lists_ours(installed: World, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    run("runopts", f"pulumi_{kind}")
    said = capsys.readouterr().out
    assert "pulumi_backend" in said
    assert "namespace" in said


def test_unknown_options_end_the_command(installed: World, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises((SystemExit, Exception), match=r"1|qeue"):
        run("run", "-s", "pulumi_volcano", "-cfg", "queue=a,qeue=b", "--workspace", "", *ECHO)
    assert installed.driver.stacks == {}


def test_a_workspace_without_a_repository_says_what_to_do(installed: World) -> None:
    with pytest.raises(KeyError, match="--workspace"):
        run("run", "-s", "pulumi_volcano", "-cfg", "queue=a", "--workspace", "file:///tmp", *ECHO)


def test_builtin_schedulers_run_beside_ours(installed: World, tmp_path: Path) -> None:
    command = ["utils.sh", "--image", str(tmp_path), "true"]
    run("run", "-s", "local_cwd", "-cfg", f"log_dir={tmp_path / 'logs'}", "--workspace", "", *command)


def test_the_runner_does_it_all(installed: World, kind: str) -> None:
    config = {"queue": "test"} if kind == "volcano" else {}
    with get_runner() as runner:
        info = runner.dryrun(app(), f"pulumi_{kind}", config)
        handle = runner.schedule(info)
        assert str(runner.status(handle).state) in ("SUBMITTED", "PENDING")
        assert [item.app_handle for item in runner.list(f"pulumi_{kind}")] == [handle]
    with get_runner() as runner:
        described = runner.describe(handle)
        assert described.roles[0].env["TORCHX_JOB_ID"].startswith(f"pulumi_{kind}://")
        assert described.roles[0].args == app().roles[0].args
        runner.cancel(handle)
        assert str(runner.wait(handle, wait_interval=0.01).state) == "CANCELLED"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["delete", "nonsense"], "must be pulumi_volcano://"),
        (["cancel", "kubernetes://torchx/default:x"], "must be pulumi_volcano://"),
        (["resume", "pulumi_volcano://torchx/default:none"], "not found in the local index"),
        (["log", "pulumi_volcano://torchx/default:none"], "not found in the local index or in backend"),
        (["log", "pulumi_volcano://torchx/default:none", "trainer/x"], "must be ROLE or ROLE/N"),
    ],
)
def test_mistakes_are_one_message(
    world: World, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert world.command(words) == 2
    printed = capsys.readouterr().err
    assert said in printed
    assert "Traceback" not in printed


def test_commands_on_a_run(world: World, capsys: pytest.CaptureFixture[str], submit: Any) -> None:
    app_id = submit()
    handle = f"pulumi_volcano://torchx/{app_id}"
    name = app_id.partition(":")[2]
    for index in (0, 1):
        world.cluster.put(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": f"{name}-trainer-{index}-0", "namespace": "default"},
                "spec": {"containers": [{"name": f"trainer-{index}"}]},
                "status": {
                    "phase": "Running",
                    "containerStatuses": [{"name": f"trainer-{index}", "containerID": "c", "state": {"running": {}}}],
                },
            }
        )
    world.cluster._logs = {("default", f"{name}-trainer-{index}-0"): [f"line {index}"] for index in (0, 1)}
    assert world.command(["log", handle, "--no-timestamps"]) == 0
    assert capsys.readouterr().out == "trainer/0 line 0\ntrainer/1 line 1\n"
    assert world.command(["log", handle, "trainer/1", "--no-timestamps"]) == 0
    assert capsys.readouterr().out == "line 1\n"
    assert world.command(["log", handle, "trainer/1", "--since", "yesterday"]) == 2
    capsys.readouterr()
    assert world.command(["log", handle, "--follow"]) == 2
    assert "--follow: follows one replica; there are trainer/0, trainer/1: name one" in capsys.readouterr().err
    assert world.command(["cancel", handle]) == 0
    assert world.command(["resume", handle]) == 0
    assert world.command(["delete", handle]) == 0
    assert world.command(["delete", handle]) == 0
    assert "nothing to delete" in capsys.readouterr().err


COMMANDS = {
    "program": "pulumi stack select",
    "log": "the app has no pods in namespace 'default'",
    "cancel": "asked to stop",
    "resume": "",
    "delete": ": deleted",
}
"""What each command that takes an app says of one without pods; MCAD resumes none."""


def say(world: World, capsys: pytest.CaptureFixture[str], command: str, name: str) -> str:
    more = ["--to", tempfile.mkdtemp(dir=".")] if command == "program" else []
    code = world.command([command, name, *more])
    said = capsys.readouterr()
    assert code in (0, 2)
    return said.out + said.err


@pytest.mark.parametrize("form", ["handle", "id", "stack", "project and stack"])
def test_commands_take_what_the_fleet_prints_of_an_app(
    world: World, kind: str, form: str, capsys: pytest.CaptureFixture[str], submit: Any
) -> None:
    app_id = submit(kind)
    (known,) = RunIndex().all()
    place = known.place
    names = {"handle": f"pulumi_{kind}://torchx/{app_id}", "id": app_id}
    names |= {"stack": place.stack, "project and stack": f"{place.project}/{place.stack}"}
    for command, said in COMMANDS.items():
        told = say(world, capsys, command, names[form])
        assert said in told
        assert "HANDLE" not in told
    assert RunIndex().all() == []


def test_commands_name_the_handles_where_several_apps_have_what_the_fleet_prints(
    world: World, kind: str, capsys: pytest.CaptureFixture[str], submit: Any
) -> None:
    app_id = submit(kind)
    (known,) = RunIndex().all()
    other = replace(known, scheduler="mcad" if kind == "volcano" else "volcano", session="night")
    RunIndex().add(other)
    handles = sorted([f"pulumi_{kind}://torchx/{app_id}", f"pulumi_{other.scheduler}://night/{app_id}"])
    for command in COMMANDS:
        for name in (app_id, known.place.stack):
            said = say(world, capsys, command, name)
            assert sorted(said.rstrip().partition(f"{name!r} is 2 apps: write ")[2].split(" or ")) == handles
    assert len(RunIndex().all()) == 2
    RunIndex().update(other, lambda _: None)
    assert "deleted" in say(world, capsys, "delete", app_id)
    for name, told in (
        (app_id, "which is no app of the local index, the backend or the"),
        ("dev", "NAMESPACE:NAME, or the stack of an app; no such stack is in the local index or in file://"),
    ):
        assert told in say(world, capsys, "delete", name)


def test_the_stack_of_a_program_is_its_one_app(
    world: World, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULUMI_BACKEND_URL", f"file://{tmp_path}/state")
    file = tmp_path / "state" / ".pulumi" / "stacks" / "vision" / "dev.json"
    file.parent.mkdir(parents=True)
    jobs = [{"type": "torchx:index:VolcanoTrainingJob", "outputs": {"namespace": "ml", "job_name": name}}
            for name in ("eval", "train")]  # fmt: skip
    file.write_text(checkpoint_text("organization/vision/dev", [*jobs[:1], {**jobs[1], "delete": True}]))
    assert "app 'ml:eval' not found; nothing to cancel" in say(world, capsys, "cancel", "vision/dev")
    file.write_text(checkpoint_text("organization/vision/dev", jobs))
    said = say(world, capsys, "cancel", "dev")
    assert "'dev' is 2 apps: write pulumi_volcano://torchx/ml:" in said
    file.write_text("{")
    said = say(world, capsys, "cancel", "dev")
    assert said.startswith("torchx-pulumi: stack vision/dev cannot be read: its checkpoint is not valid JSON")
    file.write_text(checkpoint_text("organization/vision/dev", [{"outputs": []}, "odd"]))  # type: ignore[list-item]
    assert say(world, capsys, "cancel", "dev").startswith("torchx-pulumi: stack vision/dev cannot be read: ")


def test_delete_takes_several_handles_and_an_error_of_one_keeps_no_other(
    world: World, capsys: pytest.CaptureFixture[str], submit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    handles = [f"pulumi_volcano://torchx/{submit()}" for _ in range(3)]
    places = [*world.driver.stacks]
    assert world.command(["delete", handles[0], "x", "y"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("torchx-pulumi: the arguments have 2 problems:\n  - HANDLE: is 'x'")
    assert [*world.driver.stacks] == places
    world.driver.locked[places[1]] = ["somebody"]
    assert world.command(["delete", *handles, handles[0]]) == 2
    assert [*world.driver.stacks] == [places[1]]
    lines = capsys.readouterr().err.splitlines()
    ends = [line for line in lines if ": deleted" in line or line.startswith("torchx-pulumi: ")]
    assert [line.startswith("torchx-pulumi: ") for line in ends] == [False, True, False]


def test_without_an_engine_the_command_says_so(world: World, capsys: pytest.CaptureFixture[str], submit: Any) -> None:
    handle = f"pulumi_volcano://torchx/{submit()}"
    assert world.command(["delete", handle], make_driver=main._no_driver) == 2
    assert "has no engine" in capsys.readouterr().err
    assert sys.exc_info() == (None, None, None)
