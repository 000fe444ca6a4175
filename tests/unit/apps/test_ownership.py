"""Which objects belong to a run: one table of objects as clusters have them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from torchx_pulumi.apps.ownership import Run, is_job_object, is_of_launch, owns, run_of_object
from torchx_pulumi.apps.variants import find_variant

RUN = Run(
    namespace="team",
    job_name="train",
    variant=find_variant("volcano", "job"),
    uid="u1",
    launches=frozenset({"mine", "renamed"}),
    hash="h1",
)
LAUNCHING = replace(RUN, uid=None)
GANG = replace(RUN, variant=find_variant("volcano", "pods"))
NO_LAUNCH = replace(RUN, launches=frozenset())


def made(kind: str | None, name: str = "train", *, namespace: str | None = "team", **metadata: Any) -> dict[str, Any]:
    """Return an object; `launch` and `mark` are the launch as label and as annotation, `run` is the run hash."""
    labels = {"torchx-pulumi/launch": metadata.pop("launch", None), "volcano.sh/job-name": "train"}
    annotations = {"torchx-pulumi/launch": metadata.pop("mark", None), "torchx-pulumi/run": metadata.pop("run", None)}
    owner = metadata.pop("owner", None)
    if owner is not None:
        metadata["ownerReferences"] = [dict(zip(("kind", "uid"), one, strict=True)) for one in owner]
    return {
        **({} if kind is None else {"kind": kind}),
        "metadata": {
            "name": name,
            **({} if namespace is None else {"namespace": namespace}),
            "labels": {key: value for key, value in labels.items() if value is not None},
            "annotations": {key: value for key, value in annotations.items() if value is not None},
            **metadata,
        },
    }


CASES: list[tuple[str, Run, dict[str, Any], bool]] = [
    # Job objects, while the uid is known.
    ("its job object", RUN, made("Job", uid="u1", launch="mine", run="h1"), True),
    ("its job object whose labels somebody removed", RUN, made("Job", uid="u1"), True),
    ("its job object under a label of another launch", RUN, made("Job", uid="u1", launch="other"), True),
    ("its job object of a run whose launch is not known", NO_LAUNCH, made("Job", uid="u1"), True),
    ("its job object as a list without kinds has it", RUN, made(None, uid="u1"), True),
    ("its job object as a read without namespaces has it", RUN, made("Job", namespace=None, uid="u1"), True),
    ("the next run of its launch", RUN, made("Job", uid="u2", launch="mine", run="h1"), False),
    ("the next run of its launch, without a kind", RUN, made(None, uid="u2", launch="mine", run="h1"), False),
    ("a stranger's object of its name", RUN, made("Job", uid="u2", launch="other"), False),
    ("an object of its name without labels", RUN, made("Job", uid="u2"), False),
    ("its uid in another namespace", RUN, made("Job", namespace="other", uid="u1", launch="mine"), False),
    ("an object without a uid", RUN, made("Job", launch="mine"), False),
    # Job objects, while it is launched.
    ("the job object of the launch", LAUNCHING, made("Job", uid="u1", launch="mine", run="h1"), True),
    ("the same after its stack was renamed", LAUNCHING, made("Job", uid="u1", launch="renamed"), True),
    ("the same without a run hash", LAUNCHING, made("Job", uid="u1", launch="mine"), True),
    ("the same of a run whose hash is not known", replace(LAUNCHING, hash=None), made("Job", launch="mine"), True),
    ("the run that the launch replaces", LAUNCHING, made("Job", uid="u0", launch="mine", run="h0"), False),
    ("another job of the launch's program", LAUNCHING, made("Job", "eval", launch="mine", run="h1"), False),
    ("another launch's object of its name", LAUNCHING, made("Job", launch="other", run="h1"), False),
    ("an object of its name, launching", LAUNCHING, made("Job", uid="u1"), False),
    ("the label in another namespace", LAUNCHING, made("Job", namespace="other", launch="mine", run="h1"), False),
    ("its name, no evidence at all", replace(NO_LAUNCH, uid=None), made("Job", uid="u1", launch="mine"), False),
    ("a job object that another one owns", LAUNCHING, made("Job", launch="mine", owner=[("Job", "u9")]), False),
    # What a controller makes for the job object.
    ("a pod of its job object", RUN, made("Pod", "train-0", uid="p", owner=[("Job", "u1")]), True),
    ("the same of a run whose launch is not known", NO_LAUNCH, made("Pod", "train-0", owner=[("Job", "u1")]), True),
    ("a pod of two owners", RUN, made("Pod", "train-0", owner=[("Other", "u8"), ("Job", "u1")]), True),
    ("a pod of an owner without a kind", RUN, made("Pod", "train-0", owner=[(None, "u1")]), True),
    ("a pod of the earlier job object", RUN, made("Pod", "train-0", owner=[("Job", "u0")]), False),
    ("the same with a copied mark", RUN, made("Pod", "train-0", mark="mine", owner=[("Job", "u0")]), False),
    ("a pod of another controller", RUN, made("Pod", "train-0", owner=[("ReplicaSet", "u8")]), False),
    ("a pod whose owner reference was removed", RUN, made("Pod", "train-0", uid="p"), False),
    ("a pod with the job's label only", RUN, made("Pod", "debug", uid="p"), False),
    ("a pod while the uid is not known", LAUNCHING, made("Pod", "train-0", owner=[("Job", "u1")]), False),
    ("an owner without a uid", LAUNCHING, made("Pod", "train-0", owner=[("Job", None)]), False),
    ("its PodGroup by Volcano", RUN, made("PodGroup", "train-u1", launch="mine", owner=[("Job", "u1")]), True),
    ("the earlier PodGroup", RUN, made("PodGroup", "train-u0", launch="mine", owner=[("Job", "u0")]), False),
    ("a Service of its job object", RUN, made("Service", owner=[("Job", "u1")]), True),
    ("a pod in another namespace", RUN, made("Pod", "train-0", namespace="o", owner=[("Job", "u1")]), False),
    # gang=pods, where nothing but a mark ties an object to its run.
    ("a pod of the gang", GANG, made("Pod", "train-0", uid="p", mark="mine", run="h1"), True),
    ("a pod of the gang, while the uid is not known", replace(GANG, uid=None), made("Pod", mark="mine"), True),
    ("a pod of the gang, its stack was renamed", GANG, made("Pod", "train-0", mark="renamed", run="h1"), True),
    ("a pod of the gang that something else owns too", GANG, made("Pod", mark="mine", owner=[("X", "u8")]), True),
    ("the Service of the gang", GANG, made("Service", mark="mine", run="h1"), True),
    ("the PodGroup of the gang", GANG, made("PodGroup", uid="u1", launch="mine", run="h1"), True),
    ("the next PodGroup of the launch", GANG, made("PodGroup", uid="u2", launch="mine", run="h1"), False),
    ("a pod of the earlier run of the launch", GANG, made("Pod", "train-0", mark="mine", run="h0"), False),
    ("a pod of an equal job of another launch", GANG, made("Pod", "train-0", mark="other", run="h1"), False),
    ("a pod with an equal run hash and no mark", GANG, made("Pod", "train-0", run="h1"), False),
    ("a pod without a mark", GANG, made("Pod", "train-0", uid="p"), False),
    ("a pod, the launch is not known", replace(GANG, launches=frozenset()), made("Pod", mark="mine"), False),
    ("a mark in another namespace", GANG, made("Pod", namespace="other", mark="mine", run="h1"), False),
    # What cannot be read is not owned.
    ("nothing", RUN, {}, False),
    ("nothing, launching", LAUNCHING, {}, False),
    ("metadata of another type", RUN, {"kind": "Job", "metadata": "u1"}, False),
    ("owners of another type", RUN, {"kind": "Pod", "metadata": {"ownerReferences": "u1"}}, False),
]


@pytest.mark.parametrize(("run", "found", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_what_belongs_to_a_run(run: Run, found: dict[str, Any], expected: bool) -> None:
    assert owns(run, found) is expected


def test_the_mark_of_a_launch_is_a_label_or_an_annotation_and_says_nothing_of_the_run() -> None:
    assert is_of_launch(RUN.launches, made("Job", uid="u2", launch="mine"))
    assert is_of_launch(RUN.launches, made("Pod", mark="renamed"))
    assert not is_of_launch(RUN.launches, made("Job", uid="u1", launch="other"))
    assert not is_of_launch(RUN.launches, made("Job", uid="u1"))
    assert not is_of_launch(NO_LAUNCH.launches, made("Job", uid="u1", launch="mine"))


def test_a_run_that_is_known_from_its_cluster_only_owns_what_its_job_object_does() -> None:
    job = made("Job", uid="u1", launch="mine", run="h1")
    assert run_of_object(job, RUN.variant) == replace(RUN, launches=frozenset({"mine"}))
    assert owns(run_of_object(job, RUN.variant), made("Pod", "train-0", owner=[("Job", "u1")]))
    assert not owns(run_of_object(made("Job", uid="u1"), RUN.variant), made("Pod", "train-0"))
    assert not owns(run_of_object({}, RUN.variant), {})


def test_what_a_job_object_owns_is_not_a_job_object_although_it_has_its_labels() -> None:
    assert is_job_object(made("PodGroup", launch="mine"))
    assert not is_job_object(made("PodGroup", launch="mine", owner=[("Job", "u1")]))
