"""The real driver on the session's cluster, for the contract suite of drivers."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi_stacks.engine import AutomationDriver


def real_world(request: pytest.FixtureRequest, tmp_path: Path, make: Callable[..., Any]) -> Iterator[Any]:
    """Yield a world with a namespace, a backend and a kubeconfig of its own."""
    from kubernetes import client, config

    given = Path(request.getfixturevalue("kubeconfig"))
    environment: dict[str, str] = request.getfixturevalue("pulumi_tools")
    patch = pytest.MonkeyPatch()
    for name, value in environment.items():
        patch.setenv(name, value)
    for name in ("PULUMI_BACKEND_URL", "PULUMI_CONFIG_PASSPHRASE", "PULUMI_CONFIG_PASSPHRASE_FILE"):
        patch.delenv(name, raising=False)
    patch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    kubeconfig = tmp_path / "kubeconfig.yaml"
    kubeconfig.write_text(given.read_text())
    api = client.CoreV1Api(config.new_client_from_config(str(given)))
    namespace = f"driver-{uuid.uuid4().hex[:8]}"
    api.create_namespace({"metadata": {"name": namespace}})
    server = KubernetesCluster.connect(str(given)).api_server

    def break_cluster() -> None:
        kubeconfig.write_text(given.read_text().replace(server, "https://127.0.0.1:9"))

    # A backend that is there and empty: of a folder that is absent nothing is concluded.
    (tmp_path / "backend/.pulumi").mkdir(parents=True)
    driver = AutomationDriver()
    try:
        yield make(
            driver=driver,
            cluster=KubernetesCluster.connect(str(given)),
            backend=f"file://{tmp_path}/backend",
            namespace=namespace,
            kubeconfig=str(kubeconfig),
            break_cluster=break_cluster,
        )
    finally:
        driver.close()
        api.delete_namespace(namespace)
        api.api_client.close()
        patch.undo()
