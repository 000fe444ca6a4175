"""Checks of the cluster: version, kinds, webhooks, queue, namespace, permissions. Nothing is made there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from torchx_pulumi.doctor.finding import Asked, Finding, ok, problem, skipped
from torchx_pulumi.doctor.machine import read_version, words
from torchx_pulumi.kube import LiveCluster
from torchx_pulumi.kube.kinds import NAMESPACE, VALIDATING_WEBHOOK, Kind
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.schedulers.appwrapper.objects import (
    APP_WRAPPER,
    APP_WRAPPER_V1BETA2,
    SIGS_POD_GROUP,
    X_K8S_POD_GROUP,
)
from torchx_pulumi.schedulers.permissions import VOLCANO, Permission, of_app_wrapper
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_COMMAND, VOLCANO_JOB, VOLCANO_POD_GROUP, VOLCANO_QUEUE

OLDEST_KUBERNETES = (1, 25)
PROBE = "torchx-pulumi-doctor"


def check_version(cluster: LiveCluster) -> Finding:
    """Check that the API server answers, and its version."""
    name = "cluster"
    try:
        printed = cluster.version()
    except ClusterError as error:
        return problem(name, str(error), "see that the cluster runs and that kubeconfig and context are the right ones")
    version = read_version(printed)
    if version is not None and (1, 0) < version < OLDEST_KUBERNETES:
        wanted = words(OLDEST_KUBERNETES)
        return problem(name, f"{cluster.api_server} is Kubernetes {printed}", f"use a cluster of {wanted} or later")
    return ok(name, f"{cluster.api_server}, Kubernetes {printed}")


def check_volcano_kinds(cluster: LiveCluster, asked: Asked) -> Finding:
    """Check that the cluster serves what a Volcano job consists of."""
    kinds = (VOLCANO_JOB, VOLCANO_POD_GROUP, VOLCANO_QUEUE, VOLCANO_COMMAND)
    absent = [kind for kind in kinds if not cluster.serves(kind)]
    if not absent:
        return ok("volcano", served(kinds))
    if asked.scheduler != "volcano" and len(absent) == len(kinds):
        return skipped("volcano", "not installed")
    return problem(
        "volcano", f"the cluster does not serve {served(absent)}", "install Volcano, or choose another cluster"
    )


def check_mcad_kinds(cluster: LiveCluster, asked: Asked) -> Finding:
    """Check that the cluster serves AppWrappers, and say in which versions."""
    found = [kind for kind in (APP_WRAPPER, APP_WRAPPER_V1BETA2) if cluster.serves(kind)]
    groups = [kind for kind in (X_K8S_POD_GROUP, SIGS_POD_GROUP) if cluster.serves(kind)]
    if not found and asked.scheduler != "mcad":
        return skipped("mcad", "not installed")
    if not found:
        return problem(
            "mcad",
            "the cluster serves no AppWrapper",
            "install MCAD (v1beta1) or the AppWrapper operator (v1beta2), or choose another cluster",
        )
    more = f"; for a coscheduler: {served(groups)}" if groups else "; no PodGroups for a coscheduler"
    return ok("mcad", served(found) + more)


def check_webhooks(cluster: LiveCluster, asked: Asked) -> Finding:
    """Check that Volcano's admission judges jobs, by one that is never made."""
    name = "webhooks"
    if not cluster.serves(VOLCANO_JOB):
        return skipped(name, "no Volcano")
    try:
        cluster.create(VOLCANO_JOB, asked.namespace, probe_job(asked), dry_run=True)
    except ClusterError as error:
        if "failed calling webhook" in str(error):
            return problem(
                name,
                f"Volcano's admission does not answer: {error}",
                "see the pods and the Service of volcano-admission",
            )
        return skipped(name, f"a job could not be tried: {error}")
    try:
        configured = cluster.list(VALIDATING_WEBHOOK, None)
    except ClusterError:
        return ok(name, "a job passes; whether Volcano's admission judged it cannot be seen with these permissions")
    if not any("volcano" in str((item.get("metadata") or {}).get("name")) for item in configured):
        return problem(
            name,
            "no ValidatingWebhookConfiguration of Volcano: mistakes in a job are not refused but wait for ever",
            "install volcano-admission",
        )
    return ok(name, "Volcano's admission lets a job pass")


def check_queue(cluster: LiveCluster, asked: Asked) -> Finding:
    """Check that the queue is there and open."""
    check, queue = "queue", asked.queue or "default"
    if not cluster.serves(VOLCANO_QUEUE):
        return skipped(check, "no Volcano")
    try:
        found = cluster.get(VOLCANO_QUEUE, None, queue)
        others = [] if found else cluster.list(VOLCANO_QUEUE, None)
    except ClusterError as error:
        return skipped(check, f"queue {queue} cannot be looked at: {error}")
    if found is None:
        open_ones = [str(item["metadata"]["name"]) for item in others if state_of(item) == "Open"]
        return problem(
            check,
            f"there is no queue {queue!r}",
            f"name one that is open: {', '.join(open_ones) or 'there is none'}; or create it",
        )
    if state_of(found) != "Open":
        return problem(check, f"queue {queue!r} is {state_of(found)}", "open it, or name another queue")
    return ok(check, f"{queue} is open")


def check_namespace(cluster: LiveCluster, asked: Asked) -> Finding:
    """Check that the namespace is there and stays."""
    check = "namespace"
    try:
        found = cluster.get(NAMESPACE, None, asked.namespace)
    except ClusterError as error:
        return skipped(check, f"namespace {asked.namespace} cannot be looked at: {error}")
    if found is None:
        return problem(
            check, f"there is no namespace {asked.namespace!r}", f"kubectl create namespace {asked.namespace}"
        )
    if (found.get("status") or {}).get("phase") == "Terminating":
        return problem(
            check, f"namespace {asked.namespace!r} is being deleted", "wait until it is gone, or name another"
        )
    return ok(check, asked.namespace)


def check_permissions(cluster: LiveCluster, asked: Asked) -> Finding:
    """Check that these credentials may do all that launching, reading and ending an app needs."""
    check = "permissions"
    wanted: dict[Permission, None] = {}
    if asked.scheduler != "mcad" and cluster.serves(VOLCANO_JOB):
        wanted.update(dict.fromkeys(VOLCANO))
    if asked.scheduler != "volcano":
        for kind in (APP_WRAPPER, APP_WRAPPER_V1BETA2):
            if cluster.serves(kind):
                wanted.update(dict.fromkeys(of_app_wrapper(kind)))
    if not wanted:
        return skipped(check, "no scheduler to launch with")
    try:
        denied = [item for item in wanted if not _is_allowed(cluster, item, asked.namespace)]
    except ClusterError as error:
        return skipped(check, f"the cluster does not say: {error}")
    if needed := [item for item in denied if not item.without]:
        return problem(
            check,
            f"in namespace {asked.namespace!r} these credentials may not: {', '.join(map(str, needed))}",
            "ask for a Role with these verbs and resources, and a RoleBinding to it (docs/permissions.md)",
        )
    found = f"{len(wanted) - len(denied)} of {len(wanted)} in namespace {asked.namespace}"
    lost = "; ".join(f"no {item}: {item.without}" for item in denied)
    return ok(check, f"{found}; {lost}" if lost else found)


def _is_allowed(cluster: LiveCluster, item: Permission, namespace: str) -> bool:
    return cluster.allowed(item.verb, item.kind, None if item.everywhere else namespace, item.part)


IN_CLUSTER: Sequence[tuple[str, Callable[[LiveCluster, Asked], Finding]]] = (
    ("cluster", lambda cluster, _: check_version(cluster)),
    ("namespace", check_namespace),
    ("volcano", check_volcano_kinds),
    ("mcad", check_mcad_kinds),
    ("webhooks", check_webhooks),
    ("queue", check_queue),
    ("permissions", check_permissions),
)
"""Name of a check, and the check."""

VOLCANO_ONLY = frozenset({"volcano", "webhooks", "queue"})
MCAD_ONLY = frozenset({"mcad"})


def probe_job(asked: Asked) -> Manifest:
    """Make the smallest job that Volcano's admission has something to say about."""
    container = {"name": "probe", "image": "probe:1", "resources": {"requests": {"cpu": "1m"}}}
    return {
        "apiVersion": VOLCANO_JOB.api_version,
        "kind": VOLCANO_JOB.kind,
        "metadata": {"name": PROBE, "namespace": asked.namespace},
        "spec": {
            "schedulerName": "volcano",
            "queue": asked.queue or "default",
            "minAvailable": 1,
            "tasks": [
                {
                    "name": "probe",
                    "replicas": 1,
                    "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
                }
            ],
        },
    }


def state_of(queue: Manifest) -> str:
    """Return the state of a queue; one that its controller has not looked at yet is open."""
    return str((queue.get("status") or {}).get("state") or "Open")


def served(kinds: Iterable[Kind]) -> str:
    """Word kinds with their versions."""
    return ", ".join(f"{kind.kind} {kind.api_version}" for kind in kinds)
