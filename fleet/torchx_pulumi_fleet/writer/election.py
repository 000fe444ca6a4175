"""LeaseElection: one of several controllers leads, by a Lease of the API group coordination.k8s.io.

The rules and times are those of Kubernetes' own components (client-go). Clocks of machines are not compared: a Lease
counts as held until its record has not changed for its duration, by the clock of the process that looks at it.
"""

from __future__ import annotations

import logging
import random
import socket
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from torchx_pulumi.kube import Cluster
from torchx_pulumi.kube.kinds import LEASE
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.object_fields import mapping_at, number_at, text_at
from torchx_pulumi.model.options import Manifest

from torchx_pulumi_fleet.tracker.reporting import Reporter
from torchx_pulumi_fleet.tracker.work_queue import start_thread

logger = logging.getLogger(__name__)

JITTER = 0.2
"""Most that a retry is later, as a share of its time: two processes do not ask at the same moments for long."""

RELEASED_S = 1
"""Duration of a Lease that its holder has given back."""


def new_identity() -> str:
    """Return a name for this process: the host's, which in a pod is the pod's, and a random part."""
    return f"{socket.gethostname()}_{uuid.uuid4().hex[:12]}"


@dataclass(eq=False)
class LeaseElection:
    """Takes part in the election for a Lease, in threads of its own."""

    cluster: Cluster
    """The cluster with the Lease."""
    namespace: str
    name: str
    """Name of the Lease, which is created if it is missing."""
    identity: str
    """Name of this process, different from that of any other (`new_identity`)."""
    reporter: Reporter
    changed: Callable[[bool], None]
    """Called with whether this process leads, after each change, in a thread of the election. It must return soon."""
    duration_s: float = 15.0
    """Time without a renewal after which another process may take the Lease."""
    renew_deadline_s: float = 10.0
    """Time after its last renewal at which a leader stands by, before another one can begin: below `duration_s`."""
    retry_s: float = 2.0
    """Time between two attempts to get or to renew the Lease. Shorter than `renew_deadline_s`."""
    clock: Callable[[], float] = time.monotonic
    """Monotonic time in seconds."""
    now: Callable[[], datetime] = lambda: datetime.now(timezone.utc)
    """The time that is written, aware."""

    def __post_init__(self) -> None:
        """Begin without the Lease. `start` begins to ask for it."""
        self._stopped = threading.Event()
        self._news = threading.Event()
        self._threads: list[threading.Thread] = []
        self._lease: Manifest | None = None
        """The Lease as last read or written. None: absent or unknown."""
        self._seen_at = 0.0
        """When its present record was first seen."""
        self._renewed_at: float | None = None
        """When the last successful renewal was sent. None: the Lease is not this process's."""

    @property
    def is_leading(self) -> bool:
        """Return whether this process leads at this moment. A request that hangs does not prolong it."""
        renewed_at = self._renewed_at
        return renewed_at is not None and self.clock() < renewed_at + self.renew_deadline_s

    @property
    def _shown(self) -> str:
        return f"Lease {self.namespace}/{self.name}"

    def start(self) -> None:
        """Start the threads."""
        self._threads = [start_thread(self._take_part, "lease"), start_thread(self._tell, "lead")]

    def stop(self, timeout_s: float = 1.0) -> None:
        """End, and give the Lease back, so that another process leads after its next attempt."""
        self._stopped.set()
        self._news.set()
        end = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(end - time.monotonic(), 0.0))

    def _take_part(self) -> None:
        while not self._stopped.is_set():
            wait_s = self._attempt()
            self._news.set()
            self._stopped.wait(wait_s)
        if self._renewed_at is not None:
            self._release()

    def _release(self) -> None:
        self._renewed_at = None
        try:
            if self._lease is not None:
                self.cluster.replace(LEASE, self.namespace, self._record(self._lease, held=False))
        except ClusterError as error:
            logger.info("the Lease is not given back, and ends by itself: %s", error)

    def _attempt(self) -> float:
        """Try to get or to renew the Lease; return the time until the next attempt."""
        try:
            self._try()
        except ClusterError as error:
            # What is known of the Lease may be out of date.
            self._lease = None if self._renewed_at is not None else self._lease
            if error.reason not in ("Conflict", "AlreadyExists"):
                text = f"{self._shown} cannot be read and written: {error}; it is tried again"
                self.reporter.begin("lease", text)
        except Exception as error:  # noqa: BLE001 - without the thread this process would never lead again
            self.reporter.begin("lease", f"{type(error).__name__}: {error}; please report this error")
        else:
            self.reporter.end("lease", f"{self._shown} is read and written again")
        wait_s = self.retry_s * (1.0 + JITTER * random.random())  # noqa: S311
        if self._renewed_at is not None:
            return self.retry_s
        # A Lease that ends before the next attempt is taken when it ends.
        left_s = self._seen_at + self._duration_s() - self.clock()
        return min(wait_s, left_s + 0.05) if left_s > 0 else wait_s

    def _try(self) -> None:
        sent_at = self.clock()
        if self._renewed_at is None or self._lease is None:
            found = self.cluster.get(LEASE, self.namespace, self.name)
            if found is None:
                self._lease = self.cluster.create(LEASE, self.namespace, self._record({}, held=True))
                self._seen_at = self._renewed_at = sent_at
                return
            if self._lease is None or found.get("spec") != self._lease.get("spec"):
                self._seen_at = self.clock()
            self._lease = found
            if self._holder() != self.identity:
                self._renewed_at = None
                if self._holder() and self.clock() < self._seen_at + self._duration_s():
                    return
        self._lease = self.cluster.replace(LEASE, self.namespace, self._record(self._lease, held=True))
        self._seen_at = self._renewed_at = sent_at

    def _record(self, lease: Manifest, *, held: bool) -> Manifest:
        """Return the Lease as it is written."""
        spec, at = mapping_at(lease, "spec"), self.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        holder = text_at(spec, "holderIdentity")
        transitions = number_at(spec, "leaseTransitions") or 0
        # A holder that was given back counts too, as in client-go.
        is_new = bool(lease) and holder != self.identity
        written: dict[str, Any] = {
            **spec,
            "holderIdentity": self.identity if held else "",
            "leaseDurationSeconds": max(round(self.duration_s), 1) if held else RELEASED_S,
            "acquireTime": at if not held or holder != self.identity else spec.get("acquireTime") or at,
            "renewTime": at,
            "leaseTransitions": transitions + is_new,
        }
        metadata = lease.get("metadata") or {"name": self.name, "namespace": self.namespace}
        return {"apiVersion": LEASE.api_version, "kind": LEASE.kind, "metadata": metadata, "spec": written}

    def _holder(self) -> str:
        return text_at(self._lease, "spec", "holderIdentity") or ""

    def _duration_s(self) -> float:
        return float(number_at(self._lease, "spec", "leaseDurationSeconds") or self.duration_s)

    def _tell(self) -> None:
        """Report each change, and call `changed`, also while a request hangs."""
        told, holder = False, ""
        while not self._stopped.is_set():
            leads, present = self.is_leading, self._holder()
            if leads != told:
                told = leads
                self.reporter.line(
                    f"this process leads: it holds {self._shown}"
                    if leads
                    else f"this process stands by: it does not hold {self._shown} any more"
                )
                self.changed(leads)
            elif not leads and present not in ("", holder, self.identity):
                self.reporter.line(f"this process stands by: {present} holds {self._shown}")
            holder = present or holder
            renewed_at = self._renewed_at
            left_s = None if renewed_at is None else renewed_at + self.renew_deadline_s - self.clock()
            self._news.wait(None if left_s is None or left_s < 0 else left_s + 0.01)
            self._news.clear()
