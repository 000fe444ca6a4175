"""The namespace of the stack program: imported after a killed deployment, if it has the stack's mark."""

from __future__ import annotations

import pytest
from torchx_pulumi.kube.kinds import NAMESPACE
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.labels import OWNER
from torchx_pulumi.testing import cluster_for_tests
from torchx_pulumi_stacks.job_namespace import create_namespace

from tests.components.conftest import Engine
from tests.fakes import FakeCluster

TOKEN = "kubernetes:core/v1:Namespace"
STACK = {"urn:pulumi:dev::proj::pulumi:pulumi:Stack::proj-dev": {}}
"""What the engine has noted of a deployment that was killed before its first resource."""


def import_id(engine: Engine, cluster: FakeCluster) -> str:
    """Run the program, and return the import id of the namespace. Empty: it is created."""
    with cluster_for_tests(cluster):
        engine.run(lambda: create_namespace("team", None, None, None))
    return engine.mocks.one(TOKEN).resource_id


@pytest.mark.parametrize("owner", ["this stack", "another stack"])
def test_what_a_killed_deployment_made_is_imported_if_it_has_the_mark(engine: Engine, owner: str) -> None:
    engine.run(lambda: create_namespace("team", None, None, None))
    namespace = dict(engine.mocks.one(TOKEN).inputs)
    if owner == "another stack":
        namespace["metadata"]["labels"][OWNER] = "another"
    engine.mocks.state = STACK
    found = import_id(engine, FakeCluster([namespace], served=[NAMESPACE]))
    assert found == ("team" if owner == "this stack" else "")


def test_a_namespace_that_may_not_be_read_is_created(engine: Engine) -> None:
    engine.mocks.state = STACK
    assert import_id(engine, FakeCluster(error=ClusterError("it forbids that", reason="Forbidden"))) == ""


@pytest.mark.parametrize("state", [{}, {f"urn:pulumi:dev::proj::{TOKEN}::namespace": {}}], ids=["first", "recorded"])
def test_the_cluster_is_not_asked_by_a_first_deployment_or_for_a_recorded_namespace(
    engine: Engine, state: dict[str, dict[str, str]]
) -> None:
    engine.mocks.state = state
    assert import_id(engine, FakeCluster(error=ClusterError("it does not answer"))) == ""
