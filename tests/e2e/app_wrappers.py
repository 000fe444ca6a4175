"""Submits rendered AppWrappers to a real cluster and reads what becomes of them, without Pulumi."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from torchx_pulumi import render
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.kube.kinds import EVENT, POD, SERVICE, Kind
from torchx_pulumi.model.status import JobState, JobStatus
from torchx_pulumi.schedulers import find_backend
from torchx_pulumi.schedulers.appwrapper.objects import APP_WRAPPER, X_K8S_POD_GROUP
from torchx_pulumi.schedulers.diagnosis.evidence import ObservedObjects

from tests.e2e.project import LONG_S
from tools.local_cluster import Cluster

FAKE: Mapping[str, Any] = {
    "node_selector": {"torchx-pulumi/node": "fake"},
    "tolerations": [{"key": "kwok.x-k8s.io/node", "operator": "Exists"}],
}
"""Fields of a role whose replicas go to fake nodes."""

FIND_RANK0 = """
if [ "$TORCHX_RANK0_HOST" = localhost ]; then
  # A pod that has ended has no name any more: rank 0 stays until each of the five others has reached it.
  for i in 1 2 3 4 5; do echo welcome | nc -l -p 29500; done
  exit
fi
until [ "$(nc -w 30 $TORCHX_MCAD_TRAINER_0_HOSTS 29500 < /dev/null)" = welcome ]; do sleep 1; done
echo "replica ${replica_id} found $TORCHX_MCAD_TRAINER_0_HOSTS"
"""
"""Script of each of six replicas: rank 0 waits for the others, which look for it by its name."""


class AppWrappers:
    """AppWrappers of one cluster and namespace."""

    def __init__(self, cluster: Cluster, namespace: str, kind: Kind = APP_WRAPPER) -> None:
        self.cluster, self.namespace, self.kind = cluster, namespace, kind
        self._look = KubernetesCluster.connect(str(cluster.kubeconfig))
        self._path = f"/apis/{kind.api_version}/namespaces/{namespace}/{kind.plural}"

    def submit(self, *roles: Mapping[str, Any], app_id: str | None = None, **options: Any) -> str:
        """Submit a job of these roles, which run a shell unless they say otherwise; return its name."""
        name = app_id or f"app-{uuid.uuid4().hex[:6]}"
        image = self.cluster.images["busybox"]
        whole = [{"name": "trainer", "image": image, "entrypoint": "sh", **role} for role in roles]
        chosen = {"namespace": self.namespace, "api_version": self.kind.version, **options}
        made = render({"name": name, "roles": whole}, "mcad", chosen, app_id=name)
        self.cluster.api.request("POST", self._path, made)
        return name

    def pods(self, name: str) -> list[dict[str, Any]]:
        """Return a job's pods."""
        return self._look.list(POD, self.namespace, {"app.kubernetes.io/instance": name})

    def logs(self, pod: str) -> str:
        """Return the log of a pod."""
        return "\n".join(self._look.logs(self.namespace, pod))

    def status(self, name: str) -> JobStatus:
        """Read a job's status."""
        events = [e for e in self._look.list(EVENT, self.namespace) if e["involvedObject"]["name"].startswith(name)]
        groups = self._listed(X_K8S_POD_GROUP, name)
        head = self._look.get(self.kind, self.namespace, name)
        seen = ObservedObjects(job_object=head, pods=self.pods(name), pod_groups=groups, events=events)
        return find_backend("mcad").variants[self.kind.version].read_status(seen)

    def wait(self, name: str, until: Callable[[JobStatus], bool], timeout_s: float = LONG_S) -> JobStatus:
        """Wait for a status."""
        deadline = time.monotonic() + timeout_s
        while not until(status := self.status(name)):
            assert time.monotonic() < deadline, f"still {status.state.value} ({status.reason.value}): {status.message}"
            time.sleep(0.2)
        return status

    def end(self, name: str, timeout_s: float = LONG_S) -> JobStatus:
        """Wait for the end of a job."""
        return self.wait(name, lambda status: status.state.terminal, timeout_s)

    def phase(self, name: str) -> str | None:
        """Return the controller's own word for a job's state."""
        return self.status(name).phase

    def patch(self, name: str, spec: Mapping[str, Any]) -> None:
        """Change fields of a job's spec in place."""
        body = json.dumps({"spec": dict(spec)}).encode()
        self.cluster.api.request("PATCH", f"{self._path}/{name}", body, kind="merge-patch+json")

    def delete(self, name: str, timeout_s: float = LONG_S) -> None:
        """Delete a job and wait until nothing of it is left."""
        self.cluster.api.request("DELETE", f"{self._path}/{name}")
        deadline = time.monotonic() + timeout_s
        while left := self.left(name):
            assert time.monotonic() < deadline, f"left: {left}"
            time.sleep(0.2)

    def left(self, name: str) -> list[str]:
        """Name the kinds of which there is something of a job."""
        found = [kind.kind for kind in (POD, SERVICE, X_K8S_POD_GROUP) if self._listed(kind, name)]
        return found if self._look.get(self.kind, self.namespace, name) is None else [*found, self.kind.kind]

    def _listed(self, kind: Kind, name: str) -> list[dict[str, Any]]:
        if kind == X_K8S_POD_GROUP and not self._look.serves(kind):
            # A cluster without a coscheduler.
            return []
        return self._look.list(kind, self.namespace, {"app.kubernetes.io/instance": name})


def is_state(state: JobState) -> Callable[[JobStatus], bool]:
    """Return whether a status has this state."""
    return lambda status: status.state is state


def long_name() -> str:
    """Return a name of 60 characters that no other AppWrapper of the cluster has.

    MCAD counts the pods of all namespaces by the name of their AppWrapper: one is not `Completed` as long as a pod of
    another one with its name runs.
    """
    return f"{uuid.uuid4().hex:a>60}"


def shell(script: str, **role: Any) -> dict[str, Any]:
    """Return a role that runs a script. Its pods end within a second when they are deleted."""
    return {"args": ["-c", script], "pod_overlay": {"spec": {"terminationGracePeriodSeconds": 1}}, **role}
