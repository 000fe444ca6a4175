"""Logs of launched apps outlive their pods: they are read from the archive that a controller has written."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.apps.app import App
from torchx_pulumi.cli.main import EXIT_INVALID
from torchx_pulumi.kube import kinds
from torchx_pulumi.logs.query import runs_of_pod
from torchx_pulumi.model.app_entry import RunEntry
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.runs.index import RunIndex
from torchx_pulumi.schedulers import find_backend
from torchx_pulumi_fleet.archive import LogCopy, open_archive

from tests.doc_blocks import commands
from tests.fakes import FakeCluster
from tests.fleet.archive.pods import ended, pod, status
from tests.unit.logs.scripted import FastClock

from .conftest import CONFIG, World, app, run


def entry_of(app_id: str, kind: str = "volcano") -> RunEntry:
    entry = RunIndex().find(app_id, kind)
    assert entry is not None
    return entry


def add_pods(cluster: FakeCluster, entry: RunEntry, *, uid: str = "1", **changes: Any) -> None:
    """Give an app pods that have ended, each with two lines of log."""
    changes = {"owner": entry.uid, **changes}
    for number, name in enumerate(entry.pods["trainer"]):
        pod_uid = f"9b2c1f0a-0000-4000-8000-{uid:0>11}{number}"
        made = pod(name, uid=pod_uid, replica=number, containers=("trainer-0",), **changes)
        made["metadata"]["labels"] |= find_backend(entry.scheduler).pod_selector(entry.job_name)
        cluster.put(made)
        cluster._logs[("default", name)] = [f"first of {number}", f"last of {number}"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "kept"


@pytest.mark.parametrize("order", ["cancel", "delete"])
def test_commands_leave_the_archive_to_the_controller(
    world: World, kind: str, submit: Callable[..., str], folder: Path, order: str
) -> None:
    app_id = submit(kind, log_archive=str(folder))
    add_pods(world.cluster, entry_of(app_id, kind))
    world.cluster.denied.add(("get", kinds.POD, "log"))
    getattr(world.scheduler(kind), order)(app_id)
    assert not folder.exists()


def test_a_dry_run_warns_without_a_controller_that_archives(
    world: World, kind: str, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def warnings(**options: str) -> list[str]:
        caplog.clear()
        world.scheduler(kind).submit_dryrun(app(), {**CONFIG[kind], **options})
        return [text for text in caplog.messages if "controller" in text]

    assert warnings() == []
    folder.mkdir()
    (text,) = warnings(log_archive=str(folder))
    assert "no controller copies logs of namespace default there, so they go with their pods; start one" in text
    open_archive(str(folder)).mark(["default"], world.context().now())
    assert warnings(log_archive=str(folder)) == []


def test_the_command_of_the_page_names_an_archive(installed: World, folder: Path) -> None:
    (command,) = commands("docs/logs.md", "archive", {"/mnt/logs": str(folder)})
    run(*shlex.split(command)[1:])
    (entry,) = [stack.entry for stack in installed.driver.stacks.values()]
    assert entry.log_archive == str(folder)


def lines_of(world: World, app_id: str, replica: int = 0, **query: Any) -> tuple[list[str], list[str]]:
    """Return the lines of a replica without times, and what was said."""
    said: list[str] = []
    options = {"log_timestamps": False, **query.pop("options", {})}
    found = world.scheduler(clock=FastClock()).logs.read(
        app_id, "trainer", replica, options=options, progress=said.append, **query
    )
    return [line.rstrip() for line in found], said


def texts(number: int) -> list[str]:
    return [f"first of {number}", f"last of {number}"]


@pytest.fixture
def gone(world: World, submit: Callable[..., str], folder: Path) -> str:
    """An app of Volcano's that was cancelled, whose logs are archived, and whose pods are gone."""
    app_id = submit(log_archive=str(folder))
    entry = entry_of(app_id)
    add_pods(world.cluster, entry)
    for found in world.cluster.list(kinds.POD, None):
        for one in runs_of_pod(found):
            LogCopy(world.cluster, open_archive(str(folder)), App.of(entry).run, one).make()
    world.scheduler().cancel(app_id)
    remove_pods(world, app_id)
    return app_id


def remove_pods(world: World, app_id: str) -> None:
    for item in world.cluster.list(kinds.POD, None):
        world.cluster.remove(kinds.POD, "default", item["metadata"]["name"])
    for name in entry_of(app_id).pods["trainer"]:
        world.cluster._logs.pop(("default", name), None)


@pytest.mark.parametrize("follow", [False, True])
def test_the_log_of_a_pod_that_is_gone_is_read_from_the_archive(
    world: World, gone: str, folder: Path, follow: bool
) -> None:
    world.phase(gone, "Aborted")
    for number in (0, 1):
        found, said = lines_of(world, gone, number, follow=follow)
        assert found == texts(number)
        pod_name = entry_of(gone).pods["trainer"][number]
        (note,) = [line for line in said if "archive" in line]
        assert note.startswith(f"pod {pod_name} is gone; its log is read from the archive {folder}: copied at ")
    assert lines_of(world, gone, tail_lines=1)[0] == ["last of 0"]
    assert lines_of(world, gone, regex="first")[0] == ["first of 0"]


def test_torchx_reads_the_archive_and_says_so(
    installed: World, gone: str, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    run("log", f"pulumi_volcano://torchx/{gone}/trainer/0,1")
    printed = capsys.readouterr().out
    assert all(text in printed for number in (0, 1) for text in texts(number))
    assert len([record for record in caplog.records if "read from the archive" in record.getMessage()]) == 2


def test_a_pod_that_is_there_is_read_itself(world: World, submit: Callable[..., str], folder: Path) -> None:
    app_id = submit(log_archive=str(folder))
    add_pods(world.cluster, entry_of(app_id))
    assert lines_of(world, app_id) == (texts(0), [])
    assert not folder.exists()


def test_an_archive_without_the_log_is_named(world: World, submit: Callable[..., str], folder: Path) -> None:
    folder.mkdir()
    app_id = submit(log_archive=str(folder))
    with pytest.raises(ClusterError, match=f"Archive {folder} has no copy of it"):
        lines_of(world, app_id)


def test_an_archive_whose_folder_this_machine_lacks_is_not_said_to_have_no_copy(
    world: World, submit: Callable[..., str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    app_id = submit(log_archive=str(folder))
    assert world.command(["log", f"pulumi_volcano://torchx/{app_id}", "trainer/0"]) != 0
    said = capsys.readouterr().err
    assert f"the archive {folder} is not read: there is no folder {folder} on this machine; mount" in said
    assert "has no copy" not in said


def test_a_container_that_has_not_started_is_no_reason_to_read_the_archive(world: World, gone: str) -> None:
    waiting = status("trainer-0", state={"waiting": {"reason": "ContainerCreating"}})
    add_pods(world.cluster, entry_of(gone), uid="2", created="2026-01-02T00:00:00Z", statuses=[waiting])
    with pytest.raises(ClusterError, match="has not started"):
        lines_of(world, gone)
    assert lines_of(world, gone, attempt=1)[0] == texts(0)


def test_a_cluster_that_is_gone_leaves_the_archive(world: World, gone: str) -> None:
    world.cluster.error = ClusterError("no route to host", retryable=True)
    for follow in (False, True):
        found, said = lines_of(world, gone, follow=follow)
        assert found == texts(0)
        assert any("no route to host" in line and "read from the archive" in line for line in said)
    assert lines_of(world, gone, attempt=1)[0] == texts(0)


def test_the_archive_in_force_is_asked_after_that_of_the_launch(
    world: World,
    submit: Callable[..., str],
    gone: str,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = submit(log_archive=None)
    config = tmp_path / "torchxconfig"
    monkeypatch.setenv("TORCHXCONFIG", str(config))
    config.write_text(f"[pulumi_volcano]\nqueue = test\nlog_archive = {folder}\n")
    with pytest.raises(ClusterError, match="has no copy of it"):
        lines_of(world, other)
    config.write_text(f"[pulumi_volcano]\nqueue = test\nlog_archive = {tmp_path / 'empty'}\n")
    assert lines_of(world, gone)[0] == texts(0)
    assert lines_of(world, gone, options={"log_archive": str(tmp_path / "empty")})[0] == texts(0)


def test_attempts_are_those_of_the_archive_and_of_the_pod(world: World, gone: str) -> None:
    entry = entry_of(gone)
    again = status("trainer-0", restarts=1, container_id="c3", last=ended("c2"))
    add_pods(world.cluster, entry, uid="2", created="2026-01-02T00:00:00Z", statuses=[again])
    world.cluster._logs[("default", entry.pods["trainer"][0])] = ["now"]
    assert lines_of(world, gone)[0] == ["now"]
    assert lines_of(world, gone, attempt=3) == (["now"], [])
    found, said = lines_of(world, gone, attempt=1)
    assert (found, len(said)) == (texts(0), 1)
    # The run before the last restart is the pod's own, and the fake cluster has no log of it.
    for which in ({"attempt": 2}, {"options": {"log_previous": True}}):
        with pytest.raises(ClusterError, match=r"previous terminated container|has no previous log"):
            lines_of(world, gone, **which)
    with pytest.raises(ClusterError, match=r"there is no attempt 4 of trainer/0 .* allowed are 1 to 3"):
        lines_of(world, gone, attempt=4)


def test_the_attempt_before_the_present_one_may_be_of_another_pod(world: World, gone: str) -> None:
    add_pods(world.cluster, entry_of(gone), uid="2", created="2026-01-02T00:00:00Z")
    world.cluster._logs[("default", entry_of(gone).pods["trainer"][0])] = ["now"]
    assert lines_of(world, gone, options={"log_previous": True})[0] == texts(0)
    remove_pods(world, gone)
    with pytest.raises(ClusterError, match="no attempt before the present one"):
        lines_of(world, gone, options={"log_previous": True})


def test_attempts_without_an_archive_are_those_of_the_pod(world: World, submit: Callable[..., str]) -> None:
    app_id = submit()
    add_pods(world.cluster, entry_of(app_id))
    assert lines_of(world, app_id, attempt=1)[0] == texts(0)
    with pytest.raises(ClusterError, match="there is no attempt 2 of trainer/0"):
        lines_of(world, app_id, attempt=2)


def test_a_deleted_app_is_read_from_an_archive_that_is_named(
    world: World, gone: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = entry_of(gone)
    world.scheduler().delete(gone)
    values = {"default:train-k3x9": gone, "s3://logs/team": str(folder), "4f7c": str(entry.uid)[:6]}
    first, second, third = commands("docs/logs.md", "read-archive", values)
    assert world.command(shlex.split(first)[1:]) == EXIT_INVALID
    assert f"app '{gone}' not found" in capsys.readouterr().err
    for words in (second, third, f"{first} --archive {folder}"):
        assert world.command(shlex.split(words)[1:]) == 0
        shown = capsys.readouterr()
        assert [line.partition(" ")[2] for line in shown.out.splitlines()] == texts(0)
        assert "read from the archive" in shown.err
    assert world.command(["log", f"pulumi_volcano://torchx/{gone}", "--archive", str(folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" ")[0] for line in lines] == ["trainer/0"] * 2 + ["trainer/1"] * 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--archive", "logs"], "--archive: found 'logs'"),
        (["--archive", "/nowhere/at/all"], "not found"),
        (["trainer/7", "--archive", "HERE"], "has no log of trainer/7 of app"),
        (["--run", "zz", "--archive", "HERE"], "has no run 'zz'"),
        (["trainer/0", "--attempt", "0", "--archive", "HERE"], "allowed are 1 to 1"),
        (["trainer/0", "--previous", "--archive", "HERE"], "no attempt before the present one"),
        (["trainer/0", "--since", "99999999999d", "--archive", "HERE"], "--since: is '99999999999d', must be a time"),
        (["trainer/0", "--since", "\u00b2d", "--archive", "HERE"], "must be a time"),
        (["trainer/\u00b2"], "must be ROLE or ROLE/N"),
    ],
)
def test_what_no_archive_has_is_named(
    world: World, gone: str, folder: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    world.scheduler().delete(gone)
    given = [str(folder) if word == "HERE" else word for word in words]
    code = world.command(["log", f"pulumi_volcano://torchx/{gone}", *given])
    shown = capsys.readouterr().err
    assert code != 0
    assert said in shown
    assert "Traceback" not in shown


def test_an_earlier_run_of_a_name_is_read_by_its_uid(world: World, gone: str, folder: Path) -> None:
    before = str(entry_of(gone).uid)
    scheduler = world.scheduler()
    info = scheduler.submit_dryrun(app(), {"queue": "test", "on_running_change": "replace", "log_archive": str(folder)})
    info.request.resource["metadata"]["name"] = gone.partition(":")[2]
    scheduler.schedule(info)
    with pytest.raises(ClusterError, match="has no copy of it"):
        lines_of(world, gone)
    found, said = lines_of(world, gone, run=before[:8])
    assert found == texts(0)
    assert said[0].startswith(f"run {before}; the log of trainer/0 is read from the archive")
    options = {"log_archive": str(folder)}
    assert scheduler.logs.replicas(gone, options=options, run=before[:8]) == [("trainer", 0), ("trainer", 1)]


@pytest.mark.parametrize("follow", [False, True])
def test_a_pod_that_goes_while_it_is_read_doubles_and_loses_no_line(
    world: World, gone: str, monkeypatch: pytest.MonkeyPatch, follow: bool
) -> None:
    add_pods(world.cluster, entry_of(gone))
    if follow:
        world.phase(gone, "Aborted")
    whole = world.cluster.logs

    def cut(*args: Any, **options: Any) -> Any:
        lines = whole(*args, **options)
        remove_pods(world, gone)
        monkeypatch.setattr(world.cluster, "logs", whole)
        return Cut(next(lines))

    monkeypatch.setattr(world.cluster, "logs", cut)
    found, said = lines_of(world, gone, follow=follow)
    assert found == texts(0)
    assert len([line for line in said if "read from the archive" in line]) == 1


class Cut:
    """A stream that breaks after a line."""

    finished = False

    def __init__(self, line: str) -> None:
        self._lines = [line]

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> str:
        if self._lines:
            return self._lines.pop()
        raise ClusterError("the stream was interrupted", retryable=True)

    def close(self) -> None:
        pass
