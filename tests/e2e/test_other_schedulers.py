"""TorchX's own scheduler `kubernetes` with images that are built without a Docker daemon, on the real node."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.kube.kinds import POD

from tests.doc_blocks import commands
from tests.e2e.project import eventually
from tests.e2e.torchx_cli import Said, TorchxCli

pytestmark = pytest.mark.e2e


def test_an_edit_runs_without_a_daemon(
    cluster: Any, image: str, pulumi_env: dict[str, str], tmp_path: Path, kubeconfig: Path, namespace: str
) -> None:
    none = {"DOCKER_HOST": "unix:///nonexistent", "DOCKER_CONFIG": str(tmp_path / "docker")}
    cli = TorchxCli({**pulumi_env, **none}, tmp_path, kubeconfig)
    repository = f"{cluster.registry}/{namespace}"
    values = {
        "registry.example.com/team/train": repository,
        "queue=default": f"queue=default,namespace={namespace}",
        "python:3.12 python train.py": f"{image} sh /train.sh",
    }
    (line,) = commands("docs/image-builders.md", "other-schedulers", values)
    (tmp_path / "code").mkdir()

    def run(text: str, *more: str) -> Said:
        (tmp_path / "code" / "train.sh").write_text(f"echo {text}\n")
        _, verb, *words = shlex.split(line)
        return cli.torchx(verb, "--workspace", f"file://{tmp_path}/code", *more, *words)

    def pods() -> list[dict[str, Any]]:
        return KubernetesCluster.connect(str(kubeconfig)).list(POD, namespace)

    planned = re.search(
        re.escape(repository) + r":patched-[0-9a-f]{40}@sha256:[0-9a-f]{64}", run("first-edit", "--dryrun").text
    )
    assert planned
    assert pods() == []
    for text in ("first-edit", "second-edit"):
        handle = re.search(r"kubernetes://\S+", run(text).text)
        assert handle
        name = handle[0].rpartition(":")[2]
        (pod,) = eventually(lambda name=name: _ended(pods(), name), timeout_s=240)
        assert pod["status"]["phase"] == "Succeeded", json.dumps(pod["status"])
        found = pod["spec"]["containers"][0]["image"]
        assert re.fullmatch(re.escape(repository) + r":patched-[0-9a-f]{40}@sha256:[0-9a-f]{64}", found)
        assert (found == planned[0]) is (text == "first-edit")
        assert text in _core(kubeconfig).read_namespaced_pod_log(pod["metadata"]["name"], namespace)


def _core(kubeconfig: Path) -> Any:
    from kubernetes import client, config

    return client.CoreV1Api(config.new_client_from_config(str(kubeconfig)))


def _ended(pods: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [
        pod
        for pod in pods
        if pod["metadata"]["name"].startswith(name) and pod["status"].get("phase") in ("Succeeded", "Failed")
    ]
