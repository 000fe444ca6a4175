"""The events of an app as the page shows them."""

from __future__ import annotations

from typing import Any

from torchx_pulumi_fleet.web.serving import LONGEST_MESSAGE, MOST_EVENTS, events_of

from tests.fleet.web.nodes import Site
from tests.fleet.writer.world import wait_for


def event(name: str, at: str, **changes: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": "default"},
        "involvedObject": {"kind": "Job", "name": "train", "namespace": "default"},
        "lastTimestamp": at,
        "type": "Warning",
        "reason": "Unschedulable",
        "message": "0/1 nodes",
        "count": 3,
        "reportingComponent": "volcano",
        **changes,
    }


def test_events_are_listed_newest_first_and_cut() -> None:
    site = Site()
    with site.watched():
        site.put_job()
        site.cluster.put(event("e1", "2026-01-01T00:00:01Z"))
        site.cluster.put(event("e2", "2026-01-01T00:00:02Z", message="x" * 5000, count=None, reportingComponent=""))
        site.cluster.put(event("e3", "2026-01-01T00:00:03Z", involvedObject={"kind": "Pod", "name": "other"}))
        wait_for(lambda: len(events_of(site.view, site.app)) == 2)
        newest, oldest = events_of(site.view, site.app)
    assert oldest == {
        "time": "2026-01-01T00:00:01Z",
        "type": "Warning",
        "reason": "Unschedulable",
        "message": "0/1 nodes",
        "object": "Job/train",
        "count": 3,
        "source": "volcano",
    }
    assert (newest["time"], newest["count"], newest["source"]) == ("2026-01-01T00:00:02Z", 1, None)
    assert len(newest["message"]) == LONGEST_MESSAGE < 5000


def test_the_newest_events_are_those_that_are_listed() -> None:
    class Many:
        def events_of(self, app: object) -> list[dict[str, Any]]:
            return [event(f"e{number}", f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z") for number in range(900)]

    found = events_of(Many(), Site().app)  # type: ignore[arg-type]
    assert (len(found), found[0]["time"]) == (MOST_EVENTS, "2026-01-01T00:14:59Z")


def test_an_app_of_a_cluster_that_is_not_watched_has_no_events() -> None:
    assert events_of(None, Site().app) == []
