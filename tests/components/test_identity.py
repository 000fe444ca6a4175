"""Equal jobs of two owners have two names, and a run whose identity is of another version is refused."""

from __future__ import annotations

import copy
from typing import Any

import pulumi
import pytest
from torchx_pulumi.model.labels import LAUNCH, RUN
from torchx_pulumi.testing import FakeCluster, cluster_for_tests
from torchx_pulumi_components import VolcanoTrainingJob

from tests.components.test_volcano_training_job import NAMESPACE, queue

JOB = "kubernetes:batch.volcano.sh/v1alpha1:Job"
STASH = "pulumi:index:Stash"
URN = "urn:pulumi:dev::proj::torchx:index:VolcanoTrainingJob"
ARGS: Any = {"queue": "default", "roles": [{"name": "trainer", "image": "app:1", "entrypoint": "python"}]}

NEEDED = [NAMESPACE, queue()]


def note(engine: Any, suffix: str) -> Any:
    (stash,) = [item for item in engine.mocks.of_type(STASH) if item.name.endswith(suffix)]
    return stash.inputs["input"]


def launch(engine: Any, *objects: Any, stack: str = "dev", opts: Any = None, **changes: Any) -> Any:
    """Run the program in a cluster that has these objects, and return the job object that it registers."""

    def program() -> None:
        with cluster_for_tests(FakeCluster([*NEEDED, *objects])):
            VolcanoTrainingJob("train", {**ARGS, **changes}, opts() if opts else None)

    engine.run(program, stack=stack)
    return copy.deepcopy(engine.mocks.one(JOB).inputs)


def running(job: Any) -> Any:
    live = copy.deepcopy(job)
    live["metadata"] |= {"uid": "uid-of-train", "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {**live, "status": {"state": {"phase": "Running"}}}


def test_equal_jobs_of_two_stacks_have_two_names(engine: Any) -> None:
    one, other = launch(engine), launch(engine, stack="prod")
    assert one["metadata"]["name"] != other["metadata"]["name"]
    assert one["metadata"]["annotations"][RUN] == other["metadata"]["annotations"][RUN]
    assert launch(engine)["metadata"]["name"] == one["metadata"]["name"]


def test_equal_jobs_under_parents_of_two_types_have_two_names(engine: Any) -> None:
    found = set()
    for kind in ("acme:index:Team", "acme:index:Project"):
        job = launch(engine, opts=lambda kind=kind: pulumi.ResourceOptions(parent=pulumi.ComponentResource(kind, "a")))
        found.add(job["metadata"]["name"])
    assert len(found) == 2


def test_the_job_of_another_stack_is_no_obstacle(engine: Any) -> None:
    other = running(launch(engine, stack="prod"))
    assert launch(engine, other)["metadata"]["name"] != other["metadata"]["name"]


@pytest.mark.parametrize("version", [None, 1, 3])
def test_a_run_whose_identity_is_of_an_unknown_version_is_refused(engine: Any, version: int | None) -> None:
    launch(engine)
    value = {**engine.record(), "identity_version": version}
    engine.mocks.state = {f"{URN}::train": {"record": value}}
    with pytest.raises(pulumi.RunError, match=r"identity_version.*knows 2; install the release that wrote it"):
        launch(engine)


def test_a_new_parent_with_an_alias_keeps_the_run(engine: Any) -> None:
    job = launch(engine)
    engine.mocks.state = {f"{URN}$pulumi:index:Stash::train-intent": {"input": note(engine, "-intent")}}
    engine.mocks.state |= engine.records()

    def opts() -> pulumi.ResourceOptions:
        parent = pulumi.ComponentResource("acme:index:Team", "team")
        return pulumi.ResourceOptions(parent=parent, aliases=[pulumi.Alias(parent=pulumi.ROOT_STACK_RESOURCE)])

    again = launch(engine, running(job), opts=opts)
    assert again["metadata"]["name"] == job["metadata"]["name"]
    assert engine.record()["hash"] == job["metadata"]["annotations"][RUN]
    assert again["metadata"]["labels"][LAUNCH] != job["metadata"]["labels"][LAUNCH]
