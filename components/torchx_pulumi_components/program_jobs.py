"""The training jobs of one Pulumi program: what they share, and how those that are refused end the program.

Each job decides in a task of its own. The program waits for the tasks as it does for registrations. A job that is
refused does not stop the others: the program ends with the errors of all jobs in one message, after everything else was
registered. docs/decisions/0023 has the rules.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

import pulumi
from torchx_pulumi.kube import PodReader
from torchx_pulumi.kube.cached_reader import CachedReader

from torchx_pulumi_components.guard import registered
from torchx_pulumi_components.pulumi_runtime import (
    DeferredError,
    children_of,
    end_with,
    is_mocked,
    once_per_program,
    registrations_ended,
    wait_at_end,
)
from torchx_pulumi_components.stack_state import last_exports

T = TypeVar("T")

PLANS_AT_ONCE = 8
"""Jobs of one program that are planned at the same time. Each sends a few requests, one after the other."""


OTHERS_S = 3.0
"""Seconds in which a component of the program is expected to be registered, after another one was decided."""


class JobRefusedError(DeferredError):
    """A job or an image was refused, or a job did not reach its goal. What depends on it fails with this error."""

    def __init__(self, message: str, what: str) -> None:
        super().__init__(message)
        self.what = what
        """What was refused, for example `job 'train'`."""


@dataclass(slots=True)
class Deferral:
    """Jobs whose failed waits a program collects; see `failures_deferred`."""

    failures: list[str] = field(default_factory=list)
    jobs: list[Awaitable[object]] = field(default_factory=list)
    """Ends of the jobs. They raise nothing."""


_deferral: ContextVar[Deferral | None] = ContextVar("deferral", default=None)


def current_deferral() -> Deferral | None:
    """Return the collector of failures of waits here. None: they are raised."""
    return _deferral.get()


@contextmanager
def failures_deferred() -> Iterator[list[str]]:
    """Collect failures of waits of the jobs that are created inside, instead of raising them.

    The jobs have ended their waits when the block ends. A program that exports its outputs and then raises
    `pulumi.RunError` with what was collected fails with its outputs written.
    """
    deferral = Deferral()
    token = _deferral.set(deferral)
    try:
        yield deferral.failures
    finally:
        _deferral.reset(token)
    for job in deferral.jobs:
        wait_for(job)


def wait_for(awaitable: Awaitable[object]) -> None:
    """Wait for something asynchronous in a program's own code, not in a task. Its error is raised."""
    task = asyncio.ensure_future(awaitable)

    async def ended() -> Any:
        await asyncio.wait([task])
        return pulumi.output.UNKNOWN

    # An invoke waits for its arguments, and asks the engine nothing if one is unknown.
    pulumi.runtime.invoke("torchx:index:wait", {"for": pulumi.Output.from_input(ended())})
    task.result()


class ProgramJobs:
    """The training jobs of one program."""

    def __init__(self) -> None:
        self.connections: dict[tuple[str | None, str | None], PodReader] = {}
        """Clusters by kubeconfig and context, for all jobs."""
        self._shared: dict[int, PodReader] = {}
        self._archives: dict[tuple[str, str, bool], str | None] = {}
        self._archives_guard = threading.Lock()
        self._planning = asyncio.Semaphore(PLANS_AT_ONCE)
        self._tasks: list[asyncio.Task[None]] = []
        self._errors: dict[pulumi.Resource, str] = {}
        self._finished: dict[pulumi.Resource, Awaitable[object]] = {}
        self._waits_for: dict[pulumi.Resource, list[pulumi.Resource]] = {}
        """Jobs to those that they wait for."""
        self._warnings: set[str] = set()
        self._declared: dict[pulumi.Resource, Sequence[str]] = {}
        """Jobs to their URNs, the present one first."""

    def warn_once(self, text: str) -> None:
        """Log a warning that holds for all jobs of the program."""
        if text not in self._warnings:
            self._warnings.add(text)
            pulumi.log.warn(text)

    def find_no_writer(self, url: str, namespace: str, now: datetime, *, secret: bool) -> str | None:
        """Ask `archive_marks.find_no_writer`, once for each archive and namespace of the program."""
        key = (url, namespace, secret)
        with self._archives_guard:
            if key not in self._archives:
                from torchx_pulumi.logs.archive_marks import find_no_writer  # what reads logs, too

                self._archives[key] = find_no_writer(url, namespace, now, secret=secret)
            return self._archives[key]

    def add(self, component: pulumi.Resource, task: asyncio.Task[None], finished: Awaitable[object]) -> None:
        """Let the program wait for a job, and fail at its end if the job is refused.

        Args:
            component: Component of the job.
            task: What the program waits for.
            finished: End of the job, for what depends on it.
        """
        self._tasks.append(task)
        self._finished[component] = finished
        wait_at_end(task)
        end_with(lambda: self.errors, last_exports)

    def declare(self, component: pulumi.Resource, urns: Sequence[str]) -> None:
        """Note the URNs of a job's component, the present one first."""
        self._declared[component] = urns

    async def includes(self, urn: str) -> bool:
        """Return whether the program has a component of this URN, or one that had it.

        Of a component of another process, in a program that uses the plugin, only the engine knows, once it is
        registered: this waits for that for some seconds.
        """
        end = time.monotonic() + OTHERS_S
        while not any(urn in urns for urns in self._declared.values()):
            if is_mocked():
                found, waits = False, len(self._declared) < len(self._finished)
            else:
                found, waits = registered(urn) is not None, True
            if found or not waits or time.monotonic() > end:
                return found
            await asyncio.sleep(0.1)
        return True

    @property
    def errors(self) -> list[str]:
        """Messages of the jobs that were refused, or did not reach their goals, in the order of the program."""
        return [self._errors[component] for component in self._finished if component in self._errors]

    def refuse(self, component: pulumi.Resource, message: str) -> None:
        """Let the program end with the error of a job."""
        self._errors[component] = message

    def shared_reads(self, cluster: PodReader | None) -> PodReader | None:
        """Return a reader that asks for each fact about a cluster itself once, for all jobs and threads.

        Shared are its identity, the kinds that it serves, objects without a namespace, for example queues, and lists of
        the whole cluster, which say what else waits. What does not exist is read again by the next job: a program may
        create it meanwhile. All objects of runs are read whenever they are asked for. None: no cluster is read.
        """
        if cluster is None:
            return None
        if id(cluster) not in self._shared:
            self._shared[id(cluster)] = CachedReader(
                cluster,
                kept_s=math.inf,
                is_fresh=lambda kind: kind is not None and kind.namespaced,
                keeps_whole=True,
                keeps_absence=False,
            )
        return self._shared[id(cluster)]

    async def wait_for(self, component: pulumi.Resource, resources: Iterable[pulumi.Resource]) -> None:
        """Wait for the ends of the jobs among some resources and below the components among them.

        Args:
            component: Component of the job that waits.
            resources: What it depends on.

        Raises:
            pulumi.RunError: The job would wait for itself.
            JobRefusedError: One of these jobs was refused, or did not reach its goal.
        """
        jobs = self._waits_for[component] = [*self._among(resources)]
        if self._leads_to(component, jobs):
            raise pulumi.RunError(
                f"job {component.pulumi_resource_name!r} depends on itself: depends_on, or an Output among the "
                "arguments, names a component around it, or a job that depends on it; name what the job needs instead"
            )
        for job in jobs:
            await asyncio.shield(self._finished[job])

    def _among(self, resources: Iterable[pulumi.Resource]) -> Iterator[pulumi.Resource]:
        for resource in resources:
            if resource in self._finished:
                yield resource
            if isinstance(resource, pulumi.ComponentResource):
                yield from self._among(children_of(resource))

    def _leads_to(self, job: pulumi.Resource, others: Iterable[pulumi.Resource]) -> bool:
        """Return whether some jobs include a job, or one that waits for it."""
        left, seen = [*others], set[pulumi.Resource]()
        while left:
            other = left.pop()
            if other is job:
                return True
            if other not in seen:
                seen.add(other)
                left += self._waits_for.get(other, ())
        return False

    async def plan(self, call: Callable[[], T]) -> T:
        """Return the result of a call that plans a job, in a thread: it waits for responses of the cluster."""
        async with self._planning:
            return await asyncio.to_thread(call)

    async def ended(self) -> None:
        """Wait for all jobs, and if some were refused, for all registrations of the others."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.errors:
            await registrations_ended()


def program_jobs() -> ProgramJobs:
    """Return the jobs of the program that runs."""
    return once_per_program(ProgramJobs)
