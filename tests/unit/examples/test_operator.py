"""The samples for the Pulumi Kubernetes Operator fit to each other, and grant the least."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests.doc_blocks import block

SAMPLES = Path(__file__).resolve().parents[3] / "examples" / "operator"


def documents(name: str) -> dict[str, Any]:
    return {each["kind"]: each for each in yaml.safe_load_all((SAMPLES / name).read_text())}


ACCESS, JOB = documents("access.yaml"), documents("job.yaml")


def test_the_account_may_do_what_a_launch_needs_and_no_more() -> None:
    documented = yaml.safe_load(block("docs/permissions.md", "role"))["rules"]
    # The operator asks for no cancellation.
    assert ACCESS["Role"]["rules"] == [rule for rule in documented if rule["resources"] != ["jobs/status"]]


def test_the_objects_name_each_other() -> None:
    account, stack = ACCESS["ServiceAccount"]["metadata"], JOB["Stack"]
    assert stack["spec"]["serviceAccountName"] == account["name"]
    assert stack["spec"]["programRef"]["name"] == JOB["Program"]["metadata"]["name"]
    for binding in ("RoleBinding", "ClusterRoleBinding"):
        assert ACCESS[binding]["subjects"] == [{"kind": "ServiceAccount", **account}]
    namespaces = {each["metadata"].get("namespace") for each in [*ACCESS.values(), *JOB.values()]}
    assert namespaces == {account["namespace"], None}
    (job,) = JOB["Program"]["program"]["resources"].values()
    assert job["properties"]["namespace"] == account["namespace"]


def test_a_stack_that_is_deleted_and_made_again_keeps_its_run() -> None:
    spec = JOB["Stack"]["spec"]
    assert spec["destroyOnFinalize"] is False
    assert not spec["backend"].startswith("file:")
