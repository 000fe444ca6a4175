"""One look at a run: what was read of its objects, and what is remembered of objects that went since. Data only.

`look_at` makes every look. What was read under the run's name counts if `owns` says that it is the run's; pods that are
remembered are the run's own. The surfaces differ only in what they give:

| Surface | Whose run | Objects | Remembered | Changing |
|---|---|---|---|---|
| commands of TorchX | of the index, or of the stack | read | while a command follows | launch not complete, or a lock |
| `list` | the same; a colleague's is of the listed object | listed | nothing | the same; of a colleague's, no |
| component | of the object that it made, else of its record | read, or the state's | nothing | launch begun |
| another component's run | of its record; without a uid, any object of the name | read, or none | nothing | no |
| wait | of the launch, with the uid of its object | read | by the wait | no |
| object made just now | of the object | the provider's answer | nothing | yes |
| fleet, controller | of the stack | watched; read before a new end | until the stack has it | pending work, or a lock |
| `prune` | of the stack | read | nothing | no |

A second launch would repeat what has the name of another component's run. The fleet remembers pods only of runs that
end by them: those of all apps at once would fill its memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Any

from torchx_pulumi.apps.ownership import Run, owns
from torchx_pulumi.kube import PodReader
from torchx_pulumi.model.object_fields import is_being_deleted, number_at, text_at, version_number
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.model.status import JobState, JobStatus, Reason
from torchx_pulumi.schedulers import Variant
from torchx_pulumi.schedulers.diagnosis.evidence import ObservedObjects

ENDED = ("Succeeded", "Failed")
"""Phases of a pod that it never leaves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """The objects of a run before they were deleted: evidence of its end, kept until the end is written."""

    last: Manifest | None = None
    """The job object as last seen. None: not seen."""
    whole: Manifest | None = None
    """The job object as last seen without a deletionTimestamp. None: not seen."""
    pods: Mapping[str, Manifest] | None = field(default_factory=dict)
    """Pods that had ended before they got a deletionTimestamp, by name. None: pods are not remembered."""
    since: Manifest | None = None
    """The job object when it was first seen to be started again: pods that ended before are of an earlier attempt.
    None: it was not."""

    def with_job_object(self, found: Manifest) -> Remembered:
        """Remember the job object as seen; a watch may show it as it was before a read."""
        last = self.last if _is_older(found, self.last) else found
        keeps_whole = is_being_deleted(found) or _is_older(found, self.whole)
        after = replace(self, last=last, whole=self.whole if keeps_whole else found)
        if self.last is None or self.pods is None or _requeues(found) <= _requeues(self.last):
            return after
        pods = {name: pod for name, pod in self.pods.items() if not _is_older(pod, found)}
        return replace(after, pods=pods, since=found)

    def with_pod(self, found: Manifest) -> Remembered:
        """Remember a pod as seen. Another pod of its name takes its place."""
        return self.with_pods((found,))

    def with_pods(self, found: Iterable[Manifest]) -> Remembered:
        """Remember pods of different names as seen, as `with_pod`."""
        before, changed = self.pods, dict[str, Manifest | None]()
        if before is None:
            return self
        for pod in found:
            name = text_at(pod, "metadata", "name") or ""
            known = before.get(name)
            if known is not None and (_uid(known) == _uid(pod) or _is_older(pod, known)):
                # It had ended before.
                continue
            ended = not is_being_deleted(pod) and text_at(pod, "status", "phase") in ENDED
            if ended and not _is_older(pod, self.since):
                changed[name] = pod
            elif known is not None:
                changed[name] = None
        if not changed:
            # A copy for each look would take long for a run with many pods.
            return self
        pods = {**before, **changed}
        return replace(self, pods={name: pod for name, pod in pods.items() if pod is not None})

    def with_objects(self, objects: ObservedObjects) -> Remembered:
        """Remember a job object and its pods as read."""
        after = self if objects.job_object is None else self.with_job_object(objects.job_object)
        return after.with_pods(objects.pods or ())


@dataclass(frozen=True, kw_only=True)
class Look:
    """One look at a run in the cluster of its launch; `look_at` makes it."""

    variant: Variant
    at: datetime
    """When the cluster was read, aware."""
    uid: str | None
    """Uid of the run's job object. None: the launch has not noted it."""
    objects: ObservedObjects | None
    """The run's own objects. Without a job object: it is gone, by a confirmed 404 or another uid under its name. None:
    no evidence, as after a refusal, a timeout, or before a watch is complete."""
    confirmed: bool = True
    """The objects were read from the API server for this look. False: they are as last watched."""
    remembered: Remembered = field(default_factory=Remembered)
    changing: bool = False
    """A deployment changes the stack, or was interrupted: objects may be missing because of it."""

    @property
    def gone(self) -> bool:
        """Return whether the job object does not exist any more."""
        return self.objects is not None and self.objects.job_object is None

    @property
    def resource_version(self) -> str | None:
        """Return the version that orders looks at one run. None: not known.

        It is that of the job object, or that of the list of pods if a run ends by its pods.
        """
        if self.objects is None or self.objects.job_object is None:
            return None
        own = text_at(self.objects.job_object, "metadata", "resourceVersion")
        return self.variant.version_of(self.objects) or own

    @property
    def lacks_pods(self) -> bool:
        """Return whether the run ends by its pods and the user may not read them."""
        seen = self.objects is not None and self.objects.job_object is not None
        return seen and self.variant.ends_by_pods and self.objects is not None and self.objects.pods is None

    def by_absence(self, status: JobStatus) -> bool:
        """Return whether a run counts as failed only because a pod vanished before its end was seen."""
        if not self.variant.makes_pods or status.state is not JobState.FAILED:
            # A controller says that the run failed. It may have removed the pods since.
            return False
        replicas = [replica.reason for role in status.roles for replica in role.replicas]
        return Reason.POD_GONE in (status.reason, *replicas)

    def asking_if_changing(self, changing: Callable[[], bool]) -> Look:
        """Return the look with the answer whether a deployment changes the stack.

        Args:
            changing: Called only if the run would count as failed because a pod is absent.
        """
        if self.gone or self.status is None or not self.by_absence(self.status):
            return self
        return replace(self, changing=changing())

    @cached_property
    def status(self) -> JobStatus | None:
        """Return the status by the objects, else by remembered ones. None: neither says how the run stands."""
        if self.objects is None:
            return None
        going = self.gone or is_being_deleted(self.objects.job_object)
        # No controller makes the pods of a PodGroup again.
        missing = going or self.variant.makes_pods
        seen = None
        if not self.gone:
            seen = self.variant.read_status(self._with_remembered_pods(self.objects, missing=missing), self.at)
        if not going or (seen is not None and seen.state.terminal):
            return seen
        attempt = 0
        for before in (self.remembered.last, self.remembered.whole):
            if before is None or text_at(before, "metadata", "uid") != (self.uid or text_at(before, "metadata", "uid")):
                continue
            # Without a time: how long ago its pods ended does not say what its controller did while it lived.
            past = ObservedObjects(job_object=self._as_gone(before), pods=(), expected=self.objects.expected)
            status = self.variant.read_status(self._with_remembered_pods(past, missing=True))
            if status.state.terminal and not self.by_absence(status) and status.attempt >= attempt:
                return status
            attempt = status.attempt
        return seen

    def _as_gone(self, before: Manifest) -> Manifest:
        """Return a PodGroup as if it were being deleted, so that pods that went with it do not count as failed."""
        if not self.variant.makes_pods or is_being_deleted(before):
            return before
        return {**before, "metadata": {**before["metadata"], "deletionTimestamp": self.at.isoformat()}}

    def _with_remembered_pods(self, objects: ObservedObjects, *, missing: bool) -> ObservedObjects:
        """Return objects with ended pods as they were at their end; `missing` adds pods that are gone."""
        if objects.pods is None or not self.remembered.pods:
            return objects
        ended = self.remembered.pods
        pods = []
        for pod in objects.pods:
            known = ended.get(text_at(pod, "metadata", "name") or "")
            pods.append(known if known is not None and _uid(known) == _uid(pod) else pod)
        if missing:
            present = {text_at(pod, "metadata", "name") for pod in pods}
            expected = {name for names in (objects.expected or {}).values() for name in names}
            pods += [
                pod
                for name, pod in sorted(ended.items())
                # Replicas that were given up do not belong to the run any more.
                if name not in present and (name in expected or not expected)
            ]
        return replace(objects, pods=tuple(pods))


def read_objects(run: Run, cluster: PodReader) -> ObservedObjects:
    """Read the objects under the name of a run, its own or not.

    Raises:
        ClusterError: The cluster does not answer, or refuses.
    """
    return run.variant.observe(cluster, run.namespace, run.job_name, run.expected)


def look_at(
    run: Run,
    objects: ObservedObjects | None,
    at: datetime,
    *,
    remembered: Remembered | None = None,
    confirmed: bool = True,
) -> Look:
    """Return a look at a run.

    Args:
        run: The run.
        objects: What was read under its name. They count if `owns` says that the job object is the run's; without it,
            and with another one, the run is gone. None: no evidence.
        at: When they were read, aware.
        remembered: What earlier looks at the run remember. None: nothing.
        confirmed: As `Look.confirmed`.
    """
    uid, remembered = run.uid, remembered or Remembered()
    if objects is not None and objects.job_object is not None and owns(run, objects.job_object):
        uid = uid or objects.uid
        known = replace(run, uid=uid)
        pods = () if remembered.pods is None else objects.pods or ()
        own = tuple(pod for pod in pods if owns(known, pod))
        remembered = remembered.with_objects(replace(objects, pods=own))
    elif objects is not None:
        absent = objects if objects.job_object is None else ObservedObjects(at=objects.at)
        objects = replace(absent, expected=run.expected)
    return Look(variant=run.variant, at=at, uid=uid, objects=objects, confirmed=confirmed, remembered=remembered)


def _is_older(found: Manifest, known: Manifest | None) -> bool:
    """Return whether an object is older than the known one of its name. False: unknown."""
    now, before = (version_number(text_at(one, "metadata", "resourceVersion")) for one in (found, known))
    return 0 <= now < before


def _requeues(found: Manifest) -> int:
    """Return how often an AppWrapper v1beta1 was started again. No other job has attempts and ends by its pods."""
    return number_at(found, "status", "numberOfRequeueings") or 0


def _uid(found: Mapping[str, Any]) -> str | None:
    return text_at(found, "metadata", "uid")
