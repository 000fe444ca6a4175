"""The controller of the platform program: its objects, its rights, and what of it is secret."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from torchx_pulumi.kube.kinds import NAMESPACE, POD, SERVICE_ACCOUNT
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.labels import OWNER
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB
from torchx_pulumi.testing import FakeCluster
from torchx_pulumi_components.cluster_access import cluster_for_tests
from torchx_pulumi_components.stack_state import STASH
from torchx_pulumi_stacks.controller_config import ControllerConfig
from torchx_pulumi_stacks.controller_deployment import lease_rules, roles_of
from torchx_pulumi_stacks.controller_image import requirements
from torchx_pulumi_stacks.platform import PlatformConfig, deploy

from tests.components.conftest import Engine

CONFIG = ControllerConfig(backends=["s3://state"], image="registry.example.com/controller:1")

EVERYTHING = replace(
    CONFIG,
    name="watcher",
    replicas=3,
    backends=["s3://state", "file:///state", "s3://state"],
    backend_credentials={"AWS_SECRET_ACCESS_KEY": "hush-hush"},
    volume_claim="claim",
    fs_group=1000,
    namespaces=["team-a", "team-b"],
    program_stacks=True,
    log_archive="/state/logs",
    archive_allow=["/state/team", "s3://team"],
    archive_secret_pods=True,
    forget_after="30d",
    forget_failed_after="90d",
    port=9000,
    allowed_hosts=["jobs.example.com"],
    resources={"limits": {"memory": "1Gi"}},
    node_selector={"kubernetes.io/arch": "arm64"},
    tolerations=[{"key": "control", "operator": "Exists"}],
    priority_class_name="high",
    service_account_annotations={"eks.amazonaws.com/role-arn": "r"},
)


def deployed(engine: Engine, config: ControllerConfig, **platform: Any) -> Callable[[str], dict[str, Any]]:
    """Run the program and return a function from a kind's token to the inputs of its only object."""
    engine.run(lambda: deploy(PlatformConfig(controller=config, **platform)))
    return lambda token: plain(engine.mocks.one(f"kubernetes:{token}").inputs)


def plain(value: Any) -> Any:
    """Return inputs without the marks of secrets."""
    if isinstance(value, dict):
        return (
            plain(value["value"]) if "value" in value and len(value) == 2 else {k: plain(v) for k, v in value.items()}
        )
    return [plain(item) for item in value] if isinstance(value, list) else value


def container(made: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    (found,) = made("apps/v1:Deployment")["spec"]["template"]["spec"]["containers"]
    return dict(found)


@pytest.mark.parametrize("owner", ["this stack", "another stack"])
def test_what_a_killed_deployment_made_is_imported_if_it_has_the_mark(engine: Engine, owner: str) -> None:
    config = PlatformConfig(namespace="team", create_namespace=True, service_account="trainer")
    engine.run(lambda: deploy(config))
    namespace = plain(engine.mocks.one("kubernetes:core/v1:Namespace").inputs)
    if owner == "another stack":
        namespace["metadata"]["labels"][OWNER] = "another"
    # The engine has noted the stack, and was killed before it made the service account.
    engine.mocks.state = {"urn:pulumi:dev::proj::pulumi:pulumi:Stack::proj-dev": {}}
    with cluster_for_tests(FakeCluster([namespace], served=[NAMESPACE, SERVICE_ACCOUNT])):
        engine.run(lambda: deploy(config))
    assert engine.mocks.one("kubernetes:core/v1:Namespace").resource_id == ("team" if owner == "this stack" else "")
    assert engine.mocks.one("kubernetes:core/v1:ServiceAccount").resource_id == ""


def test_objects_in_the_state_are_not_looked_for(engine: Engine) -> None:
    engine.mocks.state = {"urn:pulumi:dev::proj::kubernetes:core/v1:Namespace::namespace": {}}
    with cluster_for_tests(FakeCluster(error=ClusterError("it does not answer"))):
        engine.run(lambda: deploy(PlatformConfig(namespace="team", create_namespace=True)))
    assert engine.mocks.one("kubernetes:core/v1:Namespace").resource_id == ""


def test_the_least_deployment(engine: Engine) -> None:
    made = deployed(engine, CONFIG, namespace="control")
    deployment = made("apps/v1:Deployment")
    assert deployment["metadata"]["name"] == "torchx-controller"
    assert deployment["metadata"]["namespace"] == "control"
    spec = deployment["spec"]
    assert spec["replicas"] == 2
    assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
    assert container(made)["command"] == ["torchx-pulumi"]
    assert container(made)["args"] == [
        *("controller", "--listen", "0.0.0.0:8080", "--token-file", "/run/secrets/torchx-pulumi/token"),
        *("--lease", "control/torchx-controller", "--backend", "s3://state"),
        *("--allowed-host", "torchx-controller", "--allowed-host", "torchx-controller.control"),
        *("--allowed-host", "torchx-controller.control.svc"),
        *("--allowed-host", "torchx-controller.control.svc.cluster.local"),
    ]
    assert "envFrom" not in container(made)
    assert {
        "name": "TORCHX_PULUMI_POD_UID",
        "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}},
    } in container(made)["env"]
    service = made("core/v1:Service")["spec"]
    assert (service["selector"], service["ports"][0]["port"]) == (spec["selector"]["matchLabels"], 8080)
    budget = made("policy/v1:PodDisruptionBudget")["spec"]
    assert (budget["maxUnavailable"], budget["selector"]["matchLabels"]) == (1, service["selector"])
    account = made("core/v1:ServiceAccount")["metadata"]
    assert account["name"] == spec["template"]["spec"]["serviceAccountName"]
    assert made("coordination.k8s.io/v1:Lease")["metadata"]["name"] == "torchx-controller"
    assert made("rbac.authorization.k8s.io/v1:RoleBinding")["roleRef"]["name"] == "torchx-controller-lease"


def test_the_pods_run_without_root_rights_or_a_writable_root(engine: Engine) -> None:
    made = deployed(engine, CONFIG)
    pod = made("apps/v1:Deployment")["spec"]["template"]["spec"]
    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "fsGroup": 65532,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert container(made)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod["enableServiceLinks"] is False


def test_everything_that_is_asked_for_arrives(engine: Engine) -> None:
    made = deployed(engine, EVERYTHING, namespace="control", pull_secret="registry")
    pod = made("apps/v1:Deployment")["spec"]["template"]["spec"]
    words = container(made)["args"]
    assert words.count("--backend") == 2
    for pair in (
        *(["--backend", "file:///state"], ["--namespace", "team-a"], ["--namespace", "team-b"]),
        *(["--archive-allow", "/state/team"], ["--archive-allow", "s3://team"]),
        *(["--log-archive", "/state/logs"], ["--forget-after", "30d"], ["--forget-failed-after", "90d"]),
        *(["--allowed-host", "jobs.example.com"], ["--lease", "control/watcher"], ["--listen", "0.0.0.0:9000"]),
    ):
        assert pair in [words[index : index + 2] for index in range(len(words))], pair
    assert {"--program-stacks", "--archive-secret-pods"} < {*words}
    assert pod["securityContext"]["fsGroup"] == 1000
    assert {"name": "state", "persistentVolumeClaim": {"claimName": "claim"}} in pod["volumes"]
    assert {"name": "state", "mountPath": "/state"} in container(made)["volumeMounts"]
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    assert (pod["nodeSelector"], pod["tolerations"]) == (EVERYTHING.node_selector, EVERYTHING.tolerations)
    assert pod["priorityClassName"] == "high"
    assert container(made)["resources"] == {"limits": {"memory": "1Gi"}}
    assert container(made)["envFrom"][0]["secretRef"]["name"]
    account = made("core/v1:ServiceAccount")["metadata"]
    assert account["annotations"] == {"eks.amazonaws.com/role-arn": "r"}


def test_one_replica_may_be_evicted(engine: Engine) -> None:
    deployed(engine, replace(CONFIG, replicas=1))
    assert not engine.mocks.of_type("kubernetes:policy/v1:PodDisruptionBudget")


def test_token_and_credentials_are_secret_in_the_state(engine: Engine) -> None:
    deployed(engine, EVERYTHING)
    stash = engine.mocks.one(STASH).inputs
    token = plain(stash["input"])
    assert len(token) >= 32
    for resource in engine.mocks.resources:
        for secret in ("hush-hush", token):
            assert secret not in json.dumps(without_secrets(resource.inputs)), resource.name
    held = [plain(each.inputs)["stringData"] for each in engine.mocks.of_type("kubernetes:core/v1:Secret")]
    assert sorted(held, key=str) == sorted([{"AWS_SECRET_ACCESS_KEY": "hush-hush"}, {"token": token}], key=str)


def without_secrets(value: Any) -> Any:
    if isinstance(value, dict):
        marked = "value" in value and len(value) == 2
        return "[secret]" if marked else {key: without_secrets(item) for key, item in value.items()}
    return [without_secrets(item) for item in value] if isinstance(value, list) else value


def test_existing_secrets_are_used_and_none_is_made(engine: Engine) -> None:
    made = deployed(engine, replace(CONFIG, token_secret="page", backend_secret="store", image_pull_secret="own"))
    pod = made("apps/v1:Deployment")["spec"]["template"]["spec"]
    assert [each["secret"]["secretName"] for each in pod["volumes"] if "secret" in each] == ["page"]
    assert container(made)["envFrom"] == [{"secretRef": {"name": "store"}}]
    assert pod["imagePullSecrets"] == [{"name": "own"}]
    assert not engine.mocks.of_type("kubernetes:core/v1:Secret")
    assert not engine.mocks.of_type(STASH)


def granted(rules: list[dict[str, Any]]) -> set[tuple[str, str]]:
    return {(verb, resource) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}


def test_with_namespaces_only_what_is_in_none_is_granted_everywhere() -> None:
    everywhere = {place: rules for place, _, rules in roles_of(CONFIG, "control")}
    assert everywhere.keys() == {"control", None}
    inside = {place: rules for place, _, rules in roles_of(replace(CONFIG, namespaces=["a", "b"]), "control")}
    assert inside.keys() == {"control", None, "a", "b"}
    assert granted(inside[None]) | granted(inside["a"]) == granted(everywhere[None])
    assert inside["a"] == inside["b"]
    assert {resource for _, resource in granted(inside[None])} == {"namespaces", "nodes", "queues"}


def test_controllers_of_different_namespaces_have_different_cluster_roles() -> None:
    def names(namespace: str, name: str) -> set[str]:
        return {role for _, role, _ in roles_of(replace(CONFIG, name=name), namespace) if not role.endswith("-lease")}

    assert not names("team-a", "b") & names("team", "a-b")


def test_nothing_may_be_changed_but_the_own_lease_unless_apps_are_forgotten() -> None:
    def changing(config: ControllerConfig) -> set[tuple[str, str]]:
        return {
            (verb, resource)
            for _, _, rules in roles_of(config, "control")
            for verb, resource in granted(rules)
            if verb not in ("get", "list", "watch")
        }

    assert changing(CONFIG) == changing(replace(CONFIG, namespaces=["a"])) == {("update", "leases")}
    assert [rule["resourceNames"] for rule in lease_rules("watcher")] == [["watcher"]]
    forgets = changing(replace(CONFIG, forget_after="30d")) - {("update", "leases")}
    assert {verb for verb, _ in forgets} == {"delete"}
    assert {("delete", VOLCANO_JOB.plural), ("delete", POD.plural)} <= forgets


def test_the_image_has_no_library_of_the_engine() -> None:
    names = {line.split(">")[0].split("<")[0] for line in requirements(["s3://state", "/logs"])}
    assert {"uvicorn", "starlette", "prometheus-client", "pyyaml", "s3fs"} <= names
    assert names.isdisjoint({"pulumi", "pulumi-kubernetes", "torchx", "gcsfs", "pytest", "docker"})
    assert "gcsfs" in {*requirements(["gs://state"])}


def test_the_controller_needs_no_library_of_the_engine() -> None:
    program = (
        "import sys\n"
        "for name in ('pulumi', 'pulumi_kubernetes', 'grpc', 'torchx', 'kubernetes'): sys.modules[name] = None\n"
        "import torchx_pulumi.controller, torchx_pulumi.web, torchx_pulumi_stacks.console\n"
        "from torchx_pulumi_stacks.console import _make_driver\n"
        "_make_driver().close()\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, env={"PYTHONPATH": ":".join(sys.path)})
