"""What processes see in both layouts on the real node: arguments, environment, labels; and PyTorch over two roles."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.inputs.rendering import plan_app, render_plan
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.kube.kinds import POD
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB
from torchx_pulumi.schedulers.volcano.options import VolcanoOptions

from tests.e2e.project import FAKE_NODE, eventually
from tests.e2e.test_volcano_training_job import JOB_NAME
from tools import images
from tools.local_cluster import Cluster

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]
SMALL = {"cpu": 1, "memory_mb": 64}
OPTIONS = {"queue": "default", "reserved_millicpu": 980, "reserved_memmb": 48}
REPLICA_ID, ROLE = "torchx.pytorch.org/replica-id", "torchx.pytorch.org/role-name"
PRINT = "tr '\\0' '\\n' < /proc/1/cmdline; echo ENVIRONMENT; env"
"""Prints the arguments and the environment of the process."""


@pytest.fixture
def api(kubeconfig: Path) -> Iterator[Any]:
    from kubernetes import config

    with config.new_client_from_config(config_file=str(kubeconfig)) as connection:
        yield connection


def launch(
    api: Any, namespace: str, name: str, roles: Sequence[dict[str, Any]], layout: str, **options: Any
) -> Sequence[str]:
    """Create the Job that is rendered of some roles, and return the warnings of its plan."""
    from kubernetes import client

    app = {"name": "train", "roles": roles}
    plan = plan_app(app, "volcano", {**OPTIONS, "namespace": namespace, "layout": layout, **options}, app_id=name)
    client.CustomObjectsApi(api).create_namespaced_custom_object(
        VOLCANO_JOB.group, VOLCANO_JOB.version, namespace, VOLCANO_JOB.plural, render_plan(plan)
    )
    return plan.warnings


def ended(look: KubernetesCluster, namespace: str, name: str, count: int, timeout_s: float) -> list[Any]:
    """Wait until all pods of a run have succeeded, and return them."""

    def succeeded() -> list[Any]:
        pods = look.list(POD, namespace, {JOB_NAME: name})
        phases = [pod["status"].get("phase") for pod in pods]
        assert "Failed" not in phases, pods
        return pods if phases == ["Succeeded"] * count else []

    found: list[Any] = eventually(succeeded, timeout_s=timeout_s)
    return found


def log_of(api: Any, pod: Any) -> str:
    from kubernetes import client

    text: str = client.CoreV1Api(api).read_namespaced_pod_log(pod["metadata"]["name"], pod["metadata"]["namespace"])
    return text


def seen(api: Any, pod: Any) -> dict[str, str]:
    """Return the environment of a process and the fields of its pod, without name and uid of the job."""
    metadata = pod["metadata"]
    job, (owner,) = metadata["labels"][JOB_NAME], metadata["ownerReferences"]
    arguments, environment = log_of(api, pod).replace(job, "JOB").split("ENVIRONMENT\n")
    found = {"arguments": arguments}
    found |= {f"env {line.split('=', 1)[0]}": line for line in environment.strip().splitlines()}
    for part in ("labels", "annotations"):
        found |= {
            f"{part} {key}": value.replace(job, "JOB").replace(owner["uid"], "UID")
            for key, value in metadata[part].items()
        }
    return found


DIFFERENT = {
    "env HOSTNAME",
    "env POD",
    "env TORCHX_REPLICA_ID",
    "env VC_TASK_INDEX",
    "env VK_TASK_INDEX",
    "labels torchx.pytorch.org/replica-id",
    "annotations volcano.sh/template-uid",
    *(f"{part} volcano.sh/task-{key}" for part in ("labels", "annotations") for key in ("spec", "index")),
}
"""What the documentation names, besides the hosts of each task."""
HOSTS = re.compile(r"env VC_\w+_\d+_(HOSTS|NUM)")


def test_a_replica_sees_the_same_in_both_layouts(api: Any, look: KubernetesCluster, namespace: str, image: str) -> None:
    from kubernetes import client

    secret = {"metadata": {"name": "tokens"}, "stringData": {"hub": "hunter2"}}
    client.CoreV1Api(api).create_namespaced_secret(namespace, secret)
    base = {"image": image, "entrypoint": "sh", "num_replicas": 3, "resource": SMALL}
    trainer = {
        **base,
        "name": "my-trainer",
        "args": ["-c", f"echo $${{${{rank0_env}}:=localhost}}; {PRINT}", "sh", "$${${rank0_env}:=localhost}:29500"],
        "env": {"APP": "${app_id}", "POD": "[FIELD_PATH]metadata.name", "LITERAL": "$(NOT_SET) $$(HOME) $${x}"},
        "secret_env": {"TOKEN": {"name": "tokens", "key": "hub"}},
    }
    reader = {
        **base,
        "name": "reader",
        "args": ["-c", PRINT, "sh", "--shard=${replica_id}", "${replica_id}-of-3", "$${${rank0_env}}"],
        "env": {"SHARD": "s-${replica_id}", "POD": "[FIELD_PATH]metadata.name", "A_FIRST": "${replica_id}"},
        "secret_env": {"TOKEN": {"name": "tokens", "key": "hub"}},
    }
    found: dict[str, dict[tuple[str, int], dict[str, str]]] = {"replica": {}, "role": {}}
    for layout in found:
        launch(api, namespace, f"same-{layout}", [trainer, reader], layout)
    for layout, replicas in found.items():
        for pod in ended(look, namespace, f"same-{layout}", 6, timeout_s=400):
            labels = pod["metadata"]["labels"]
            first, index = labels["volcano.sh/task-spec"].rpartition("-")[2], labels["volcano.sh/task-index"]
            replicas[labels[ROLE], int(first) + int(index)] = seen(api, pod)
    ids = {(role, replica) for role in ("my-trainer", "reader") for replica in range(3)}
    assert found["replica"].keys() == found["role"].keys() == ids
    assert {replica["env TOKEN"] for replicas in found.values() for replica in replicas.values()} == {"TOKEN=hunter2"}
    for role, replica in sorted(ids):
        alone, shared = found["replica"][role, replica], found["role"][role, replica]
        differing = {key for key in alone.keys() | shared.keys() if alone.get(key) != shared.get(key)}
        assert {key for key in differing if not HOSTS.fullmatch(key)} <= DIFFERENT, (role, replica)
        assert alone[f"labels {REPLICA_ID}"] == str(replica)
        if (role, replica) == ("my-trainer", 0):
            assert {key for key in differing if not HOSTS.fullmatch(key)} == set()
        else:
            assert f"labels {REPLICA_ID}" not in shared
        # Where rank 0 is looked for is the same everywhere.
        assert shared["env VC_MY_TRAINER_0_HOSTS"] == alone["env VC_MY_TRAINER_0_HOSTS"]
    shared = found["role"]["my-trainer", 2]
    assert shared["env VC_MY_TRAINER_1_HOSTS"] == (
        "VC_MY_TRAINER_1_HOSTS=JOB-my-trainer-1-0.JOB,JOB-my-trainer-1-1.JOB"
    )
    assert shared["env VC_READER_0_NUM"] == "VC_READER_0_NUM=3"
    shared = found["role"]["reader", 2]
    assert shared["env TORCHX_REPLICA_ID"] == "TORCHX_REPLICA_ID=2"
    assert shared["env SHARD"] == "SHARD=s-2"
    assert "--shard=2\n2-of-3\n" in shared["arguments"]


def found_by_plugin(plugin: str, pods: Sequence[Any]) -> set[str]:
    """Return the tasks of the pods that a plugin treats as it does those that its arguments name."""
    found, listed = set(), ""
    for pod in pods:
        task, container = pod["metadata"]["labels"]["volcano.sh/task-spec"], pod["spec"]["containers"][0]
        env = {each["name"]: each.get("value", "") for each in container["env"]}
        listed += env.get("MPI_HOST", "") + json.dumps(json.loads(env.get("TF_CONFIG", "{}")).get("cluster", ""))
        ranked = "RANK" in env or pod["metadata"]["annotations"].get("hccl/rankIndex", "")
        if ranked or "MPI_HOST" in env or any("ray start" in word for word in container["command"]):
            found.add(task)
    hosts = {pod["metadata"]["labels"]["volcano.sh/task-spec"]: pod["metadata"]["name"] for pod in pods}
    return found | {task for task, host in hosts.items() if f"{host}." in listed}


@pytest.mark.parametrize("layout", ["replica", "role"])
def test_plugins_find_the_tasks_that_no_warning_names(
    api: Any, look: KubernetesCluster, namespace: str, layout: str
) -> None:
    from kubernetes import client

    named = ["--master=a-0", "--worker=b-0"]
    plugins = {
        "pytorch": named,
        "mpi": named,
        "hcclrank": named,
        "tensorflow": ["--chief=a-0", "--worker=b-0"],
        "ray": ["--head=a-0", "--worker=b-0", "--headContainer=a-0", "--workerContainer=b-0"],
    }
    base = {"image": "app:1", "entrypoint": "main", "resource": SMALL, **FAKE_NODE}
    roles = [{**base, "name": "a"}, {**base, "name": "b", "num_replicas": 2}]
    warnings = {name: launch(api, namespace, name, roles, layout, plugins={name: plugins[name]}) for name in plugins}

    def pods(name: str) -> list[Any]:
        made = look.list(POD, namespace, {JOB_NAME: name})
        return made if len(made) == 3 else []

    for name in plugins:
        made = eventually(partial(pods, name))
        assert found_by_plugin(name, made) == {"a-0", "b-0"}, name
        told = [warning for warning in warnings[name] if warning.startswith(f"plugins has {name}, ")]
        assert len(told) == (1 if layout == "replica" else 0), told
        assert all("no argument names b-1;" in warning for warning in told)
    launch(api, namespace, "open", roles, layout, plugins={"svc": ["--disable-network-policy"]})
    eventually(partial(pods, "open"))
    # Volcano's webhook adds the plugin that makes the Service, and a NetworkPolicy.
    policies = client.NetworkingV1Api(api).list_namespaced_network_policy(namespace).items
    assert {policy.metadata.name for policy in policies} == plugins.keys() - {"hcclrank"}
    for job in look.list(VOLCANO_JOB, namespace):
        name = job["metadata"]["name"]
        options = VolcanoOptions(queue="default", plugins={name if name in plugins else "svc": ()})
        assert set(job["spec"]["plugins"]) == options.all_plugins


@pytest.mark.extended
def test_pytorch_finds_all_ranks_of_two_roles(api: Any, look: KubernetesCluster, namespace: str, cluster: Any) -> None:
    if not cluster.images:
        pytest.skip("the local cluster has no real node: no container can run")
    has = Cluster.up(cluster.name, images=("busybox", "pytorch"))
    image = f"{has.registry}/layout-ddp:1"
    images.add_layer(has.images["pytorch"], {"/opt/train.py": ROOT / "examples" / "ddp" / "my-train.py"}, image)
    words = "--rdzv_backend c10d --rdzv_id ${app_id} --nnodes 5 --nproc_per_node 1"
    command = f"torchrun {words} --rdzv_endpoint $${{${{rank0_env}}:=localhost}}:29500"
    base = {
        "image": image,
        "entrypoint": "bash",
        "resource": {"cpu": 1, "memory_mb": 1500},
        "env": {"EPOCH_PAUSE_S": "0", "EPOCHS": "2", "OMP_NUM_THREADS": "1"},
    }
    roles = [
        {**base, "name": "trainer", "num_replicas": 3, "args": ["-c", f"{command} /opt/train.py"]},
        {
            **base,
            "name": "helper",
            "num_replicas": 2,
            "args": ["-c", f"echo replica ${{replica_id}}; {command} /opt/train.py"],
        },
    ]
    launch(api, namespace, "ddp", roles, "role")
    pods = ended(look, namespace, "ddp", 5, timeout_s=600)
    logs = {pod["metadata"]["name"]: log_of(api, pod) for pod in pods}
    assert set(logs) == {"ddp-trainer-0-0", "ddp-trainer-1-0", "ddp-trainer-1-1", "ddp-helper-0-0", "ddp-helper-0-1"}
    assert [f"replica {index}\n" in logs[f"ddp-helper-0-{index}"] for index in range(2)] == [True, True]
    ranks = {}
    for pod, text in logs.items():
        (rank,) = set(re.findall(r"^rank (\d+): world size 5, on", text, re.MULTILINE))
        ranks[int(rank)] = pod
        assert f"all_reduce of {int(rank) + 1} with the others: 15 (expected 15)" in text
        assert "after training all 5 ranks on 5 hosts hold the same weights: True" in text
    assert set(ranks) == set(range(5))


def test_an_overlay_reaches_the_container_of_every_replica(
    api: Any, look: KubernetesCluster, namespace: str, image: str
) -> None:
    own = {
        "name": "trainer-${replica_id}",
        "workingDir": "/tmp",
        "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}},
    }
    shm = {"name": "dshm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Mi"}}
    role = {
        "name": "trainer",
        "image": image,
        "entrypoint": "sh",
        "args": ["-c", "pwd; grep CapEff /proc/1/status; head -c 9m /dev/zero 2>&1 > /dev/shm/x || echo full"],
        "num_replicas": 3,
        "resource": SMALL,
        "pod_overlay": {"spec": {"__join__:containers:name": [own], "__join__:volumes:name": [shm]}},
    }
    for layout in ("replica", "role"):
        launch(api, namespace, layout, [role], layout)
        for pod in ended(look, namespace, layout, 3, timeout_s=180):
            folder, capabilities, *rest = log_of(api, pod).splitlines()
            assert folder == "/tmp"
            # CAP_IPC_LOCK is bit 14 (Linux: uapi/linux/capability.h), which containers lack by default.
            assert int(capabilities.split()[1], 16) >> 14 & 1, capabilities
            assert rest[-1] == "full", rest
