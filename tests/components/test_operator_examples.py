"""The examples for operators: rights that are those of the code, options that the command takes, secrets kept."""

from __future__ import annotations

import json
import runpy
import shlex
from pathlib import Path
from typing import Any

import pulumi
import pytest
import yaml
from torchx_pulumi.cli.main import _parser
from torchx_pulumi.kube.kinds import LEASE
from torchx_pulumi.schedulers.appwrapper.cluster_checks import of_app_wrapper
from torchx_pulumi.schedulers.appwrapper.kueue_observe import PERMISSIONS as KUEUE_PERMISSIONS
from torchx_pulumi.schedulers.appwrapper.objects import APP_WRAPPER_V1BETA2, CLUSTER_QUEUE, COHORT, RESOURCE_FLAVOR
from torchx_pulumi.schedulers.permissions import READING, Permission
from torchx_pulumi.schedulers.volcano.cluster_checks import PERMISSIONS
from torchx_pulumi.storage.owners import POD_VARIABLE
from torchx_pulumi_fleet.watch.watching import watch_list
from torchx_pulumi_fleet.writer.checks import check_lease

from tests.components.conftest import Engine
from tests.doc_blocks import block, commands

ROOT = Path(__file__).resolve().parents[2]
RBAC = "rbac.authorization.k8s.io/v1"
CONTROLLER = {"image": "registry.example.com/controller:1", "backends": ["s3://state"], "token": "hush-hush"}

Grant = tuple[str, str, str]


class Example:
    """What a program registered."""

    def __init__(self, engine: Engine, name: str, **config: Any) -> None:
        folder = ROOT / "examples" / name
        project = yaml.safe_load((folder / "Pulumi.yaml").read_text())
        values = {key: each["default"] for key, each in project["config"].items()} | config
        texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items()}
        pulumi.runtime.set_all_config({f"{project['name']}:{key}": text for key, text in texts.items()})
        engine.run(lambda: runpy.run_path(str(folder / "__main__.py")), project=project["name"])
        pulumi.runtime.set_all_config({})
        self.resources = engine.mocks.resources

    def all(self, token: str) -> list[dict[str, Any]]:
        return [plain(each.inputs) for each in self.resources if each.typ == f"kubernetes:{token}"]

    def one(self, token: str) -> dict[str, Any]:
        (found,) = self.all(token)
        return found

    def shown(self) -> str:
        """Return all that the state has in plain text."""
        return json.dumps([without_secrets(each.inputs) for each in self.resources])


def is_secret(value: dict[str, Any]) -> bool:
    return pulumi.runtime.rpc._special_sig_key in value


def plain(value: Any) -> Any:
    """Return inputs without the marks of secrets."""
    if isinstance(value, dict):
        return plain(value["value"]) if is_secret(value) else {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


def without_secrets(value: Any) -> Any:
    if isinstance(value, dict):
        return "[secret]" if is_secret(value) else {key: without_secrets(item) for key, item in value.items()}
    return [without_secrets(item) for item in value] if isinstance(value, list) else value


def granted(rules: list[dict[str, Any]]) -> list[Grant]:
    return sorted(
        (verb, group, resource)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    )


def grant_of(one: Permission) -> Grant:
    return one.verb, one.kind.group, f"{one.kind.plural}/{one.part}" if one.part else one.kind.plural


def watched(*, namespaced: bool) -> list[Grant]:
    """Return the kinds that a controller reads, of what is in namespaces or of the rest."""
    kinds = [kind for kind, _ in watch_list() if kind.namespaced is namespaced]
    grants = {(verb, kind.group, kind.plural) for kind in kinds for verb in ("get", "list", "watch")}
    return sorted(grants | {grant_of(one) for one in READING if one.kind.namespaced is namespaced})


UNDER_KUEUE = (*of_app_wrapper(APP_WRAPPER_V1BETA2), *KUEUE_PERMISSIONS)
QUOTA = {"cpu": 8, "memory": "8Gi", "nvidia.com/gpu": "4"}
KUEUE = "kueue.x-k8s.io/v1beta2"


@pytest.mark.parametrize(
    ("config", "needed"),
    [
        ({}, PERMISSIONS),
        ({"volcano": False, "quota": QUOTA}, UNDER_KUEUE),
        ({"quota": QUOTA}, (*PERMISSIONS, *UNDER_KUEUE)),
    ],
    ids=["Volcano", "Kueue", "both"],
)
def test_members_of_a_team_may_do_what_their_jobs_need_in_their_namespace(
    engine: Engine, config: dict[str, Any], needed: tuple[Permission, ...]
) -> None:
    made = Example(engine, "platform", team="team-a", members="team-a-users", **config)
    assert granted(made.one(f"{RBAC}:Role")["rules"]) == sorted({grant_of(one) for one in needed if not one.everywhere})
    binding = made.one(f"{RBAC}:RoleBinding")
    assert binding["roleRef"]["name"] == made.one(f"{RBAC}:Role")["metadata"]["name"]
    assert [(each["kind"], each["name"]) for each in binding["subjects"]] == [("Group", "team-a-users")]
    quotas = {grant_of(one) for one in needed if one.kind in (CLUSTER_QUEUE, COHORT, RESOURCE_FLAVOR)}
    wide = zip(made.all(f"{RBAC}:ClusterRole"), made.all(f"{RBAC}:ClusterRoleBinding"), strict=True)
    assert [(granted(role["rules"]), one["subjects"][0]["name"]) for role, one in wide] == (
        [(sorted(quotas), "team-a-users")] if quotas else []
    )


def test_a_team_gets_what_it_asks_for(engine: Engine) -> None:
    made = Example(
        engine, "platform", team="team-a", weight=2, capability={"cpu": "8"}, dockerConfigJson='{"auths": "hush-hush"}'
    )
    queue = made.one("scheduling.volcano.sh/v1beta1:Queue")
    assert (queue["metadata"]["name"], queue["spec"]) == ("team-a", {"weight": 2, "capability": {"cpu": "8"}})
    secret, account = made.one("core/v1:Secret"), made.one("core/v1:ServiceAccount")
    assert account["imagePullSecrets"] == [{"name": secret["metadata"]["name"]}]
    assert secret["stringData"] == {".dockerconfigjson": '{"auths": "hush-hush"}'}
    assert {each["metadata"]["namespace"] for each in (secret, account)} == {"team-a"}


def test_a_quota_is_that_of_the_queue_of_the_team_and_of_its_namespace_only(engine: Engine) -> None:
    flavor = {"nodeLabels": {"pool": "gpu"}}
    made = Example(engine, "platform", team="team-a", volcano=False, quota=QUOTA, flavor=flavor)
    assert made.all("scheduling.volcano.sh/v1beta1:Queue") == []
    kinds = ("ResourceFlavor", "ClusterQueue", "LocalQueue", "WorkloadPriorityClass")
    found = {kind: made.one(f"{KUEUE}:{kind}") for kind in kinds}
    assert {each["metadata"]["name"] for each in found.values()} == {"team-a"}
    assert found["ResourceFlavor"]["spec"] == flavor
    queue = found["ClusterQueue"]["spec"]
    assert queue["namespaceSelector"] == {"matchLabels": {"kubernetes.io/metadata.name": "team-a"}}
    (group,) = queue["resourceGroups"]
    assert group["coveredResources"] == [*QUOTA]
    resources = [{"name": name, "nominalQuota": str(most)} for name, most in QUOTA.items()]
    assert group["flavors"] == [{"name": "team-a", "resources": resources}]
    assert found["LocalQueue"]["metadata"]["namespace"] == "team-a"
    assert found["LocalQueue"]["spec"] == {"clusterQueue": "team-a"}
    assert found["WorkloadPriorityClass"]["value"] == 1000


def test_a_team_that_asks_for_nothing_gets_no_secret_and_no_binding(engine: Engine) -> None:
    made = Example(engine, "platform")
    assert made.one("scheduling.volcano.sh/v1beta1:Queue")["spec"] == {"weight": 1}
    assert made.one("core/v1:ServiceAccount")["imagePullSecrets"] == []
    assert made.all("core/v1:Secret") == made.all(f"{RBAC}:RoleBinding") == made.all(f"{KUEUE}:LocalQueue") == []


def test_the_template_of_the_platform_is_the_example() -> None:
    for name in ("__main__.py", "requirements.txt"):
        assert (ROOT / "templates/platform" / name).read_text() == (ROOT / "examples/platform" / name).read_text()


def roles(made: Example) -> dict[str, list[Grant]]:
    """Return the grants of each ClusterRole, by the last part of its name."""
    found = made.all(f"{RBAC}:ClusterRole")
    return {each["metadata"]["name"].rpartition(":")[2]: granted(each["rules"]) for each in found}


def bound(made: Example, kind: str) -> list[tuple[str | None, str]]:
    """Return the namespace of each binding, and the last part of the name of its role."""
    return sorted(
        (each["metadata"].get("namespace"), each["roleRef"]["name"].rpartition(":")[2])
        for each in made.all(f"{RBAC}:{kind}")
    )


def test_the_controller_may_read_what_it_watches_and_change_its_own_lease_only(engine: Engine) -> None:
    made = Example(engine, "controller", **CONTROLLER)
    assert roles(made) == {"apps": watched(namespaced=True), "cluster": watched(namespaced=False)}
    (rule,) = made.one(f"{RBAC}:Role")["rules"]
    name = made.one("coordination.k8s.io/v1:Lease")["metadata"]["name"]
    assert granted([rule]) == [("get", LEASE.group, LEASE.plural), ("update", LEASE.group, LEASE.plural)]
    assert rule["resourceNames"] == [name]


def test_a_controller_of_some_namespaces_reads_apps_in_those_only(engine: Engine) -> None:
    made = Example(engine, "controller", **CONTROLLER)
    assert bound(made, "ClusterRoleBinding") == [(None, "apps"), (None, "cluster")]
    made = Example(engine, "controller", **CONTROLLER, namespaces=["team-a", "team-b"])
    assert bound(made, "ClusterRoleBinding") == [(None, "cluster")]
    own = ("torchx-control", "torchx-controller")
    assert bound(made, "RoleBinding") == [("team-a", "apps"), ("team-b", "apps"), own]


def test_all_rights_are_those_of_the_account_of_the_pods(engine: Engine) -> None:
    made = Example(engine, "controller", **CONTROLLER, namespaces=["team-a"])
    account = made.one("core/v1:ServiceAccount")["metadata"]
    assert pod_of(made)["serviceAccountName"] == account["name"]
    for kind in ("RoleBinding", "ClusterRoleBinding"):
        for each in made.all(f"{RBAC}:{kind}"):
            assert each["subjects"] == [
                {"kind": "ServiceAccount", "name": account["name"], "namespace": account["namespace"]}
            ]


def pod_of(made: Example) -> dict[str, Any]:
    return dict(made.one("apps/v1:Deployment")["spec"]["template"]["spec"])


def test_the_command_takes_all_options(engine: Engine) -> None:
    made = Example(
        engine,
        "controller",
        **CONTROLLER,
        namespace="control",
        namespaces=["team-a"],
        logArchive="/state/logs",
        archiveAllow=["s3://team"],
        allowedHosts=["jobs.example.com"],
        volumeClaim="claim",
    )
    (container,) = pod_of(made)["containers"]
    given = _parser(["controller"]).parse_args(container["args"])
    assert (given.backend, given.namespace) == (["s3://state"], ["team-a"])
    assert (given.log_archive, given.archive_allow) == ("/state/logs", ["s3://team"])
    assert given.listen == f"0.0.0.0:{int(container['ports'][0]['containerPort'])}"
    lease = made.one("coordination.k8s.io/v1:Lease")["metadata"]
    assert check_lease(given.lease, once=given.once) == ([], (lease["namespace"], lease["name"]))
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    (key,) = next(each for each in made.all("core/v1:Secret") if "token" in each["stringData"])["stringData"]
    assert given.token_file == f"{mounts['token']}/{key}"
    service = made.one("core/v1:Service")["metadata"]["name"]
    assert {service, f"{service}.control", f"{service}.control.svc", "jobs.example.com"} < {*given.allowed_host}
    assert POD_VARIABLE in {each["name"] for each in container["env"]}
    volumes = {each["name"]: each for each in pod_of(made)["volumes"]}
    assert volumes.keys() == mounts.keys()
    assert volumes["state"]["persistentVolumeClaim"] == {"claimName": "claim"}


def test_two_pods_are_selected_by_all_that_is_about_them(engine: Engine) -> None:
    made = Example(engine, "controller", **CONTROLLER)
    spec = made.one("apps/v1:Deployment")["spec"]
    labels = spec["template"]["metadata"]["labels"]
    assert spec["replicas"] == 2
    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert spec["selector"]["matchLabels"] == labels == made.one("core/v1:Service")["spec"]["selector"]
    budget = made.one("policy/v1:PodDisruptionBudget")["spec"]
    assert (budget["maxUnavailable"], budget["selector"]["matchLabels"]) == (1, labels)


def test_the_pods_run_without_root_rights_or_a_writable_root(engine: Engine) -> None:
    pod = pod_of(Example(engine, "controller", **CONTROLLER))
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["containers"][0]["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    user = int(pod["securityContext"]["runAsUser"])
    assert f"USER {user}:{user}\n" in (ROOT / "examples/controller/Dockerfile").read_text()


@pytest.mark.parametrize("credentials", [{}, {"AWS_SECRET_ACCESS_KEY": "hush-too"}], ids=["none", "some"])
def test_token_and_credentials_are_secret_in_the_state(engine: Engine, credentials: dict[str, str]) -> None:
    made = Example(engine, "controller", **CONTROLLER, **({"credentials": credentials} if credentials else {}))
    assert [each["stringData"] for each in made.all("core/v1:Secret")] == [{"token": "hush-hush"}, credentials]
    assert "hush" not in made.shown()


def test_the_configuration_of_the_page_is_that_of_the_example(engine: Engine) -> None:
    config = yaml.safe_load(block("docs/controller-deployment.md", "deployment"))["config"]
    given = {key.removeprefix("torchx-controller:"): value for key, value in config.items()}
    made = Example(engine, "controller", token="hush-hush", **given)
    for value in given.values():
        for each in value if isinstance(value, list) else [value]:
            assert each in made.shown(), each


def test_the_commands_of_the_page_build_the_image_of_its_configuration() -> None:
    build, push = (shlex.split(line) for line in commands("docs/controller-deployment.md", "first"))
    image = yaml.safe_load(block("docs/controller-deployment.md", "deployment"))["config"]["torchx-controller:image"]
    dockerfile = build[build.index("-f") + 1]
    assert build[build.index("-t") + 1] == push[-1] == image
    text = (ROOT / dockerfile).read_text()
    assert shlex.join(build) in text
    copied = [name for line in text.splitlines() if line.startswith("COPY ") for name in line.split()[1:-1]]
    assert [name for name in copied if not (ROOT / name).exists()] == []
