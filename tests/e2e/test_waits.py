"""Waits on the real cluster end within their bounds, and followers of a waiting gang ask the API server seldom."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
import yaml
from torchx.runner import Runner
from torchx.specs import AppDef, Resource, Role
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.kube.kubeconfig import find_access
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.runs.index import RunIndex
from torchx_pulumi.runs.waiting import REFUSED_S, UNREACHABLE_S
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB, VOLCANO_QUEUE
from torchx_pulumi.torchx_adapter.context import AdapterContext
from torchx_pulumi.torchx_adapter.scheduler import PulumiScheduler
from torchx_pulumi_stacks.engine import AutomationDriver

from tests.contract.cluster.conftest import caller
from tests.e2e.project import eventually
from tests.e2e.torchx_cli import TorchxCli, runner_of

pytestmark = pytest.mark.e2e

REPLICAS = 64
COUNTED_S = 10


class FastClock:
    """A clock that runs faster than the machine's."""

    def __init__(self, speed: float) -> None:
        self.speed = speed

    def now(self) -> datetime:
        return datetime.now(timezone.utc)

    def monotonic(self) -> float:
        return time.monotonic() * self.speed

    def wait(self, seconds: float, stop: threading.Event) -> None:
        stop.wait(seconds / self.speed)


@pytest.fixture
def access(kubeconfig: Path, tmp_path: Path) -> Path:
    """Copy the kubeconfig, so that a test may change it."""
    found = find_access(str(kubeconfig)).config
    assert found is not None
    path = tmp_path / "access"
    path.write_text(found)
    return path


@pytest.fixture
def runner(
    pulumi_env: dict[str, str], tmp_path: Path, access: Path, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Runner]:
    cli = TorchxCli(pulumi_env, tmp_path, access)
    with runner_of(cli, monkeypatch) as found:
        yield found
        access.write_text(find_access(str(kubeconfig)).config or "")
        for entry in RunIndex(cli.folder / "state" / "torchx-pulumi" / "runs").all():
            cli.ours("delete", f"pulumi_volcano://torchx/{entry.app_id}")


def run(runner: Runner, namespace: str, image: str, **changes: Any) -> Any:
    options = {"resource": Resource(cpu=0, gpu=0, memMB=0), **changes.pop("role", {})}
    role = Role(**{"name": "trainer", "image": image, "entrypoint": "true", **options})
    config = {"namespace": namespace, "queue": "default", **changes}
    return runner.run(AppDef(name="waits", roles=[role]), "pulumi_volcano", config)


def reader(clock: Any, connect: Callable[..., Any]) -> Runner:
    """Return a Runner that reads only."""

    class ReadingDriver(AutomationDriver):
        """The real driver, as far as it starts no process."""

        def _stack(self, *_: Any, **__: Any) -> Any:
            raise AssertionError("an engine was made")

    context = AdapterContext(make_driver=ReadingDriver, clock=clock, connect=connect)
    return Runner("torchx", {"pulumi_volcano": lambda session, **_: PulumiScheduler("volcano", session, context)})


def test_a_wait_for_a_job_that_its_time_to_live_removed_unseen_ends(
    runner: Runner, namespace: str, cluster: Any, look: KubernetesCluster
) -> None:
    if not cluster.images:
        pytest.skip("the local cluster has no real node: no job can end")
    handle = run(runner, namespace, cluster.images["busybox"], ttl_seconds_after_finished=1)
    name = handle.rpartition(":")[2]
    eventually(lambda: look.get(VOLCANO_JOB, namespace, name) is None, 240)
    begun = time.monotonic()
    with pytest.raises(ClusterError, match="its objects are gone from the cluster; its state was never seen"):
        runner.wait(handle, wait_interval=1)
    # Of all bounds it is the shortest, 5 s.
    assert time.monotonic() - begun < REFUSED_S


def test_a_wait_for_a_job_whose_queue_is_gone_ends_with_its_pods(
    runner: Runner, namespace: str, cluster: Any, look: KubernetesCluster
) -> None:
    if not cluster.images:
        pytest.skip("the local cluster has no real node: no job can end")
    queue = f"waits-{namespace}"
    made = {
        "apiVersion": VOLCANO_QUEUE.api_version,
        "kind": "Queue",
        "metadata": {"name": queue},
        "spec": {"weight": 1},
    }
    look.create(VOLCANO_QUEUE, None, made)
    eventually(lambda: (look.get(VOLCANO_QUEUE, None, queue) or {}).get("status", {}).get("state") == "Open")
    role = {"entrypoint": "sleep", "args": ["20"]}
    handle = run(runner, namespace, cluster.images["busybox"], queue=queue, role=role)
    eventually(lambda: str(runner.status(handle).state) == "RUNNING")  # type: ignore[union-attr]
    look.delete(VOLCANO_QUEUE, None, queue)
    found = runner.wait(handle, wait_interval=1)
    assert found is not None
    assert str(found.state) == "SUCCEEDED"
    job = look.get(VOLCANO_JOB, namespace, handle.rpartition(":")[2]) or {}
    assert job["status"]["state"]["phase"] == "Running"


class Counting(KubernetesCluster):
    """Counts the requests to the API server."""

    asked = 0

    def _request(self, *given: Any, **more: Any) -> Any:
        type(self).asked += 1
        return super()._request(*given, **more)


def test_followers_of_a_waiting_gang_ask_seldom_and_end_when_the_access_does(
    runner: Runner, namespace: str, access: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = run(runner, namespace, "busybox:1.36", role={"num_replicas": REPLICAS, "resource": Resource(900, 0, 1)})
    eventually(lambda: str(runner.status(handle).state) == "PENDING", 180)  # type: ignore[union-attr]
    monkeypatch.setattr(Counting, "asked", 0)
    pace = FastClock(1)
    following = reader(pace, Counting.connect)
    errors: list[Exception] = []

    def follow(index: int) -> None:
        try:
            list(following.log_lines(handle, "trainer", index, should_tail=True))
        except ClusterError as error:
            errors.append(error)

    threads = [threading.Thread(target=follow, args=(index,), daemon=True) for index in range(REPLICAS)]
    begun = time.monotonic()
    for thread in threads:
        thread.start()
    time.sleep(COUNTED_S)
    took_s = time.monotonic() - begun
    asked = Counting.asked
    assert 3 <= asked <= 2 * took_s, (asked, took_s)

    config = json.loads(access.read_text())
    expected = [
        (nobody(access, namespace), "forbids it", REFUSED_S),
        ({"token": "wrong"}, "does not accept the credentials", REFUSED_S),
        (None, "cannot be reached", UNREACHABLE_S),
    ]
    for user, words, bound_s in expected:
        if user is None:
            config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:9"
        else:
            config["users"][0]["user"] = user
        access.write_text(yaml.safe_dump(config))
        pace.speed = REFUSED_S
        clock = FastClock(bound_s / 3)
        waiting = reader(clock, KubernetesCluster.connect)
        first = waiting.status(handle)
        assert first is not None
        begun = clock.monotonic()
        with pytest.raises(ClusterError, match=rf"(?s)last known state: PENDING.*{words}.*{REFUSED_S:g} s"):
            waiting.wait(handle, wait_interval=0.1)
        assert bound_s <= clock.monotonic() - begun + bound_s / 3
        # All followers end by the first refusal; the next way of losing access has other words.
        for thread in threads:
            thread.join(60)
    assert len([error for error in errors if "forbids it" in str(error)]) == REPLICAS, errors


def nobody(access: Path, namespace: str) -> dict[str, str]:
    """Make an account without rights; return it as a user of a kubeconfig."""
    from kubernetes import config

    call = caller(config.new_client_from_config(str(access), persist_config=False))
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    call("POST", accounts, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "nobody"}})
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    return {"token": call("POST", f"{accounts}/nobody/token", request)["status"]["token"]}
