"""Volcano's needs of a cluster: kinds, queue, webhooks and permissions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from torchx_pulumi.kube import Cluster, Reader
from torchx_pulumi.kube.kinds import NAMESPACE, PRIORITY_CLASS, SERVICE_ACCOUNT, VALIDATING_WEBHOOK
from torchx_pulumi.model.errors import ClusterError, Problem
from torchx_pulumi.model.finding import DoctorScope, Finding, ok, problem, skipped
from torchx_pulumi.model.object_fields import text_at
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.schedulers.installed import deployed_tag, installed
from torchx_pulumi.schedulers.permissions import READING, Permission, on_job_object
from torchx_pulumi.schedulers.pods.template import new_object
from torchx_pulumi.schedulers.protocol import NamedObject, named_kinds
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_COMMAND, VOLCANO_JOB, VOLCANO_POD_GROUP, VOLCANO_QUEUE
from torchx_pulumi.schedulers.volcano.options import GangMode, VolcanoOptions

PROBE: Final = "torchx-pulumi-doctor"

GET_POD_GROUP = Permission(
    verb="get",
    kind=VOLCANO_POD_GROUP,
    without="whether the queue has let a job in, and why a gang has no place, is read from its pods only",
)
GET_QUEUE = Permission(
    verb="get", kind=VOLCANO_QUEUE, everywhere=True, without="whether the queue is missing, closed or full is not known"
)
LIST_POD_GROUPS = Permission(
    verb="list", kind=VOLCANO_POD_GROUP, everywhere=True, without="what else is in the queue is seen in one namespace"
)

PERMISSIONS: Final = (
    *on_job_object(VOLCANO_JOB),
    Permission(
        verb="create",
        kind=VOLCANO_COMMAND,
        without="cancel and resume change the status of the job instead of asking Volcano",
    ),
    Permission(verb="patch", kind=VOLCANO_JOB, part="status", without="cancel and resume update the status as a whole"),
    Permission(
        verb="update",
        kind=VOLCANO_JOB,
        part="status",
        without="cancel and resume need it where neither a Command nor a patch is allowed",
    ),
    GET_POD_GROUP,
    GET_QUEUE,
    LIST_POD_GROUPS,
    *READING,
)
"""Permissions for Volcano Jobs, with gang=pods as well."""


def permissions(cluster: Reader) -> Sequence[Permission]:
    """Return the permissions that Volcano needs; empty if the cluster does not have it."""
    return PERMISSIONS if cluster.serves(VOLCANO_JOB) else ()


def absent(cluster: Reader, options: VolcanoOptions) -> list[Problem]:
    """Return the parts of the scheduler that the cluster lacks; empty if a job can be created."""
    kind = VOLCANO_POD_GROUP if options.gang == GangMode.PODS else VOLCANO_JOB
    if cluster.serves(kind):
        return []
    text = f"serves no {kind.kind} of {kind.group}: Volcano is not installed; install it, or choose another cluster"
    return [Problem("cluster", text)]


def named_objects(options: VolcanoOptions) -> list[NamedObject]:
    """Return the objects that options name."""
    return [
        NamedObject(option="namespace", kind=NAMESPACE, name=options.namespace),
        NamedObject(option="queue", kind=VOLCANO_QUEUE, name=options.queue, check=_check_open),
        NamedObject(option="priority_class", kind=PRIORITY_CLASS, name=options.priority_class),
        NamedObject(option="service_account", kind=SERVICE_ACCOUNT, name=options.service_account, required=False),
    ]


def queue_state(queue: Manifest) -> str:
    """Return the state of a queue; one that its controller has not read yet is open."""
    return str((queue.get("status") or {}).get("state") or "Open")


def _check_open(queue: Manifest) -> str:
    if text_at(queue, "metadata", "name") == "root":
        return "is the root of all queues; a job can only be submitted to a queue below it"
    state = queue_state(queue)
    return "" if state == "Open" else f"is {state}; a job can only be submitted to an open queue"


def check_installed(cluster: Cluster, asked: DoctorScope) -> Finding:
    """Check that the cluster serves the kinds of a Volcano job, and the version of Volcano."""
    kinds = (VOLCANO_JOB, VOLCANO_POD_GROUP, VOLCANO_QUEUE, VOLCANO_COMMAND)
    absent = [kind for kind in kinds if not cluster.serves(kind)]
    if not absent:
        tag = deployed_tag(cluster, "volcano-system", "vc-controller-manager")
        return installed("volcano", named_kinds(kinds), "volcano", tag)
    if asked.scheduler != "volcano" and len(absent) == len(kinds):
        return skipped("volcano", "not installed")
    return problem(
        "volcano", f"the cluster does not serve {named_kinds(absent)}", "install Volcano, or choose another cluster"
    )


def check_webhooks(cluster: Cluster, asked: DoctorScope) -> Finding:
    """Check that Volcano's admission judges jobs, by a dry run."""
    name = "webhooks"
    if not cluster.serves(VOLCANO_JOB):
        return skipped(name, "no Volcano")
    try:
        cluster.create(VOLCANO_JOB, asked.namespace, _probe_job(asked), dry_run=True)
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


def check_queue(cluster: Cluster, asked: DoctorScope) -> Finding:
    """Check that the queue exists and is open."""
    check, queue = "queue", asked.queue or "default"
    if not cluster.serves(VOLCANO_QUEUE):
        return skipped(check, "no Volcano")
    try:
        found = cluster.get(VOLCANO_QUEUE, None, queue)
        others = [] if found else cluster.list(VOLCANO_QUEUE, None)
    except ClusterError as error:
        return skipped(check, f"queue {queue} cannot be looked at: {error}")
    if found is None:
        open_ones = [str(item["metadata"]["name"]) for item in others if queue_state(item) == "Open"]
        return problem(
            check,
            f"there is no queue {queue!r}",
            f"name one that is open: {', '.join(open_ones) or 'there is none'}; or create it",
        )
    if queue_state(found) != "Open":
        return problem(check, f"queue {queue!r} is {queue_state(found)}", "open it, or name another queue")
    return ok(check, f"{queue} is open")


def _probe_job(asked: DoctorScope) -> Manifest:
    """Return the smallest job that Volcano's admission checks."""
    container = {"name": "probe", "image": "probe:1", "resources": {"requests": {"cpu": "1m"}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    spec = {
        "schedulerName": "volcano",
        "queue": asked.queue or "default",
        "minAvailable": 1,
        "tasks": [{"name": "probe", "replicas": 1, "template": template}],
    }
    return new_object(VOLCANO_JOB, {"name": PROBE, "namespace": asked.namespace}, spec)
