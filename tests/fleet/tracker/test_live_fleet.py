from __future__ import annotations

from datetime import datetime, timezone

from torchx_pulumi.model.timestamps import parse_time
from torchx_pulumi_fleet.tracker.live_fleet import LiveFleet

from tests.fleet.writer.live_apps import tracked_app

NOW = datetime(2026, 1, 2, 13, tzinfo=timezone.utc)


def test_a_reader_learns_what_changed_since_its_version_and_nothing_else() -> None:
    fleet = LiveFleet()
    for name in ("a", "b", "c", "d"):
        fleet.put_stack(tracked_app(name))
    since = fleet.version
    fleet.put_seen(tracked_app("a").key, "u1", {"state": "SUCCEEDED", "reason": "Completed"})
    fleet.put_stack(tracked_app("c", observed={"state": "FAILED"}))
    fleet.put_stack(tracked_app("d"))
    fleet.drop(tracked_app("b").key)
    change = fleet.changes(since)
    assert not change.whole
    assert {app.app.run.job_name for app in change.changed} == {"a", "c"}
    assert len(change.gone) == 1
    nothing = fleet.changes(change.version)
    assert (nothing.changed, nothing.gone) == ((), ())
    assert {app.app.run.job_name for app in fleet.changes(None).changed} == {"a", "c", "d"}


def test_what_is_seen_again_without_a_change_is_no_change_and_hides_none() -> None:
    fleet = LiveFleet()
    for name in ("a", "b"):
        fleet.put_stack(tracked_app(name))
    seen = {"state": "RUNNING", "reason": "Running"}
    fleet.put_seen(tracked_app("a").key, "u1", seen)
    since = fleet.version
    fleet.put_seen(tracked_app("b").key, "u1", seen)
    fleet.put_seen(tracked_app("a").key, "u1", {**seen, "observed_at": "2026-01-02T12:30:00Z"})
    assert [app.app.run.job_name for app in fleet.changes(since).changed] == ["b"]


def test_a_controller_that_starts_keeps_the_time_at_which_a_state_was_first_seen() -> None:
    fleet, ended = LiveFleet(), {"state": "SUCCEEDED", "reason": "Completed", "observed_at": "2026-01-02T12:00:00Z"}
    app = tracked_app("a", observed=ended)
    fleet.put_stack(app)
    later = {**ended, "roles": [], "observed_at": "2026-01-02T12:30:00Z"}
    fleet.put_seen(app.key, "u1", later)
    (shown,) = fleet.changes(None).changed
    assert shown.row(NOW).observed_at == parse_time(ended["observed_at"])
    # Another state is a change.
    fleet.put_seen(app.key, "u1", {**later, "state": "FAILED", "reason": "Error"})
    (shown,) = fleet.changes(None).changed
    assert shown.seen is not None
    assert shown.seen["observed_at"] == later["observed_at"]


def test_what_is_seen_of_a_run_stays_when_its_stack_names_it() -> None:
    fleet, seen = LiveFleet(), {"state": "FAILED", "reason": "Error", "uid": "u1"}
    launching = tracked_app("a", uid=None)
    fleet.put_stack(launching)
    fleet.put_seen(launching.key, None, seen)
    fleet.put_stack(tracked_app("a", uid="u1"))
    assert [app.seen for app in fleet.apps()] == [seen]
    fleet.put_stack(tracked_app("a", uid="u2"))
    assert [app.seen for app in fleet.apps()] == [None]


def test_what_a_stack_has_by_now_is_kept_once_and_is_no_news() -> None:
    fleet, before, after = LiveFleet(), tracked_app("a"), tracked_app("a", observed={"state": "FAILED"})
    seen = {**after.output["observed"], "node": None}
    fleet.put_stack(before)
    fleet.put_seen(before.key, "u1", seen)
    fleet.put_stack(after)
    version = fleet.version
    fleet.put_seen(after.key, "u1", seen)
    (app,) = fleet.apps()
    assert app.seen is app.app.output["observed"]
    assert fleet.version == version


def test_an_observation_that_began_before_the_outage_does_not_end_it() -> None:
    fleet, key = LiveFleet(), tracked_app("a").key
    fleet.put_stack(tracked_app("a"))
    fleet.put_seen(key, "u1", {"state": "RUNNING", "reason": "Running"}, cluster="here")
    fleet.put_away("here", NOW)
    fleet.put_seen(key, "u1", {"state": "RUNNING", "reason": "Running"}, cluster="here")
    (app,) = fleet.changes(None).changed
    assert app.away_since == NOW
    fleet.put_away("here", None)
    (app,) = fleet.changes(None).changed
    assert app.away_since is None
