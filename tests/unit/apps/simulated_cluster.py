"""A cluster in which one run lives, as its controllers, kubelets and users change it, in any order.

Its `Truth` is written by whoever acts, and not read from the objects.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torchx_pulumi.schedulers import Variant, find_backend

from tests.unit.schedulers import app_wrappers, observed_objects
from tests.unit.schedulers.observed_objects import Manifest

TASKS = ("trainer-0", "trainer-1")
UID = "u-1"
TRUTH = "truth"
"""Annotation by which readers of the tests know the true meaning of what they saw. No product code reads it."""

VARIANTS = {
    "volcano": find_backend("volcano").variants["job"],
    "pods": find_backend("volcano").variants["pods"],
    "v1beta1": find_backend("mcad").variants["v1beta1"],
    "v1beta2": find_backend("mcad").variants["v1beta2"],
}


@dataclass(slots=True)
class Change:
    """One event of a watch: the object as it is now, or as it was before it was removed."""

    name: str
    found: Manifest
    gone: bool = False


@dataclass(slots=True)
class Truth:
    """What happened to the run."""

    end: str | None = None
    """State in which the run ended by itself, or was aborted. None: it did not."""
    mark: str | None = None
    """Value of the annotation of a job object that shows this end. None: only pods show it."""
    pods: frozenset[str] = frozenset()
    """Uids of the pods that show this end together."""
    possible: str | None = None
    """How all pods ended by themselves after the job object was deleted or they were to be started again. A reader that
    did not see that may count it."""
    early: frozenset[str] = frozenset()
    """Uids of the pods that had all ended while the job object lived, of a run whose controller says the end."""
    early_end: str | None = None
    """How they ended. A reader with a clock that is ahead may count it before the controller, or in place of it."""
    pods_taken: bool = False
    """gang=pods: pods were taken while the PodGroup lived and nobody had requested anything."""


@dataclass
class Cluster:
    """The objects of one run, with the history of their changes."""

    rng: random.Random
    kind: str
    version: int = 100
    job: Manifest | None = None
    pods: dict[str, Manifest] = field(default_factory=dict)
    job_changes: list[Change] = field(default_factory=list)
    pod_changes: list[Change] = field(default_factory=list)
    truth: Truth = field(default_factory=Truth)
    launching: bool = True
    requested: bool = False
    """A user decided to cancel the run."""
    background: bool = False
    """Its deletion does not wait for the pods."""
    attempt: int = 1
    made: int = 0
    ends: int = 0
    ended: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Pods that ended by themselves: by name, uid and phase."""

    def __post_init__(self) -> None:
        self.limit = self.rng.choice([0, 0, 1, 2])
        self.stuck = self.rng.random() < 0.3  # The image cannot be pulled.
        self.skew = self.rng.randint(-20, 20)  # Clock of the nodes, in seconds.
        self.aborts_to = self.rng.choice(["Aborted", "Aborted", "Terminated"])

    @property
    def variant(self) -> Variant:
        return VARIANTS[self.kind]

    @property
    def phase(self) -> str | None:
        status = (self.job or {}).get("status", {})
        if self.kind == "volcano":
            return (status.get("state") or {}).get("phase")
        return status.get("state" if self.kind == "v1beta1" else "phase")

    @property
    def going(self) -> bool:
        return self.job is None or "deletionTimestamp" in self.job["metadata"]

    @property
    def expected(self) -> Any:
        return {"trainer": [self.pod_name(task) for task in TASKS]} if self.kind == "pods" else None

    def pod_name(self, task: str) -> str:
        return f"app-{task}" if self.kind.startswith("v1") else f"app-{task}-0"

    # What the API server does.

    def put_job(self, job: Manifest) -> None:
        self.version += 1
        job["metadata"]["resourceVersion"] = str(self.version)
        self.job = job
        self.job_changes.append(Change("job", copy.deepcopy(job)))

    def remove_job(self) -> None:
        assert self.job is not None
        self.version += 1
        last = copy.deepcopy(self.job)
        last["metadata"]["resourceVersion"] = str(self.version)
        self.job_changes.append(Change("job", last, gone=True))
        self.job = None

    def put_pod(self, pod: Manifest) -> None:
        self.version += 1
        name = pod["metadata"]["name"]
        pod["metadata"]["resourceVersion"] = str(self.version)
        self.pods[name] = pod
        self.pod_changes.append(Change(name, copy.deepcopy(pod)))

    def remove_pod(self, name: str) -> None:
        self.version += 1
        last = copy.deepcopy(self.pods.pop(name))
        last["metadata"]["resourceVersion"] = str(self.version)
        self.pod_changes.append(Change(name, last, gone=True))

    def delete_pod(self, name: str) -> None:
        pod = copy.deepcopy(self.pods[name])
        if "deletionTimestamp" not in pod["metadata"]:
            pod["metadata"]["deletionTimestamp"] = self.time()
            self.put_pod(pod)

    def delete_job(self) -> None:
        if self.job is None or self.going:
            return
        if self.background:
            self.remove_job()
            return
        job = copy.deepcopy(self.job)
        job["metadata"]["deletionTimestamp"] = self.time()
        self.put_job(job)

    def time(self, skew: int = 0) -> str:
        return f"2026-03-01T10:{20 + (self.version + skew) // 60 % 40:02d}:{(self.version + skew) % 60:02d}Z"

    # What controllers, kubelets and users do. Each returns what can happen next.

    def steps(self) -> list[Callable[[], None]]:
        """Return the events that can happen now, apart from those of users."""
        found: list[Callable[[], None]] = []
        for name, pod in self.pods.items():
            found += [*self._kubelet(name, pod)]
        if self.job is None and not self.job_changes:
            return [self._create]
        if self.going:
            return [*found, *self._garbage_collector()]
        return [*found, *getattr(self, f"_{self.kind}")()]

    def _create(self) -> None:
        job = {
            "volcano": lambda: observed_objects.vcjob(None),
            "pods": lambda: self._pod_group(),
            "v1beta1": lambda: app_wrappers.mcad("Pending", retries=self.limit),
            "v1beta2": lambda: app_wrappers.operators("Suspended", retries=self.limit),
        }[self.kind]()
        self.put_job(job)
        self.launching = self.kind == "pods"

    def _pod_group(self) -> Manifest:
        group = observed_objects.pod_group("Pending")
        group["metadata"] = {
            "name": "app",
            "namespace": "default",
            "uid": UID,
            "creationTimestamp": "2026-03-01T10:00:00Z",
        }
        group["spec"]["minMember"] = len(TASKS)
        return group

    def _kubelet(self, name: str, pod: Manifest) -> list[Callable[[], None]]:
        phase, going = pod["status"]["phase"], "deletionTimestamp" in pod["metadata"]
        if going:
            ended = phase in ("Succeeded", "Failed")
            kill = [] if ended else [lambda: self._end_pod(name, self.rng.choice([137, 137, 0]))]
            # A pod stays for a while after its containers ended.
            stays = self.rng.random() < (0.7 if ended else 0.95)
            return kill if stays else [*kill, lambda: self.remove_pod(name)]
        if phase == "Pending":
            return [] if self.stuck else [lambda: self._set_pod(name, "Running")]
        return [lambda: self._end_pod(name, self.rng.choice([0, 0, 0, 3]))] if phase == "Running" else []

    def _set_pod(self, name: str, phase: str, **status: Any) -> None:
        pod = copy.deepcopy(self.pods[name])
        pod["status"] = {"phase": phase, **status}
        self.put_pod(pod)

    def _end_pod(self, name: str, code: int) -> None:
        pod = copy.deepcopy(self.pods[name])
        ended = observed_objects.terminated(code)
        at = self.time(self.skew)
        if code == 137 and pod["status"]["phase"] == "Pending":
            ended[0]["state"]["terminated"] = {"exitCode": 137, "reason": "ContainerStatusUnknown", "finishedAt": None}
        else:
            ended[0]["state"]["terminated"]["finishedAt"] = at
        ready = {"type": "Ready", "status": "False", "lastTransitionTime": at}
        pod["status"] = {"phase": "Failed" if code else "Succeeded", "containerStatuses": ended, "conditions": [ready]}
        if "deletionTimestamp" not in pod["metadata"]:
            pod["metadata"]["annotations"] = {TRUTH: pod["status"]["phase"]}
            self.ended[name] = (pod["metadata"]["uid"], pod["status"]["phase"])
        self.put_pod(pod)
        self._note_end_by_pods()

    def _note_end_by_pods(self) -> None:
        """Note how all pods ended: the end of a run whose pods are its end."""
        if len(self.ended) < len(TASKS) or self.truth.end:
            return
        failed = any(phase == "Failed" for _, phase in self.ended.values())
        if not self.variant.ends_by_pods:
            if not self.going and not (failed and self.kind == "v1beta2"):
                self.truth.early = frozenset(uid for uid, _ in self.ended.values())
                self.truth.early_end = "FAILED" if failed else "SUCCEEDED"
            return
        if failed and self.kind == "v1beta1" and self.attempt <= self.limit:
            return
        end = "FAILED" if failed else "SUCCEEDED"
        if self.going or (self.kind == "v1beta1" and self.phase != "Running"):
            self.truth.possible = end
        else:
            self.truth.end, self.truth.pods = end, frozenset(uid for uid, _ in self.ended.values())

    def _garbage_collector(self) -> list[Callable[[], None]]:
        """Remove the pods of a job object that is gone or being deleted, and then the job object."""
        alive = [name for name, pod in self.pods.items() if "deletionTimestamp" not in pod["metadata"]]
        found: list[Callable[[], None]] = [lambda name=name: self.delete_pod(name) for name in alive]  # type: ignore[misc]
        if self.job is not None and self.kind == "v1beta1" and self.phase != "Deleted" and self.rng.random() < 0.2:
            found.append(lambda: self._say("Deleted"))
        if self.job is not None and self.kind == "v1beta2" and self.phase != "Terminating":
            found.append(lambda: self._say("Terminating"))
        if self.job is not None and not self.pods:
            found.append(self.remove_job)
        return found

    def _make_pod(self, task: str) -> None:
        self.made += 1
        self.ended.pop(self.pod_name(task), None)
        make = app_wrappers.pod if self.kind.startswith("v1") else observed_objects.pod
        pod = make(task, "Pending")
        pod["metadata"] |= {"namespace": "default", "uid": f"{task}-{self.made}"}
        self.put_pod(pod)

    def _missing(self) -> list[Callable[[], None]]:
        absent = [task for task in TASKS if self.pod_name(task) not in self.pods]
        return [lambda task=task: self._make_pod(task) for task in absent]  # type: ignore[misc]

    def _say(self, phase: str, *, end: str | None = None, restarts: bool = False, **status: Any) -> None:
        """Write the state of the job object; `end`: this is the end of the run."""
        job = copy.deepcopy(self.job) or {}
        before = job.get("status", {})
        words = {"v1beta1": {"state": phase}, "volcano": {"state": {"phase": phase, "lastTransitionTime": self.time()}}}
        job["status"] = {**before, **words.get(self.kind, {"phase": phase}), **status}
        if restarts:
            self.attempt += 1
            self.truth.early, self.truth.early_end = frozenset(), None
            counters = {"volcano": "retryCount", "v1beta1": "numberOfRequeueings", "v1beta2": "resettingCount"}
            job["status"][counters[self.kind]] = self.attempt - 1
        notes = {**(job["metadata"].get("annotations") or {})}
        notes.pop(TRUTH, None)
        if end is not None:
            self.ends += 1
            notes[TRUTH] = self.truth.mark = f"{end} {self.ends}"
            self.truth.end = end
        elif self.kind == "volcano" or restarts:
            # An aborted job that is resumed has no end any more.
            self.truth.end = self.truth.mark = None
        if self.kind == "v1beta1" and phase == "Running":
            self.ended.clear()
        job["metadata"]["annotations"] = notes
        self.put_job(job)

    @property
    def _all_ended(self) -> str | None:
        phases = [pod["status"]["phase"] for pod in self.pods.values()]
        if len(phases) < len(TASKS) or not set(phases) <= {"Succeeded", "Failed"}:
            return None
        return "Failed" if "Failed" in phases else "Succeeded"

    def _clear(self) -> list[Callable[[], None]]:
        alive = [name for name, pod in self.pods.items() if "deletionTimestamp" not in pod["metadata"]]
        return [lambda name=name: self.delete_pod(name) for name in alive]  # type: ignore[misc]

    def _any_failed(self) -> bool:
        return any(pod["status"]["phase"] == "Failed" for pod in self.pods.values())

    def _volcano(self) -> list[Callable[[], None]]:
        phase = self.phase
        if phase is None:
            return [lambda: self._say("Pending")]
        if phase == "Pending":
            return [*self._missing()] or [lambda: self._say("Running")]
        if phase == "Running":
            found: list[Callable[[], None]] = []
            if self._any_failed():
                # An evicted or failed pod restarts the job, or ends it.
                again = self.attempt <= self.limit
                found.append(lambda: self._say("Restarting") if again else self._say("Failed", end="FAILED"))
            elif self._all_ended == "Succeeded":
                found.append(lambda: self._say("Completing"))
            return found
        if phase == "Restarting":
            return [*self._clear()] or ([] if self.pods else [lambda: self._say("Pending", restarts=True)])
        if phase == "Completing":
            return [lambda: self._say("Completed", end="SUCCEEDED")]
        if phase in ("Aborting", "Terminating"):
            to = self.aborts_to
            return [*self._clear()] or ([] if self.pods else [lambda: self._say(to, end="CANCELLED")])
        return self._clear()

    def _v1beta1(self) -> list[Callable[[], None]]:
        phase = self.phase
        if phase == "Pending":
            return [*self._clear()] or ([] if self.pods else [lambda: self._say("Running")])
        if phase == "Running":
            may_restart = self.truth.end is None and self.attempt <= self.limit
            if may_restart and self._any_failed():
                return [lambda: self._say("Pending", restarts=True)]
            if may_restart and not self._all_ended and self.rng.random() < 0.5:
                return [*self._missing(), lambda: self._say("Pending", restarts=True)]
            if self.truth.end == "FAILED" and self.limit:
                return [lambda: self._say("Deleted", end="FAILED")]
            if self.truth.end is not None and not self.limit:
                counts = [pod["status"]["phase"] for pod in self.pods.values()]
                failed, good = counts.count("Failed"), counts.count("Succeeded")
                return [lambda: self._say("Completed", end=self.truth.end, Succeeded=good, failed=failed)]
            return self._missing()
        return self._clear() if phase == "Deleted" else []

    def _v1beta2(self) -> list[Callable[[], None]]:
        phase = self.phase
        if phase == "Suspended":
            return [] if self.pods else [lambda: self._say("Resuming")]
        if phase == "Resuming":
            return [*self._missing()] or [lambda: self._say("Running")]
        if phase == "Running":
            if self._any_failed():
                if self.attempt <= self.limit:
                    return [lambda: self._say("Resetting", restarts=True)]
                return [lambda: self._say("Failed", end="FAILED")]
            if self._all_ended == "Succeeded":
                return [lambda: self._say("Succeeded", end="SUCCEEDED")]
            return [lambda: self._say("Suspending")] if self.rng.random() < 0.1 else []
        if phase in ("Resetting", "Suspending"):
            after = "Resuming" if phase == "Resetting" else "Suspended"
            return [*self._clear()] or ([] if self.pods else [lambda: self._say(after)])
        return self._clear() if phase == "Failed" else []

    def _pods(self) -> list[Callable[[], None]]:
        if self.launching:
            # The launch creates each pod once.
            absent = [*self._missing()]
            if absent:
                return absent
            return [lambda: setattr(self, "launching", False)]
        phases = {pod["status"]["phase"] for pod in self.pods.values()}
        if self.phase == "Pending" and phases & {"Running", "Succeeded", "Failed"}:
            return [lambda: self._say("Running")]
        return []

    # What users and others do.

    def take_pod(self) -> None:
        """Delete a pod, as a drained node or `kubectl delete pod` does."""
        alive = [name for name, pod in self.pods.items() if "deletionTimestamp" not in pod["metadata"]]
        if self.kind == "v1beta1":
            alive = [name for name in alive if name not in self.ended]
        if not alive or self.launching:
            return
        if self.kind == "pods" and not self.going and not self.requested:
            self.truth.pods_taken = True
        self.delete_pod(self.rng.choice(alive))

    def abort(self) -> None:
        if self.job is not None and not self.going and self.phase in (None, "Pending", "Running", "Restarting"):
            self._say("Aborting")

    def resume(self) -> None:
        if self.job is not None and not self.going and self.phase in ("Aborting", "Aborted"):
            self._say("Restarting")
