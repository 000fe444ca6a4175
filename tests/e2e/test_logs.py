"""Logs of real containers: over late starts, restarts, retries and cut connections."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.kube import KubernetesCluster, kinds
from torchx_pulumi.logs.query import LogQuery
from torchx_pulumi.model.errors import ClusterError

from tests.e2e.cutting_proxy import cutting_proxy
from tests.e2e.project import eventually
from tests.unit.logs.scripted import read_lines

pytestmark = pytest.mark.e2e

Manifest = dict[str, Any]


def pod(image: str, scripts: dict[str, str], *, init: dict[str, str] | None = None, restart: str = "Never") -> Manifest:
    def containers(named: dict[str, str]) -> list[Manifest]:
        mount = {"name": "kept", "mountPath": "/kept"}
        return [
            {"name": name, "image": image, "command": ["sh", "-c", script], "volumeMounts": [mount]}
            for name, script in named.items()
        ]

    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {
            "schedulerName": "volcano",
            "restartPolicy": restart,
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "volumes": [{"name": "kept", "emptyDir": {}}],
            "initContainers": containers(init or {}),
            "containers": containers(scripts),
        },
    }


def create(look: KubernetesCluster, namespace: str, manifest: Manifest) -> None:
    eventually(lambda: look.get(kinds.SERVICE_ACCOUNT, namespace, "default"))
    look.create(kinds.POD, namespace, manifest)


def phase(look: KubernetesCluster, namespace: str) -> str:
    return str(((look.get(kinds.POD, namespace, "p") or {}).get("status") or {}).get("phase"))


class Reader:
    """Follows a log in a thread of its own."""

    def __init__(self, cluster: KubernetesCluster, query: LogQuery, ended: Callable[[], bool]) -> None:
        self.lines: list[str] = []
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._run, args=(cluster, query, ended), daemon=True)
        self._thread.start()

    def _run(self, cluster: KubernetesCluster, query: LogQuery, ended: Callable[[], bool]) -> None:
        try:
            for line in read_lines(cluster, query, ended=ended):
                self.lines.append(line)
        except ClusterError as error:
            self.error = error

    def finish(self) -> list[str]:
        self._thread.join(180)
        assert not self._thread.is_alive(), self.lines
        assert self.error is None, self.error
        return self.lines


def texts(lines: list[str]) -> list[str]:
    return [line.split(" ", 1)[1].rstrip("\n") for line in lines]


def test_containers_are_followed_from_before_their_pod_to_its_end(
    look: KubernetesCluster, namespace: str, image: str
) -> None:
    query = LogQuery(namespace=namespace, pod="p", containers="all", follow=True, timestamps=False)
    reader = Reader(look, query, ended=lambda: phase(look, namespace) == "Succeeded")
    count = "i=0; while [ $i -lt 30 ]; do echo line $i; i=$((i + 1)); [ $i = 15 ] && sleep 1; done; printf last"
    create(look, namespace, pod(image, {"one": count, "two": count}, init={"before": "echo begins"}))
    lines = reader.finish()
    wanted = [f"line {number}\n" for number in range(30)] + ["last\n"]
    for name, expected in {"before": ["begins\n"], "one": wanted, "two": wanted}.items():
        label = f"[{name}] "
        assert [line.removeprefix(label) for line in lines if line.startswith(label)] == expected
    assert len(lines) == 63
    again = list(read_lines(look, LogQuery(namespace=namespace, pod="p", containers="all", timestamps=False)))
    assert sorted(again) == sorted(lines)
    with pytest.raises(ClusterError, match="no container 'three'; it has 'before', 'one', 'two'"):
        list(read_lines(look, LogQuery(namespace=namespace, pod="p", containers=("three",))))


def test_a_restart_is_followed_and_the_run_before_it_can_be_read(
    look: KubernetesCluster, namespace: str, image: str
) -> None:
    first = "touch /kept/ran; echo first; echo fails; exit 3"
    script = f"if [ -e /kept/ran ]; then echo second; sleep 600; else {first}; fi"
    over = threading.Event()
    reader = Reader(look, LogQuery(namespace=namespace, pod="p", follow=True), ended=over.is_set)
    create(look, namespace, pod(image, {"main": script}, restart="OnFailure"))
    eventually(lambda: "second" in texts(reader.lines), 180)
    over.set()
    assert texts(reader.finish()) == ["first", "fails", "second"]
    previous = list(read_lines(look, LogQuery(namespace=namespace, pod="p", previous=True)))
    assert texts(previous) == ["first", "fails"]
    assert texts(list(read_lines(look, LogQuery(namespace=namespace, pod="p", regex="^sec")))) == ["second"]


RESTARTS = 3
"""Of each container; a node waits 10 s longer before each, but not before the first."""


@pytest.mark.parametrize("tail_lines", [None, 0])
def test_containers_that_end_at_once_and_restart_many_times_lose_no_line(
    look: KubernetesCluster, namespace: str, image: str, tail_lines: int | None
) -> None:
    names = [f"c{number}" for number in range(5)]
    script = (
        # Of a container that ran twice between two looks, a node has the second run only; its status comes late.
        "n=$(cat /kept/NAME 2>/dev/null || echo 0); echo $((n + 1)) >/kept/NAME; [ $n = 0 ] && sleep 20; "
        f"for i in 0 1 2 3 4; do echo run $n line $i; done; printf 'run %s last' $n; [ $n = {RESTARTS} ]"
    )
    query = LogQuery(
        namespace=namespace, pod="p", containers="all", follow=True, timestamps=False, tail_lines=tail_lines
    )
    reader = Reader(look, query, ended=lambda: phase(look, namespace) == "Succeeded")
    create(look, namespace, pod(image, {name: script.replace("NAME", name) for name in names}, restart="OnFailure"))
    lines = reader.finish()
    wanted = [f"run {run} {part}" for run in range(RESTARTS + 1) for part in (*map("line {}".format, range(5)), "last")]
    for name in names:
        label = f"[{name}] "
        mine = [line.removeprefix(label).rstrip("\n") for line in lines if line.startswith(label)]
        assert mine == wanted, name


def test_no_line_is_lost_or_doubled_when_connections_are_cut(
    look: KubernetesCluster, namespace: str, image: str, kubeconfig: Path
) -> None:
    script = "i=0; while [ $i -lt 500 ]; do echo line $i; i=$((i + 1)); [ $((i % 100)) = 0 ] && sleep 1; done"
    create(look, namespace, pod(image, {"main": script}))
    with cutting_proxy(str(kubeconfig), [8000, 0, 0, 8000, 10000, 0, 13000, 16000]) as (proxy, through):
        query = LogQuery(namespace=namespace, pod="p", follow=True)
        lines = list(
            read_lines(KubernetesCluster.connect(through), query, ended=lambda: phase(look, namespace) == "Succeeded")
        )
        assert proxy.cuts
    assert texts(lines) == [f"line {number}" for number in range(500)]


def test_a_pod_that_a_retry_replaced_is_followed_on(look: KubernetesCluster, namespace: str, image: str) -> None:
    over = threading.Event()
    create(look, namespace, pod(image, {"main": "echo first attempt; sleep 600"}))
    reader = Reader(look, LogQuery(namespace=namespace, pod="p", follow=True), ended=over.is_set)
    eventually(lambda: reader.lines, 180)
    assert look.delete(kinds.POD, namespace, "p")
    eventually(lambda: look.get(kinds.POD, namespace, "p") is None)
    create(look, namespace, pod(image, {"main": "echo second attempt"}))
    eventually(lambda: phase(look, namespace) == "Succeeded")
    over.set()
    assert texts(reader.finish()) == ["first attempt", "second attempt"]


def test_a_log_is_read_between_two_times(look: KubernetesCluster, namespace: str, image: str) -> None:
    script = "for i in 0 1 2 3 4 5; do echo line $i; sleep 0.4; done; sleep 600"
    create(look, namespace, pod(image, {"main": script}))
    query = LogQuery(namespace=namespace, pod="p", follow=True)
    following = read_lines(look, query)
    lines = [next(following) for _ in range(6)]
    following.close()  # type: ignore[attr-defined]
    since, until = (moment(lines[place]) for place in (2, 4))
    asked = LogQuery(namespace=namespace, pod="p", since=since, until=until + timedelta(microseconds=1))
    assert list(read_lines(look, asked)) == lines[2:5]
    # Nothing more is written, and the app goes on: following ends with the time.
    soon = datetime.now(timezone.utc) + timedelta(seconds=1)
    assert list(read_lines(look, LogQuery(namespace=namespace, pod="p", follow=True, until=soon))) == lines


def moment(line: str) -> datetime:
    """The time of a line, rounded down to microseconds."""
    stamp = line.split(" ", 1)[0]
    return datetime.fromisoformat(stamp[:26]).replace(tzinfo=timezone.utc)
