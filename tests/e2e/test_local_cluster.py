"""The local cluster itself: that it really runs pods, stands beside others, and leaves nothing, however it ends."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tools.images import add_layer
from tools.local_cluster import Cluster, leftovers, processes
from tools.local_cluster.api import Api
from tools.local_cluster.layout import Layout
from tools.local_cluster.network import hardware_address

pytestmark = pytest.mark.e2e

JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs"
PODS = "/api/v1/namespaces/default/pods"
ROLES = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
ASK = """\
import os, ssl, urllib.error, urllib.request
folder = "/var/run/secrets/kubernetes.io/serviceaccount/"
context = ssl.create_default_context(cafile=folder + "ca.crt")
headers = {"Authorization": "Bearer " + open(folder + "token").read()}
for host in (os.environ["KUBERNETES_SERVICE_HOST"], "kubernetes.default.svc"):
    for kind in ("pods", "secrets"):
        url = f"https://{host}:{os.environ['KUBERNETES_SERVICE_PORT']}/api/v1/namespaces/default/{kind}"
        try:
            with urllib.request.urlopen(urllib.request.Request(url, headers=headers), context=context) as answer:
                print(kind, answer.status, os.environ["HOSTNAME"] in answer.read().decode())
        except urllib.error.HTTPError as error:
            print(kind, error.code)
"""


@pytest.fixture(scope="module")
def state() -> Iterator[Path]:
    """A state folder of this module's own, with a short path: sockets are in it."""
    with tempfile.TemporaryDirectory(prefix="txp-") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", folder)
        yield Path(folder)


@pytest.fixture(scope="module")
def one(state: Path) -> Iterator[Cluster]:
    """A cluster with whatever nodes this machine can have."""
    cluster = Cluster.up("one", kwok_nodes=2, images=("busybox", "python"))
    yield cluster
    cluster.down()
    assert_nothing_left(cluster.layout)


@pytest.fixture
def real(one: Cluster) -> Cluster:
    if not one.settings.real_node:
        pytest.skip(f"no real node: {one.settings.why_no_real_node}")
    return one


def wait_for(what: Callable[[], Any], timeout_s: float = 180) -> Any:
    deadline = time.monotonic() + timeout_s
    while not (found := what()):
        assert time.monotonic() < deadline, "not within the time"
        time.sleep(0.2)
    return found


def wait_for_phase(api: Api, name: str, *phases: str) -> None:
    """Wait until a job has one of some phases; what it has in the end is in the message."""
    deadline = time.monotonic() + 240
    while phase(api, name) not in phases:
        found = [(each["metadata"]["name"], each.get("status")) for each in api.request("GET", PODS)["items"]]
        assert time.monotonic() < deadline, ((api.get(f"{JOBS}/{name}") or {}).get("status"), found)
        time.sleep(0.2)


def job(name: str, script: str, image: str, **template: Any) -> dict[str, Any]:
    container = {"name": "main", "image": image, "command": ["sh", "-c", script]}
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]}
    annotations = template.pop("annotations", {})
    pod = {"metadata": {"annotations": annotations}, "spec": {**spec, **template}}
    tasks = [{"name": f"worker-{index}", "replicas": 1, "minAvailable": 1, "template": pod} for index in range(2)]
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "minAvailable": 2,
            "queue": "default",
            "schedulerName": "volcano",
            "plugins": {"svc": ["--publish-not-ready-addresses"], "env": []},
            "tasks": tasks,
        },
    }


def phase(api: Api, name: str) -> str:
    found = api.get(f"{JOBS}/{name}") or {}
    return str(found.get("status", {}).get("state", {}).get("phase", ""))


def logs(api: Api, pod: str) -> str:
    return str(api.request("GET", f"{PODS}/{pod}/log")["text"])


def assert_nothing_left(layout: Layout) -> None:
    assert processes.running(layout) == []
    assert not leftovers.anything_left(layout)
    assert not layout.lock.exists()
    assert layout.bridge not in {name for _, name in socket.if_nameindex()}
    assert str(layout.root) not in Path("/proc/mounts").read_text()


def cli(*arguments: str, state: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tools.local_cluster", *arguments],
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, "XDG_STATE_HOME": str(state)},
        timeout=900,
    )


def test_two_replicas_find_each_other_by_name_and_their_logs_are_read_through_the_api_server(real: Cluster) -> None:
    # Each stays until the job is deleted, however late the other one starts.
    api, script = real.api, "until ping -c 1 -W 1 talk-worker-0-0.talk; do sleep 0.1; done; hostname; sleep 600"
    api.create(JOBS, job("talk", script, real.images["busybox"]))
    wait_for_phase(api, "talk", "Running")
    for index in range(2):
        pod = f"talk-worker-{index}-0"
        text = wait_for(lambda pod=pod: (said := logs(api, pod)).endswith(f"{pod}\n") and said)
        assert "1 packets received" in text
        assert text.splitlines()[-1] == pod
    api.request("DELETE", f"{JOBS}/talk?propagationPolicy=Foreground")
    wait_for(lambda: api.get(f"{PODS}/talk-worker-0-0") is None)


def test_an_exit_code_is_a_real_one(real: Cluster) -> None:
    api = real.api
    api.create(JOBS, job("fails", "exit 3", real.images["busybox"]))
    wait_for_phase(api, "fails", "Failed", "Aborted")
    (state,) = api.request("GET", f"{PODS}/fails-worker-0-0")["status"]["containerStatuses"]
    assert state["state"]["terminated"]["exitCode"] == 3
    api.request("DELETE", f"{JOBS}/fails")


def test_a_file_added_to_an_image_is_in_the_container(real: Cluster) -> None:
    assert real.registry is not None
    new = f"{real.registry}/with-file:1"
    digest = add_layer(real.images["busybox"], {"/app/greeting.txt": b"hello from a layer\n"}, new)
    assert add_layer(real.images["busybox"], {"/app/greeting.txt": b"hello from a layer\n"}, new) == digest
    api = real.api
    api.create(JOBS, job("layer", "cat /app/greeting.txt; sleep 2", new))
    wait_for_phase(api, "layer", "Completed")
    assert logs(api, "layer-worker-0-0") == "hello from a layer\n"
    api.request("DELETE", f"{JOBS}/layer")


def test_a_pod_reads_the_api_server_as_in_any_cluster(real: Cluster) -> None:
    api, name = real.api, "reader"
    api.create("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": name}})
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
    api.create(f"{ROLES}/roles", {"metadata": {"name": name}, "rules": [rule]})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    user = {"kind": "ServiceAccount", "name": name, "namespace": "default"}
    api.create(f"{ROLES}/rolebindings", {"metadata": {"name": name}, "roleRef": role, "subjects": [user]})
    container = {"name": "main", "image": real.images["python"], "command": ["python3", "-c", ASK]}
    # As users who are not root have it: root folder, names and token must be readable for them.
    user = {"runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532}
    spec = {"serviceAccountName": name, "restartPolicy": "Never", "containers": [container], "securityContext": user}
    api.create(PODS, {"metadata": {"name": name}, "spec": spec})
    wait_for(lambda: api.request("GET", f"{PODS}/{name}")["status"]["phase"] in ("Succeeded", "Failed"))
    assert logs(api, name).splitlines() == ["pods 200 True", "secrets 403"] * 2
    api.request("DELETE", f"{PODS}/{name}")


def test_fake_nodes_run_and_end_pods_that_ask_for_them(one: Cluster) -> None:
    api, fake = one.api, one.status()["fake_nodes"]
    placement = {
        "nodeSelector": fake["node_selector"],
        "tolerations": [fake["toleration"]] if fake["toleration"] else [],
    }
    endings = {"torchx-pulumi/fake-exit-code": "0", "torchx-pulumi/fake-run-for": "2s"}
    api.create(JOBS, job("fake-stays", "", "none", **placement))
    api.create(JOBS, job("fake-ends", "", "none", annotations=endings, **placement))
    wait_for_phase(api, "fake-stays", "Running")
    wait_for_phase(api, "fake-ends", "Completed")
    assert phase(api, "fake-stays") == "Running"
    for name in ("fake-stays", "fake-ends"):
        api.request("DELETE", f"{JOBS}/{name}")


def test_up_again_changes_nothing_and_says_so(one: Cluster, state: Path) -> None:
    before = {p.name: p.pid for p in processes.recorded(one.layout)}
    done = cli("up", "--name", "one", "--kwok-nodes", "2", "--json", state=state)
    assert done.returncode == 0, done.stderr
    assert "cluster 'one' is running" in done.stderr
    assert {c["name"]: c["pid"] for c in json.loads(done.stdout)["components"]} == before


def test_status_tells_what_other_tools_need(one: Cluster, state: Path) -> None:
    def is_running() -> bool:
        done = cli("status", "--name", "one", "--json", state=state)
        found.update(json.loads(done.stdout))
        return done.returncode == 0 and found["state"] == "running"

    found: dict[str, Any] = {}
    # A component has 3 s for its answer.
    wait_for(is_running)
    assert found["kubeconfig"] == str(one.kubeconfig)
    assert found["registry"] == one.registry
    assert found["images"] == one.images
    assert all(component["healthy"] for component in found["components"])
    assert all(node["ready"] for node in found["nodes"])


def test_everything_listens_on_loopback_or_the_bridge_only(one: Cluster) -> None:
    ours = {f"socket:[{inode}]" for inode in _inodes(one.layout)}
    addresses = [
        line.split()[1] for line in Path("/proc/net/tcp").read_text().splitlines()[1:] if _listens(line) in ours
    ]
    wide = [line.split()[1] for line in Path("/proc/net/tcp6").read_text().splitlines()[1:] if _listens(line) in ours]
    assert addresses
    hosts = {socket.inet_ntoa(bytes.fromhex(address.split(":")[0])[::-1]) for address in addresses}
    assert hosts <= {"127.0.0.1", one.settings.gateway}
    assert wide == []


@pytest.mark.extended
def test_the_bridge_keeps_its_hardware_address_when_pods_come_and_go(real: Cluster) -> None:
    file = Path("/sys/class/net", real.layout.bridge, "address")
    found = [file.read_text()]
    for name in ("comes", "goes"):
        real.api.create(JOBS, job(name, "sleep 600", real.images["busybox"]))
        wait_for_phase(real.api, name, "Running")
        found.append(file.read_text())
    for name in ("comes", "goes"):
        real.api.request("DELETE", f"{JOBS}/{name}")
        wait_for(lambda name=name: real.api.get(f"{PODS}/{name}-worker-0-0") is None)
        found.append(file.read_text())
    assert {*found} == {hardware_address(real.settings.gateway).hex(":") + "\n"}


def _listens(line: str) -> str | None:
    fields = line.split()
    return f"socket:[{fields[9]}]" if fields[3] == "0A" else None


def _inodes(layout: Layout) -> Iterator[str]:
    for process in processes.running(layout):
        # A process of a pod that is just deleted may end meanwhile.
        with contextlib.suppress(OSError):
            for file in Path(f"/proc/{process.pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    target = str(file.readlink())
                    if target.startswith("socket:["):
                        yield target[8:-1]


def test_secrets_are_readable_by_their_owner_only(one: Cluster) -> None:
    assert one.layout.root.stat().st_mode & 0o077 == 0
    for file in (one.kubeconfig, *one.layout.secrets.iterdir()):
        assert file.stat().st_mode & 0o077 == 0, file


@pytest.mark.extended
def test_a_second_cluster_stands_beside_the_first(one: Cluster, state: Path) -> None:
    second = Cluster.up("two", kwok_nodes=1)
    try:
        assert second.settings.pod_subnet != one.settings.pod_subnet
        assert not set(second.settings.ports.values()) & set(one.settings.ports.values())
        api, name = second.api, "beside"
        if second.settings.real_node:
            api.create(JOBS, job(name, "hostname", second.images["busybox"]))
            wait_for_phase(api, name, "Completed")
            assert logs(api, f"{name}-worker-0-0") == f"{name}-worker-0-0\n"
        assert one.api.get(f"{JOBS}/{name}") is None
    finally:
        second.down()
    assert_nothing_left(second.layout)
    assert one.status()["state"] == "running"
    if one.settings.real_node:  # nothing that it needs went with the other
        one.api.create(JOBS, job("still", "hostname", one.images["busybox"]))
        wait_for_phase(one.api, "still", "Completed")
        one.api.request("DELETE", f"{JOBS}/still")


@pytest.mark.extended
def test_two_runs_at_once_make_one_cluster(state: Path) -> None:
    command = [sys.executable, "-m", "tools.local_cluster", "up", "--name", "race", "--no-node", "--kwok-nodes", "1"]
    runs = [
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for _ in range(2)
    ]
    texts = [run.communicate(timeout=900)[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0], texts
    assert sum("is up after" in text for text in texts) == 1
    assert sum("cluster 'race' is running" in text for text in texts) == 1
    assert cli("down", "--name", "race", state=state).returncode == 0
    assert_nothing_left(Layout.of("race"))


@pytest.mark.parametrize("stop", [pytest.param(signal.SIGINT, marks=pytest.mark.extended), signal.SIGTERM])
def test_an_interrupted_up_cleans_up_after_itself(state: Path, stop: signal.Signals) -> None:
    layout = Layout.of("cut")
    command = [sys.executable, "-m", "tools.local_cluster", "up", "--name", "cut"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as run:
        wait_for(lambda: (layout.processes / "kube-apiserver.json").exists())
        for _ in range(5):  # as impatient users do
            run.send_signal(stop)
            time.sleep(0.3)
        text = run.communicate(timeout=300)[1]
    assert run.returncode == 130, text
    assert "Traceback" not in text
    assert_nothing_left(layout)


@pytest.mark.extended
def test_what_a_killed_up_leaves_is_cleared_by_the_next(state: Path) -> None:
    layout = Layout.of("killed")
    command = [sys.executable, "-m", "tools.local_cluster", "up", "--name", "killed"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
        wait_for(lambda: (layout.processes / "kube-controller-manager.json").exists())
        run.kill()
    assert processes.running(layout)
    done = cli("up", "--name", "killed", state=state)
    assert done.returncode == 0, done.stderr
    assert "clearing what an earlier run" in done.stderr
    assert cli("down", "--name", "killed", state=state).returncode == 0
    assert_nothing_left(layout)


def test_components_that_were_killed_with_pods_running_are_cleared(state: Path) -> None:
    cluster = Cluster.up("crash", kwok_nodes=1)
    api, layout = cluster.api, cluster.layout
    if cluster.settings.real_node:
        api.create(JOBS, job("runs", "sleep 600", cluster.images["busybox"]))
        wait_for_phase(api, "runs", "Running")
    for process in processes.running(layout):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
    # A process that is killed ends a moment later.
    wait_for(lambda: Cluster.find("crash") is None)
    done = cli("status", "--name", "crash", "--json", state=state)
    assert (done.returncode, json.loads(done.stdout)["state"]) == (1, "broken")
    assert cli("down", "--name", "crash", state=state).returncode == 0
    assert_nothing_left(layout)


def test_a_component_that_fails_is_named_with_its_log_and_nothing_is_left(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    etcd = tmp_path / "etcd"
    etcd.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo "etcd Version: 3.5.9" && exit\necho disk on fire; exit 7\n'
    )
    etcd.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    done = cli("up", "--name", "wrong", "--no-node", state=state)
    assert done.returncode == 1
    assert "error: etcd ended with exit code 7; end of its log:\ndisk on fire" in done.stderr
    assert_nothing_left(Layout.of("wrong"))
