"""B11: two owners' equal jobs have two names. Runs of 0.1.0 keep the names that they have."""

from __future__ import annotations

import copy
from typing import Any

import pulumi
import pytest
from torchx_pulumi.model.labels import LAUNCH, RUN
from torchx_pulumi.testing import FakeCluster
from torchx_pulumi_components import VolcanoTrainingJob
from torchx_pulumi_components.cluster_access import cluster_for_tests

JOB = "kubernetes:batch.volcano.sh/v1alpha1:Job"
STASH = "pulumi:index:Stash"
URN = "urn:pulumi:dev::proj::torchx:index:VolcanoTrainingJob"
ARGS: Any = {"queue": "default", "roles": [{"name": "trainer", "image": "app:1", "entrypoint": "python"}]}

NEEDED = [
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}},
    {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": "default"},
        "status": {"state": "Open"},
    },
]

OF_0_1_0 = "train-f4cab80b"
"""Name that 0.1.0 gave the job."""


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


def by_0_1_0(engine: Any) -> Any:
    """Let the stack have the job as 0.1.0 launched it, and return the object."""
    job = launch(engine)
    job["metadata"]["name"] = OF_0_1_0
    engine.mocks.state = {}
    for suffix in ("-intent", "-record"):
        value = {**note(engine, suffix), "job_name": OF_0_1_0, "app_id": OF_0_1_0}
        del value["identity_version"]
        engine.mocks.state[f"{URN}$pulumi:index:Stash::train{suffix}"] = {"input": value}
    return running(job)


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


def test_a_run_of_0_1_0_keeps_name_and_record(engine: Any) -> None:
    live = by_0_1_0(engine)
    job = launch(engine, live)
    assert job["metadata"]["name"] == OF_0_1_0
    assert job["metadata"]["annotations"][RUN] == live["metadata"]["annotations"][RUN]
    assert note(engine, "-record")["job_name"] == OF_0_1_0
    assert "identity_version" not in note(engine, "-record")
    assert "identity_version" not in note(engine, "-intent")


def test_a_change_of_a_run_of_0_1_0_is_found_as_before(engine: Any) -> None:
    live = by_0_1_0(engine)
    with pytest.raises(pulumi.RunError, match=r"changing queue would relaunch run train-f4cab80b"):
        launch(engine, live, queue="other")


def test_the_run_after_one_of_0_1_0_has_the_new_identity(engine: Any) -> None:
    live = by_0_1_0(engine)
    new = launch(engine, {**live, "status": {"state": {"phase": "Completed"}}}, rerun="2")
    assert new["metadata"]["name"] != OF_0_1_0
    assert (note(engine, "-record")["identity_version"], note(engine, "-record")["attempt"]) == (2, 2)
    assert note(engine, "-record")["hash"] == new["metadata"]["annotations"][RUN]


@pytest.mark.parametrize("owner", ["mine", "another"])
def test_a_job_of_0_1_0_whose_record_is_lost_is_taken_up_by_its_label(engine: Any, owner: str) -> None:
    live = by_0_1_0(engine)
    engine.mocks.state = {}
    if owner == "another":
        live["metadata"]["labels"][LAUNCH] = "another"
    job = launch(engine, live)
    assert (job["metadata"]["name"] == OF_0_1_0) is (owner == "mine")
    assert note(engine, "-record").get("identity_version") == (None if owner == "mine" else 2)


def test_a_launch_that_0_1_0_began_and_did_not_record_is_kept(engine: Any) -> None:
    live = by_0_1_0(engine)
    del engine.mocks.state[f"{URN}$pulumi:index:Stash::train-record"]
    job = launch(engine, live)
    assert job["metadata"]["name"] == OF_0_1_0
    assert note(engine, "-record")["uid"] == "uid-of-train"
    assert "identity_version" not in note(engine, "-record")


def test_a_launch_that_0_1_0_began_and_of_which_nothing_is_there_is_launched_with_the_new_name(engine: Any) -> None:
    by_0_1_0(engine)
    del engine.mocks.state[f"{URN}$pulumi:index:Stash::train-record"]
    assert launch(engine)["metadata"]["name"] != OF_0_1_0
    assert (note(engine, "-record")["identity_version"], note(engine, "-record")["attempt"]) == (2, 2)


def test_a_new_parent_with_an_alias_keeps_the_run(engine: Any) -> None:
    job = launch(engine)
    engine.mocks.state = {
        f"{URN}$pulumi:index:Stash::train{suffix}": {"input": note(engine, suffix)} for suffix in ("-intent", "-record")
    }

    def opts() -> pulumi.ResourceOptions:
        parent = pulumi.ComponentResource("acme:index:Team", "team")
        return pulumi.ResourceOptions(parent=parent, aliases=[pulumi.Alias(parent=pulumi.ROOT_STACK_RESOURCE)])

    again = launch(engine, running(job), opts=opts)
    assert again["metadata"]["name"] == job["metadata"]["name"]
    assert note(engine, "-record")["hash"] == job["metadata"]["annotations"][RUN]
    assert again["metadata"]["labels"][LAUNCH] != job["metadata"]["labels"][LAUNCH]
