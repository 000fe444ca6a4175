"""What a program says of an app to `torchx` and the fleet: the stack outputs, and the note of `torchx run`."""

from __future__ import annotations

from typing import Any

import jsonschema
from torchx_pulumi.model import labels
from torchx_pulumi.model.app_entry import StackRef, read_entry, write_entry
from torchx_pulumi.outputs.reader import read_outputs, read_schema
from torchx_pulumi.testing import cluster_for_tests
from torchx_pulumi_components import VolcanoTrainingJob, stack_outputs

from tests.components.test_volcano_training_job import JOB, PREFIX, args, cluster, remember, shown, stashed
from tests.unit.builders import run_entry
from tests.unit.outputs.test_reader import without_none

JOB_ARGS = {"job_name": "train-x1", "role": {"num_replicas": 2}}


def make(**changes: Any) -> VolcanoTrainingJob:
    return VolcanoTrainingJob("train", args(**{**JOB_ARGS, **changes}))


def app_note(engine: Any, job: Any) -> dict[str, Any]:
    """Return the note of `torchx run` about the app that a program has just launched."""
    record = engine.record()
    entry = run_entry(
        app_id="default:train-x1",
        place=StackRef(backend="file:///state", project="proj", stack="dev"),
        user="alice",
        app={"name": "train", "roles": [{"name": "trainer", "image": "app:1", "env": {"A": "1"}, "num_replicas": 2}]},
        pods={"trainer": ["train-x1-trainer-0-0", "train-x1-trainer-1-0"]},
        declared={**engine.value(job.declared), "created_by": "alice"},
        run=record["hash"],
        uid="uid-of-train",
        ui_url="https://ui.example.com/train",
    )
    return dict(without_none(write_entry(entry)))


def launched(engine: Any) -> Any:
    """Launch the app as `torchx run` does, and return its job as the cluster has it."""
    with cluster_for_tests(cluster()):
        job = engine.run(make)
    note = app_note(engine, job)
    live = remember(engine)
    engine.mocks.state[f"{PREFIX}$pulumi:index:Stash::train-app"] = {"input": note}
    engine.mocks.state[f"{PREFIX}::train"] |= {**shown(engine, job), "observed": engine.value(job.observed)}
    return live


def test_a_program_exports_what_torchx_run_exports(engine: Any) -> None:
    live = launched(engine)
    with cluster_for_tests(cluster(live)):
        job = engine.run(make)
    exported = {name: engine.value(value) for name, value in stack_outputs(job).items()}
    assert exported.keys() == {"torchx", "app_id", "app_handle", "state", "reason", "log_command"}
    found = read_outputs(exported["torchx"])
    assert found["app"]["handle"] == exported["app_handle"] == "pulumi_volcano://torchx/default:train-x1"
    assert (found["declared"]["created_by"], found["links"]["ui_url"]) == ("alice", "https://ui.example.com/train")
    assert found["links"]["log_command"] == exported["log_command"]
    assert (exported["state"], exported["torchx"]["observed"]["state"]) == ("RUNNING", "RUNNING")


def test_what_is_requested_of_a_run_is_exported_over_its_end(engine: Any) -> None:
    launched(engine)
    requested = {"action": "cancel", "at": "2026-01-01T10:00:00Z", "by": "alice", "counter": 1.0, "uid": "uid-of-train"}
    engine.mocks.state[f"{PREFIX}::train"]["requested"] = requested
    with cluster_for_tests(cluster()):
        exported = engine.value(stack_outputs(engine.run(make))["torchx"])
    assert exported["requested"] | {"counter": 1.0} == {**requested, "attempt": 1, "resource_version": None}
    assert (exported["observed"]["state"], exported["observed"]["reason"]) == ("CANCELLED", "Cancelled")
    jsonschema.validate(exported, read_schema())


def test_without_a_note_the_stack_is_named_as_who_created_the_app(engine: Any) -> None:
    with cluster_for_tests(cluster()):
        job = engine.run(make)
    exported = engine.value(stack_outputs(job, digests={"app:1": "sha256:1"}, ui_url="https://x")["torchx"])
    assert exported["declared"]["created_by"] == "proj/dev"
    assert exported["declared"]["roles"][0]["digest"] == "sha256:1"
    assert exported["links"]["ui_url"] == "https://x"


def test_the_note_of_an_unchanged_run_stays_as_it_is(engine: Any) -> None:
    live = launched(engine)
    before = engine.mocks.state[f"{PREFIX}$pulumi:index:Stash::train-app"]["input"]
    with cluster_for_tests(cluster(live)):
        engine.run(make)
        assert stashed(engine, "-app") == before
    with cluster_for_tests(cluster()):
        # Over and gone: what is known of its last run stays.
        engine.run(make)
    assert stashed(engine, "-app") == before


def test_the_job_keeps_the_labels_by_which_torchx_lists_it(engine: Any) -> None:
    live = launched(engine)
    with cluster_for_tests(cluster(live)):
        engine.run(make)
    metadata = engine.mocks.one(JOB).inputs["metadata"]
    assert metadata["labels"][labels.LAUNCHER] == "torchx"
    assert metadata["labels"][labels.SESSION] == "torchx"


def test_the_note_follows_a_run_that_the_program_launches_again(engine: Any) -> None:
    live = launched(engine)
    # The mock engine names uids by the resource; the recorded run had another one.
    engine.mocks.state[f"{PREFIX}$pulumi:index:Stash::train-app"]["input"]["uid"] = "first"
    engine.mocks.state[f"{PREFIX}::train"]["record"]["uid"] = "first"
    live["metadata"]["uid"] = "first"
    live["status"] = {"state": {"phase": "Completed"}}
    with cluster_for_tests(cluster(live)):
        engine.run(lambda: make(role={"num_replicas": 3, "image": "app:2"}))
    note = stashed(engine, "-app")
    entry = read_entry(note, "the note")
    record = engine.record()
    assert (entry.uid, entry.run, entry.app_id) == ("uid-of-train", record["hash"], "default:train-x1")
    assert entry.launched_at.endswith("Z")
    assert entry.launched_at > "2026-01-01T00:00:00Z"
    assert len(entry.pods["trainer"]) == 3
    assert entry.app["roles"] == [{"name": "trainer", "image": "app:2", "env": {"A": "1"}, "num_replicas": 3}]
    assert entry.declared["spec_hash"] == record["hash"]
    assert (entry.user, entry.place.stack, entry.launch) == ("alice", "dev", "l")


def test_the_note_of_a_run_that_shrinks_in_place_has_its_pods(engine: Any) -> None:
    live = launched(engine)
    with cluster_for_tests(cluster(live)):
        engine.run(lambda: make(role={"num_replicas": 1}))
    note = stashed(engine, "-app")
    assert note["pods"] == {"trainer": ["train-x1-trainer-0-0"]}
    assert (note["uid"], note["launched_at"]) == ("uid-of-train", "2026-01-01T00:00:00Z")
