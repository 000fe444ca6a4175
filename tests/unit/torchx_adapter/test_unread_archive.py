"""Logs of apps without the package that reads archives: those of pods are read, the others say what they need."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable

import pytest
from torchx_pulumi.cli.main import EXIT_INVALID
from torchx_pulumi.kube.kinds import POD
from torchx_pulumi.runs.index import RunIndex
from torchx_pulumi.schedulers import find_backend

from tests.fleet.archive.pods import pod

from .conftest import World

ARCHIVE = "s3://logs/team"
NEEDS = f"the archive {ARCHIVE} is not read: archived logs need `pip install 'torchx-pulumi[fleet]'`"


@pytest.fixture
def handle(world: World, submit: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> str:
    """An app with an archive that has run, on a machine on which no package reads archives."""
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: ())
    app_id = submit(log_archive=ARCHIVE)
    entry = RunIndex().find(app_id, "volcano")
    assert entry is not None
    made = pod(entry.pods["trainer"][0], replica=0, containers=("trainer-0",), owner=entry.uid)
    made["metadata"]["labels"] |= find_backend("volcano").pod_selector(entry.job_name)
    world.cluster.put(made)
    world.cluster._logs[("default", entry.pods["trainer"][0])] = ["hello"]
    return f"pulumi_volcano://torchx/{app_id}"


def test_the_log_of_a_pod_is_read(world: World, handle: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert world.command(["log", handle, "trainer/0", "--no-timestamps"]) == 0
    assert capsys.readouterr() == ("hello\n", "")


def test_the_log_of_a_pod_that_is_gone_needs_the_package(
    world: World, handle: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (gone,) = world.cluster.list(POD, "default", {})
    world.cluster.remove(POD, "default", gone["metadata"]["name"])
    assert world.command(["log", handle, "trainer/0"]) == EXIT_INVALID
    shown = capsys.readouterr()
    first, second = shown.err.splitlines()
    assert shown.out == ""
    assert first == NEEDS
    assert second.startswith("torchx-pulumi: the app has no pods in namespace 'default'")
    assert "has no copy" not in second


def test_an_attempt_that_no_pod_has_needs_the_package(
    world: World, handle: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert world.command(["log", handle, "trainer/0", "--attempt", "2"]) == EXIT_INVALID
    first, second = capsys.readouterr().err.splitlines()
    assert first == NEEDS
    assert second.endswith("the cluster has 1: allowed are 1 to 1")


def test_the_log_of_a_deleted_app_needs_the_package(
    world: World, handle: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert world.command(["delete", handle]) == 0
    capsys.readouterr()
    assert world.command(["log", handle, "--archive", ARCHIVE]) == EXIT_INVALID
    assert capsys.readouterr().err == f"torchx-pulumi: {NEEDS}\n"


def test_the_log_of_a_pod_is_read_without_the_package_of_the_object_store(
    world: World, handle: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reader = importlib.metadata.EntryPoint("archive", "torchx_pulumi_fleet.archive.archived_log:open_log_archive", "")
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: [reader])
    monkeypatch.setattr("torchx_pulumi_fleet.archive.archive.find_spec", lambda _: None)
    assert world.command(["log", handle, "trainer/0", "--no-timestamps"]) == 0
    assert capsys.readouterr() == ("hello\n", "")
    assert world.command(["log", handle, "trainer/0", "--attempt", "2"]) == EXIT_INVALID
    assert capsys.readouterr().err.splitlines()[0] == (
        f"the archive {ARCHIVE} is not read: found '{ARCHIVE}', which needs the package s3fs; install "
        "`torchx-pulumi[s3]`"
    )
