"""The argument `log_archive`: what a program says of it to others, and what it does not change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pulumi
import pytest
from torchx_pulumi.log_archive import ArchivedJob, ArchivedLog, open_archive
from torchx_pulumi.logs import LogQuery
from torchx_pulumi.logs.reading import read_source
from torchx_pulumi.outputs.reader import read_outputs
from torchx_pulumi_components import MCADTrainingJob, VolcanoTrainingJob, stack_outputs
from torchx_pulumi_components.cluster_access import cluster_for_tests

from tests.components.test_stack_outputs import launched, make
from tests.components.test_unknown import unknown
from tests.components.test_volcano_training_job import JOB, PREFIX, args, cluster, remember, stashed
from tests.unit.log_archive.pods import pod

URL = "s3://logs/team?region=eu-1"


def links(engine: Any, job: Any) -> Any:
    return read_outputs(engine.value(stack_outputs(job)["torchx"]))["links"]


@pytest.mark.parametrize(("component", "needed"), [(VolcanoTrainingJob, {"queue": "default"}), (MCADTrainingJob, {})])
def test_a_program_says_where_its_logs_are_kept(engine: Any, component: Any, needed: Any) -> None:
    given = {"roles": args()["roles"], **needed}
    assert links(engine, engine.run(lambda: component("train", {**given, "log_archive": URL})))["log_archive"] == URL
    without = engine.run(lambda: component("train", given))
    assert "log_archive" not in engine.value(stack_outputs(without)["torchx"])["links"]


def test_an_archive_is_no_part_of_a_run(engine: Any) -> None:
    with cluster_for_tests(cluster()):
        engine.run(lambda: VolcanoTrainingJob("train", args()))
    record, job_object = engine.record(), engine.mocks.one(JOB).inputs
    live = remember(engine)
    with cluster_for_tests(cluster(live)):
        engine.run(lambda: VolcanoTrainingJob("train", args(log_archive=URL)))
    assert engine.record() == record
    assert engine.mocks.one(JOB).inputs == job_object
    with cluster_for_tests(cluster()):
        engine.run(lambda: VolcanoTrainingJob("train", args(log_archive=URL)))
    assert engine.record() == record


def test_a_wrong_archive_is_reported_with_all_other_problems(engine: Any) -> None:
    wrong = args(log_archive="https://user:pw@host/x", timeout_s=0)
    with pytest.raises(pulumi.RunError) as caught:
        engine.run(lambda: VolcanoTrainingJob("train", wrong))
    assert "log_archive: " in str(caught.value)
    assert "timeout_s: must be" in str(caught.value)
    assert "pw" not in str(caught.value)


def test_an_archive_that_is_not_known_before_up(engine: Any) -> None:
    job = engine.run(lambda: VolcanoTrainingJob("train", args(log_archive=unknown())), preview=True)
    assert job.made.log_archive is None
    known = engine.run(lambda: VolcanoTrainingJob("train", args(log_archive=pulumi.Output.from_input(URL))))
    assert links(engine, known)["log_archive"] == URL


def test_outputs_with_a_secret_archive_are_secret_and_nothing_else_is(engine: Any) -> None:
    job = engine.run(lambda: VolcanoTrainingJob("train", args(log_archive=pulumi.Output.secret(URL))))
    assert engine.value(stack_outputs(job)["torchx"])["links"]["log_archive"] == URL
    assert engine.loop.run_until_complete(stack_outputs(job)["torchx"].is_secret())
    assert not engine.loop.run_until_complete(job.job_name.is_secret())
    assert "4dabf18193072939515e22adb298388d" not in repr(engine.mocks.one(JOB).inputs["spec"])


def test_the_note_of_an_app_follows_the_program(engine: Any) -> None:
    live = launched(engine)
    app = f"{PREFIX}$pulumi:index:Stash::train-app"
    before = engine.mocks.state[app]["input"]
    with cluster_for_tests(cluster(live)):
        engine.run(lambda: make(log_archive=URL))
        assert stashed(engine, "-app") == {**before, "log_options": {"log_archive": URL}}
        engine.mocks.state[app]["input"] = {**before, "log_options": {"log_timestamps": False, "log_archive": URL}}
        engine.run(make)
        assert stashed(engine, "-app")["log_options"] == {"log_timestamps": False}
        secret = engine.run(lambda: make(log_archive=pulumi.Output.secret("/other")))
        assert secret.made.log_archive == "/other"
        assert stashed(engine, "-app")["log_options"] == {"log_timestamps": False}


def ended_run(engine: Any, phase: str = "Completed") -> Any:
    """Launch a job of the fixed name `train-x1`, and return a cluster with it and the log of its pod."""
    with cluster_for_tests(cluster()):
        engine.run(lambda: VolcanoTrainingJob("train", args(job_name="train-x1")))
    live = remember(engine)
    live["status"] = {"state": {"phase": phase}}
    one = pod("train-x1-trainer-0-0", owner="uid-of-train")
    one["metadata"]["labels"]["volcano.sh/job-name"] = "train-x1"
    kept = cluster(live, one)
    kept._logs[("default", "train-x1-trainer-0-0")] = ["step 1", "done"]
    return kept


@pytest.mark.parametrize("phase", ["Completed", "Running"])
def test_a_relaunch_copies_the_logs_of_the_run_that_it_ends(engine: Any, tmp_path: Path, phase: str) -> None:
    kept = ended_run(engine, phase)
    again = args(job_name="train-x1", role={"image": "app:2"}, on_running_change="replace", log_archive=str(tmp_path))
    with cluster_for_tests(kept):
        engine.run(lambda: VolcanoTrainingJob("train", again), preview=True)
        assert not [*tmp_path.rglob("*.json")]
        engine.run(lambda: VolcanoTrainingJob("train", again))
    job = ArchivedJob(app_id="default:train-x1", scheduler="volcano", uid="uid-of-train")
    found = ArchivedLog(open_archive(str(tmp_path)), job, "trainer", 0)
    lines = [*read_source(found, LogQuery(namespace="default", pod=found.pod, timestamps=False))]
    assert lines == ["step 1\n", "done\n"]


def test_a_run_that_is_kept_is_not_copied(engine: Any, tmp_path: Path) -> None:
    with cluster_for_tests(ended_run(engine, "Running")):
        engine.run(lambda: VolcanoTrainingJob("train", args(job_name="train-x1", log_archive=str(tmp_path))))
    assert not [*tmp_path.rglob("*.json")]


def test_an_archive_that_cannot_be_written_stops_no_relaunch(
    engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    said: list[str] = []
    monkeypatch.setattr(pulumi.log, "info", lambda text, *_: said.append(text))
    again = args(job_name="train-x1", role={"image": "app:2"}, log_archive=str(tmp_path / "file"))
    with cluster_for_tests(ended_run(engine)):
        engine.run(lambda: VolcanoTrainingJob("train", again))
    assert engine.record()["attempt"] == 2
    assert any("warning: " in line and str(tmp_path / "file") in line for line in said)
