"""Logs for the page: live, followed, archived, of earlier attempts and runs; bounded, and ended by their reader."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.apps.app import App
from torchx_pulumi.logs.query import runs_of_pod
from torchx_pulumi.logs.waiting import LogStop
from torchx_pulumi.model.errors import ClusterError, InvalidJobError
from torchx_pulumi.model.timestamps import parse_time
from torchx_pulumi_fleet.archive import LogCopy, open_archive
from torchx_pulumi_fleet.archive.archive_rules import ArchiveRules
from torchx_pulumi_fleet.web.archives import KnownArchives
from torchx_pulumi_fleet.web.logs import LONGEST_PART, NOTE, LiveLogs, LogRequest, status_of

from tests.fleet.archive.clusters import PodCluster, until_first_wait
from tests.fleet.archive.pods import JOB, UID, ended, pod, running, status
from tests.fleet.web.nodes import FastClock, Log, Site, tracked
from tests.fleet.writer.live_apps import changed
from tests.fleet.writer.world import wait_for

S = 10**9
RUNS = [status(state=running())]
POD = pod(statuses=RUNS)


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    with made.watched():
        made.put_job()
        yield made


def logs(site: Site, url: str | None = None, **options: Any) -> LiveLogs:
    archives = KnownArchives(ArchiveRules(own=url, **options))
    return LiveLogs(lambda _app: site.view, site.fleet.find, archives, clock=FastClock())


def request(**changes: Any) -> LogRequest:
    return LogRequest(**{"role": "trainer", "replica": 0, "timestamps": False, **changes})


def read(site: Site, url: str | None = None, **changes: Any) -> list[str]:
    return [*logs(site, url).open(site.live, request(**changes), LogStop())]


class Following:
    """A log that a thread follows."""

    def __init__(self, lines: Iterator[str]) -> None:
        self.got: list[str] = []
        self._lines = lines
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        for part in self._lines:
            self.got.append(part)

    def wait(self, text: str) -> None:
        wait_for(lambda: any(text in part for part in self.got))

    def end(self) -> list[str]:
        self.thread.join(10)
        assert not self.thread.is_alive()
        return self.got


def follow(site: Site, url: str | None = None, stop: LogStop | None = None, **changes: Any) -> Following:
    changes = {"follow": True, **changes}
    return Following(logs(site, url).open(site.live, request(**changes), stop or LogStop()))


def archive(folder: Path, found: dict[str, Any], *texts: str, uid: str = UID) -> str:
    """Archive the runs of a pod, and return the archive's URL."""
    url = str(folder / "logs")
    for ref in runs_of_pod(found):
        lines = [(number * S, f"{text} {ref.restarts}") for number, text in enumerate(texts)]
        cluster = PodCluster(lines=lines, previous_lines=lines, pod=found)
        LogCopy(cluster, open_archive(url), replace(JOB, uid=uid), ref, stop=until_first_wait()).make()
    return url


def test_the_log_of_a_running_pod_begins_with_where_it_is_from(site: Site) -> None:
    site.put_pod(POD, Log("one", "two", "three"))
    note = f"{NOTE}the log of trainer/0 is read from pod train-trainer-0-0, container main\n"
    assert read(site) == [note, "one\n", "two\n", "three\n"]
    assert read(site, tail=1) == [note, "three\n"]
    assert read(site, since=parse_time("2026-01-01T00:00:01Z")) == [note, "two\n", "three\n"]
    assert read(site, timestamps=True)[1] == "2026-01-01T00:00:00.000000000Z one\n"


def test_a_followed_log_ends_with_its_app_and_says_how(site: Site) -> None:
    log = site.put_pod(POD, Log("one"))
    reader = follow(site)
    reader.wait("one")
    log.write("two")
    reader.wait("two")
    log.write("three", over=True)
    site.see("SUCCEEDED", "Completed")
    site.put_pod(pod(), log)
    assert reader.end()[1:] == [
        "one\n",
        "two\n",
        "three\n",
        f"{NOTE}end of the log: it is SUCCEEDED (Completed)\n",
    ]
    assert log.opened == 0


def test_a_followed_log_goes_on_in_the_next_run_of_a_container(site: Site) -> None:
    first = site.put_pod(POD, Log("one"))
    reader = follow(site)
    reader.wait("one")
    second = status(state=running(), container_id="c2", restarts=1, last=ended("c1", code=1))
    following = Log()
    following.lines = ["2026-01-01T00:01:00Z again\n"]
    site.put_pod(pod(statuses=[second]), following, previous=first)
    first.write("two", over=True)
    reader.wait("again")
    following.write("", over=True)
    site.see("FAILED", "Failed")
    assert [line for line in reader.end()[1:-1] if line.strip()] == ["one\n", "two\n", "again\n"]


def lines_of(shown: list[str]) -> list[str]:
    return [line for line in shown if not line.startswith(NOTE)]


def test_lines_since_a_time_have_the_end_of_the_run_before_a_restart(site: Site) -> None:
    second = status(state=running(started="2026-01-01T00:00:03Z"), container_id="c2", restarts=1, last=ended("c1"))
    present = Log()
    present.lines = [f"2026-01-01T00:00:0{number}Z again {number}\n" for number in (4, 5)]
    site.put_pod(pod(statuses=[second]), present, previous=Log("one", "two", "three"))
    since = parse_time("2026-01-01T00:00:01Z")
    assert lines_of(read(site, since=since)) == ["two\n", "three\n", "again 4\n", "again 5\n"]
    assert lines_of(read(site, since=since, attempt=2)) == lines_of(read(site)) == ["again 4\n", "again 5\n"]
    # The present run had begun.
    del site.cluster.written["train-trainer-0-0", True]
    assert lines_of(read(site, since=parse_time("2026-01-01T00:00:05Z"))) == ["again 5\n"]


def test_lines_since_a_time_come_once_while_a_container_waits_to_be_started_again(site: Site) -> None:
    second = status(state=running(started="2026-01-01T00:00:03Z"), container_id="c2", restarts=1, last=ended("c1"))
    log = Log("one", "two", "three")
    site.put_pod(pod(statuses=[second]), log, previous=log)
    got = lines_of(read(site, since=parse_time("2026-01-01T00:00:01Z"), timestamps=True))
    assert [line.partition(" ")[2] for line in got] == ["two\n", "three\n"]


def test_lines_since_a_time_have_the_end_of_an_earlier_pod_from_the_archive(site: Site, tmp_path: Path) -> None:
    url = archive(tmp_path, pod(uid="9b2c1f0a-0000-4000-8000-00000000000b"), "one", "two")
    state = running(started="2026-01-01T00:02:00Z")
    present = Log()
    present.lines = ["2026-01-01T00:02:01Z again\n"]
    site.put_pod(pod(created="2026-01-01T00:01:00Z", statuses=[status(state=state)]), present)
    since = parse_time("2026-01-01T00:00:01Z")
    assert lines_of(read(site, url, since=since)) == ["two 0\n", "again\n"]
    assert lines_of(read(site, since=since)) == ["again\n"]


def test_what_is_missing_of_the_run_before_is_a_note(site: Site) -> None:
    second = status(state=running(started="2026-01-01T00:00:03Z"), container_id="c2", restarts=1, last=ended("c1"))
    gone = Log(error=ClusterError("previous terminated container not found", reason="BadRequest"))
    site.put_pod(pod(statuses=[second]), Log("again"), previous=gone)
    shown = read(site, since=parse_time("2025-12-31T00:00:00Z"))
    assert lines_of(shown) == ["again\n"]
    assert any("the end of the attempt before is not read: container 'main'" in line for line in shown), shown


def test_a_log_is_waited_for_while_its_app_waits(site: Site) -> None:
    site.see("PENDING", "WaitingInQueue")
    reader = follow(site)
    reader.wait(f"{NOTE}waiting for the pod of trainer/0: app default:train is PENDING (WaitingInQueue)")
    site.see("PENDING", "Starting")
    reader.wait("PENDING (Starting)")
    log = site.put_pod(POD, Log("one"))
    reader.wait("one")
    log.write("two", over=True)
    site.see("SUCCEEDED", "Completed")
    got = reader.end()
    assert got[2:-1] == [
        f"{NOTE}the log of trainer/0 is read from pod train-trainer-0-0, container main\n",
        "one\n",
        "two\n",
    ]


@pytest.mark.parametrize("change", ["deleted", "launched again", "stack gone"])
def test_a_followed_log_ends_when_its_run_does(site: Site, change: str) -> None:
    log = site.put_pod(POD, Log("one"))
    reader = follow(site)
    reader.wait("one")
    if change == "deleted":
        site.remove_pod(POD)
        site.remove_job()
    elif change == "launched again":
        site.fleet.put_stack(tracked(uid="another"))
    else:
        site.fleet.drop(site.app.key)
    log.write("two", over=True)
    why = {"deleted": "its objects are gone", "launched again": "it was launched again"}.get(
        change, "its stack is gone"
    )
    assert reader.end()[1:] == ["one\n", "two\n", f"{NOTE}end of the log: {why}\n"]


def test_a_reader_that_waits_is_ended_at_once(site: Site) -> None:
    stop = LogStop()
    waits = follow(site, stop=stop)
    waits.wait("waiting")
    log = site.put_pod(POD, Log("one"))
    reads = follow(site, stop=stop)
    reads.wait("one")
    stop.set()
    assert reads.end()[1:] == ["one\n"]
    waits.end()
    assert log.opened == 0


def test_a_reader_that_goes_away_closes_the_connection(site: Site) -> None:
    log = site.put_pod(POD, Log("one", "two"))
    lines: Any = logs(site).open(site.live, request(follow=True), LogStop())
    assert [next(lines), next(lines)][1] == "one\n"
    assert log.opened == 1
    lines.close()
    assert log.opened == 0


def test_a_slow_reader_holds_one_line_in_parts(site: Site) -> None:
    whole = "x" * (3 * LONGEST_PART + 5)
    log = site.put_pod(POD, Log(whole, *(f"line {number}" for number in range(50))))
    lines: Any = logs(site).open(site.live, request(follow=True), LogStop())
    parts = [next(lines) for _ in range(5)][1:]
    assert "".join(parts) == f"{whole}\n"
    assert max(map(len, parts)) == LONGEST_PART
    assert log.taken <= 2
    lines.close()


def test_an_error_after_the_first_line_is_the_last_note(site: Site) -> None:
    site.put_pod(POD, Log("one", error=ClusterError("the node is gone", reason="Broken")))
    *before, last = read(site)
    assert before[1:] == ["one\n"]
    assert last == f"{NOTE}the log goes no further: the node is gone\n"


def test_an_error_before_the_first_line_is_raised(site: Site) -> None:
    site.put_pod(pod(statuses=[{"name": "main", "state": {"waiting": {"reason": "ImagePullBackOff"}}}]))
    with pytest.raises(ClusterError, match=r"has not started .ImagePullBackOff") as raised:
        read(site)
    assert status_of(raised.value) == 409
    with pytest.raises(ClusterError, match="has no container 'other'; it has 'main'") as raised:
        read(site, container="other", follow=True)
    assert status_of(raised.value) == 404


def test_the_log_of_a_pod_that_is_gone_is_read_from_the_archive(site: Site, tmp_path: Path) -> None:
    url = archive(tmp_path, pod(), "kept")
    note, *lines = read(site, url)
    assert lines == ["kept 0\n"]
    assert note.startswith(f"{NOTE}pod of trainer/0 is gone; the log of trainer/0 is read from the archive {url}")
    with pytest.raises(ClusterError, match="has no pod") as raised:
        read(site)
    assert status_of(raised.value) == 404
    site.see("SUCCEEDED", "Completed")
    assert read(site, url, follow=True)[1] == "kept 0\n"


def test_the_rest_of_a_log_comes_from_the_archive_when_its_pod_goes(site: Site, tmp_path: Path) -> None:
    site.put_pod(POD, Log("first 0"))
    reader = follow(site, str(tmp_path / "logs"))
    reader.wait("first")
    url = archive(tmp_path, pod(), "first", "last")
    log = site.cluster.written["train-trainer-0-0", False]
    site.remove_pod(POD)
    log.write("", over=True)
    reader.wait("last 0")
    site.see("CANCELLED", "Cancelled")
    assert [line for line in reader.end() if line.startswith(("first", "last"))] == ["first 0\n", "last 0\n"]
    assert any(url in line for line in reader.got)


def test_attempts_are_counted_over_archive_and_cluster(site: Site, tmp_path: Path) -> None:
    first = pod(statuses=[status(state=ended("c1", code=1))])
    url = archive(tmp_path, first, "first attempt")
    second = status(state=running(), container_id="c2", restarts=1, last=ended("c1", code=1))
    site.put_pod(pod(statuses=[second]), Log("second attempt"))
    assert read(site, url, attempt=1)[-1] == "first attempt 0\n"
    assert read(site, url, attempt=2)[-1] == "second attempt\n"
    with pytest.raises(ClusterError, match=r"no attempt 3 of trainer/0 .* allowed are 1 to 2") as raised:
        read(site, url, attempt=3)
    assert status_of(raised.value) == 404


def test_an_earlier_run_is_read_by_its_uid(site: Site, tmp_path: Path) -> None:
    earlier = "11111111-0000-4000-8000-000000000001"
    url = archive(tmp_path, pod(uid="9b2c1f0a-0000-4000-8000-00000000000f"), "earlier", uid=earlier)
    site.put_pod(POD, Log("now"))
    note, line = read(site, url, run="1111")
    assert (line, f"run {earlier}" in note) == ("earlier 0\n", True)
    assert read(site, url, run=UID[:8])[-1] == "now\n"
    with pytest.raises(ClusterError, match="has no run '22'"):
        read(site, url, run="22")
    with pytest.raises(ClusterError, match="no archive"):
        read(site, run="1111")


def test_logs_of_pods_with_secrets_follow_the_rule_of_the_archive(site: Site, tmp_path: Path) -> None:
    found = copy.deepcopy(POD)
    found["spec"]["containers"][0]["envFrom"] = [{"secretRef": {"name": "token"}}]
    site.put_pod(found, Log("one"))
    for changes in ({}, {"follow": True}, {"attempt": 1}):
        with pytest.raises(ClusterError, match="--archive-secret-pods") as raised:
            read(site, **changes)
        assert status_of(raised.value) == 403
    assert [*logs(site, secret_pods=True).open(site.live, request(), LogStop())][1:] == ["one\n"]
    site.fleet.put_stack(_with_archive(site.app, str(tmp_path)))
    assert [*logs(site, allowed=[str(tmp_path)]).open(site.live, request(), LogStop())][1:] == ["one\n"]


@pytest.mark.parametrize("launch", ["l1", "of a colleague"])
def test_a_stack_that_names_an_archive_shows_no_secret_log_of_another_launch_or_without_permission(
    site: Site, tmp_path: Path, launch: str
) -> None:
    found = copy.deepcopy(POD)
    found["spec"]["containers"][0]["envFrom"] = [{"secretRef": {"name": "token"}}]
    site.put_pod(found, Log("one"))
    site.fleet.put_stack(changed(_with_archive(site.app, str(tmp_path)), launches=frozenset({launch})))
    reader = logs(site, allowed=[str(tmp_path)] if launch != "l1" else [])
    with pytest.raises(ClusterError, match="named no log_archive that this controller allows") as raised:
        reader.open(site.live, request(), LogStop())
    assert status_of(raised.value) == 403


def test_an_archive_that_is_not_allowed_is_not_read(site: Site, tmp_path: Path) -> None:
    site.fleet.put_stack(_with_archive(site.app, archive(tmp_path, pod(), "kept")))
    site.put_pod(POD, Log("one"))
    first, *_, last = read(site)
    assert first.startswith(f"{NOTE}the archive that its launch named is not read: {tmp_path}/logs is not allowed")
    assert last == "one\n"
    with pytest.raises(ClusterError, match="no archive"):
        read(site, run="1111")


def _with_archive(app: App, url: str) -> App:
    """Return an app whose launch, which created its job object, named an archive."""
    return changed(app, log_archive=url, launches=frozenset({"l1"}))


def test_an_unknown_role_or_replica_is_named_with_what_there_is(site: Site) -> None:
    with pytest.raises(InvalidJobError, match="role: found 'trainers', allowed are 'trainer'") as raised:
        read(site, role="trainers")
    assert status_of(raised.value) == 400
    with pytest.raises(InvalidJobError, match="replica: found 2, allowed are 0 to 1"):
        read(site, replica=2)


def test_pods_of_an_earlier_job_object_are_not_those_of_the_run(site: Site) -> None:
    found = copy.deepcopy(POD)
    found["metadata"]["ownerReferences"] = [{"kind": site.app.run.job_kind, "uid": "old", "name": "train"}]
    site.put_pod(found, Log("of the old run"))
    with pytest.raises(ClusterError, match="has no pod"):
        read(site)
    found["metadata"]["ownerReferences"][0]["uid"] = UID
    site.put_pod(found, Log("of this run"))
    assert read(site)[1:] == ["of this run\n"]


def test_an_app_of_a_cluster_that_is_not_watched_has_its_archive_only(site: Site, tmp_path: Path) -> None:
    for url, expected in ((archive(tmp_path, pod(), "kept"), "kept 0\n"), (None, "")):
        elsewhere = LiveLogs(
            lambda _app: None, site.fleet.find, KnownArchives(ArchiveRules(own=url)), clock=FastClock()
        )
        if expected:
            assert [*elsewhere.open(site.live, request(), LogStop())][-1] == expected
        else:
            with pytest.raises(ClusterError, match="not one that this controller watches"):
                elsewhere.open(site.live, request(), LogStop())


def test_an_archive_that_cannot_be_opened_is_a_note(site: Site) -> None:
    site.fleet.put_stack(_with_archive(site.app, "ftp://host/logs"))
    site.put_pod(POD, Log("one"))
    first, *_, last = [*logs(site, allowed=["ftp://host/logs"]).open(site.live, request(), LogStop())]
    assert first.startswith(f"{NOTE}an archive of its logs cannot be opened: log_archive: found 'ftp://host/logs'")
    assert last == "one\n"


def test_the_last_lines_of_a_pod_that_is_being_deleted_are_followed_after_a_silence(site: Site) -> None:
    log = site.put_pod(POD, Log("one"))
    reader = follow(site)
    reader.wait("one")
    site.see("CANCELLED", "Cancelled")
    site.put_pod(pod(statuses=RUNS, deleted=True), log)
    log.silence()
    wait_for(lambda: log.streams == 2)
    log.write("two")
    log.write("three", over=True)
    site.put_pod(pod(deleted=True), log)
    assert reader.end()[1:-1] == ["one\n", "two\n", "three\n"]


def test_a_container_that_does_not_end_with_its_app_is_followed_for_a_minute(site: Site) -> None:
    log = site.put_pod(POD, Log("one"))
    reader = follow(site)
    reader.wait("one")
    site.see("SUCCEEDED", "Completed")
    log.over = True
    log.silence()
    assert reader.end()[-1] == f"{NOTE}end of the log: it is SUCCEEDED (Completed)\n"


def test_a_cluster_that_is_away_is_not_asked(site: Site, tmp_path: Path) -> None:
    site.put_pod(POD, Log("one"))
    site.cluster.error = ClusterError("no route", retryable=True, reason="Unreachable")
    wait_for(lambda: site.view.watched.is_away)
    with pytest.raises(ClusterError, match="test does not answer") as raised:
        read(site)
    assert status_of(raised.value) == 503
    note, line = read(site, archive(tmp_path, pod(), "kept"))
    assert (line, "test does not answer; the log of trainer/0 is read from the archive" in note) == ("kept 0\n", True)
