"""owns: the only test of whether a Kubernetes object belongs to a run.

| Evidence | What it proves |
|---|---|
| uid of the object, or of one of its owner references, is the run's | it is of this run; nothing else is needed |
| an owner reference to another job object | it is of another run, whatever its labels say: controllers copy labels |
| launch label of a job object | it is of this launch; of this run only while the run's uid is unknown |
| launch annotation of another object (gang=pods) | it is of this run, unless its run hash is another one |
| run hash | excludes; it proves nothing, since equal jobs of different users have equal hashes |
| namespace and name, labels of the job's name | exclude; they prove nothing, since anybody may take a name again |

An object without such proof is not owned. Who deletes, or copies to a place that a launch named, also needs
`is_of_launch` of the job object: any writer of a backend may name a uid in a stack, but the label is in the cluster.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchx_pulumi.model import labels
from torchx_pulumi.model.object_fields import items_at, text_at
from torchx_pulumi.model.run_record import RunRecord
from torchx_pulumi.schedulers import Variant, find_backend


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What identifies a run of an app in its cluster."""

    namespace: str
    job_name: str
    """Name of the job object."""
    variant: Variant
    """Which object stands for the job, and how it is read."""
    uid: str | None = None
    """Uid of the job object. None: not known yet; then owner references prove nothing."""
    launches: frozenset[str] = frozenset()
    """Values that the launch label may have. Empty: not known; then labels and annotations prove nothing."""
    hash: str | None = None
    """Value of the annotation `torchx-pulumi/run`. None: not known, so that it excludes nothing."""
    expected: Mapping[str, Sequence[str]] | None = None
    """Role name to its created pods. None: not known."""

    @property
    def job_kind(self) -> str:
        """Return the kind of the job object, for example `Job`."""
        return self.variant.job_object.kind

    @property
    def app_id(self) -> str:
        """Return `namespace:job_name`."""
        return f"{self.namespace}:{self.job_name}"

    @property
    def pod_selector(self) -> dict[str, str]:
        """Return the labels of its pods."""
        return find_backend(self.variant.scheduler).pod_selector(self.job_name)


def run_of_record(record: RunRecord, variant: Variant, launches: Iterable[str]) -> Run:
    """Return the run of a record.

    Args:
        record: The record.
        variant: The variant that the run was launched with.
        launches: As `Run.launches`, of the component whose record it is.
    """
    return Run(
        namespace=record.namespace,
        job_name=record.job_name,
        variant=variant,
        uid=record.uid,
        launches=frozenset(launches),
        hash=record.hash,
    )


def run_of_object(job_object: Mapping[str, Any], variant: Variant) -> Run:
    """Return the run that a job object of a variant stands for, of an app that is known from its cluster only."""
    return Run(
        namespace=text_at(job_object, "metadata", "namespace") or "",
        job_name=text_at(job_object, "metadata", "name") or "",
        variant=variant,
        uid=text_at(job_object, "metadata", "uid"),
        launches=frozenset(filter(None, (text_at(job_object, "metadata", "labels", labels.LAUNCH),))),
        hash=run_hash_of(job_object),
    )


def owns(run: Run, found: Mapping[str, Any]) -> bool:
    """Return whether an object belongs to a run; False if that is not sure.

    Args:
        run: The run. Without a uid, a job object is owned by launch label and name, and other objects by their launch
            annotation.
        found: The job object, a Pod, a PodGroup or a Service.
    """
    if text_at(found, "metadata", "namespace") not in (None, run.namespace):
        return False
    owners = items_at(found, "metadata", "ownerReferences")
    if run.uid is not None and run.uid in (text_at(found, "metadata", "uid"), *(text_at(o, "uid") for o in owners)):
        return True
    if any(text_at(owner, "kind") == run.job_kind for owner in owners) or not is_of_launch(run.launches, found):
        return False
    if run_hash_of(found) not in (None, run.hash) and run.hash is not None:
        return False
    # Another job object of the launch is another run of it.
    is_job = text_at(found, "kind") in (None, run.job_kind)
    return not is_job or (run.uid is None and text_at(found, "metadata", "name") == run.job_name)


def is_of_launch(launches: Collection[str], found: Mapping[str, Any]) -> bool:
    """Return whether an object has the mark of a launch: a label, or with gang=pods an annotation.

    It may be of another run of the same stack and component. Labels are copied to what a job object owns.

    Args:
        launches: Values that the mark may have, as `Run.launches`.
        found: The object.
    """
    return any(text_at(found, "metadata", place, labels.LAUNCH) in launches for place in ("labels", "annotations"))


def is_job_object(found: Mapping[str, Any]) -> bool:
    """Return whether an object of a job object's kind is one, and not made by the controller of one with its labels."""
    return not items_at(found, "metadata", "ownerReferences")


def run_hash_of(found: Mapping[str, Any]) -> str | None:
    """Return the hash of the run that an object stands for. None: it has no such annotation."""
    return text_at(found, "metadata", "annotations", labels.RUN)
