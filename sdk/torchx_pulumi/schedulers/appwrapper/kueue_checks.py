"""Whether Kueue can ever admit a job: its LocalQueue, ClusterQueue and flavors, before it is launched."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from torchx_pulumi.kube import Cluster, Reader, run_concurrently
from torchx_pulumi.kube.kinds import NAMESPACE
from torchx_pulumi.model.errors import ClusterError, Problem
from torchx_pulumi.model.finding import DoctorScope, Finding, ok, problem, skipped
from torchx_pulumi.model.job_plan import JobPlan
from torchx_pulumi.model.object_fields import at, items_at, mapping_at, text_at
from torchx_pulumi.model.options import Manifest, Observed
from torchx_pulumi.model.text import listed
from torchx_pulumi.schedulers.appwrapper.kueue import (
    PodSet,
    QueueObjects,
    condition_of,
    is_selected,
    pod_sets_of,
    queues_in,
)
from torchx_pulumi.schedulers.appwrapper.kueue_observe import LIST_FLAVORS, read_queues
from torchx_pulumi.schedulers.appwrapper.objects import CLUSTER_QUEUE, KUEUE_PRIORITY, LOCAL_QUEUE, RESOURCE_FLAVOR
from torchx_pulumi.schedulers.appwrapper.options import MCADOptions, NeverAdmitted
from torchx_pulumi.schedulers.appwrapper.phases import kueue_queue
from torchx_pulumi.schedulers.appwrapper.quotas import Quota, exceeds
from torchx_pulumi.schedulers.appwrapper.v1beta2 import render_mcad_v1beta2
from torchx_pulumi.schedulers.diagnosis.nodes import bare_amount, untolerated, written_amount
from torchx_pulumi.schedulers.permissions import GET_NAMESPACES
from torchx_pulumi.schedulers.pods.observe import if_allowed

MOST_SHOWN = 3
"""Obstacles that a message about a job names at most."""

INSTEAD = (
    "ask for less, choose another local_queue, or have its quota raised; on_never_admitted: warn launches it all the "
    "same"
)


def check_admission(cluster: Reader, plan: JobPlan[MCADOptions]) -> tuple[list[Problem], list[str]]:
    """Check that Kueue can admit a planned job at some time.

    Returns:
        Problems that keep it out for ever, and warnings. Both are empty for a job that Kueue does not manage. What the
        credentials may not read is not judged.

    Raises:
        ClusterError: The cluster does not answer.
    """
    name, namespace = plan.options.local_queue, plan.namespace
    if name is None:
        return [], []
    objects = read_queues(cluster, namespace, name)
    queues = queues_in(objects)
    if queues.local_queue is None and not cluster.serves(LOCAL_QUEUE):
        text = f"{name!r} is a queue of Kueue, which is not installed: install it, unset the option, or choose another"
        return [Problem("local_queue", f"{text} cluster")], []
    if LOCAL_QUEUE not in objects:
        return [], [f"local_queue {name!r} could not be checked: no permission to get localqueues.kueue.x-k8s.io"]
    if queues.local_queue is None:
        text = f"{name!r} is not in namespace {namespace!r}; {_others(cluster, namespace)}"
        return [Problem("local_queue", text)], []
    if closed := _closed(queues, name):
        return [], [f"{closed}: the job waits until that is changed"]
    if queues.cluster_queue is None:
        text = f"local_queue {name!r}: {queues.words} may not be read, so that its quota is not checked"
        return [], [] if CLUSTER_QUEUE in objects else [text]
    flavors, space = run_concurrently(
        lambda: if_allowed(cluster, LIST_FLAVORS, None, lambda: cluster.list(RESOURCE_FLAVOR, None)),
        lambda: if_allowed(cluster, GET_NAMESPACES, None, lambda: cluster.get(NAMESPACE, None, namespace)),
    )
    # The names of its tasks, as roles have them.
    tasks = [
        replace(one, name=one.name.removeprefix(f"{plan.job_name}-")) for one in pod_sets_of(render_mcad_v1beta2(plan))
    ]
    found = [*obstacles(queues, tasks, flavors)]
    if space is not None and not is_selected(queues.cluster_queue, mapping_at(space, "metadata", "labels")):
        found.insert(0, f"{queues.words} takes no jobs of namespace {namespace!r} (its namespaceSelector)")
    if not found:
        return [], []
    text = f"{name!r} can never admit the job: {listed(found, MOST_SHOWN)}; {INSTEAD}"
    if plan.options.on_never_admitted == NeverAdmitted.WARN:
        return [], [f"local_queue {text}"]
    return [Problem("local_queue", text)], []


def check_change(job_object: Manifest, options: MCADOptions) -> Iterator[Problem]:
    """Yield what Kueue refuses of changed labels: a job keeps its priority class, and gets none while it runs."""
    if kueue_queue(job_object) is None:
        return
    former, wanted = text_at(job_object, "metadata", "labels", KUEUE_PRIORITY), options.labels.get(KUEUE_PRIORITY)
    if former and not wanted:
        text = f"{KUEUE_PRIORITY} ({former!r}) cannot be taken from a job: keep it, or name another class"
        yield Problem("labels", text)
    if wanted and not former and at(job_object, "spec", "suspend") is not True:
        text = f"{KUEUE_PRIORITY} cannot be given to a job that runs: leave it out, or launch a new run with `rerun`"
        yield Problem("labels", text)


def obstacles(queues: QueueObjects, pod_sets: Sequence[PodSet], flavors: Sequence[Manifest] | None) -> Iterator[str]:
    """Yield why a ClusterQueue can never admit pod sets together, as Kueue judges that.

    Args:
        queues: The queues, with their quotas.
        pod_sets: All pods of the job.
        flavors: All ResourceFlavors. None: they were not read, and every flavor takes every pod.
    """
    groups = items_at(queues.cluster_queue, "spec", "resourceGroups")
    by_name = None if flavors is None else {text_at(one, "metadata", "name"): one for one in flavors}
    covered = {str(resource) for group in groups for resource in group.get("coveredResources") or ()}
    asked = [(one, {**one.requests, **({"pods": float(one.count)} if "pods" in covered else {})}) for one in pod_sets]
    lacking = sorted({resource for _, wants in asked for resource in wants} - covered)
    if lacking:
        yield f"{queues.words} has no quota for {', '.join(lacking)}, unless Kueue's configuration leaves it out"
    total: dict[str, float] = {}
    unfit: dict[str, str] = {}
    for pod_set, wants in asked:
        for resource, value in wants.items():
            total[resource] = total.get(resource, 0.0) + value
        for group in groups:
            if why := _unfit(queues, pod_set, wants, group, by_name):
                # The pods of a role lack the same.
                unfit.setdefault(why, pod_set.name)
    yield from (f"{name}: {why}" for why, name in unfit.items())
    for resource, value in total.items():
        most = sum(quota.most for (_, name), quota in queues.quotas.items() if name == resource)
        if (
            resource in covered
            and exceeds(value, most)
            and not any(exceeds(wants.get(resource, 0.0), most) for _, wants in asked)
        ):
            limit = f"{queues.words} can have {bare_amount(resource, most)} at most"
            yield f"it asks for {written_amount(resource, value)} in all, {limit}"


def _unfit(
    queues: QueueObjects,
    pod_set: PodSet,
    wants: Mapping[str, float],
    group: Observed,
    flavors: Mapping[str | None, Manifest] | None,
) -> str:
    """Return why no flavor of a group of resources takes a pod set; empty if one does."""
    wanted = {one: value for one, value in wants.items() if one in (group.get("coveredResources") or ())}
    if not wanted:
        return ""
    reasons: list[str] = []
    for flavor in items_at(group, "flavors"):
        name = text_at(flavor, "name") or "?"
        short = [
            f"{written_amount(resource, value)} wanted, at most {bare_amount(resource, most)} in flavor {name!r}"
            for resource, value in wanted.items()
            if (quota := queues.quotas.get((name, resource))) is not None and exceeds(value, most := quota.most)
        ]
        short += [] if flavors is None else _unsuitable(name, flavors.get(name), pod_set.spec)
        if not short:
            return ""
        reasons += short
    return ", ".join(reasons) or "its resource group has no flavor"


def _unsuitable(name: str, flavor: Observed | None, spec: Observed) -> Iterable[str]:
    """Yield why a flavor does not take a pod: it does not exist, its labels, its taints."""
    if flavor is None:
        return [f"flavor {name!r} does not exist"]
    labels = mapping_at(flavor, "spec", "nodeLabels")
    selected = mapping_at(spec, "nodeSelector")
    other = [f"{key}={value}" for key, value in selected.items() if key in labels and labels[key] != value]
    tolerations = [*items_at(spec, "tolerations"), *items_at(flavor, "spec", "tolerations")]
    taints = untolerated(items_at(flavor, "spec", "nodeTaints"), tolerations)
    return [
        *(f"flavor {name!r} has not the label {label}" for label in other),
        *(f"flavor {name!r} has the taint {taint}, which it does not tolerate" for taint in taints),
    ]


def _closed(queues: QueueObjects, name: str) -> str:
    """Return why a LocalQueue admits nothing now; empty if it does."""
    active = condition_of(queues.local_queue, "Active")
    if active.get("status") != "False":
        return ""
    own = condition_of(queues.cluster_queue, "Active")
    said = text_at(own if own.get("status") == "False" else active, "message") or text_at(active, "reason")
    return f"local_queue {name!r} is not active ({said})"


def _others(cluster: Reader, namespace: str) -> str:
    """Return which LocalQueues a namespace has, in words."""
    try:
        found = sorted(str(one["metadata"]["name"]) for one in cluster.list(LOCAL_QUEUE, namespace))
    except ClusterError as error:
        if error.retryable:
            raise
        return "name one that is there"
    return f"there are {listed(found, 10)}" if found else "there are none; have one created"


def check_local_queue(cluster: Cluster, asked: DoctorScope) -> Finding:
    """Check for the doctor that a LocalQueue exists and admits jobs; without a name, which ones there are."""
    check, namespace = "local-queue", asked.namespace
    if not cluster.serves(LOCAL_QUEUE):
        return skipped(check, "no Kueue")
    if asked.queue is None or asked.scheduler != "mcad":
        return ok(check, f"in namespace {namespace}: {_others(cluster, namespace)}")
    objects = read_queues(cluster, namespace, asked.queue)
    queues = queues_in(objects)
    if LOCAL_QUEUE not in objects:
        return skipped(check, f"LocalQueue {asked.queue} may not be read")
    if queues.local_queue is None:
        text = f"there is no LocalQueue {asked.queue!r} in namespace {namespace}"
        return problem(check, text, _others(cluster, namespace))
    if closed := _closed(queues, asked.queue):
        return problem(check, closed, "have it corrected or started again, or name another queue")
    if queues.cluster_queue is None:
        return ok(check, f"{asked.queue} admits jobs; {queues.words} may not be read")
    quotas = ", ".join(_in_words(*key, quota) for key, quota in queues.quotas.items())
    return ok(check, f"{asked.queue} admits jobs into {queues.words}: {quotas}")


def _in_words(flavor: str, resource: str, quota: Quota) -> str:
    """Return how much of a quota is free, or of one that is not known completely, how much its queue has."""
    if quota.free is None or not math.isfinite(quota.most):
        return f"{written_amount(resource, quota.nominal)} of its own in flavor {flavor!r}"
    return f"{bare_amount(resource, quota.free)} of {written_amount(resource, quota.most)} free in flavor {flavor!r}"
