"""A fleet is read from the files of a backend: odd ones are said, not raised."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torchx_pulumi.model.errors import DeployError
from torchx_pulumi.model.run_record import RunRecord
from torchx_pulumi.model.status import JobState
from torchx_pulumi.stack_state.stacks import StackName
from torchx_pulumi_fleet import read_fleet
from torchx_pulumi_fleet.views.row import Fleet, build_row
from torchx_pulumi_fleet.views.selection import Selection

from tests.fleet.tracker.states import checkpoint, noted, output, saw, write_stack
from tests.fleet.writer.live_apps import app_of

NOW = datetime(2026, 1, 2, 12, tzinfo=timezone.utc)


def fleet(folder: Path, **options: Any) -> Fleet:
    return read_fleet(f"file://{folder}", **{"now": NOW, **options})


def test_a_row_says_what_the_stack_says(tmp_path: Path) -> None:
    write_stack(tmp_path, "team.train", checkpoint(output()))
    (row,) = fleet(tmp_path).rows
    assert (row.app_id, row.handle) == ("team:train-x1", "pulumi_volcano://torchx/team:train-x1")
    assert (row.scheduler, row.name, row.namespace, row.queue, row.user) == (
        "volcano", "train", "team", "default", "ada",
    )  # fmt: skip
    assert (row.state, row.reason, row.phase, row.attempt) == (JobState.RUNNING, "Running", "Running", 1)
    assert (row.replicas_ready, row.replicas_wanted) == (1, 2)
    assert row.roles[0]["counts"] == {"RUNNING": 1, "PENDING": 1}
    assert row.resources_total["gpu"] == 2
    assert (row.age_s, row.freshness_s, row.stale, row.source) == (3600, 60, False, "state")
    assert row.stack == StackName(project="torchx", stack="team.train")


def test_what_was_seen_long_ago_of_an_app_that_had_not_ended_is_stale(tmp_path: Path) -> None:
    write_stack(tmp_path, "a", checkpoint(output("a", observed={"observed_at": "2026-01-01T00:00:00Z"})))
    ended = {"observed_at": "2026-01-01T00:00:00Z", "state": "FAILED"}
    write_stack(tmp_path, "b", checkpoint(output("b", observed=ended)))
    write_stack(tmp_path, "c", checkpoint(output("c", observed={"observed_at": None})))
    stale = {row.stack.stack: row.stale for row in fleet(tmp_path).rows}
    assert stale == {"a": True, "b": False, "c": True}


def test_stacks_of_all_projects_are_found_in_every_form(tmp_path: Path) -> None:
    write_stack(tmp_path, "one", checkpoint(output("a")))
    write_stack(tmp_path, "two", checkpoint(output("b")), project="other")
    write_stack(tmp_path, "legacy", checkpoint(output("c")), project="")
    zipped = write_stack(tmp_path, "four", checkpoint(output("d")))
    zipped.with_suffix(".json.gz").write_bytes(gzip.compress(zipped.read_bytes()))
    zipped.unlink()
    write_stack(tmp_path, "one.json", "not ours: a backup").rename(tmp_path / ".pulumi/stacks/torchx/one.json.bak")
    assert {str(row.stack) for row in fleet(tmp_path).rows} == {"torchx/one", "other/two", "legacy", "torchx/four"}
    assert [str(row.stack) for row in fleet(tmp_path, project="other").rows] == ["other/two"]


def test_broken_stacks_are_listed_with_why(tmp_path: Path) -> None:
    whole = json.dumps(checkpoint(output()), indent=4)
    secret = {"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270", "ciphertext": "x"}
    for name, content, why in (
        ("empty", "", "empty"),
        ("cut", whole[: len(whole) * 3 // 4], "not valid JSON"),
        ("list", "[]", "must be an object"),
        ("newer", checkpoint({**output(), "schema_version": 2}), "schema version 2"),
        ("text", checkpoint("hello"), "without a schema_version"),
        ("secret", checkpoint(secret), "secret as a whole"),
    ):
        write_stack(tmp_path, name, content)
        found = {item.stack.stack: item.why for item in fleet(tmp_path).broken}
        assert why in found[name]
    write_stack(tmp_path, "good", checkpoint(output()))
    assert len(fleet(tmp_path).rows) == 1


def test_a_link_in_a_circle_hides_no_other_stack(tmp_path: Path) -> None:
    good = write_stack(tmp_path, "good", checkpoint(output()))
    for path, target in (
        (good.with_name("round.json"), "round.json"),
        (good.with_name("round"), "round"),
        (good.with_name("up"), ".."),
        (good.parent.parent / "here", "."),
    ):
        path.symlink_to(target)
    found = fleet(tmp_path)
    assert [str(row.stack) for row in found.rows] == ["torchx/good"]
    (broken,) = found.broken
    assert broken.stack.stack == "round"
    assert "Too many levels of symbolic links" in broken.why


def test_a_stack_without_an_app_is_counted_only(tmp_path: Path) -> None:
    write_stack(tmp_path, "platform", checkpoint(url="x"))
    write_stack(tmp_path, "fresh", {"version": 3, "checkpoint": {"stack": "s", "latest": None}})
    read = fleet(tmp_path)
    assert (read.rows, read.broken, read.others) == ([], [], 2)


def test_a_backend_that_is_not_there_is_an_error_and_an_unused_one_is_empty(tmp_path: Path) -> None:
    with pytest.raises(DeployError, match="there is no such folder"):
        fleet(tmp_path / "absent")
    (tmp_path / "file").write_text("")
    with pytest.raises(DeployError, match="there is no such folder"):
        fleet(tmp_path / "file")
    assert fleet(tmp_path).rows == []


def test_a_stack_that_somebody_works_on_is_marked(tmp_path: Path) -> None:
    write_stack(tmp_path, "a", checkpoint(output("a")))
    write_stack(tmp_path, "b", checkpoint(output("b")))
    lock = tmp_path / ".pulumi/locks/organization/torchx/b/1.json"
    lock.parent.mkdir(parents=True)
    lock.write_text("{}")
    assert {row.stack.stack: row.updating for row in fleet(tmp_path).rows} == {"a": False, "b": True}


def test_unfinished_apps_come_first_and_young_ones_before_old_ones(tmp_path: Path) -> None:
    for name, state, queued in (("a", "FAILED", "10"), ("b", "RUNNING", "08"), ("c", "PENDING", "09")):
        seen = {"state": state, "queued_at": f"2026-01-02T{queued}:00:00Z"}
        write_stack(tmp_path, name, checkpoint(output(name, observed=seen)))
    assert [row.stack.stack for row in fleet(tmp_path).rows] == ["c", "b", "a"]


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def test_a_later_observation_of_this_machine_is_laid_over(tmp_path: Path) -> None:
    write_stack(tmp_path, "a", checkpoint(output("a", observed={"resource_version": "9"}), entry=noted("a")))
    seen = {"state": "FAILED", "reason": "OutOfMemory", "attempt": 1, "observed_at": "2026-01-02T11:59:30Z"}
    saw(noted("a"), seen)
    (row,) = fleet(tmp_path).rows
    assert (row.state, row.reason, row.source, row.stale) == (JobState.FAILED, "OutOfMemory", "local", False)
    assert row.queued_at == datetime(2026, 1, 2, 11, tzinfo=timezone.utc)
    earlier = {**seen, "state": "PENDING", "resource_version": "8"}
    saw(noted("a"), earlier)
    (row,) = fleet(tmp_path).rows
    assert (row.state, row.source) == (JobState.RUNNING, "state")


def test_the_age_counts_from_the_launch_where_nobody_saw_when_the_object_was_made(tmp_path: Path) -> None:
    never = {"queued_at": None, "started_at": None}
    run = RunRecord(
        app_id="a", job_name="a", namespace="team", hash="h", digests={}, launched={}, replicas={}, attempt=1,
        launched_at="2026-01-02T11:50:00+00:00",
    )  # fmt: skip
    write_stack(tmp_path, "a", checkpoint(output("a", observed=never), record=run, entry=noted("a")))
    # As `torchx status` noted it, two seconds ago, without the times of the job.
    seen = {"state": "RUNNING", "reason": "Running", "attempt": 1, "observed_at": "2026-01-02T11:59:58Z"}
    saw(noted("a"), seen)
    (row,) = fleet(tmp_path).rows
    assert (row.source, row.age_s, row.freshness_s) == ("local", 600, 2)
    write_stack(tmp_path, "a", checkpoint(output("a", observed=never), entry=noted("a")))
    (row,) = fleet(tmp_path).rows
    assert row.age_s is None


ABSENT = {"reason": "ControllerAbsent", "summary": "no controller has acted on the job for a minute"}


@pytest.mark.parametrize("reason", ["Submitted", "ControllerAbsent"])
def test_only_a_fresh_look_may_say_that_no_controller_has_acted(tmp_path: Path, reason: str) -> None:
    seen = {"state": "SUBMITTED", "reason": reason, "message": "not taken up yet", "diagnoses": [ABSENT]}
    write_stack(tmp_path, "a", checkpoint(output("a", observed={**seen, "observed_at": "2026-01-02T11:59:30Z"})))
    write_stack(tmp_path, "b", checkpoint(output("b", observed={**seen, "observed_at": "2026-01-02T11:58:00Z"})))
    fresh, old = sorted(fleet(tmp_path).rows, key=lambda row: row.stack.stack)
    assert (fresh.reason, fresh.message, fresh.diagnoses) == (reason, "not taken up yet (30 s ago)", [ABSENT])
    assert (old.reason, old.diagnoses) == ("Submitted", [])
    assert old.message == "submitted; what became of it since then was not looked at"


def test_only_what_is_wanted_is_kept(tmp_path: Path) -> None:
    write_stack(tmp_path, "a", checkpoint(output("a")))
    write_stack(tmp_path, "b", checkpoint(output("b", app={"queue": "big", "namespace": "n", "scheduler": "mcad"})))
    write_stack(tmp_path, "c", checkpoint(output("c", observed={"queued_at": "2025-01-01T00:00:00Z"})))
    write_stack(tmp_path, "d", checkpoint(output("d", observed={"queued_at": None, "started_at": None})))
    for chosen, wanted in (
        (Selection(queues=["big"]), {"b"}),
        (Selection(namespaces=["team"]), {"a", "c", "d"}),
        (Selection(schedulers=["mcad"], users=["ada"]), {"b"}),
        (Selection(younger_than_s=86400), {"a", "b", "d"}),
        (Selection(states=[JobState.FAILED]), set()),
        (Selection(users=["grace"]), set()),
    ):
        assert {row.stack.stack for row in fleet(tmp_path, selection=chosen).rows} == wanted


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    part=st.sampled_from(["app", "declared", "observed", "links"]),
    key=st.sampled_from(
        ["id", "roles", "state", "attempt", "observed_at", "queued_at", "diagnoses", "resources_total", "log_command"]
    ),
    value=_JSON,
)
def test_odd_outputs_never_raise(part: str, key: str, value: Any) -> None:
    whole = output()
    whole[part] = {**whole[part], key: value}
    for torchx in (whole, {**whole, part: value}):
        row = build_row(app_of(torchx, StackName(project="p", stack="s")), NOW)
        assert row.state in JobState
        assert replace(row, note="x").note == "x"


def test_a_clock_that_runs_ahead_elsewhere_shows_no_negative_age(tmp_path: Path) -> None:
    write_stack(tmp_path, "a", checkpoint(output("a")))
    (row,) = fleet(tmp_path, now=NOW - timedelta(days=1)).rows
    assert (row.age_s, row.freshness_s) == (0, 0)


def test_a_folder_in_which_apps_were_launched_is_not_empty_but_not_mounted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "shared").mkdir()
    assert list(fleet(tmp_path / "shared").rows) == []
    entry = {
        "version": 1,
        "place": {"backend": f"file://{tmp_path}/shared/", "project": "torchx", "stack": "s"},
        **dict.fromkeys(("app_id", "scheduler", "choice", "cluster", "session", "user", "name", "launch", "run"), "x"),
        "app": {},
        "pods": {},
        "declared": {},
        "launched_at": "2026-01-01T00:00:00Z",
    }
    path = tmp_path / "state/torchx-pulumi/runs/volcano/default:x@x.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(entry))
    with pytest.raises(DeployError, match=r"no folder \.pulumi .* 1 app\(s\) .* mount it"):
        fleet(tmp_path / "shared")
    (tmp_path / "shared/.pulumi").mkdir()
    assert list(fleet(tmp_path / "shared").rows) == []
