"""The argument `log_archive`: what a program says of it to others, and what it does not change."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pulumi
import pytest
from torchx_pulumi.logs import archive_marks
from torchx_pulumi.outputs.reader import read_outputs
from torchx_pulumi.testing import cluster_for_tests
from torchx_pulumi_components import MCADTrainingJob, VolcanoTrainingJob, stack_outputs
from torchx_pulumi_fleet.archive import open_archive

from tests.components.test_stack_outputs import launched, make
from tests.components.test_unknown import unknown
from tests.components.test_volcano_training_job import JOB, PREFIX, args, cluster, remember, stashed

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


def test_a_preview_of_a_launch_warns_without_a_controller_that_archives(
    engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(pulumi.log, "warn", lambda text, *_: said.append(text))

    def warnings(*, preview: bool) -> list[str]:
        said.clear()
        engine.run(lambda: VolcanoTrainingJob("train", args(log_archive=str(tmp_path))), preview=preview)
        return [text for text in said if "no controller copies logs of namespace default there" in text]

    assert len(warnings(preview=True)) == 1
    open_archive(str(tmp_path)).mark([], datetime.now(timezone.utc))
    assert warnings(preview=True) == []
    open_archive(str(tmp_path)).mark([], datetime(2026, 1, 1, tzinfo=timezone.utc))
    with cluster_for_tests(cluster()):
        assert warnings(preview=False) == []
    live = remember(engine)
    with cluster_for_tests(cluster(live)):
        assert warnings(preview=True) == [], "the run goes on"


@pytest.mark.parametrize("exists", [False, True])
def test_the_warning_shows_no_part_of_a_secret_archive(
    engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exists: bool
) -> None:
    said: list[str] = []
    monkeypatch.setattr(pulumi.log, "warn", lambda text, *_: said.append(text))
    folder = tmp_path / "hunter22"
    if exists:
        folder.mkdir()
    secret = pulumi.Output.secret(f"file://{folder}")
    engine.run(lambda: VolcanoTrainingJob("train", args(log_archive=secret)), preview=True)
    assert [text.partition(":")[0] for text in said if "controller copies logs" in text] == ["log_archive"]
    assert "hunter22" not in "".join(said)


def test_an_archive_is_read_once_for_all_jobs_of_a_program(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[tuple[str, str]] = []
    monkeypatch.setattr(archive_marks, "find_no_writer", lambda url, namespace, *_, **__: read.append((url, namespace)))

    def program() -> None:
        for number in range(5):
            VolcanoTrainingJob(f"train-{number}", args(log_archive=URL))
        VolcanoTrainingJob("other", args(log_archive="/other"))

    engine.run(program, preview=True)
    assert sorted(read) == sorted([(URL, "default"), ("/other", "default")])
