"""Follows a running job: its state, and the logs of all its replicas, until it has ended."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Final

from torchx_pulumi.kube import PodReader
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.status import JobState, JobStatus
from torchx_pulumi.schedulers import find_backend

from tools.demo.errors import DemoError
from tools.demo.telling import quote, say

POLL_S: Final = 0.5
LOG_END_S: Final = 15
"""How long logs may take to end after the job has."""


@dataclass(slots=True)
class Watch:
    """One job that is being followed."""

    cluster: PodReader
    scheduler: str
    """`volcano` or `mcad`."""
    namespace: str
    job_name: str
    _followed: dict[str, threading.Thread] = field(default_factory=dict)
    _stopped: threading.Event = field(default_factory=threading.Event)

    def status(self) -> JobStatus:
        """Read the job's status as it is now.

        Raises:
            ClusterError: The cluster does not answer.
        """
        variant = next(iter(find_backend(self.scheduler).variants.values()))
        return variant.read_status(variant.observe(self.cluster, self.namespace, self.job_name))

    def until_done(self, timeout_s: float) -> JobStatus:
        """Show state changes and logs until the job has ended.

        Raises:
            DemoError: It did not end in time.
        """
        deadline, shown = time.monotonic() + timeout_s, ""
        try:
            while True:
                status = self.status()
                line = f"{status.state.value} ({status.reason.value}): {status.message}"
                if line != shown:
                    say(f"job {self.job_name}: {line}")
                    shown = line
                self._follow(status)
                if status.state.terminal:
                    self._drain()
                    return status
                if time.monotonic() > deadline:
                    raise DemoError(f"the job did not end within {timeout_s:.0f} s")
                time.sleep(POLL_S)
        finally:
            self._stopped.set()

    def _follow(self, status: JobStatus) -> None:
        """Begin to follow the log of each replica that has started."""
        for role in status.roles:
            for replica in role.replicas:
                begun = replica.state in (JobState.RUNNING, JobState.SUCCEEDED, JobState.FAILED)
                if begun and replica.pod and replica.pod not in self._followed:
                    name = f"{role.name}-{replica.id}"
                    thread = threading.Thread(target=self._print, args=(name, replica.pod), daemon=True)
                    self._followed[replica.pod] = thread
                    thread.start()

    def _print(self, name: str, pod: str) -> None:
        while not self._stopped.is_set():
            try:
                for line in self.cluster.logs(self.namespace, pod, follow=True):
                    quote(name, line)
                return
            except ClusterError as error:
                if not error.retryable:
                    say(f"log of {name}: {error}")
                    return
                self._stopped.wait(POLL_S)

    def _drain(self) -> None:
        deadline = time.monotonic() + LOG_END_S
        for thread in self._followed.values():
            thread.join(max(deadline - time.monotonic(), 0))


def describe(status: JobStatus) -> None:
    """Print a status with all its replicas."""
    say(f"status: {status.state.value}, reason {status.reason.value}, attempt {status.attempt}")
    say(f"        {status.message}")
    for role in status.roles:
        for replica in role.replicas:
            code = "" if replica.exit_code is None else f", exit code {replica.exit_code}"
            where = replica.node or "no node"
            say(f"        {role.name}-{replica.id}: {replica.state.value}{code}, pod {replica.pod} on {where}")
