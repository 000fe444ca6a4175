"""Commands copy the logs of the pods that they delete, for a limited time, and are never stopped by that."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.log_archive import ArchivedLog, before_deletion, copying_logs, open_archive
from torchx_pulumi.logs import LogQuery
from torchx_pulumi.logs.reading import read_source
from torchx_pulumi.model.errors import ClusterError, DeployError
from torchx_pulumi.testing import FakeCluster

from tests.unit.log_archive.clusters import PodCluster, archive_in, archived_text
from tests.unit.log_archive.pods import JOB, JOB_RUN, pod, running, status
from tests.unit.logs.scripted import shown

RUNS = pod(statuses=[status(state=running())])
FIRST, REST = [(1, "first")], [(1, "first"), (2, "last words")]


class Ending(PodCluster):
    """A cluster whose container writes until it is told to end; then its pod is gone."""

    def __init__(self) -> None:
        super().__init__(lines=FIRST, pod=RUNS)
        self.ends = threading.Event()
        self.stays: list[threading.Event] = []

    def logs(self, *words: Any, **options: Any) -> Any:
        outer, stream = self, super().logs(*words, **options)
        closed = threading.Event()

        if not options["follow"]:
            return stream

        class Waiting:
            finished = False

            def __iter__(self) -> Iterator[str]:
                yield shown(FIRST[0])
                while not (outer.ends.wait(0.01) or closed.is_set()):
                    continue
                if not closed.is_set():
                    yield shown(REST[1])
                    self.finished = True

            def close(self) -> None:
                closed.set()
                stream.close()

        return Waiting()

    def delete(self) -> None:
        self.pod = None
        self.ends.set()


def test_logs_of_ended_pods_can_be_read_after_the_deletion(tmp_path: Path) -> None:
    cluster = FakeCluster([pod()], logs={("default", "train-trainer-0-0"): ["a", "b", "c"]})
    archive = open_archive(str(tmp_path / "logs"))
    said: list[str] = []
    with copying_logs(cluster, archive, JOB, JOB_RUN, progress=said.append):
        pass
    found = ArchivedLog(archive, JOB, "trainer", 0)
    lines = [*read_source(found, LogQuery(namespace="default", pod=found.pod, timestamps=False))]
    assert lines == ["a\n", "b\n", "c\n"]
    assert said[-1] == f"1 log copied to {archive.name}"


def test_a_running_container_is_followed_to_its_end(tmp_path: Path) -> None:
    cluster, archive, said = Ending(), archive_in(tmp_path), list[str]()
    with copying_logs(cluster, archive, JOB, JOB_RUN, [RUNS], progress=said.append):
        cluster.delete()
    assert archived_text(archive) == "".join(map(shown, REST))
    assert said[-1] == f"1 log copied to {archive.name}"
    assert [key.partial for key in archive.index()] == [False]


def test_a_container_that_does_not_end_in_time_is_stored_as_incomplete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(before_deletion, "BOUND_S", 0.2)
    cluster, archive, said = Ending(), archive_in(tmp_path), list[str]()
    with copying_logs(cluster, archive, JOB, JOB_RUN, [RUNS], progress=said.append):
        pass
    assert archived_text(archive) == shown(FIRST[0])
    assert said[-1].startswith(f"warning: copied without their ends to {archive.name}: the logs of train-trainer-0-0")


def test_a_command_that_fails_is_not_held_up_and_nothing_is_stored(tmp_path: Path) -> None:
    cluster, archive = Ending(), archive_in(tmp_path)

    def fail() -> None:
        raise DeployError("refused")

    with (
        pytest.raises(DeployError, match="refused"),
        copying_logs(cluster, archive, JOB, JOB_RUN, [RUNS], progress=lambda _: None),
    ):
        fail()
    assert archive.index() == []


def test_an_archive_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("in the way")
    acted, said = list[int](), list[str]()
    with copying_logs(
        PodCluster(lines=REST, pod=pod()), archive_in(tmp_path), JOB, JOB_RUN, [pod()], progress=said.append
    ):
        acted.append(1)
    assert acted == [1]
    assert said[-1].startswith(f"warning: not copied to {tmp_path}/logs: the logs of train-trainer-0-0/main: ")


def test_pods_that_cannot_be_listed_are_a_warning(tmp_path: Path) -> None:
    said: list[str] = []
    cluster = FakeCluster(error=ClusterError("no answer"))
    with copying_logs(cluster, archive_in(tmp_path), JOB, JOB_RUN, progress=said.append):
        pass
    assert said == [f"warning: no logs of app default:train are copied to {tmp_path}/logs: no answer"]


def test_what_is_archived_already_is_not_read_again(tmp_path: Path) -> None:
    said: list[str] = []
    for _ in range(2):
        cluster = PodCluster(lines=REST, pod=pod())
        with copying_logs(cluster, archive_in(tmp_path), JOB, JOB_RUN, [pod()], progress=said.append):
            pass
    assert cluster.asked == []
    assert len(said) == 2


def test_many_running_containers_are_all_copied(tmp_path: Path) -> None:
    pods = [
        pod(f"train-trainer-{number}-0", uid=f"9b2c1f0a-0000-4000-8000-{number:012x}", replica=number,
            statuses=[status(state=running())])
        for number in range(100)
    ]  # fmt: skip
    cluster, archive = Ending(), archive_in(tmp_path)
    there = {found["metadata"]["name"]: found for found in pods}
    cluster.get = lambda kind, namespace, name: there.get(name)  # type: ignore[method-assign]
    ended = pod("train-trainer-100-0", uid="9b2c1f0a-0000-4000-8000-100000000000", replica=100)
    with copying_logs(cluster, archive, JOB, JOB_RUN, [*pods, ended], progress=lambda _: None):
        there.clear()
        cluster.delete()
    assert len(archive.index()) == 101
    assert len([key for key in archive.index() if not key.partial]) == 65


def pods_of(number: int) -> list[dict[str, Any]]:
    return [
        pod(f"train-trainer-0-{index}", uid=f"9b2c1f0a-0000-4000-8001-{index:012x}", replica=index)
        for index in range(number)
    ]


def test_an_archive_that_cannot_be_written_is_one_warning_for_all_logs(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("a file")
    pods, said = pods_of(20), list[str]()
    cluster = FakeCluster(pods, logs={("default", one["metadata"]["name"]): ["a"] for one in pods})
    with copying_logs(cluster, archive_in(tmp_path), JOB, JOB_RUN, pods, progress=said.append):
        pass
    (line,) = said[1:]
    assert "train-trainer-0-0/main" in line
    assert "and 15 more: a file is where a folder has to be; remove it, or name another log_archive" in line


def test_many_reasons_are_a_bounded_number_of_warnings(tmp_path: Path) -> None:
    pods, said = pods_of(20), list[str]()
    # No pod exists any more.
    with copying_logs(FakeCluster([]), archive_in(tmp_path), JOB, JOB_RUN, pods, progress=said.append):
        pass
    assert len(said[1:]) == before_deletion.SHOWN + 1
    assert "for similar reasons: train-trainer-0-5/main" in said[-1]


def test_a_log_that_could_not_be_begun_in_time_is_not_archived_as_an_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(before_deletion, "READ_AT_ONCE", 1)
    monkeypatch.setattr(before_deletion, "BEFORE_S", 0.1)
    monkeypatch.setattr(before_deletion, "BOUND_S", 0.1)
    pods, said, held = pods_of(2), list[str](), threading.Event()

    class Held(FakeCluster):
        def logs(self, *words: Any, **options: Any) -> Any:
            held.wait(10)
            return super().logs(*words, **options)

    cluster = Held(pods, logs={("default", one["metadata"]["name"]): ["a"] for one in pods})
    copies = copying_logs(cluster, archive_in(tmp_path), JOB, JOB_RUN, pods, progress=said.append)
    threading.Timer(0.6, held.set).start()
    with copies:
        pass
    assert [key for key in archive_in(tmp_path).index() if key.replica == 1] == []
    assert any("train-trainer-0-1/main: there was no time left for it" in line for line in said)


def test_pods_of_an_earlier_run_that_still_end_are_not_taken_for_those_of_the_job(tmp_path: Path) -> None:
    pods = pods_of(3)
    for one, uid in zip(pods, (JOB.uid, "9b2c1f0a-0000-4000-8000-0000000000ff"), strict=False):
        owner = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "train", "uid": uid}
        one["metadata"]["ownerReferences"] = [owner]
    cluster = FakeCluster(pods, logs={("default", one["metadata"]["name"]): ["a"] for one in pods})
    for given in (pods, None):
        archive = open_archive(str(tmp_path / f"logs {given is None}"))
        with copying_logs(cluster, archive, JOB, JOB_RUN, given, progress=lambda _: None):
            pass
        assert [key.replica for key in archive.index()] == [0, 2]
