"""The samples for the Pulumi Kubernetes Operator, run as its workspace pods do: `pulumi install`, `up` with refresh."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB

from tests.e2e.project import Project, changes, eventually
from tests.e2e.stack_project import ROOT
from tools.release import version_of

pytestmark = [pytest.mark.e2e, pytest.mark.extended]

SAMPLES = ROOT / "examples" / "operator"


def documents(name: str, namespace: str) -> dict[str, Any]:
    """Return the objects of a sample by kind, in a namespace of the test's own."""
    text = (SAMPLES / name).read_text().replace("training", namespace)
    return {each["kind"]: each for each in yaml.safe_load_all(text)}


@pytest.fixture
def account(kubeconfig: Path, namespace: str, tmp_path: Path) -> Path:
    """Kubeconfig of the account of the workspace pod."""
    from kubernetes import client, config, utils

    with config.new_client_from_config(str(kubeconfig)) as api:
        found = documents("access.yaml", namespace)
        for each in found.values():
            utils.create_from_dict(api, each)
        path = tmp_path / "workspace.json"
        content = yaml.safe_load(kubeconfig.read_text())
        for user in content["users"]:
            user["user"]["as"] = f"system:serviceaccount:{namespace}:{found['ServiceAccount']['metadata']['name']}"
        path.write_text(json.dumps(content))
        yield path
        client.RbacAuthorizationV1Api(api).delete_cluster_role_binding(found["ClusterRoleBinding"]["metadata"]["name"])


@pytest.fixture
def workspace(
    tmp_path: Path,
    account: Path,
    e2e_env: dict[str, str],
    namespace: str,
    image: str,
    make_project: Callable[..., Project],
) -> Project:
    """The project that the operator makes of the Program, with the plugin where the image has it."""
    from tools.bootstrap import pulumi_environment

    plugin = tmp_path / "home" / "plugins" / f"resource-torchx-v{version_of(ROOT)}" / "pulumi-resource-torchx"
    plugin.parent.mkdir(parents=True)
    plugin.symlink_to(Path(sys.prefix) / "bin" / "pulumi-resource-torchx")
    path = pulumi_environment(languages=("python", "yaml"))["PATH"]
    e2e_env |= {"PATH": path, "PULUMI_HOME": str(tmp_path / "home"), "KUBECONFIG": str(account)}
    found = documents("job.yaml", namespace)
    project = make_project("workspace", runtime="yaml")
    program = json.loads(json.dumps(found["Program"]["program"]).replace("busybox:1.36", image))
    text = json.dumps({"name": "workspace", "runtime": "yaml", **program})
    (project.folder / "Pulumi.yaml").write_text(text)
    return project


def test_the_job_runs_once(workspace: Project, look: KubernetesCluster) -> None:
    workspace.run("install")

    def update() -> dict[str, int]:
        return changes(workspace.up("--refresh"))

    def job() -> Any:
        return look.get(VOLCANO_JOB, workspace.namespace, workspace.output("app_handle").rpartition(":")[2])

    update()
    uid = job()["metadata"]["uid"]
    eventually(lambda: job()["status"]["state"]["phase"] == "Completed")
    update()
    assert (job()["metadata"]["uid"], workspace.output("state")) == (uid, "SUCCEEDED")
    look.delete(VOLCANO_JOB, workspace.namespace, job()["metadata"]["name"])
    eventually(lambda: job() is None)
    for _ in range(2):
        update()
        assert (job(), workspace.output("state")) == (None, "SUCCEEDED")
