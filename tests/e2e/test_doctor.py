"""The doctor on a real machine and cluster."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.cli.main import main

pytestmark = pytest.mark.e2e

Doctor = Callable[..., dict[str, dict[str, Any]]]


@pytest.fixture
def doctor(
    e2e_env: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Doctor:
    """The command, as its findings by check."""
    monkeypatch.setenv("PATH", e2e_env["PATH"])
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("PULUMI_CONFIG_PASSPHRASE", "PULUMI_CONFIG_PASSPHRASE_FILE", "PULUMI_BACKEND_URL"):
        monkeypatch.delenv(name, raising=False)

    def run(*words: str) -> dict[str, dict[str, Any]]:
        capsys.readouterr()
        code = main(["doctor", "--json", "--timeout", "120", *words])
        values = json.loads(capsys.readouterr().out)
        assert code == (0 if values["ok"] else 1)
        return {item["check"]: item for item in values["findings"]}

    return run


def test_all_that_a_launch_needs_is_there(doctor: Doctor, kubeconfig: Path, namespace: str) -> None:
    found = doctor("--kubeconfig", str(kubeconfig), "--namespace", namespace)
    allowed = {"docker": {"ok", "skipped"}, "registry": {"skipped"}, "local-queue": {"skipped"}}
    assert {
        name: (item["verdict"], item["detail"])
        for name, item in found.items()
        if item["verdict"] not in allowed.get(name, {"ok"})
    } == {}
    assert "v1beta1" in found["mcad"]["detail"]


def test_what_is_absent_is_named_with_what_to_do(doctor: Doctor, kubeconfig: Path, cluster: Any) -> None:
    repository = f"{cluster.registry}/team/app"
    found = doctor(
        "--kubeconfig", str(kubeconfig), "--queue", "absent", "--namespace", "absent", "--image-repo", repository
    )
    assert found["queue"]["verdict"] == "problem"
    assert "default" in found["queue"]["resolution"]
    assert found["namespace"]["verdict"] == "problem"
    assert (found["registry"]["verdict"], found["registry"]["detail"]) == ("ok", f"{repository} answers")


def test_permissions_that_are_missing_are_listed(
    doctor: Doctor, kubeconfig: Path, namespace: str, tmp_path: Path
) -> None:
    import yaml
    from kubernetes import client, config

    api = client.CoreV1Api(config.new_client_from_config(str(kubeconfig)))
    api.create_namespaced_service_account(namespace, {"metadata": {"name": "weak"}})
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}}
    token = api.create_namespaced_service_account_token("weak", namespace, request).status.token
    content = yaml.safe_load(kubeconfig.read_text())
    content["users"] = [{"name": user["name"], "user": {"token": token}} for user in content["users"]]
    weak = tmp_path / "weak.yaml"
    weak.write_text(yaml.safe_dump(content))
    found = doctor("--kubeconfig", str(weak), "--namespace", namespace, "--scheduler", "volcano")
    assert found["permissions"]["verdict"] == "problem"
    assert "create jobs.batch.volcano.sh" in found["permissions"]["detail"]
    assert found["queue"]["verdict"] == "skipped"
