"""A service account that holds exactly the documented Role works on its jobs; and what a look costs on the wire."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from torchx import specs
from torchx_pulumi.apps.variants import find_variant
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.kube.kinds import POD
from torchx_pulumi.kube.transport import ApiRequest
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.schedulers.appwrapper.objects import APP_WRAPPER
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB
from torchx_pulumi.torchx_adapter.context import AdapterContext
from torchx_pulumi.torchx_adapter.scheduler import PulumiScheduler
from torchx_pulumi_fleet import read_fleet
from torchx_pulumi_stacks.entrypoints import make_driver

from tests.doc_blocks import block
from tests.e2e.project import eventually

pytestmark = pytest.mark.e2e

ROLE = yaml.safe_load(block("docs/permissions.md", "role"))
"""The Role of the documentation."""

APP_WRAPPERS = {**ROLE["rules"][0], "apiGroups": ["workload.codeflare.dev"], "resources": ["appwrappers"]}
RULES = {"volcano": ROLE["rules"], "mcad": [APP_WRAPPERS, *ROLE["rules"][2:]]}
HEADS = {"volcano": VOLCANO_JOB, "mcad": APP_WRAPPER}


class Counted:
    """A wire that counts its requests."""

    def __init__(self, wire: Any, asked: list[str]) -> None:
        self._transport = wire
        self._asked = asked

    def request(self, request: ApiRequest) -> Any:
        self._asked.append(f"{request.method} {request.path}")
        return self._transport.request(request)


class World:
    """One namespace, seen by its administrator and by a user who has the documented Role."""

    def __init__(self, admin: Path, user: Path, namespace: str) -> None:
        self.admin, self.user, self.namespace = admin, user, namespace
        self.asked: list[str] = []
        self._kept: dict[str, KubernetesCluster] = {}
        self._guard = threading.Lock()

    def connect(self, path: Path) -> Callable[..., KubernetesCluster]:
        def connect(_kubeconfig: str | None, _context: str | None) -> KubernetesCluster:
            with self._guard:
                if str(path) not in self._kept:
                    made = KubernetesCluster.connect(str(path))
                    wire = made._transport
                    made._transport = lambda: Counted(wire(), self.asked)
                    self._kept[str(path)] = made
                return self._kept[str(path)]

        return connect

    def scheduler(self, kind: str, path: Path) -> PulumiScheduler:
        return PulumiScheduler(kind, "torchx", AdapterContext(make_driver=make_driver, connect=self.connect(path)))

    def count(self, call: Callable[[], Any]) -> list[str]:
        """Return the requests that a call makes."""
        del self.asked[:]
        call()
        return [*self.asked]


@pytest.fixture
def world(
    e2e_env: dict[str, str], namespace: str, kubeconfig: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> World:
    user = tmp_path / "user.json"
    for name in ("PATH", "PYTHONPATH"):
        monkeypatch.setenv(name, e2e_env[name])
    for name in ("PULUMI_BACKEND_URL", "PULUMI_CONFIG_PASSPHRASE", "PULUMI_CONFIG_PASSPHRASE_FILE", "TORCHXCONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("KUBECONFIG", str(user))
    monkeypatch.chdir(tmp_path)
    return World(kubeconfig, user, namespace)


def become_user(world: World, kind: str) -> None:
    """Write the kubeconfig of a service account that may do what the Role says, and nothing else."""
    from kubernetes import client, config

    namespace = world.namespace
    with config.new_client_from_config(str(world.admin)) as api:
        core, rights = client.CoreV1Api(api), client.RbacAuthorizationV1Api(api)
        core.create_namespaced_service_account(namespace, {"metadata": {"name": "user"}})
        rights.create_namespaced_role(namespace, {**ROLE, "rules": RULES[kind]})
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": ROLE["metadata"]["name"]}
        subject = {"kind": "ServiceAccount", "name": "user", "namespace": namespace}
        rights.create_namespaced_role_binding(
            namespace, {"metadata": {"name": "user"}, "roleRef": role, "subjects": [subject]}
        )
        asked = {"spec": {"expirationSeconds": 3600}}
        token = core.create_namespaced_service_account_token("user", namespace, asked).status.token
    whole = yaml.safe_load(world.admin.read_text())
    users = [{**item, "user": {"token": token}} for item in whole["users"]]
    world.user.write_text(json.dumps({**whole, "users": users}))
    user = KubernetesCluster.connect(str(world.user))
    # The API server learns of a role by a watch of its own.
    eventually(lambda: user.allowed("create", HEADS[kind], namespace))


def app(image: str) -> Any:
    role = specs.Role(
        name="trainer",
        image=image,
        entrypoint="sh",
        args=["-c", "trap 'exit 143' TERM; echo hello; sleep 600 & wait"],
        num_replicas=2,
        resource=specs.Resource(cpu=1, gpu=0, memMB=64, devices={}),
    )
    return specs.AppDef(name="train", roles=[role])


def options(namespace: str, kind: str, **more: Any) -> dict[str, Any]:
    queue = {"queue": "default"} if kind == "volcano" else {}
    return {"namespace": namespace, "reserved_millicpu": 980, "reserved_memmb": 48, **queue, **more}


def state_of(scheduler: PulumiScheduler, app_id: str) -> str:
    return str(scheduler.describe(app_id).state)


def both_run(look: KubernetesCluster, namespace: str) -> bool:
    """Return whether both replicas run. A status makes more requests as long as one does not."""
    pods = [pod.get("status") or {} for pod in look.list(POD, namespace)]
    ready = [each.get("ready") for status in pods for each in status.get("containerStatuses") or ()]
    return [status.get("phase") for status in pods] == ["Running"] * 2 and ready == [True] * 2


def log_of(scheduler: PulumiScheduler, app_id: str) -> str:
    """Return the log of the second replica. Empty: its container has not started, although the job runs."""
    try:
        return "".join(scheduler.log_iter(app_id, "trainer", 1))
    except ClusterError as error:
        if error.reason != "NotStarted":
            raise
        return ""


@pytest.mark.parametrize("kind", ["volcano", pytest.param("mcad", marks=pytest.mark.mcad)])
def test_the_documented_role_is_enough_from_launch_to_delete(
    world: World, cluster: Any, look: KubernetesCluster, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    if kind == "mcad" and "mcad" not in cluster.settings.features:
        pytest.skip("the cluster has no MCAD")
    become_user(world, kind)
    user = world.scheduler(kind, world.user)
    with caplog.at_level(logging.WARNING):
        app_id = user.schedule(user.submit_dryrun(app(cluster.images["busybox"]), options(world.namespace, kind)))
        eventually(lambda: state_of(user, app_id) == "RUNNING")
        eventually(lambda: "hello" in log_of(user, app_id))
        eventually(lambda: both_run(look, world.namespace))
        refused = [text for text in caplog.messages if "no permission to" in text]
        assert any("list pods" in text for text in refused)
        assert len(refused) == len(set(refused))
        # After the second refusal, pods are not asked for again for 20 s; a look at the end of such a time asks once
        # more. Of a Volcano job that runs, its own counts are enough.
        wanted = 1 if kind == "volcano" else 3
        looks = [world.count(lambda: user.describe(app_id)) for _ in range(5)]
        assert wanted in map(len, looks), looks
        assert sorted(map(len, looks))[-2] <= wanted, looks
        admin = world.scheduler(kind, world.admin)
        assert costs(world, admin, app_id, kind) == {"describe": 2, "look": 2, "fleet": 2}
        user.cancel(app_id)
        eventually(lambda: state_of(user, app_id) == "CANCELLED")
        user.delete(app_id)
    assert look.list(HEADS[kind], world.namespace) == []
    for scheduler in (user, admin):
        scheduler.close()


def costs(world: World, scheduler: PulumiScheduler, app_id: str, form: str) -> dict[str, int]:
    """Return how many requests each way of looking at a healthy job makes."""
    cluster = world.connect(world.admin)(None, None)
    choice = {"volcano": ("volcano", "job"), "mcad": ("mcad", "v1beta1"), "pods": ("volcano", "pods")}[form]
    looking = find_variant(*choice)
    namespace, _, name = app_id.partition(":")

    def fleet() -> None:
        found = read_fleet(live=True, connect=world.connect(world.admin))
        assert [(row.app_id, row.state) for row in found.rows] == [(app_id, "RUNNING")], found

    ways = {
        "describe": lambda: scheduler.describe(app_id),
        "look": lambda: looking.observe(cluster, namespace, name),
        "fleet": fleet,
    }
    return {name: len(world.count(way)) for name, way in ways.items()}


def test_a_look_at_a_healthy_gang_of_pods_takes_two_requests_and_pods_that_are_deleted_count(
    world: World, cluster: Any, look: KubernetesCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(world.admin))
    scheduler = world.scheduler("volcano", world.admin)
    given = options(world.namespace, "volcano", gang="pods")
    app_id = scheduler.schedule(scheduler.submit_dryrun(app(cluster.images["busybox"]), given))
    try:
        eventually(lambda: state_of(scheduler, app_id) == "RUNNING")
        eventually(lambda: both_run(look, world.namespace))
        assert costs(world, scheduler, app_id, "pods") == {"describe": 2, "look": 2, "fleet": 2}
        first, last = (str(pod["metadata"]["name"]) for pod in look.list(POD, world.namespace))
        look.delete(POD, world.namespace, first)
        eventually(lambda: look.get(POD, world.namespace, first) is None)
        left = scheduler.describe(app_id)
        # The gang needs both, and nothing makes the pod again.
        assert (str(left.state), "1 of 2 pods were deleted" in left.msg) == ("FAILED", True)
        look.delete(POD, world.namespace, last)
        eventually(lambda: look.get(POD, world.namespace, last) is None)
        assert state_of(scheduler, app_id) == "FAILED"
    finally:
        scheduler.delete(app_id)
        scheduler.close()
