"""TorchX's own scheduler `kubernetes` next to ours, with an image that was built without a Docker daemon."""

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
from tests.e2e.torchx_cli import TorchxCli

pytestmark = pytest.mark.e2e


def test_an_edit_runs_without_a_daemon(
    cluster: Any, image: str, pulumi_env: dict[str, str], tmp_path: Path, kubeconfig: Path, namespace: str
) -> None:
    none = {"DOCKER_HOST": "unix:///nonexistent", "DOCKER_CONFIG": str(tmp_path / "docker")}
    cli = TorchxCli({**pulumi_env, **none}, tmp_path, kubeconfig)
    repository = f"{cluster.registry}/{namespace}"
    values = {
        "registry.example.com/team/train": repository,
        "python:3.12 --workspace .": f"{image} --workspace code",
        "queue=default": f"queue=default,namespace={namespace}",
        "python train.py": "sh /train.sh",
    }
    push, run = commands("docs/image-builders.md", "other-schedulers", values)
    (tmp_path / "code").mkdir()

    def pods() -> list[dict[str, Any]]:
        return KubernetesCluster.connect(str(kubeconfig)).list(POD, namespace)

    pushed = []
    for text in ("first-edit", "second-edit"):
        (tmp_path / "code" / "train.sh").write_text(f"echo {text}\n")
        pushed.append(cli.ours(*shlex.split(push.removeprefix("IMAGE=$(").removesuffix(")"))[1:]).out.strip())
        assert re.fullmatch(re.escape(repository) + r":patched-[0-9a-f]{40}@sha256:[0-9a-f]{64}", pushed[-1])
        said = cli.torchx(*shlex.split(run.replace("$IMAGE", pushed[-1]))[1:]).text
        handle = re.search(r"kubernetes://\S+", said)
        assert handle, said
        name = handle[0].rpartition(":")[2]
        (pod,) = eventually(lambda name=name: _ended(pods(), name))
        assert pod["status"]["phase"] == "Succeeded", json.dumps(pod["status"])
        assert pod["spec"]["containers"][0]["image"] == pushed[-1]
        assert text in _core(kubeconfig).read_namespaced_pod_log(pod["metadata"]["name"], namespace)
        # TorchX's class reads the state of the job.
        eventually(lambda handle=handle[0]: "SUCCEEDED" in cli.torchx("status", handle).text)
    assert len(set(pushed)) == 2


def _core(kubeconfig: Path) -> Any:
    from kubernetes import client, config

    return client.CoreV1Api(config.new_client_from_config(str(kubeconfig)))


def _ended(pods: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [
        pod
        for pod in pods
        if pod["metadata"]["name"].startswith(name) and pod["status"].get("phase") in ("Succeeded", "Failed")
    ]
