"""Logs of containers that end, restart and are replaced while they are copied: complete, or marked as incomplete."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.logs.query import runs_of_pod
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi_fleet.archive import Archive, ArchivedRun, LogCopy

from tests.fleet.archive.clusters import NoWait, PodCluster, archive_in, archived_text, only_run, until_first_wait
from tests.fleet.archive.pods import JOB, ended, pod, running, status
from tests.unit.logs.scripted import BROKEN, Stream, shown

S = 10**9
LINES = [(number * S // 4, f"line {number}") for number in range(1, 13)]
TEXT = "".join(map(shown, LINES))
LATER = "2026-01-01T00:00:30Z"
"""Start of a run after all lines."""

RUNS = pod(statuses=[status(state=running())])
ENDED = pod()
SILENT = ClusterError("nothing for a while", retryable=True, reason="Silent")


def test_the_log_of_an_ended_container_is_copied_once(tmp_path: Path) -> None:
    cluster, archive = PodCluster(lines=LINES, pod=ENDED), archive_in(tmp_path)
    first = LogCopy(cluster, archive, JOB, only_run(ENDED)).make()
    assert (first.complete, first.lines, first.bytes, first.exit_code) == (True, 12, len(TEXT), 0)
    assert archived_text(archive) == TEXT
    assert LogCopy(cluster, archive, JOB, only_run(ENDED)).make() == first
    assert len(cluster.asked) == 1


def test_an_interrupted_stream_is_read_again_from_its_beginning(tmp_path: Path) -> None:
    cluster = PodCluster(lines=LINES, pod=ENDED, streams=[Stream(100, BROKEN), Stream(0, BROKEN), Stream(200, BROKEN)])
    run = LogCopy(cluster, archive := archive_in(tmp_path), JOB, only_run(ENDED), stop=NoWait()).make()
    assert run.complete
    assert archived_text(archive) == TEXT


def test_a_log_that_cannot_be_read_to_its_end_is_stored_as_incomplete(tmp_path: Path) -> None:
    cluster = PodCluster(lines=LINES, pods=[None], streams=[Stream(100, BROKEN)])
    run = LogCopy(cluster, archive := archive_in(tmp_path), JOB, only_run(ENDED), stop=NoWait()).make()
    assert not run.complete
    assert archived_text(archive) == "".join(map(shown, LINES[:2]))


def stopped(archive: Archive, lines: list[tuple[int, str]]) -> ArchivedRun:
    """Copy a running container's log until these lines were read."""
    cluster = PodCluster(lines=lines, pod=RUNS)
    return LogCopy(cluster, archive, JOB, only_run(RUNS), stop=until_first_wait()).make()


def test_a_copy_that_is_stopped_is_stored_as_incomplete_and_then_replaced(tmp_path: Path) -> None:
    archive = archive_in(tmp_path)
    assert not stopped(archive, LINES[:5]).complete
    assert archived_text(archive) == "".join(map(shown, LINES[:5]))
    assert LogCopy(PodCluster(lines=LINES, pod=ENDED), archive, JOB, only_run(ENDED)).make().complete
    assert archived_text(archive) == TEXT
    assert [key.partial for key in archive.index()] == [False]


def test_a_shorter_incomplete_copy_does_not_replace_a_longer_one(tmp_path: Path) -> None:
    archive = archive_in(tmp_path)
    for lines in (LINES[:5], LINES[:2]):
        stopped(archive, lines)
    assert archived_text(archive) == "".join(map(shown, LINES[:5]))


def test_a_followed_container_is_copied_to_its_end_across_interruptions(tmp_path: Path) -> None:
    streams = [Stream(100, BROKEN), Stream(150, SILENT), Stream(0, BROKEN), Stream(120, BROKEN)]
    cluster = PodCluster(lines=LINES, pods=[*[RUNS] * 8, ENDED], streams=streams)
    run = LogCopy(cluster, archive := archive_in(tmp_path), JOB, only_run(RUNS), stop=NoWait()).make()
    assert (run.complete, run.finished_at is not None) == (True, True)
    assert archived_text(archive) == TEXT
    assert cluster.asked[-1]["follow"] is False


@pytest.mark.parametrize("parts", [1, 7, 40, 10**6])
@pytest.mark.parametrize("cut", range(0, len(TEXT), 23))
def test_a_followed_log_is_whole_wherever_its_streams_break_off(tmp_path: Path, cut: int, parts: int) -> None:
    streams = [Stream(cut, BROKEN), Stream(min(cut * 2, 300), BROKEN), Stream(30, BROKEN)]
    cluster = PodCluster(lines=LINES, pods=[*[RUNS] * 6, ENDED], streams=streams, parts=max(parts, 36))
    LogCopy(cluster, archive := archive_in(tmp_path), JOB, only_run(RUNS), stop=NoWait()).make()
    assert archived_text(archive) == TEXT


def test_a_followed_container_whose_pod_goes_with_its_end_is_complete(tmp_path: Path) -> None:
    cluster = PodCluster(lines=LINES, pods=[None])
    run = LogCopy(cluster, archive_in(tmp_path), JOB, only_run(RUNS), stop=NoWait()).make()
    assert run.complete


def test_a_followed_container_whose_pod_goes_with_its_stream_is_incomplete(tmp_path: Path) -> None:
    cluster = PodCluster(lines=LINES, pods=[None], streams=[Stream(100, BROKEN)])
    run = LogCopy(cluster, archive_in(tmp_path), JOB, only_run(RUNS), stop=NoWait()).make()
    assert not run.complete


def test_the_log_of_a_run_that_was_restarted_meanwhile_is_read_as_the_previous_one(tmp_path: Path) -> None:
    again = pod(
        statuses=[status(state=running(LATER), container_id="c2", restarts=1, last=ended("c1", finished=LATER))]
    )
    later = [(31 * S, "of the second run")]
    cluster = PodCluster(lines=later, previous_lines=LINES, pod=again)
    run = LogCopy(cluster, archive := archive_in(tmp_path), JOB, only_run(ENDED), stop=NoWait()).make()
    assert (run.complete, run.restarts, run.container_id) == (True, 0, "c1")
    assert archived_text(archive) == TEXT
    assert [asked["previous"] for asked in cluster.asked] == [False, True]


def test_a_log_that_was_read_before_the_restart_is_kept(tmp_path: Path) -> None:
    again = pod(
        statuses=[status(state=running(LATER), container_id="c2", restarts=1, last=ended("c1", finished=LATER))]
    )
    cluster = PodCluster(lines=LINES, pod=again)
    run = LogCopy(cluster, archive_in(tmp_path), JOB, only_run(ENDED), stop=NoWait()).make()
    assert (run.complete, len(cluster.asked)) == (True, 1)


def test_a_status_that_is_out_of_date_does_not_give_a_run_the_log_of_the_next(tmp_path: Path) -> None:
    soon = "2026-01-01T00:00:20Z"
    old = pod(statuses=[status(state=ended("c1", finished=soon))])
    again = pod(statuses=[status(state=running(LATER), container_id="c2", restarts=1, last=ended("c1", finished=soon))])
    cluster = PodCluster(lines=[(31 * S, "of the second run")], previous_lines=LINES, pods=[old, again])
    LogCopy(cluster, archive := archive_in(tmp_path), JOB, only_run(old), stop=(stop := NoWait())).make()
    assert archived_text(archive) == TEXT
    assert stop.waited[0] == 2.0


def test_a_late_line_alone_does_not_prevent_a_copy(tmp_path: Path) -> None:
    old = pod(statuses=[status(state=ended("c1", finished="2026-01-01T00:00:00Z"))])
    cluster = PodCluster(lines=[*LINES, (9 * S, "late")], pod=old)
    run = LogCopy(cluster, archive_in(tmp_path), JOB, only_run(old), stop=NoWait()).make()
    assert run.complete


def test_a_run_that_two_restarts_replaced_is_lost_and_nothing_is_stored(tmp_path: Path) -> None:
    third = pod(
        statuses=[
            status(state=running(LATER), container_id="c3", restarts=2, last=ended("c2", started=LATER, finished=LATER))
        ]
    )
    cluster = PodCluster(lines=[(40 * S, "of the third run")], pod=third)
    with pytest.raises(ClusterError, match="a later run has its place") as raised:
        LogCopy(cluster, archive := archive_in(tmp_path), JOB, only_run(ENDED), stop=NoWait()).make()
    assert raised.value.reason == "Replaced"
    assert archive.index() == []


def test_a_pod_of_the_same_name_does_not_give_its_log(tmp_path: Path) -> None:
    new = pod(uid="9b2c1f0a-0000-4000-8000-00000000000b", created=LATER)
    cluster = PodCluster(lines=[(31 * S, "of the new pod")], pod=new)
    with pytest.raises(ClusterError, match="a later run has its place"):
        LogCopy(cluster, archive := archive_in(tmp_path), JOB, only_run(ENDED), stop=NoWait()).make()
    assert archive.index() == []
    run = LogCopy(PodCluster(lines=LINES, pod=new), archive, JOB, only_run(ENDED), stop=NoWait()).make()
    assert run.complete


def test_a_followed_log_does_not_go_on_with_that_of_the_next_run(tmp_path: Path) -> None:
    again = pod(
        statuses=[status(state=running(LATER), container_id="c2", restarts=1, last=ended("c1", finished=LATER))]
    )
    cluster = PodCluster(lines=LINES, pods=[RUNS, again], previous_lines=LINES, streams=[Stream(100, BROKEN)])
    stop = NoWait(lambda: setattr(cluster, "lines", [(31 * S, "of the second run")]))
    run = LogCopy(cluster, archive := archive_in(tmp_path), JOB, only_run(RUNS), stop=stop).make()
    assert (run.complete, run.container_id) == (True, "c1")
    assert archived_text(archive) == TEXT


@pytest.mark.parametrize("before", [RUNS, ENDED])
def test_text_of_a_later_run_is_dropped_where_its_stream_breaks(tmp_path: Path, before: Any) -> None:
    again = pod(
        statuses=[status(state=running(LATER), container_id="c2", restarts=1, last=ended("c1", finished=LATER))]
    )
    later = [(31 * S, "of the second run"), (32 * S, "more")]
    cluster = PodCluster(lines=later, pod=again, previous_lines=LINES, streams=[Stream(60, BROKEN)])
    run = LogCopy(cluster, archive := archive_in(tmp_path), JOB, only_run(before), stop=NoWait()).make()
    assert (run.complete, run.container_id) == (True, "c1")
    assert archived_text(archive) == TEXT


def test_the_previous_run_of_a_container_is_copied(tmp_path: Path) -> None:
    again = pod(
        statuses=[status(state=running(LATER), container_id="c2", restarts=1, last=ended("c1", finished=LATER, code=3))]
    )
    cluster = PodCluster(lines=[], previous_lines=LINES, pod=again)
    first, second = runs_of_pod(again)
    run = LogCopy(cluster, archive := archive_in(tmp_path), JOB, first).make()
    assert (run.complete, run.exit_code, run.restarts) == (True, 3, 0)
    assert second.running
    assert archived_text(archive) == TEXT


def test_the_kubelets_text_about_a_log_that_is_gone_is_no_log(tmp_path: Path) -> None:
    cluster = PodCluster(pod=ENDED)
    cluster.logs = lambda *_, **__: PodCluster(  # type: ignore[method-assign]
        rest="unable to retrieve container logs for containerd://c1", lines=[(0, "")]
    ).logs("default", "p", since=datetime(2026, 1, 1, tzinfo=timezone.utc) + timedelta(hours=1))
    with pytest.raises(ClusterError, match="containerd://c1") as raised:
        LogCopy(cluster, archive := archive_in(tmp_path), JOB, only_run(ENDED), stop=NoWait()).make()
    assert raised.value.reason == "NotFound"
    assert archive.index() == []


def test_an_empty_log_is_complete(tmp_path: Path) -> None:
    run = LogCopy(PodCluster(lines=[], pod=ENDED), archive := archive_in(tmp_path), JOB, only_run(ENDED)).make()
    assert (run.complete, run.lines, run.bytes) == (True, 0, 0)
    assert archived_text(archive) == ""
