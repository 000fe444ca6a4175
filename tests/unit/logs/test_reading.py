"""Reading logs over a scripted cluster: nothing lost, nothing twice, and clear words where there is nothing."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import closing, nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torchx_pulumi.logs import query, resuming
from torchx_pulumi.logs.query import LogQuery
from torchx_pulumi.model.errors import DIFFERENT_CLUSTER, ClusterError, InvalidJobError

from tests.unit.logs.scripted import (
    BROKEN,
    RUNNING,
    START,
    FakeClock,
    ScriptedCluster,
    ScriptedLog,
    Stream,
    Written,
    pod,
    read_lines,
    shown,
    stamp,
)

SECOND = 10**9
LINES: list[Written] = [(number * SECOND // 4, f"line {number // 2 * 2}") for number in range(12)]


def ask(**options: Any) -> LogQuery:
    return LogQuery(**{"namespace": "n", "pod": "p", **options})


def read(cluster: ScriptedCluster, asked: LogQuery, **options: Any) -> list[str]:
    options.setdefault("clock", FakeClock())
    return list(read_lines(cluster, asked, **{"ended": lambda: True, **options}))


def after(times: int) -> Any:
    """Tell that the app has ended when asked more often than that."""
    asked = iter(range(times))
    return lambda: next(asked, None) is None


def test_lines_carry_their_time_and_end_in_a_newline() -> None:
    cluster = ScriptedCluster(lines=LINES, pod=pod())
    assert read(cluster, ask()) == [shown(line) for line in LINES]
    assert read(cluster, ask(timestamps=False))[0] == "line 0\n"


def test_a_last_line_without_newline_gets_one() -> None:
    cluster = ScriptedCluster(lines=LINES, pod=pod(), no_newline=True)
    for follow in (False, True):
        assert read(cluster, ask(follow=follow), ended=after(1)) == [shown(line) for line in LINES]


TEXT = "".join(map(shown, LINES))


@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize("error", [BROKEN, None])
def test_a_stream_that_breaks_anywhere_is_read_on(follow: bool, error: ClusterError | None) -> None:
    if not follow and error is None:
        return
    for characters in range(0, len(TEXT), 7):
        cluster = ScriptedCluster(lines=LINES, pod=pod(RUNNING), streams=[Stream(characters, error)])
        assert read(cluster, ask(follow=follow), ended=after(2)) == [shown(line) for line in LINES]


def test_lines_beyond_those_that_are_remembered_do_not_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resuming, "MOST", 3)
    for characters in range(0, len(TEXT), 7):
        cluster = ScriptedCluster(lines=LINES, pod=pod(RUNNING), streams=[Stream(characters, BROKEN)])
        assert read(cluster, ask(follow=True), ended=after(2)) == [shown(line) for line in LINES]


def test_a_forgotten_line_that_is_later_than_the_next_one_does_not_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resuming, "MOST", 2)
    lines = [(2 * SECOND + 3, "error output"), (2 * SECOND + 2, "output"), (2 * SECOND + 4, "c"), (2 * SECOND + 5, "d")]
    for characters in range(0, len("".join(map(shown, lines))), 7):
        cluster = ScriptedCluster(lines=lines, pod=pod(RUNNING), streams=[Stream(characters, BROKEN)])
        assert read(cluster, ask(follow=True), ended=after(2)) == [shown(line) for line in lines]


@pytest.mark.parametrize("written", [0, 1, 5])
def test_of_a_log_that_is_followed_from_its_end_nothing_is_lost(written: int) -> None:
    # The first streams end before the next line is written, and others are opened after it.
    cluster = ScriptedCluster(lines=LINES[:written], pod=pod(RUNNING))

    def more() -> None:
        cluster.lines = LINES

    cluster.on_get = [lambda: None] * 3 + [more]
    got = read(cluster, ask(follow=True, tail_lines=0), ended=after(6))
    assert got == [shown(line) for line in LINES[written:]]


def test_lines_without_a_time_do_not_come_again() -> None:
    raw = [shown((SECOND, "a")), "no time\n", shown((2 * SECOND, "b")), "no time\n", shown((2 * SECOND, "c"))]

    def broken() -> Iterator[str]:
        yield from raw[:4]
        raise BROKEN

    streams = [broken(), iter(raw)]
    log = resuming.ResumedLog(lambda _options: closing(ScriptedLog(streams.pop(0))))
    with pytest.raises(ClusterError, match="broke off"):
        assert len([*log.read(follow=False)]) == 4
    assert [line.text for line in log.read(follow=False)] == ["c"]


times = st.lists(st.tuples(st.integers(0, 12), st.sampled_from("ab")), max_size=30)


@given(times, st.lists(st.integers(0, 900), max_size=4), st.integers(0, 30))
def test_no_line_is_lost_or_given_twice(steps: list[tuple[int, str]], breaks: list[int], first: int) -> None:
    # Times are coarse, repeat, and go back by less than a second.
    lines = [
        (2 * SECOND + (place // 3) * SECOND // 2 - jitter * 10**7, text) for place, (jitter, text) in enumerate(steps)
    ]
    cluster = ScriptedCluster(lines=lines[:first], pod=pod(RUNNING), streams=[Stream(at, BROKEN) for at in breaks])
    clock = FakeClock()

    def more() -> None:
        cluster.lines = lines

    cluster.on_get = [lambda: None] * 3 + [more]
    assert read(cluster, ask(follow=True), ended=after(8), clock=clock) == [shown(line) for line in lines]


@given(st.integers(31, 400), st.lists(st.integers(0, 900), max_size=4), st.booleans())
def test_of_a_line_in_parts_nothing_is_lost_or_given_twice(parts: int, breaks: list[int], no_newline: bool) -> None:
    lines = [(SECOND, "short"), (SECOND, "x" * 300 + "y" * 300), (SECOND, ""), (SECOND + 1, "0123456789" * 20)]
    cluster = ScriptedCluster(
        lines=lines,
        pod=pod(RUNNING),
        streams=[Stream(at, BROKEN) for at in breaks],
        parts=parts,
        no_newline=no_newline,
    )
    got = read(cluster, ask(follow=True), ended=after(8))
    assert all(line.endswith("\n") for line in got)
    texts = [line.rstrip("\n").partition(" ")[::2] for line in got]
    assert [text for _, text in texts if not text] == [""]
    assert "".join(text for _, text in texts) == "".join(text for _, text in lines)


@pytest.mark.parametrize("parts", [None, 5])
def test_what_is_left_of_a_delivered_line_is_not_given_again(parts: int | None) -> None:
    # The node keeps a long line in blocks with a time each, and gives those that were written since.
    lines = [(SECOND, "begun long ago"), (20 * SECOND, "done")]
    cluster = ScriptedCluster(lines=lines, pod=pod(RUNNING), rest="ago\n")

    def rest_in_parts() -> None:
        cluster.parts = parts

    cluster.on_get = [lambda: None, lambda: None, rest_in_parts]
    got = read(cluster, ask(follow=True), ended=after(4))
    assert got == [shown(line) for line in lines]
    assert len(cluster.asked) > 1


def test_the_parts_of_a_line_are_lines_with_its_time_and_each_is_searched() -> None:
    progress = "".join(f"\r{percent}%" for percent in range(10))
    cluster = ScriptedCluster(lines=[(SECOND, progress)], pod=pod(), parts=len(stamp(SECOND)) + 1 + 9)
    got = read(cluster, ask(follow=True))
    assert [line.partition(" ")[0] for line in got] == [stamp(SECOND)] * len(got)
    assert len(got) > 1
    assert read(cluster, ask(regex="9%")) == got[-1:]


def test_a_time_that_goes_back_over_a_second_is_read_on() -> None:
    lines = [(3 * SECOND + 1, "out"), (3 * SECOND - 1, "err"), (3 * SECOND + 2, "out")]
    cluster = ScriptedCluster(lines=lines[:1], pod=pod(RUNNING))

    def more() -> None:
        cluster.lines = lines

    cluster.on_get = [lambda: None, lambda: None, more]
    assert read(cluster, ask(follow=True), ended=after(4)) == [shown(line) for line in lines]


def test_a_rotation_takes_only_what_was_read() -> None:
    cluster = ScriptedCluster(lines=LINES[:8], pod=pod(RUNNING), streams=[Stream(10_000, BROKEN)])

    def rotate() -> None:
        cluster.lines = LINES[6:]

    cluster.on_get = [lambda: None, lambda: None, rotate]
    assert read(cluster, ask(follow=True), ended=after(4)) == [shown(line) for line in LINES]


def test_the_tail_is_not_read_again_before_its_first_line() -> None:
    equal = [(SECOND, f"{number}") for number in range(6)]
    cluster = ScriptedCluster(lines=equal, pod=pod(RUNNING), streams=[Stream(50, BROKEN)])
    assert read(cluster, ask(follow=True, tail_lines=2), ended=after(2)) == [shown(line) for line in equal[-2:]]


def test_a_container_that_starts_late_is_waited_for() -> None:
    cluster = ScriptedCluster(lines=LINES, others=["q"])
    steps = [None, None, pod({"waiting": {"reason": "ContainerCreating"}}, container_id=""), pod(RUNNING)]

    def step() -> None:
        cluster.pod = steps.pop(0) if steps else cluster.pod

    cluster.on_get = [step] * 8
    clock = FakeClock()
    assert read(cluster, ask(follow=True), ended=after(8), clock=clock) == [shown(line) for line in LINES]
    assert clock.passed >= 2


def test_a_retry_with_a_new_pod_is_followed_on() -> None:
    old, new = LINES[:4], LINES[4:]
    cluster = ScriptedCluster(lines=old, pod=pod())

    def gone() -> None:
        cluster.pod = None

    def back() -> None:
        cluster.pod, cluster.lines = pod(RUNNING, uid="u2", container_id="c2"), new

    clock = FakeClock()
    clock.on_wait = [gone, lambda: None, back]
    assert read(cluster, ask(follow=True), ended=after(8), clock=clock) == [shown(line) for line in LINES]


def test_the_end_of_a_run_is_read_after_a_restart() -> None:
    cluster = ScriptedCluster(lines=LINES[:6], pod=pod(RUNNING), streams=[Stream(200, BROKEN)])

    def restart() -> None:
        cluster.previous_lines, cluster.lines = LINES[:6], LINES[6:]
        cluster.pod = pod(RUNNING, container_id="c2", last="c1")

    cluster.on_get = [lambda: None, lambda: None, restart]
    assert read(cluster, ask(follow=True), ended=after(5)) == [shown(line) for line in LINES]
    assert any(call["previous"] for call in cluster.asked)


@dataclass
class RestartingCluster(ScriptedCluster):
    """A pod whose container is restarted while it is read: before some of the calls, each counted from 0."""

    restarts: tuple[int, ...] = ()
    silent: frozenset[int] = frozenset()
    """Runs that write only when they end."""
    begins: int = 0
    """Call before which the first run starts."""
    calls: int = 0
    run: int = 0

    def written(self, run: int) -> list[Written]:
        """Return all lines of a run, the first of which is 0."""
        return [(100 * run * SECOND + number * SECOND // 2, f"run {run} line {number}") for number in range(4)]

    def get(self, kind: Any, namespace: str | None, name: str) -> dict[str, Any] | None:
        self._call()
        return self.pod

    def logs(self, namespace: str, pod: str, container: str | None = None, **options: Any) -> ScriptedLog:
        self._call()
        if options.get("previous") and not self.run:
            raise ClusterError("previous terminated container not found", reason="BadRequest")
        return super().logs(namespace, pod, container, **options)

    def _call(self) -> None:
        self.run += self.calls in self.restarts
        waits = {"waiting": {"reason": "ContainerCreating"}}
        last = f"c{self.run - 1}" if self.run else None
        self.pod = pod(RUNNING, container_id=f"c{self.run}", last=last, restart="OnFailure")
        if self.calls < self.begins:
            self.pod = pod(waits, container_id="", restart="OnFailure")
        # What it writes at its end, nobody reads before.
        self.lines = [] if self.run in self.silent else self.written(self.run)[:3]
        self.previous_lines = self.written(self.run - 1)
        self.calls += 1

    def expected(self) -> list[str]:
        own = [line for run in range(self.run) for line in self.written(run)]
        return [shown(line) for line in [*own, *self.lines]]


@given(
    st.lists(st.integers(7, 12), max_size=4),
    st.frozensets(st.integers(0, 3)),
    st.integers(1, 6),
    st.sampled_from([None, 0, 2]),
)
def test_of_a_container_that_is_restarted_at_any_moment_nothing_is_lost_or_given_twice(
    gaps: list[int], silent: frozenset[int], first: int, tail_lines: int | None
) -> None:
    # The log is asked for before the first run. Between two restarts, the reader comes to ask what happened.
    restarts = tuple(accumulate(gaps, initial=first))
    cluster = RestartingCluster(restarts=restarts, silent=silent, begins=1)
    lines = read(cluster, ask(follow=True, tail_lines=tail_lines), ended=lambda: cluster.calls > restarts[-1] + 12)
    assert lines == cluster.expected()


@pytest.mark.parametrize("state", [RUNNING, {"terminated": {"containerID": "c1"}}])
@pytest.mark.parametrize("written", [0, 3])
def test_a_restart_between_a_look_and_the_stream_is_noticed(state: dict[str, Any], written: int) -> None:
    cluster = ScriptedCluster(lines=LINES[:6], pod=pod(state, restart="OnFailure"))

    def restart() -> None:
        cluster.previous_lines, cluster.lines = LINES[:6], LINES[6 : 6 + written]
        cluster.pod = pod(RUNNING, container_id="c2", last="c1", restart="OnFailure")

    cluster.on_logs = [restart]
    assert read(cluster, ask(follow=True), ended=after(5)) == [shown(line) for line in LINES[: 6 + written]]


def test_who_may_not_read_the_pod_again_gets_the_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    cluster = ScriptedCluster(lines=LINES, pod=pod(RUNNING, restart="OnFailure"))
    cluster.on_get = [lambda: None, failing(FORBIDDEN)]
    assert read(cluster, ask(follow=True), ended=after(3)) == [shown(line) for line in LINES]
    assert "was interrupted" not in caplog.text


def test_a_run_that_nobody_saw_is_read_after_it(caplog: pytest.LogCaptureFixture) -> None:
    first, second, third = LINES[:4], LINES[4:8], LINES[8:]
    cluster = ScriptedCluster(lines=first, pod=pod(RUNNING), streams=[Stream(60, BROKEN)])

    def restart_twice() -> None:
        cluster.previous_lines, cluster.lines = second, third
        cluster.pod = pod(RUNNING, container_id="c3", last="c2")

    cluster.on_get = [lambda: None, *[failing(DOWN)] * 3, restart_twice]
    got = read(cluster, ask(follow=True), ended=after(9))
    # A node gives the last run and the one before it.
    assert got == [shown(line) for line in [first[0], *second, *third]]
    assert "lines of an earlier run of p are missing: a later one has its place" in caplog.text


@pytest.mark.parametrize("waits", [False, True])
def test_of_a_run_that_two_others_followed_the_open_stream_is_kept(
    waits: bool, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = ScriptedCluster(lines=LINES[:6], pod=pod(RUNNING, restart="OnFailure"), no_newline=True)
    backoff = pod({"waiting": {"reason": "CrashLoopBackOff"}}, container_id="c2", last="c2", restart="OnFailure")
    backoff["status"]["containerStatuses"][0]["restartCount"] = 1

    def restart_twice() -> None:
        cluster.previous_lines = cluster.lines = LINES[6:]
        cluster.pod = backoff

    def begin() -> None:
        cluster.pod = pod({"waiting": {}}, container_id="")

    # The first line is checked while the container waits for its third run.
    cluster.on_get = [begin, begin, restart_twice] if waits else [lambda: None, restart_twice]
    got = read(cluster, ask(follow=True), ended=after(6))
    assert got == [shown(line) for line in LINES[6 if waits else 0 :]]
    assert ("lines of an earlier run of p are missing" in caplog.text) is waits


@pytest.mark.parametrize(
    ("uid", "last", "streams"),
    [
        ("u2", None, []),
        ("u1", "c1", [Stream(None, ClusterError("previous terminated container not found", reason="BadRequest"))]),
        # The node removes the log of a run as soon as the next one has ended.
        ("u1", "c1", [Stream(0)]),
    ],
)
def test_a_last_line_without_newline_is_kept_if_its_run_cannot_be_read_again(
    uid: str, last: str | None, streams: list[Stream]
) -> None:
    cluster = ScriptedCluster(lines=LINES[:6], pod=pod(RUNNING), no_newline=True)

    def restart() -> None:
        cluster.lines, cluster.streams = LINES[6:], streams
        cluster.pod = pod(RUNNING, container_id="c2", uid=uid, last=last)

    cluster.on_get = [lambda: None, restart]
    assert read(cluster, ask(follow=True), ended=after(5)) == [shown(line) for line in LINES]


def test_a_last_line_without_newline_comes_before_the_next_run_which_comes_once() -> None:
    cluster = ScriptedCluster(lines=LINES[:6], pod=pod(RUNNING, restart="OnFailure"), no_newline=True)

    def restart() -> None:
        # The next run has ended already, so that a node gives it for the one before the present, too.
        cluster.lines = cluster.previous_lines = LINES[6:]
        cluster.pod = pod(RUNNING, container_id="c2", last="c1", restart="OnFailure")

    # The second look checks the first line of the stream.
    cluster.on_get = [lambda: None, lambda: None, restart]
    assert read(cluster, ask(follow=True), ended=after(5)) == [shown(line) for line in LINES]


def test_a_last_line_without_newline_does_not_go_with_its_pod() -> None:
    cluster = ScriptedCluster(lines=LINES, pod=pod(RUNNING), no_newline=True)
    cluster.on_get = [lambda: None, lambda: setattr(cluster, "pod", None)]
    assert read(cluster, ask(follow=True), ended=after(2)) == [shown(line) for line in LINES]


def test_all_lines_of_a_log_that_was_empty_at_first_are_new() -> None:
    silent = ClusterError("silent", retryable=True, reason="Silent")
    cluster = ScriptedCluster(pod=pod(RUNNING), streams=[Stream(0, silent)])

    def write() -> None:
        cluster.lines = LINES

    cluster.on_logs = [lambda: None, write]
    assert read(cluster, ask(follow=True, tail_lines=2), ended=after(4)) == [shown(line) for line in LINES]


def test_following_goes_on_until_the_app_has_ended() -> None:
    cluster = ScriptedCluster(lines=LINES, pod=pod())
    clock = FakeClock()
    read(cluster, ask(follow=True), ended=lambda: clock.passed > 30, clock=clock)
    assert 30 < clock.passed < 35


def test_a_cluster_out_of_reach_is_given_up_in_the_end() -> None:
    down = ClusterError("down", retryable=True, reason="Unreachable")
    cluster = ScriptedCluster(lines=LINES, pod=pod(RUNNING), streams=[Stream(60, BROKEN)] + [Stream(None, down)] * 1000)
    clock = FakeClock()
    with pytest.raises(ClusterError, match="down"):
        read(cluster, ask(follow=True), ended=lambda: False, clock=clock)
    assert clock.passed > 600
    clock = FakeClock()
    with pytest.raises(ClusterError, match="down"):
        read(cluster, ask(), clock=clock)
    assert clock.passed < 30


def test_a_first_connection_that_breaks_is_tried_again_and_a_wrong_cluster_is_not_waited_for() -> None:
    down = ClusterError("down", retryable=True, reason="Unreachable")

    def fail() -> None:
        raise down

    cluster = ScriptedCluster(lines=LINES, pod=pod(), on_get=[fail, fail])
    assert len(read(cluster, ask())) == len(LINES)
    cluster.on_get = [fail] * 100
    clock = FakeClock()
    with pytest.raises(ClusterError, match="down"):
        read(cluster, ask(follow=True), clock=clock)
    assert clock.passed < 1


def test_a_cluster_that_answered_once_is_waited_for() -> None:
    down = ClusterError("down", retryable=True, reason="Unreachable")
    cluster = ScriptedCluster(lines=LINES)

    def fail() -> None:
        raise down

    def back() -> None:
        cluster.pod = pod()

    cluster.on_get = [lambda: None, *[fail] * 30, back]
    clock = FakeClock()
    got = read(cluster, ask(follow=True), ended=lambda: clock.passed > 60, clock=clock)
    assert got == [shown(line) for line in LINES]


def test_silence_is_no_failure() -> None:
    silent = ClusterError("silent", retryable=True, reason="Silent")
    cluster = ScriptedCluster(lines=LINES, pod=pod(RUNNING), streams=[Stream(60, silent)] * 50)
    clock = FakeClock()
    assert len(read(cluster, ask(follow=True), ended=after(40), clock=clock)) == len(LINES)


def test_since_and_until_are_exact() -> None:
    cluster = ScriptedCluster(lines=LINES, pod=pod())
    since, until = (START + timedelta(seconds=seconds) for seconds in (0.5, 2.0))
    wanted = [shown(line) for line in LINES if SECOND // 2 <= line[0] <= 2 * SECOND]
    for follow in (False, True):
        assert read(cluster, ask(since=since, until=until, follow=follow)) == wanted


def test_following_ends_when_until_has_come() -> None:
    cluster = ScriptedCluster(lines=LINES, pod=pod())
    clock = FakeClock()
    read(cluster, ask(follow=True, until=START + timedelta(seconds=10)), ended=lambda: False, clock=clock)
    assert 10 < clock.passed < 13


def test_a_time_without_zone_is_local_and_that_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    query._said.clear()
    local = (START + timedelta(seconds=1)).astimezone().replace(tzinfo=None)
    cluster = ScriptedCluster(lines=LINES, pod=pod())
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert read(cluster, ask(since=local)) == [shown(line) for line in LINES if line[0] >= SECOND]
    assert len(caplog.records) == 1
    assert "local time" in caplog.text


def test_a_regex_is_sought_in_the_text_and_in_the_whole_line() -> None:
    cluster = ScriptedCluster(lines=LINES, pod=pod())
    assert len(read(cluster, ask(regex="line 2$"))) == 2
    assert len(read(cluster, ask(regex="^line"))) == len(LINES)
    assert len(read(cluster, ask(regex="^2026"))) == len(LINES)


def test_what_is_wrong_with_a_query_comes_at_once_and_together() -> None:
    later = datetime(2027, 1, 1, tzinfo=timezone.utc)
    with pytest.raises(InvalidJobError) as caught:
        read_lines(ScriptedCluster(), ask(regex="(", since=later, until=START, tail_lines=-1, containers="some"))
    assert [problem.path for problem in caught.value.problems] == ["regex", "until", "tail_lines", "containers"]


def test_all_replicas_of_an_app_without_pods_have_one_error() -> None:
    cluster = ScriptedCluster(others=["p-of-another-app"])
    said = set()
    for name in ("train-0", "train-1"):
        with pytest.raises(ClusterError) as caught:
            read(cluster, ask(pod=name, app_labels={"app": "train"}))
        said.add(str(caught.value))
    (text,) = said
    assert text.startswith("the app has no pods in namespace 'n'. Logs")


def test_an_absent_pod_is_named_with_those_there_are() -> None:
    cluster = ScriptedCluster(others=["p-1", "z"])
    for asked in (ask(), ask(follow=True)):
        with pytest.raises(
            ClusterError, match=r"no pod 'p' in namespace 'n'; pods there: p-1, z\. .*log_archive"
        ) as caught:
            read(cluster, asked)
        assert caught.value.reason == "NotFound"


def test_an_unknown_container_is_named_with_those_there_are() -> None:
    cluster = ScriptedCluster(pod=pod(containers=("main", "side")))
    with pytest.raises(ClusterError, match="no container 'x'; it has 'main', 'side'"):
        read(cluster, ask(containers=("x",)))


def test_a_container_that_has_not_started_says_why() -> None:
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    cluster = ScriptedCluster(pod=pod(waiting, container_id=""))
    for asked in (ask(), ask(follow=True)):
        with pytest.raises(ClusterError, match=r"has not started .ImagePullBackOff: no such image"):
            read(cluster, asked)


def test_a_run_that_never_was_is_told_from_one_that_a_retry_took() -> None:
    refused = ClusterError("answered 400: previous terminated container not found", reason="BadRequest")
    cluster = ScriptedCluster(pod=pod(), streams=[Stream(None, refused)])
    with pytest.raises(ClusterError, match=r"one run only.*new pods"):
        read(cluster, ask(previous=True))
    cluster.streams = [Stream(None, refused)]
    assert cluster.pod is not None
    cluster.pod["status"]["containerStatuses"][0]["restartCount"] = 2
    with pytest.raises(ClusterError, match="restarted 2 times"):
        read(cluster, ask(previous=True))


def test_a_previous_run_is_read_and_not_followed() -> None:
    cluster = ScriptedCluster(lines=LINES[6:], previous_lines=LINES[:6], pod=pod(RUNNING, last="c0"))
    got = read(cluster, ask(previous=True, follow=True), ended=lambda: False)
    assert got == [shown(line) for line in LINES[:6]]


def test_of_several_containers_those_that_were_restarted_have_a_previous_run() -> None:
    both = pod(RUNNING, last="c0", containers=("main", "side"))
    cluster = ScriptedCluster(previous_lines=LINES, pod=both)
    both["status"]["containerStatuses"][1].pop("lastState")
    assert read(cluster, ask(previous=True, containers="main")) == [f"[main] {shown(line)}" for line in LINES]
    both["status"]["containerStatuses"][0].pop("lastState")
    with pytest.raises(ClusterError, match="no previous log"):
        read(cluster, ask(previous=True, containers="main"))


def test_the_default_container_is_the_annotated_one_or_the_first() -> None:
    cluster = ScriptedCluster(lines=LINES, pod=pod(containers=("main", "side")))
    read(cluster, ask())
    assert cluster.pod is not None
    cluster.pod["metadata"]["annotations"] = {"kubectl.kubernetes.io/default-container": "side"}
    read(cluster, ask())
    assert [call["container"] for call in cluster.asked] == ["main", "side"]


@pytest.mark.parametrize("follow", [False, True])
def test_several_containers_are_told_apart(follow: bool) -> None:
    cluster = ScriptedCluster(lines=LINES, pod=pod(containers=("main", "side")))
    got = read(cluster, ask(containers="all", follow=follow))
    for name in ("main", "side"):
        mine = [line for line in got if line.startswith(f"[{name}] ")]
        assert mine == [f"[{name}] {shown(line)}" for line in LINES]
    assert len(got) == 2 * len(LINES)
    if not follow:
        assert [line.split("] ")[1] for line in got] == sorted(line.split("] ")[1] for line in got)


def test_closing_gives_connections_and_threads_back() -> None:
    before = set(threading.enumerate())
    cluster = ScriptedCluster(lines=LINES * 300, pod=pod(RUNNING, containers=("main", "side")))
    for asked in (ask(follow=True), ask(follow=True, containers="all"), ask(containers="all")):
        lines = read_lines(cluster, asked, clock=FakeClock())
        next(lines)
        lines.close()  # type: ignore[attr-defined]
    assert all(stream.closed for stream in cluster.opened)
    assert set(threading.enumerate()) <= before


def test_an_error_of_one_container_ends_all() -> None:
    forbidden = ClusterError("forbidden", reason="Forbidden")
    cluster = ScriptedCluster(
        lines=LINES, pod=pod(RUNNING, containers=("main", "side")), streams=[Stream(None, forbidden)]
    )
    with pytest.raises(ClusterError, match="forbidden"):
        read(cluster, ask(follow=True, containers="all"), ended=lambda: False)


REFUSED = ClusterError("the credentials are not accepted", reason="Unauthorized")
HANGS = ClusterError("no answer in 30 s", retryable=True, reason="Silent")


@pytest.mark.parametrize(("error", "bound"), [(REFUSED, 60), (HANGS, 600)])
def test_a_followed_log_ends_within_the_bound_where_the_cluster_stops_answering(
    error: ClusterError, bound: float
) -> None:
    def fail() -> None:
        raise error

    cluster = ScriptedCluster(lines=LINES, pod=pod(RUNNING), on_get=[lambda: None, *[fail] * 2000])
    clock = FakeClock()
    got = []
    with pytest.raises(ClusterError, match=str(error)):
        got.extend(read_lines(cluster, ask(follow=True), ended=lambda: False, clock=clock))
    assert bound < clock.passed < bound + 5


@pytest.mark.parametrize("there", [None, pod(RUNNING)])
def test_failures_that_lie_far_apart_do_not_end_a_followed_log(there: Any) -> None:
    down = ClusterError("down", retryable=True, reason="Unreachable")
    silent = ClusterError("silent", retryable=True, reason="Silent")

    def fail() -> None:
        raise down

    quiet: list[Any] = [lambda: None] * 610
    cluster = ScriptedCluster(lines=LINES, pod=there, on_get=[fail, *quiet, fail], streams=[Stream(60, silent)] * 610)
    clock = FakeClock()
    with pytest.raises(ClusterError) if there is None else nullcontext():
        read(cluster, ask(follow=True), ended=lambda: clock.passed > 640, clock=clock)
    assert clock.passed > 640


DOWN = ClusterError("down", retryable=True, reason="Unreachable")
FORBIDDEN = ClusterError("forbidden", reason="Forbidden")


def failing(error: ClusterError) -> Any:
    def fail() -> None:
        raise error

    return fail


@pytest.mark.parametrize("there", [None, pod(RUNNING)])
@pytest.mark.parametrize(
    "errors",
    [[DOWN] * 100 + [FORBIDDEN], [ClusterError("the kubeconfig is no YAML")], [DOWN] * 70 + [REFUSED] * 10 + [DOWN]],
)
def test_an_outage_after_which_the_access_is_refused_for_a_moment_does_not_end_a_followed_log(
    there: Any, errors: list[ClusterError]
) -> None:
    cluster = ScriptedCluster(lines=LINES, pod=there, streams=[Stream(60, BROKEN)] * 3)

    def back() -> None:
        cluster.pod = pod()

    cluster.on_get = [lambda: None, *map(failing, errors), back]
    clock = FakeClock()
    got = read(cluster, ask(follow=True), ended=lambda: clock.passed > 500, clock=clock)
    assert got == [shown(line) for line in LINES]


@pytest.mark.parametrize("there", [None, pod(RUNNING)])
def test_another_cluster_ends_a_followed_log_at_once(there: Any) -> None:
    other = ClusterError("elsewhere", reason=DIFFERENT_CLUSTER)
    cluster = ScriptedCluster(lines=LINES, pod=there, on_get=[lambda: None, *[failing(other)] * 99])
    cluster.streams = [Stream(60, BROKEN)]
    clock = FakeClock()
    with pytest.raises(ClusterError, match="elsewhere"):
        read(cluster, ask(follow=True), ended=lambda: False, clock=clock)
    assert clock.passed < 5


def test_the_end_of_an_earlier_run_is_asked_for_again_where_the_access_was_refused() -> None:
    cluster = ScriptedCluster(lines=LINES[:6], pod=pod(RUNNING), streams=[Stream(200, BROKEN), Stream(None, REFUSED)])

    def restart() -> None:
        cluster.previous_lines, cluster.lines = LINES[:6], LINES[6:]
        cluster.pod = pod(RUNNING, container_id="c2", last="c1")

    cluster.on_get = [lambda: None, restart]
    assert read(cluster, ask(follow=True), ended=after(5)) == [shown(line) for line in LINES]


def test_a_pod_that_goes_before_its_last_lines_are_asked_for_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    gone = ClusterError("no pod", reason="NotFound")
    cluster = ScriptedCluster(lines=LINES, pod=pod(RUNNING), streams=[Stream(), Stream(None, gone)])
    assert read(cluster, ask(follow=True), ended=after(1)) == [shown(line) for line in LINES]
    assert "the end of the log of p went with its pod" in caplog.text
