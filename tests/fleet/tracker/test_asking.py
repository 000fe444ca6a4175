"""Unfinished apps are looked at where their cluster can be reached; where it cannot, that is said."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.apps.answer import Answer, StackChange
from torchx_pulumi.model import labels
from torchx_pulumi.model.app_entry import RunEntry, StackRef
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.requested import read_requested
from torchx_pulumi.model.run_record import RunRecord
from torchx_pulumi.model.status import JobState
from torchx_pulumi.runs.driver import Recorded, Written
from torchx_pulumi.runs.identity import digest
from torchx_pulumi.runs.index import RunIndex
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB
from torchx_pulumi.schedulers.volcano.options import GangMode
from torchx_pulumi.stack_state.checkpoint import SECRET
from torchx_pulumi_fleet import read_fleet
from torchx_pulumi_fleet.views.row import Fleet
from torchx_pulumi_fleet.views.selection import read_selection

from tests.fakes import FakeCluster
from tests.fleet.tracker.states import checkpoint, output, write_stack
from tests.unit.builders import run_entry

NOW = datetime(2026, 1, 2, 12, tzinfo=timezone.utc)


def job(name: str, uid: str = "u1", phase: str = "Completed") -> dict[str, Any]:
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "team", "uid": uid},
        "status": {"state": {"phase": phase}},
    }


def record(**changes: Any) -> RunRecord:
    return RunRecord(
        **{
            "app_id": "train-x1", "job_name": "train-x1", "namespace": "team", "hash": "h", "digests": {},
            "launched": {"trainer": 2}, "replicas": {"trainer": 2}, "attempt": 1, "launched_at": "", "uid": "u1",
            **changes,
        }
    )  # fmt: skip


def entry(cluster: FakeCluster, name: str = "train-x1", **changes: Any) -> RunEntry:
    fields = {"app_id": f"team:{name}", "cluster": cluster.identity, "user": "ada", "app": {}, "launched_at": ""}
    return run_entry(**{**fields, "uid": "u1", **changes})


def live(folder: Path, connect: Any, **options: Any) -> Fleet:
    return read_fleet(f"file://{folder}", live=True, connect=connect, now=NOW, **options)


def test_the_row_says_what_the_cluster_says_now(tmp_path: Path) -> None:
    cluster = FakeCluster([job("train-x1")])
    write_stack(tmp_path, "s", checkpoint(output(), entry=entry(cluster)))
    (row,) = live(tmp_path, lambda *_: cluster).rows
    assert (row.state, row.source, row.stale, row.freshness_s) == (JobState.SUCCEEDED, "live", False, 0)


@pytest.mark.parametrize("of_torchx", [True, False])
def test_an_app_that_runs_takes_two_requests_and_a_gang_that_lost_its_pods_has_failed(
    tmp_path: Path, of_torchx: bool
) -> None:
    asked: list[str] = []

    class Asked(FakeCluster):
        def get(self, kind: Any, *args: Any) -> Any:
            asked.append(kind.kind)
            return super().get(kind, *args)

        def list(self, kind: Any, *args: Any) -> Any:
            asked.append(kind.kind)
            return super().list(kind, *args)

    running = job("train-x1", phase="Running")
    group = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "train-x2", "namespace": "team", "uid": "u2"},
        "spec": {"minMember": 2},
    }
    cluster = Asked([running, group])
    for name, uid, choice in (("train-x1", "u1", "job"), ("train-x2", "u2", "pods")):
        digests = {"gang": digest(GangMode.PODS)} if choice == "pods" else {}
        made = record(app_id=name, job_name=name, uid=uid, digests=digests)
        own = entry(cluster, name, uid=uid, choice=choice, pods={"trainer": [f"{name}-trainer-0-0"]})
        known = output(app={"id": f"team:{name}"})
        write_stack(tmp_path, name, checkpoint(known, **({"entry": own} if of_torchx else {"record": made})))
    rows = live(tmp_path, lambda *_: cluster).rows
    assert [(row.app_id, row.state.value) for row in rows] == [
        ("team:train-x1", "RUNNING"),
        ("team:train-x2", "FAILED"),
    ]
    assert sorted(asked) == ["Job", "Pod", "Pod", "PodGroup"]


def test_a_program_of_the_users_own_is_looked_at_by_the_context_of_its_log_command(tmp_path: Path) -> None:
    asked = []

    def connect(*way: str | None) -> FakeCluster:
        asked.append(way)
        return FakeCluster([job("train-x1")])

    write_stack(tmp_path, "s", checkpoint(output(), record=record()))
    (row,) = live(tmp_path, connect).rows
    assert row.state is JobState.SUCCEEDED
    assert (asked, row.cluster) == ([(None, "here")], "here")


def test_an_app_that_has_ended_or_is_not_wanted_is_not_looked_at(tmp_path: Path) -> None:
    write_stack(tmp_path, "a", checkpoint(output("a", observed={"state": "FAILED"})))
    write_stack(tmp_path, "b", checkpoint(output("b", app={"queue": "other"})))

    def connect(*_: str | None) -> FakeCluster:
        raise AssertionError

    assert len(live(tmp_path, connect, selection=read_selection(queue=["default"])).rows) == 1


def test_an_app_is_selected_by_the_state_that_it_has_now(tmp_path: Path) -> None:
    cluster = FakeCluster([job("train-x1")])
    write_stack(tmp_path, "s", checkpoint(output(), entry=entry(cluster)))
    assert not live(tmp_path, lambda *_: cluster, selection=read_selection(state=["active"])).rows
    assert live(tmp_path, lambda *_: cluster, selection=read_selection(state=["succeeded"])).rows


def test_a_cluster_that_does_not_answer_is_asked_once_and_named(tmp_path: Path) -> None:
    calls = []

    class Dead(FakeCluster):
        def get(self, *words: Any) -> Any:
            calls.append(words)
            raise ClusterError("no answer", retryable=True)

    dead = Dead()
    for name in "abc":
        write_stack(tmp_path, name, checkpoint(output(name), entry=entry(dead, name, kube_context="far")))
    read = live(tmp_path, lambda *_: dead)
    assert read.unreachable == {"far": "no answer"}
    assert [(row.source, row.note) for row in read.rows] == [("state", "cluster not reached: far")] * 3
    assert len({name for *_, name in calls}) == 1


@pytest.mark.parametrize("objects", [[], [job("train-x1", uid="u2")]])
def test_another_cluster_under_the_same_context_is_not_believed(tmp_path: Path, objects: list[Any]) -> None:
    # The same address, as behind a tunnel: another uid of kube-system.
    launched, found = FakeCluster(uid="one"), FakeCluster(objects, uid="two")
    write_stack(tmp_path, "s", checkpoint(output(), entry=entry(launched, cluster_identity=launched.identify())))
    read = live(tmp_path, lambda *_: found)
    assert (read.rows[0].state, read.rows[0].source) == (JobState.RUNNING, "state")
    assert read.rows[0].note == "not in the cluster of its launch: the current context"
    assert "is not the cluster that the apps were launched in" in read.unreachable["the current context"]


def test_nothing_is_concluded_from_a_cluster_that_is_not_known_to_be_the_one_of_the_launch(tmp_path: Path) -> None:
    launched = FakeCluster()
    write_stack(tmp_path, "s", checkpoint(output(), entry=entry(launched)))
    read = live(tmp_path, lambda *_: FakeCluster(api_server="https://other.example.com"))
    assert read.rows[0].state is JobState.RUNNING
    assert "is not known to be the cluster" in read.unreachable["the current context"]


def test_one_cluster_is_believed_under_another_address(tmp_path: Path) -> None:
    launched = FakeCluster(uid="one")
    write_stack(tmp_path, "a", checkpoint(output(), entry=entry(launched, cluster_identity=launched.identify())))
    tunnel = FakeCluster([job("train-x1")], api_server="https://127.0.0.1:6443", uid="one")
    assert live(tmp_path, lambda *_: tunnel).rows[0].state is JobState.SUCCEEDED
    tunnel.remove(VOLCANO_JOB, "team", "train-x1")
    assert live(tmp_path, lambda *_: tunnel).rows[0].state is JobState.UNKNOWN


def test_a_program_of_the_users_own_has_its_cluster_in_the_record(tmp_path: Path) -> None:
    launched = FakeCluster(uid="one")
    write_stack(tmp_path, "s", checkpoint(output(), record=record(cluster=launched.identify())))
    (row,) = live(tmp_path, lambda *_: FakeCluster(uid="two")).rows
    assert (row.state, row.note) == (JobState.RUNNING, "not in the cluster of its launch: here")


def test_an_app_of_a_colleague_is_looked_at_by_ones_own_access(tmp_path: Path) -> None:
    cluster = FakeCluster([job("train-x1")])
    asked = []

    def connect(kubeconfig: str | None, context: str | None) -> FakeCluster:
        if kubeconfig is not None or context is not None:
            raise ClusterError(f"no kubeconfig: looked for {kubeconfig}")
        asked.append((kubeconfig, context))
        return cluster

    theirs = entry(cluster, ambient_kubeconfig="/closed/alice/config", ambient_context="alice")
    write_stack(tmp_path, "s", checkpoint(output(), entry=theirs))
    assert live(tmp_path, connect).rows[0].state is JobState.SUCCEEDED
    assert asked == [(None, None)]


@pytest.mark.parametrize(("objects", "kept"), [([job("train-x1", uid="u2")], record()), ([], record()), ([], None)])
def test_an_object_is_not_gone_from_a_cluster_that_is_not_known_to_be_the_one_of_the_launch(
    tmp_path: Path, objects: list[Any], kept: RunRecord | None
) -> None:
    write_stack(tmp_path, "s", checkpoint(output(), record=kept))
    (row,) = live(tmp_path, lambda *_: FakeCluster(objects)).rows
    assert (row.state, row.source) == (JobState.RUNNING, "state")
    assert "not found in the cluster of the current context" in row.note


@pytest.mark.parametrize("objects", [[], [job("train-x1", uid="u2")]])
def test_an_app_whose_object_is_gone_is_unknown(tmp_path: Path, objects: list[Any]) -> None:
    cluster = FakeCluster(objects)
    write_stack(tmp_path, "s", checkpoint(output(), entry=entry(cluster)))
    (row,) = live(tmp_path, lambda *_: cluster).rows
    assert (row.state, row.reason) == (JobState.UNKNOWN, "NotFound")


def cancel(counter: int = 1, action: str = "cancel") -> dict[str, Any]:
    return {"action": action, "at": "2026-01-02T11:00:00Z", "by": "ada", "counter": float(counter), "uid": "u1"}


@pytest.mark.parametrize("objects", [[], [job("train-x1", phase="Terminated")]])
@pytest.mark.parametrize("of_torchx", [True, False])
def test_a_cancel_that_the_stack_has_is_shown_and_stays_whoever_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, objects: list[Any], of_torchx: bool
) -> None:
    # The index of a colleague has neither the app nor the request.
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    cluster, engine = FakeCluster(objects), Recorder()
    own = {"entry": entry(cluster)} if of_torchx else {"record": record(cluster=cluster.identify())}
    write_stack(tmp_path, "s", checkpoint(output(requested=cancel()), **own))
    (row,) = live(tmp_path, lambda *_: cluster, make_driver=lambda: engine).rows
    assert (row.state, row.reason, row.source) == (JobState.CANCELLED, "Cancelled", "live")
    assert row.message == "cancelled at 2026-01-02T11:00:00Z"
    answers = [change.apply(Answer.of(output(requested=cancel()))) for _, change in engine.asked]
    assert [answer.observed["state"] for answer in answers] == (["CANCELLED"] if of_torchx else [])
    assert [answer.requested for answer in answers] == [read_requested(cancel()) for _ in answers]


@pytest.mark.parametrize(
    ("stack", "state"),
    [
        (None, JobState.CANCELLED),
        # A colleague resumed it since.
        (cancel(2, "resume"), JobState.UNKNOWN),
    ],
)
def test_a_request_of_ones_own_counts_until_the_stack_has_a_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stack: Any, state: JobState
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    cluster = FakeCluster()
    app = entry(cluster)
    RunIndex().add(replace(app, requested=read_requested(cancel())))
    write_stack(tmp_path, "s", checkpoint(output(**({"requested": stack} if stack else {})), entry=app))
    assert live(tmp_path, lambda *_: cluster).rows[0].state is state


def test_pods_that_a_deployment_has_not_made_yet_are_no_end(tmp_path: Path) -> None:
    group = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "train-x1", "namespace": "team", "uid": "u1"},
        "spec": {"minMember": 2},
    }
    cluster = FakeCluster([group])
    own = entry(cluster, choice="pods", pods={"trainer": ["train-x1-trainer-0-0"]})
    whole = checkpoint(output(), entry=own)
    write_stack(tmp_path, "s", whole)
    assert live(tmp_path, lambda *_: cluster).rows[0].state is JobState.FAILED
    whole["checkpoint"]["latest"]["pending_operations"] = [{"type": "creating", "resource": {}}]
    write_stack(tmp_path, "s", whole)
    assert live(tmp_path, lambda *_: cluster).rows[0].state is JobState.RUNNING


def test_a_choice_that_is_not_known_here_is_said(tmp_path: Path) -> None:
    cluster = FakeCluster()
    write_stack(tmp_path, "s", checkpoint(output(), entry=entry(cluster, choice="later")))
    (row,) = live(tmp_path, lambda *_: cluster).rows
    assert "'later'" in row.note


def test_a_cluster_that_answers_in_time_is_asked_without_being_named(tmp_path: Path) -> None:
    cluster = FakeCluster([job("train-x1")])
    write_stack(tmp_path, "s", checkpoint(output(), entry=entry(cluster)))
    (row,) = read_fleet(f"file://{tmp_path}", live=None, connect=lambda *_: cluster, now=NOW).rows
    assert (row.state, row.source) == (JobState.SUCCEEDED, "live")


def test_without_a_kubeconfig_nothing_is_asked_and_nothing_is_said(tmp_path: Path) -> None:
    def connect(*_: str | None) -> FakeCluster:
        raise ClusterError("there is no kubeconfig")

    write_stack(tmp_path, "s", checkpoint(output(), entry=entry(FakeCluster())))
    read = read_fleet(f"file://{tmp_path}", live=None, connect=connect, now=NOW)
    assert (read.rows[0].state, read.rows[0].source, read.rows[0].note) == (JobState.RUNNING, "state", "")
    assert read.unreachable == {}


def test_a_cluster_that_does_not_answer_in_time_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchx_pulumi_fleet.tracker.reading.PATIENCE_S", 0.5)
    answered = threading.Event()

    class Slow(FakeCluster):
        def get(self, *words: Any) -> Any:
            answered.wait()
            return super().get(*words)

    slow, quick = Slow(), FakeCluster([job("train-x2")])
    write_stack(tmp_path, "a", checkpoint(output(), entry=entry(slow, kube_context="far")))
    write_stack(tmp_path, "b", checkpoint(output("train-x2"), entry=entry(quick, "train-x2", kube_context="near")))
    read = read_fleet(
        f"file://{tmp_path}", live=None, connect=lambda _, context: slow if context == "far" else quick, now=NOW
    )
    answered.set()
    assert {row.stack.stack: (row.state.value, row.source) for row in read.rows} == {
        "a": ("RUNNING", "state"),
        "b": ("SUCCEEDED", "live"),
    }
    assert read.unreachable == {"far": "no answer within 0.5 s; --live waits longer"}


class Recorder:
    """An engine that notes what it is asked to write."""

    def __init__(self) -> None:
        self.asked: list[tuple[StackRef, StackChange]] = []

    def record_at(self, place: StackRef, change: StackChange) -> Written:
        self.asked.append((place, change))
        return Written(outcome=Recorded.WRITTEN)


@pytest.mark.parametrize("phase", ["Running", "Completed"])
def test_an_end_that_is_seen_is_written_to_the_stack(tmp_path: Path, phase: str) -> None:
    cluster, engine = FakeCluster([job("train-x1", phase=phase)]), Recorder()
    write_stack(tmp_path, "s", checkpoint(output(), entry=entry(cluster)))
    live(tmp_path, lambda *_: cluster, make_driver=lambda: engine)
    if phase == "Running":
        assert engine.asked == []
        return
    ((place, change),) = engine.asked
    assert place == StackRef(backend=f"file://{tmp_path}", project="torchx", stack="s")
    assert (change.uid, change.apply(Answer()).observed["state"]) == ("u1", "SUCCEEDED")


def test_an_end_of_a_programs_own_stack_is_not_written(tmp_path: Path) -> None:
    engine = Recorder()
    write_stack(tmp_path, "s", checkpoint(output(), record=record()))
    live(tmp_path, lambda *_: FakeCluster([job("train-x1")]), make_driver=lambda: engine)
    assert engine.asked == []


@pytest.mark.parametrize(("phase", "state"), [("Terminated", JobState.CANCELLED), ("Failed", JobState.FAILED)])
def test_only_an_end_that_a_cancellation_makes_is_a_cancellation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: str, state: JobState
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    cluster = FakeCluster([job("train-x1", phase=phase)])
    app = entry(cluster)
    RunIndex().add(replace(app, requested=read_requested(cancel())))
    write_stack(tmp_path, "s", checkpoint(output(), entry=app))
    assert live(tmp_path, lambda *_: cluster).rows[0].state is state


def test_one_damaged_stack_leaves_the_others_looked_at(tmp_path: Path) -> None:
    cluster = FakeCluster([job("train-x1")])
    write_stack(tmp_path, "s", checkpoint(output(), entry=entry(cluster)))
    damaged = checkpoint(output(), entry=entry(cluster))
    for resource in damaged["checkpoint"]["latest"]["resources"][1:]:
        resource["inputs"] = "damaged"
    write_stack(tmp_path, "t", damaged)
    rows = {row.stack.stack: row for row in live(tmp_path, lambda *_: cluster).rows}
    assert rows["s"].state is JobState.SUCCEEDED
    assert "damaged" in str(rows["t"].note)


def test_explanations_of_an_app_with_secret_outputs_are_not_shown(tmp_path: Path) -> None:
    cluster = FakeCluster([job("train-x1", phase="Failed")])
    whole = checkpoint(output(), entry=entry(cluster))
    sealed = {SECRET: "1b47061264138c4ac30d75fd1eb44270", "ciphertext": "sealed"}
    whole["checkpoint"]["latest"]["resources"][1]["outputs"]["images"] = sealed
    write_stack(tmp_path, "s", whole)
    (row,) = live(tmp_path, lambda *_: cluster).rows
    assert (row.state, row.source, row.diagnoses) == (JobState.FAILED, "live", [])
    assert "explanations are not shown" in row.message


def test_a_job_object_of_another_launch_under_the_same_name_says_nothing(tmp_path: Path) -> None:
    # The launch has not noted a uid: its label proves which object is its own.
    cluster = FakeCluster([job("train-x1", uid="u2")])
    write_stack(tmp_path, "s", checkpoint(output(), entry=entry(cluster, uid=None)))
    (row,) = live(tmp_path, lambda *_: cluster).rows
    assert (row.state, row.source, row.note) == (JobState.RUNNING, "state", "")
    found = job("train-x1", uid="u2")
    cluster.put({**found, "metadata": {**found["metadata"], "labels": {labels.LAUNCH: "l"}}})
    assert live(tmp_path, lambda *_: cluster).rows[0].state is JobState.SUCCEEDED
