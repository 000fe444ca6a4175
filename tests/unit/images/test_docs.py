"""What docs/images.md and docs/image-builders.md give to copy is what the code asks for."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from torchx_pulumi.images.reference import parse_reference
from torchx_pulumi.images.registry.pull_secrets import login_of_pod
from torchx_pulumi.kube.kinds import SECRET, SERVICE_ACCOUNT

from tests.doc_blocks import ROOT, block


class RecordingCluster:
    """A cluster with one service account and its pull secret; notes what is read."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def get(self, kind: Any, namespace: str, name: str) -> Any:
        self.asked.append((kind.plural, name))
        config = {"auths": {"registry.example.com": {"username": "me", "password": "right"}}}
        data = {".dockerconfigjson": base64.b64encode(json.dumps(config).encode()).decode()}
        return {SERVICE_ACCOUNT: {"imagePullSecrets": [{"name": "registry-login"}]}, SECRET: {"data": data}}[kind]


def test_the_role_for_pull_secrets_allows_what_a_push_in_a_pod_reads(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    claims = base64.urlsafe_b64encode(json.dumps({"sub": "system:serviceaccount:team:trainer"}).encode()).decode()
    (tmp_path / "token").write_text(f"e30.{claims.rstrip('=')}.x")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    cluster = RecordingCluster()
    found = login_of_pod(
        parse_reference("registry.example.com/team/train"),
        folder=str(tmp_path),
        cluster=cluster,  # type: ignore[arg-type]  # only `get` is used
    )
    assert found.login is not None
    role = yaml.safe_load(block("docs/image-builders.md", "pull-secrets"))
    allowed = [
        (resource, name)
        for rule in role["rules"]
        for resource in rule["resources"]
        for name in rule["resourceNames"]
        if rule["verbs"] == ["get"] and rule["apiGroups"] == [""]
    ]
    assert cluster.asked == allowed


def test_the_program_in_yaml_has_arguments_and_outputs_of_the_schema() -> None:
    program = yaml.safe_load(block("docs/images.md", "patched-image-yaml"))
    known = json.loads((ROOT / "components" / "schema.json").read_text())["resources"]
    for resource in program["resources"].values():
        described = known[resource["type"]]
        assert set(described["requiredInputs"]) <= set(resource["properties"]) <= set(described["inputProperties"])
    (role,) = program["resources"]["job"]["properties"]["roles"]
    assert role["image"] == "${image.reference}"
    assert "reference" in known["torchx:index:PatchedImage"]["properties"]
