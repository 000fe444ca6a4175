"""An image that a pod makes: no daemon, no Docker configuration, the credentials of its service account's pull secrets.

Real: the pod runs on the real node with this checkout's packages, the registry wants a login, the API server decides
what the service account may read.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torchx_pulumi
from torchx_pulumi.images import patch_image
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.kube.kinds import POD

from tests.e2e.project import eventually
from tests.e2e.python_images import fetch
from tests.e2e.registry_images import layer, manifest_of, put_image
from tools.local_registry import PASSWORD, USER, LocalRegistry

pytestmark = pytest.mark.e2e

NEEDED = ("certifi", "filelock", "psutil", "pyyaml", "typing-extensions", "urllib3")
"""What images need of the dependencies."""

PROGRAM = """
import json, os, shutil, sys
from pathlib import Path
assert shutil.which("docker") is None and not Path.home().joinpath(".docker").exists()
code = Path("/tmp/code")
code.mkdir()
code.joinpath("train.py").write_text("print('from a pod')")
from torchx_pulumi.images import patch_image, plan_patch
from torchx_pulumi.model.errors import ImageError
registry = sys.argv[1]
try:
    plan = plan_patch(f"{registry}/base:1", str(code), f"{registry}/app")
    made = patch_image(f"{registry}/base:1", str(code), f"{registry}/app")
except ImageError as error:
    print(json.dumps({"error": str(error)}))
else:
    print(json.dumps({"planned": plan.pod_reference, "made": made.reference, "pushed": made.pushed}))
"""


@pytest.fixture
def image(cluster: Any, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Python's image with this checkout's packages, made without a daemon as well."""
    if not cluster.images:
        pytest.skip("the local cluster has no real node: no container can run")
    base = type(cluster).up(cluster.name, images=("busybox", "python")).images["python"]
    fetch("install", tmp_path / "packages", *NEEDED)
    (tmp_path / "code").mkdir()
    (tmp_path / "code/Dockerfile.torchx").write_text(
        "ARG IMAGE\nFROM $IMAGE\nCOPY packages/ /packages/\nENV PYTHONPATH=/packages PYTHONDONTWRITEBYTECODE=1\n"
    )
    places = {str(tmp_path / "code"): "", str(tmp_path / "packages"): "packages"}
    places[torchx_pulumi.__path__[0]] = "packages/torchx_pulumi"
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    return patch_image(base, places, f"{cluster.registry}/{namespace}", builder="registry").reference


@pytest.fixture
def registry(cluster: Any, tmp_path: Path) -> Iterator[LocalRegistry]:
    """A registry on the bridge of the real node, which pods reach. It wants a login."""
    with LocalRegistry(tmp_path / "registry", host=cluster.settings.gateway, login=True) as made:
        yield made


@pytest.fixture
def accounts(registry: LocalRegistry, kubeconfig: Path, namespace: str) -> tuple[str, str]:
    """Two service accounts with a pull secret; the first one may read it."""
    from kubernetes import client, config

    auth = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    content = json.dumps({"auths": {registry.address: {"auth": auth}}})
    rules = [
        {"apiGroups": [""], "resources": ["serviceaccounts"], "resourceNames": ["builder"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["pull"], "verbs": ["get"]},
    ]
    with config.new_client_from_config(str(kubeconfig)) as api:
        core, rbac = client.CoreV1Api(api), client.RbacAuthorizationV1Api(api)
        secret = {"metadata": {"name": "pull"}, "type": "kubernetes.io/dockerconfigjson"}
        core.create_namespaced_secret(namespace, {**secret, "stringData": {".dockerconfigjson": content}})
        for name in ("builder", "other"):
            account = {"metadata": {"name": name}, "imagePullSecrets": [{"name": "pull"}]}
            core.create_namespaced_service_account(namespace, account)
        rbac.create_namespaced_role(namespace, {"metadata": {"name": "builder"}, "rules": rules})
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "builder"}
        subject = {"kind": "ServiceAccount", "name": "builder", "namespace": namespace}
        binding = {"metadata": {"name": "builder"}, "roleRef": role, "subjects": [subject]}
        rbac.create_namespaced_role_binding(namespace, binding)
    return "builder", "other"


def test_a_pod_pushes_with_the_pull_secrets_of_its_service_account(
    image: str,
    registry: LocalRegistry,
    accounts: tuple[str, str],
    kubeconfig: Path,
    namespace: str,
    look: KubernetesCluster,
) -> None:
    from kubernetes import client, config

    put_image(f"{registry.address}/base", "1", [layer({"etc/base": b"of the base"})])
    with config.new_client_from_config(str(kubeconfig)) as api:
        core = client.CoreV1Api(api)
        for account in accounts:
            container = {
                "name": "builder",
                "image": image,
                "command": ["python3", "-c", PROGRAM, registry.address],
                "env": [{"name": "TORCHX_PULUMI_INSECURE_REGISTRIES", "value": registry.address}],
            }
            spec = {"serviceAccountName": account, "restartPolicy": "Never", "containers": [container]}
            core.create_namespaced_pod(namespace, {"metadata": {"name": account}, "spec": spec})

    def result(account: str) -> dict[str, Any]:
        def ended() -> bool:
            pod = look.get(POD, namespace, account) or {}
            return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")

        eventually(ended)
        lines = list(look.logs(namespace, account))
        assert lines[-1].startswith("{"), "\n".join(lines)
        found: dict[str, Any] = json.loads(lines[-1])
        return found

    made = result("builder")
    assert made.get("pushed"), made["error"]
    assert made["made"] == made["planned"]
    assert len(manifest_of(made["made"])["layers"]) == 2
    refused = result("other")["error"]
    assert f"it needs `get` of serviceaccounts/other in namespace {namespace}" in refused
    assert PASSWORD not in refused
