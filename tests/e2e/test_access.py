"""A whole launch with credentials of a plugin and through a proxy: the engine and our own requests go the same way."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.kube.kubeconfig import find_access
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB

from tests.e2e.torchx_cli import TorchxCli
from tests.loopback import NAME, http_proxy

pytestmark = pytest.mark.e2e


def with_plugin(kubeconfig: Path, folder: Path) -> Path:
    """Write a kubeconfig whose address leads nowhere without a proxy, and whose token a script beside it prints."""
    access = find_access(str(kubeconfig))
    config = json.loads(access.config)
    config["clusters"][0]["cluster"] |= {"server": f"https://{NAME}", "tls-server-name": "localhost"}
    version = "client.authentication.k8s.io/v1beta1"
    user = config["users"][0]["user"]
    answer = {"apiVersion": version, "kind": "ExecCredential", "status": {"token": user.pop("token")}}
    (folder / "answer.json").write_text(json.dumps(answer))
    script = folder / "login"
    script.write_text(f"#!/bin/sh\necho run >> {folder}/runs\ncat {folder}/answer.json\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    user["exec"] = {"apiVersion": version, "command": "./login"}
    made = folder / "kubeconfig"
    made.write_text(json.dumps(config))
    return made


def test_a_launch_with_a_plugin_and_a_proxy(
    pulumi_env: dict[str, str], kubeconfig: Path, look: KubernetesCluster, namespace: str, tmp_path: Path, cluster: Any
) -> None:
    cli = TorchxCli(pulumi_env, tmp_path, with_plugin(kubeconfig, tmp_path))
    server = urlsplit(look.api_server)
    with http_proxy((str(server.hostname), server.port or 443), password="planted") as proxy:
        cli.env["HTTPS_PROXY"] = f"http://me:planted@127.0.0.1:{proxy.port}"
        options = f"queue=default,namespace={namespace}"
        run = ["run", "--workspace", "", "-s", "pulumi_volcano", "-cfg", options]
        handle = cli.torchx(*run, "utils.echo", "--image", cluster.images.get("busybox", "busybox:1")).handle
        name = handle.rpartition(":")[2]
        assert look.get(VOLCANO_JOB, namespace, name) is not None
        said = cli.torchx("status", handle)
        assert "State" in said.text
        before = len((tmp_path / "runs").read_text().splitlines())
        cli.ours("delete", handle)
        assert look.get(VOLCANO_JOB, namespace, name) is None
        assert {line.split()[1] for line in proxy.asked} == {f"{NAME}:443"}
    assert len((tmp_path / "runs").read_text().splitlines()) > before
    stored = [path for path in (tmp_path / "state").rglob("*") if path.is_file()]
    assert stored
    assert not [path for path in stored if b"planted" in path.read_bytes()]
