"""The real driver on the real engine: few processes, clear refusals, nothing left, whatever is killed when."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from torchx_pulumi.apps.answer import StackChange
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.kube.kinds import POD, SERVICE
from torchx_pulumi.model import labels
from torchx_pulumi.model.app_entry import RunEntry, Stage
from torchx_pulumi.model.errors import ClusterError, DeployError, RefusedError
from torchx_pulumi.model.status import JobState, JobStatus, Reason
from torchx_pulumi.runs.driver import Recorded
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB, VOLCANO_JOB_NAME, VOLCANO_POD_GROUP
from torchx_pulumi.storage.owners import this_process
from torchx_pulumi_stacks.engine import AutomationDriver
from torchx_pulumi_stacks.engine import process as engine_module
from torchx_pulumi_stacks.engine.work_dir import place_key

from tests.e2e.launch_orders import make_order, no_process_is_left
from tests.e2e.project import eventually

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]

KILL_POINTS: list[dict[str, Any]] = [
    {"do": "launch", "kill_at": "creating Job"},
    {"do": "launch", "kill_at": "creating Job", "with_engine": False},
    {"do": "delete", "kill_at": "deleting Job"},
]
MORE_KILL_POINTS: list[dict[str, Any]] = [{"do": "launch", "kill_at": ""}, {"do": "launch", "kill_at": "created Job"}]


@pytest.fixture
def backend(tmp_path: Path) -> str:
    return f"file://{tmp_path}/backend"


@pytest.fixture
def make(
    e2e_env: dict[str, str], kubeconfig: Path, namespace: str, backend: str, tmp_path: Path, monkeypatch: Any
) -> Iterator[Callable[..., Any]]:
    """Make orders in the test's own namespace, backend and state folder; what they made is removed in the end."""
    for name in ("PATH", "KUBECONFIG", "PYTHONPATH"):
        monkeypatch.setenv(name, e2e_env[name])
    for name in ("PULUMI_BACKEND_URL", "PULUMI_CONFIG_PASSPHRASE", "PULUMI_CONFIG_PASSPHRASE_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    made: list[RunEntry] = []

    def make_one(name: str = "", **options: Any) -> Any:
        given = {"backend": backend, "kubeconfig": str(kubeconfig), **options}
        order = make_order(namespace, name or f"train-{uuid.uuid4().hex[:6]}", **given)
        made.append(order.entry)
        return order

    yield make_one
    for entry in made:
        AutomationDriver().destroy(entry, print, forget_unreachable=True)
        no_process_is_left(entry)


@pytest.fixture
def calls(monkeypatch: Any) -> list[str]:
    """The processes that are started, by their first words."""
    started: list[str] = []
    real = engine_module.subprocess.Popen

    def counted(words: list[str], **options: Any) -> Any:
        started.append(" ".join(word for word in words[1:] if not word.startswith("-"))[:40])
        return real(words, **options)

    monkeypatch.setattr(engine_module.subprocess, "Popen", counted)
    return started


def test_launch_and_delete_take_one_process_each_and_reading_none(
    make: Callable[..., Any], calls: list[str], look: KubernetesCluster, backend: str
) -> None:
    driver, order, told = AutomationDriver(), make(), []
    uid = driver.launch(order, told.append)
    entry = order.entry
    job = look.get(VOLCANO_JOB, entry.namespace, entry.job_name)
    assert job is not None
    assert uid == job["metadata"]["uid"]
    assert job["metadata"]["labels"][labels.LAUNCH] == entry.launch
    assert job["metadata"]["annotations"][labels.RUN] == entry.run
    assert len(calls) == 1
    assert any("created Job" in line for line in told)

    found = driver.find(entry.place)
    assert found is not None
    assert (found.uid, found.stage, found.owner) == (uid, Stage.LAUNCHED, None)
    assert [place.stack for place in driver.places(backend, "torchx")] == [entry.place.stack]
    recovered = driver.recover(replace(found, owner=None), print)
    assert recovered is not None
    assert recovered.uid == uid
    with pytest.raises(DeployError, match="already"):
        driver.launch(order, print)
    assert len(calls) == 1

    seen = {"state": "RUNNING", "reason": "Running", "uid": uid, "observed_at": "2100-01-01T00:00:00Z"}
    launched = driver.answer(found)
    assert launched is not None
    change = StackChange(uid=str(uid), observed={**launched.observed, **seen})
    assert driver.record(found, change).outcome is Recorded.WRITTEN
    state = Path(backend.removeprefix("file://")) / ".pulumi/stacks/torchx" / f"{entry.place.stack}.json"
    outputs = json.loads(state.read_text())["checkpoint"]["latest"]["resources"][0]["outputs"]
    assert (outputs["app_id"], outputs["torchx"]["observed"]["state"]) == (entry.app_id, "RUNNING")
    assert outputs["torchx"]["declared"]["roles"][0]["replicas"] == 2
    assert len(calls) == 1

    driver.destroy(found, told.append)
    driver.destroy(found, told.append)
    assert len(calls) == 2
    assert nothing_is_left(look, entry, backend)


def test_engines_write_an_automatic_log_only_if_a_variable_asks(
    make: Callable[..., Any], tmp_path: Path, monkeypatch: Any
) -> None:
    home, driver, told = tmp_path / "pulumi", AutomationDriver(), []
    monkeypatch.setenv("PULUMI_HOME", str(home))
    order = make()
    driver.launch(order, told.append)
    driver.destroy(order.entry, told.append)
    assert [path.name for path in home.iterdir()] == ["plugins"]
    assert not [line for line in told if "log" in line]
    monkeypatch.setenv("TORCHX_PULUMI_ENGINE_LOG", "1")
    driver.launch(make(), told.append)
    assert list((home / "logs").iterdir())


@pytest.mark.parametrize("left", [pytest.param("all", marks=pytest.mark.extended), "pods and Service"])
def test_a_gang_whose_state_is_lost_is_deleted_whole_and_no_other(
    make: Callable[..., Any], look: KubernetesCluster, backend: str, left: str
) -> None:
    driver, order, other = AutomationDriver(), make(gang="pods"), make(gang="pods")
    driver.launch(order, print)
    driver.launch(other, print)
    entry = order.entry
    state = Path(backend.removeprefix("file://")) / ".pulumi/stacks/torchx" / f"{entry.place.stack}.json"
    state.unlink()
    if left != "all":
        # As an interrupted cancellation leaves it.
        look.delete(VOLCANO_POD_GROUP, entry.namespace, entry.job_name)
    driver.destroy(entry, print)
    assert nothing_is_left(look, entry, backend)
    assert look.get(SERVICE, entry.namespace, entry.job_name) is None
    pods = look.list(POD, entry.namespace)
    assert {pod["metadata"]["labels"][VOLCANO_JOB_NAME] for pod in pods} == {other.entry.job_name}
    driver.destroy(entry, print)
    driver.destroy(other.entry, print)
    assert nothing_is_left(look, other.entry, backend)


def test_refusals_say_why_and_leave_nothing(
    make: Callable[..., Any], look: KubernetesCluster, backend: str, tmp_path: Path, kubeconfig: Path
) -> None:
    driver, order = AutomationDriver(), make(queue="nosuch-queue")
    with pytest.raises(RefusedError, match="nosuch-queue") as refused:
        driver.launch(order, print)
    assert isinstance(refused.value.status, JobStatus)
    assert (refused.value.status.state, refused.value.status.reason) == (JobState.FAILED, Reason.REFUSED)
    assert refused.value.status.diagnoses[0].reason is Reason.QUEUE_MISSING
    assert nothing_is_left(look, order.entry, backend)

    text = kubeconfig.read_text()
    server = KubernetesCluster.connect(str(kubeconfig)).api_server
    nowhere = tmp_path / "nowhere.yaml"
    nowhere.write_text(text.replace(server, "https://127.0.0.1:9"))
    lost = make(kubeconfig=str(nowhere))
    with pytest.raises(ClusterError, match="cannot be reached"):
        driver.launch(lost, print)
    assert driver.find(lost.entry.place) is None


def test_a_cluster_that_is_gone_is_forgotten_only_when_told_to(
    make: Callable[..., Any],
    look: KubernetesCluster,
    backend: str,
    tmp_path: Path,
    kubeconfig: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = AutomationDriver()
    config = tmp_path / "config.yaml"
    config.write_text(kubeconfig.read_text())
    # Another way to the same cluster would be taken.
    monkeypatch.setenv("KUBECONFIG", str(config))
    order = make(kubeconfig=str(config))
    driver.launch(order, print)
    server = KubernetesCluster.connect(str(kubeconfig)).api_server
    config.write_text(kubeconfig.read_text().replace(server, "https://127.0.0.1:9"))
    with pytest.raises(ClusterError):
        driver.destroy(order.entry, print)
    assert driver.find(order.entry.place) is not None
    driver.destroy(order.entry, print, forget_unreachable=True)
    assert driver.find(order.entry.place) is None
    # The object stays, and the state is gone: by its label it is known as ours and deleted all the same.
    config.write_text(kubeconfig.read_text())
    assert look.get(VOLCANO_JOB, order.entry.namespace, order.entry.job_name) is not None
    driver.destroy(order.entry, print)
    assert nothing_is_left(look, order.entry, backend)


def launch_and_say(order: Any, said: Any) -> None:
    """Launch in a process of `multiprocessing`, and send what the error says."""
    try:
        AutomationDriver().launch(order, print)
        said.send("launched")
    except DeployError as error:
        said.send(str(error))


def test_a_process_forked_after_a_launch_is_refused_and_a_new_one_launches(
    make: Callable[..., Any], look: KubernetesCluster, backend: str
) -> None:
    first, second = make(), make()
    AutomationDriver().launch(first, print)

    def said_by(method: Literal["fork", "spawn"]) -> str:
        context: Any = multiprocessing.get_context(method)
        here, there = context.Pipe(duplex=False)
        process = context.Process(target=launch_and_say, args=(second, there))
        process.start()
        assert here.poll(120)
        said = str(here.recv())
        process.join(30)
        return said

    assert "was forked after gRPC was loaded" in said_by("fork")
    assert nothing_is_left(look, second.entry, backend)
    assert said_by("spawn") == "launched"
    assert look.get(VOLCANO_JOB, second.entry.namespace, second.entry.job_name) is not None


def test_an_interrupt_removes_what_was_begun(
    make: Callable[..., Any], look: KubernetesCluster, backend: str, monkeypatch: Any
) -> None:
    driver, order = AutomationDriver(), make()

    def press(line: str) -> None:
        if line.startswith("creating Job"):
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        driver.launch(order, press)
    assert nothing_is_left(look, order.entry, backend)


@pytest.mark.parametrize(
    "point",
    [*KILL_POINTS, *(pytest.param(point, marks=pytest.mark.extended) for point in MORE_KILL_POINTS)],
    ids=lambda point: "-".join(str(value) for value in point.values()),
)
def test_what_was_killed_is_put_right(
    point: dict[str, Any], make: Callable[..., Any], look: KubernetesCluster, backend: str, kubeconfig: Path
) -> None:
    kill_and_check(point, make, look, backend, kubeconfig)


@pytest.mark.extended
def test_killed_at_many_moments(
    make: Callable[..., Any], look: KubernetesCluster, backend: str, kubeconfig: Path
) -> None:
    for number in range(int(os.environ.get("TORCHX_PULUMI_KILLS", "10"))):
        random.seed(number)
        point = {
            "do": random.choice(["launch", "delete"]),
            "kill_after_s": random.uniform(0.2, 2.2),
            "with_engine": random.random() < 0.7,
        }
        kill_and_check(point, make, look, backend, kubeconfig)


def kill_and_check(
    point: dict[str, Any], make: Callable[..., Any], look: KubernetesCluster, backend: str, kubeconfig: Path
) -> None:
    """Kill a launch or a deletion at a point; then the next call finds the truth, and a deletion leaves nothing."""
    driver, order = AutomationDriver(), make()
    entry = order.entry
    before = driver.launch(order, print) if point["do"] == "delete" else None
    asked = {
        "namespace": entry.namespace,
        "name": entry.job_name,
        "backend": backend,
        "kubeconfig": str(kubeconfig),
    }
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.e2e.launch_orders", json.dumps({**point, "order": asked})],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ['PYTHONPATH']}"},
    )
    code = child.wait(timeout=240)
    assert code in (0, -signal.SIGKILL)
    stage = Stage.DELETING if point["do"] == "delete" else Stage.LAUNCHING
    owner = replace(this_process(), pid=child.pid, started="")
    found = driver.recover(replace(entry, stage=stage, owner=owner), print)
    job = look.get(VOLCANO_JOB, entry.namespace, entry.job_name)
    if found is None:
        assert nothing_is_left(look, entry, backend)
    else:
        assert found.stage is Stage.LAUNCHED
        assert job is not None
        assert job["metadata"]["uid"] == found.uid
        assert before in (None, found.uid)
        assert driver.find(entry.place) is not None
    no_process_is_left(entry)
    driver.destroy(replace(entry, owner=None), print)
    assert nothing_is_left(look, entry, backend)


def nothing_is_left(look: KubernetesCluster, entry: RunEntry, backend: str) -> bool:
    """Say whether no object, state, lock, folder or process of an app is left."""
    namespace, name = entry.namespace, entry.job_name
    assert look.get(VOLCANO_JOB, namespace, name) is None
    assert look.get(VOLCANO_POD_GROUP, namespace, name) is None
    eventually(lambda: look.get(SERVICE, namespace, name) is None)
    eventually(lambda: not look.list(POD, namespace, {VOLCANO_JOB_NAME: name}))
    root = Path(backend.removeprefix("file://"))
    files = [path for path in root.rglob("*") if entry.place.stack in str(path)]
    assert files == []
    state = Path(os.environ["XDG_STATE_HOME"]) / "torchx-pulumi/engine/work" / place_key(entry.place)
    assert not state.exists()
    no_process_is_left(entry)
    return True
