"""The example for a team: real objects, nothing changed by a second run, secrets kept, nothing left."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.kube.kinds import NAMESPACE, PRIORITY_CLASS, SECRET, SERVICE_ACCOUNT, Kind
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_QUEUE

from tests.e2e.project import changes
from tests.e2e.stack_project import StackProject

pytestmark = pytest.mark.e2e

ROLE_BINDING = Kind(group="rbac.authorization.k8s.io", version="v1", kind="RoleBinding", plural="rolebindings")
AUTH = json.dumps({"auths": {"registry.example.com": {"auth": base64.b64encode(b"me:hush-hush").decode()}}})


@pytest.fixture
def platform(tmp_path: Path, e2e_env: dict[str, str], namespace: str) -> Iterator[StackProject]:
    root = tmp_path / "root"
    root.mkdir()
    made = StackProject(root, e2e_env, f"{namespace}-team", place="examples/platform", config_dir="examples/platform")
    yield made
    made.destroy()


def test_a_team_gets_all_that_its_jobs_need(platform: StackProject, look: KubernetesCluster) -> None:
    name = platform.namespace
    platform.configure(team=name, weight=2, capability={"cpu": "8"}, members="team-users")
    platform.run("config", "set", "--secret", "dockerConfigJson", AUTH)
    platform.run("preview")
    platform.up()
    assert look.get(NAMESPACE, None, name) is not None
    queue = look.get(VOLCANO_QUEUE, None, name)
    assert queue is not None
    assert (queue["spec"]["weight"], queue["spec"]["capability"]) == (2, {"cpu": "8"})
    priority = look.get(PRIORITY_CLASS, None, name)
    assert priority is not None
    assert priority["value"] == 1000
    account = look.get(SERVICE_ACCOUNT, name, "trainer")
    assert account is not None
    assert account["imagePullSecrets"] == [{"name": "registry"}]
    secret = look.get(SECRET, name, "registry")
    assert secret is not None
    assert (secret["type"], base64.b64decode(secret["data"][".dockerconfigjson"]).decode()) == (
        "kubernetes.io/dockerconfigjson",
        AUTH,
    )
    binding = look.get(ROLE_BINDING, name, "torchx-users")
    assert binding is not None
    assert [each["name"] for each in binding["subjects"]] == ["team-users"]
    assert changes(platform.up()).keys() == {"unchanged"}
    assert platform.output("queue") == platform.output("namespace") == name
    state = json.dumps(platform.resources())
    for leak in ("hush-hush", base64.b64encode(b"me:hush-hush").decode(), base64.b64encode(AUTH.encode()).decode()):
        assert leak not in state
    platform.destroy()
    assert look.get(VOLCANO_QUEUE, None, name) is None
    assert look.get(NAMESPACE, None, name) is None
    assert look.get(PRIORITY_CLASS, None, name) is None
