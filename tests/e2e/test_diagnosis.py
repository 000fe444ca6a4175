"""Each failure, made on the real cluster, is told with its reason, its object and what to do."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi import render
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.kube.kinds import POD, PRIORITY_CLASS, Kind
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.status import JobState, JobStatus, Reason
from torchx_pulumi.outputs.building import build_observed, same
from torchx_pulumi.schedulers import Variant, find_backend
from torchx_pulumi.schedulers.appwrapper.objects import APP_WRAPPER
from torchx_pulumi.schedulers.appwrapper.options import AppWrapperVersion
from torchx_pulumi.schedulers.diagnosis.refusals import diagnose_refusal
from torchx_pulumi.schedulers.volcano.control import CONTROL
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB, VOLCANO_POD_GROUP, VOLCANO_QUEUE
from torchx_pulumi.schedulers.volcano.options import GangMode

from tests.e2e.app_wrappers import FAKE, shell
from tests.e2e.project import eventually

pytestmark = pytest.mark.e2e

TIMEOUT_S = 240
soon = partial(eventually, timeout_s=TIMEOUT_S)
JOB = find_backend("volcano").variants[GangMode.JOB]
MCAD = find_backend("mcad").variants[AppWrapperVersion.V1BETA1]


class Jobs:
    """Jobs of one namespace, submitted as they are rendered."""

    def __init__(self, cluster: Any, look: KubernetesCluster, namespace: str) -> None:
        self.look, self.namespace, self._image = look, namespace, cluster.images["busybox"]
        self._made: list[tuple[Kind, str]] = []

    def submit(self, *roles: Mapping[str, Any], scheduler: str = "volcano", **options: Any) -> str:
        """Submit a job of these roles, which run a shell unless they say otherwise; return its name."""
        name = f"job-{uuid.uuid4().hex[:6]}"
        whole = [{"name": "trainer", "image": self._image, "entrypoint": "sh", **role} for role in roles]
        queue = {"queue": "default"} if scheduler == "volcano" else {}
        made = render(
            {"name": name, "roles": whole}, scheduler, {"namespace": self.namespace, **queue, **options}, app_id=name
        )
        kind = VOLCANO_JOB if scheduler == "volcano" else APP_WRAPPER
        self.look.create(kind, self.namespace, made)
        self._made.append((kind, name))
        return name

    def status(self, name: str, form: Variant = JOB) -> JobStatus:
        """Read a job's status as everybody does who asks."""
        return form.read_status(form.observe(self.look, self.namespace, name), datetime.now(timezone.utc))

    def wait(
        self, name: str, reason: Reason, form: Variant = JOB, until: Callable[[JobStatus], bool] | None = None
    ) -> JobStatus:
        """Wait until a job's first diagnosis has this reason."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            status = self.status(name, form)
            if status.diagnoses and status.diagnoses[0].reason is reason and (until is None or until(status)):
                assert status.reason is reason
                assert all(one.summary and one.resolution for one in status.diagnoses)
                return status
            found = [(one.reason.value, one.summary) for one in status.diagnoses]
            assert time.monotonic() < deadline, (
                f"{status.state.value}, {status.reason.value}: {status.message}; {found}"
            )
            time.sleep(0.3)

    def clear(self) -> None:
        """Delete what was submitted."""
        for kind, name in self._made:
            self.look.delete(kind, self.namespace, name)


@pytest.fixture
def jobs(cluster: Any, look: KubernetesCluster, namespace: str) -> Iterator[Jobs]:
    if not cluster.settings.real_node:
        pytest.skip(f"no real node: {cluster.settings.why_no_real_node}")
    made = Jobs(cluster, look, namespace)
    yield made
    made.clear()


def test_an_image_that_is_not_there_is_named_in_words_that_stay(jobs: Jobs, cluster: Any) -> None:
    image = f"{cluster.registry}/none-such:1"
    name = jobs.submit(shell("true", image=image, num_replicas=2))
    both = "2 of 2 replicas"
    status = jobs.wait(name, Reason.IMAGE_UNAVAILABLE, until=lambda seen: both in seen.message)
    first = status.diagnoses[0]
    assert f"image {image!r} cannot be pulled: it is not in the registry" in first.summary
    assert first.objects[0].kind == "Pod"
    # The kubelet's text goes to and fro between the error and the wait for the next try.
    observed = build_observed(status, observed_at=datetime.now(timezone.utc))
    words: set[str] = set()
    deadline = time.monotonic() + TIMEOUT_S
    looks = 0
    while looks < 12 or not words:
        assert time.monotonic() < deadline, JOB.observe(jobs.look, jobs.namespace, name).pods
        looks += 1
        seen = JOB.observe(jobs.look, jobs.namespace, name)
        waits = [pod["status"]["containerStatuses"][0]["state"].get("waiting") or {} for pod in seen.pods or ()]
        # A busy registry may say something else for once; that is news then.
        if all("not found" in wait.get("message", "") for wait in waits):
            assert same(observed, build_observed(JOB.read_status(seen), observed_at=datetime.now(timezone.utc)))
            words.update(wait["reason"] for wait in waits)
        time.sleep(0.5)


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A job that fails or waits, and what its first diagnosis says."""

    role: Mapping[str, Any]
    reason: Reason
    words: Sequence[str]
    """What is in the summary."""
    options: Mapping[str, Any] = field(default_factory=dict)
    state: JobState | None = None
    """None: any."""
    detail: str = ""
    """What is in the detail; a busy node may not give a log at once."""
    then: Reason | None = None
    """Reason of the second diagnosis. None: any, or there is none."""

    def is_told(self, seen: JobStatus) -> bool:
        reasons = [one.reason for one in seen.diagnoses]
        first = seen.diagnoses[0]
        is_whole = self.detail in first.detail and all(words in first.summary for words in self.words)
        is_whole = is_whole and (self.then is None or reasons[1:2] == [self.then])
        return is_whole and self.state in (None, seen.state)


DISK = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["fast"]}]}
WITH_DISK = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [DISK]}}


def failures(fake_nodes: int) -> dict[str, Failure]:
    """Return failures by their names."""
    never = Reason.NEVER_SCHEDULABLE
    return {
        "exit code": Failure(
            role=shell("echo loading; echo 'ValueError: no such shard' >&2; exit 3"),
            reason=Reason.EXIT_CODE,
            state=JobState.FAILED,
            words=["exited with code 3"],
            detail="ValueError: no such shard",
        ),
        "memory": Failure(
            role=shell("tail /dev/zero", resource={"memory_mb": 16}),
            options={"reserved_memmb": 0},
            reason=Reason.OUT_OF_MEMORY,
            state=JobState.FAILED,
            words=["its limit of 16M"],
        ),
        "retries": Failure(
            role=shell("exit 4", max_retries=1, retry_policy="APPLICATION"),
            reason=Reason.RETRIES_EXHAUSTED,
            words=[],
            then=Reason.EXIT_CODE,
        ),
        # The node removes the container of an earlier run, and its log, while the next one starts.
        "restarts": Failure(
            role=shell("echo again; exit 5", pod_overlay={"spec": {"restartPolicy": "Always"}}),
            reason=Reason.CRASH_LOOP,
            words=["restarted", "exited with code 5"],
            detail="again",
        ),
        # Until Volcano has taken the job up, it is submitted.
        "selector": Failure(
            role=shell("true", node_selector={"disk": "fast"}),
            reason=never,
            state=JobState.PENDING,
            words=["no node has the label disk=fast"],
        ),
        "taint": Failure(
            role=shell("true", node_selector=FAKE["node_selector"]),
            reason=never,
            state=JobState.PENDING,
            words=["closed by taints that it does not tolerate (kwok.x-k8s.io/node"],
        ),
        "affinity": Failure(
            role=shell("true", pod_overlay={"spec": {"affinity": {"nodeAffinity": WITH_DISK}}}),
            reason=never,
            state=JobState.PENDING,
            words=["no node matches its node selector or node affinity"],
        ),
        "size": Failure(
            role=shell("true", resource={"cpu": 1000}),
            options={"reserved_millicpu": 0},
            reason=never,
            words=["a replica asks for 1000 cpu"],
        ),
        "gang": Failure(
            role=shell("true", num_replicas=fake_nodes + 1, resource={"cpu": 40}, **FAKE),
            options={"reserved_millicpu": 0},
            reason=never,
            words=[f"{fake_nodes + 1} replicas of", f"room for {fake_nodes} of them"],
        ),
    }


def test_each_failure_is_told_with_its_reason_and_its_words(jobs: Jobs, cluster: Any) -> None:
    # All of them at once: the test waits for the slowest one, and not for their sum.
    found = failures(cluster.settings.kwok_nodes)
    names = {name: jobs.submit(failure.role, **failure.options) for name, failure in found.items()}
    told = {name: jobs.wait(names[name], failure.reason, until=failure.is_told) for name, failure in found.items()}
    status = told["exit code"]
    assert "ValueError: no such shard" in status.message
    assert status.diagnoses[0].objects[0].name == f"{names['exit code']}-trainer-0-0"


def test_a_job_with_the_retries_that_were_advised_starts_again_after_a_drain(jobs: Jobs, kubeconfig: Path) -> None:
    from kubernetes import client, config

    api = client.CoreV1Api(config.new_client_from_config(str(kubeconfig)))
    role = shell("trap 'exit 143' TERM; sleep 600 & wait")

    def evict(name: str) -> str:
        """Evict the pod as a drain does; return its uid."""
        pod = f"{name}-trainer-0-0"
        soon(lambda: running(name))
        uid: str = running(name)
        eviction = client.V1Eviction(metadata=client.V1ObjectMeta(name=pod, namespace=jobs.namespace))
        api.create_namespaced_pod_eviction(pod, jobs.namespace, eviction)
        return uid

    def running(name: str) -> str:
        pods = JOB.observe(jobs.look, jobs.namespace, name).pods or ()
        return next((pod["metadata"]["uid"] for pod in pods if pod["status"].get("phase") == "Running"), "")

    name = jobs.submit(role)
    evict(name)
    told = jobs.wait(name, Reason.EVICTED).diagnoses[0]
    assert "max_retries does that for you" in told.resolution
    name = jobs.submit({**role, "max_retries": 2})
    uid = evict(name)
    soon(lambda: running(name) not in ("", uid))
    soon(lambda: jobs.status(name).state is JobState.RUNNING)
    # Without retries Volcano replaces the pod alone.
    assert (jobs.look.get(VOLCANO_JOB, jobs.namespace, name) or {})["status"]["retryCount"] == 1


def test_a_full_queue_names_who_is_in_it(jobs: Jobs, look: KubernetesCluster) -> None:
    queue = f"small-{jobs.namespace}"
    look.create(
        VOLCANO_QUEUE,
        None,
        {
            "apiVersion": VOLCANO_QUEUE.api_version,
            "kind": VOLCANO_QUEUE.kind,
            "metadata": {"name": queue},
            "spec": {"weight": 1, "capability": {"cpu": "1"}, "reclaimable": False},
        },
    )
    try:
        soon(lambda: (look.get(VOLCANO_QUEUE, None, queue) or {}).get("status", {}).get("state") == "Open")
        wanted = {"cpu": 0.6}
        first = jobs.submit(shell("sleep 600", resource=wanted), queue=queue, reserved_millicpu=0)
        soon(lambda: jobs.status(first).state is JobState.RUNNING)
        second = jobs.submit(shell("true", resource=wanted), queue=queue, reserved_millicpu=0)
        status = jobs.wait(second, Reason.OVER_QUOTA, until=lambda seen: first in seen.diagnoses[0].detail)
        assert f"queue {queue!r} has no room for it" in status.diagnoses[0].summary
    finally:
        jobs.clear()
        soon(lambda: _is_dropped(look, queue))


def _is_dropped(look: KubernetesCluster, queue: str) -> bool:
    """Delete a queue, which its webhook refuses while something is left in it."""
    try:
        look.delete(VOLCANO_QUEUE, None, queue)
    except ClusterError:
        return False
    return True


def phase_of(jobs: Jobs, name: str) -> Any:
    found = jobs.look.get(VOLCANO_JOB, jobs.namespace, name) or {}
    return ((found.get("status") or {}).get("state") or {}).get("phase")


def running(jobs: Jobs, script: str, role: Mapping[str, Any] | None = None, **options: Any) -> str:
    """Submit a job and wait until it runs; return its name."""
    name = jobs.submit(shell(script, **(role or {})), **options)
    soon(lambda: phase_of(jobs, name) == "Running")
    return name


def test_a_job_whose_queue_is_gone_ends_as_its_pods_do(jobs: Jobs) -> None:
    queue = f"lost-{jobs.namespace}"
    made = {
        "apiVersion": VOLCANO_QUEUE.api_version,
        "kind": "Queue",
        "metadata": {"name": queue},
        "spec": {"weight": 1},
    }
    jobs.look.create(VOLCANO_QUEUE, None, made)
    soon(lambda: (jobs.look.get(VOLCANO_QUEUE, None, queue) or {}).get("status", {}).get("state") == "Open")
    good = jobs.submit(shell("sleep 40", num_replicas=2), queue=queue)
    bad = jobs.submit(shell("sleep 40; exit 3"), queue=queue)
    again = jobs.submit(shell("sleep 40; exit 3", max_retries=3), queue=queue)
    soon(lambda: {phase_of(jobs, name) for name in (good, bad, again)} == {"Running"})
    soon(lambda: _is_dropped(jobs.look, queue))
    soon(lambda: jobs.status(good).state.terminal)
    status = jobs.status(good)
    assert (status.state, status.phase) == (JobState.SUCCEEDED, "Running")
    assert f"queue {queue!r} is gone" in status.message
    status = jobs.wait(bad, Reason.EXIT_CODE, until=lambda seen: seen.state is JobState.FAILED)
    assert [one.reason for one in status.diagnoses][1:] == [Reason.QUEUE_MISSING]
    status = jobs.wait(again, Reason.QUEUE_MISSING, until=lambda seen: seen.phase == "Restarting")
    assert status.state is JobState.RUNNING
    # Volcano gives them up itself after about three minutes, without a look at their pods.
    soon(lambda: phase_of(jobs, good) == "Terminated")
    assert jobs.status(good).state is JobState.SUCCEEDED
    status = jobs.wait(again, Reason.RETRIES_EXHAUSTED)
    assert status.state is JobState.FAILED
    assert Reason.QUEUE_MISSING in [one.reason for one in status.diagnoses]


def test_what_else_stops_a_controller_is_named(jobs: Jobs) -> None:
    urgent = f"lost-{jobs.namespace}"
    made = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": urgent}, "value": 5}
    jobs.look.create(PRIORITY_CLASS, None, made)
    name = running(jobs, "sleep 600", priority_class=urgent)
    jobs.look.delete(PRIORITY_CLASS, None, urgent)
    jobs.look.delete(POD, jobs.namespace, f"{name}-trainer-0-0")
    status = jobs.wait(name, Reason.REFUSED)
    assert status.state is JobState.RUNNING
    assert f"priority class {urgent!r} does not exist" in status.message

    waiting = jobs.submit(shell("true", resource={"cpu": 900}))
    jobs.wait(waiting, Reason.NEVER_SCHEDULABLE)
    (group,) = [one for one in jobs.look.list(VOLCANO_POD_GROUP, jobs.namespace) if waiting in one["metadata"]["name"]]
    jobs.look.delete(VOLCANO_POD_GROUP, jobs.namespace, group["metadata"]["name"])
    jobs.wait(waiting, Reason.CONTROLLER_ABSENT)
    uid = str(jobs.look.get(VOLCANO_JOB, jobs.namespace, waiting)["metadata"]["uid"])  # type: ignore[index]
    CONTROL.suspend(jobs.look, jobs.namespace, waiting, uid)
    soon(lambda: phase_of(jobs, waiting) == "Aborted")
    CONTROL.resume(jobs.look, jobs.namespace, waiting, uid)
    jobs.wait(waiting, Reason.NEVER_SCHEDULABLE)


def test_a_namespace_that_is_being_deleted_is_named(jobs: Jobs, cluster: Any, kubeconfig: Path) -> None:
    from kubernetes import client, config

    api = client.CoreV1Api(config.new_client_from_config(str(kubeconfig), persist_config=False))
    space = f"{jobs.namespace}-going"
    api.create_namespace({"metadata": {"name": space}})
    soon(lambda: api.list_namespaced_service_account(space, field_selector="metadata.name=default").items)
    going = Jobs(cluster, jobs.look, space)
    name = running(going, "sleep 600", {"num_replicas": 2, "max_retries": 3})
    pod = f"{name}-trainer-0-0"
    api.patch_namespaced_pod(pod, space, {"metadata": {"finalizers": ["torchx-pulumi.example.com/held"]}})
    try:
        api.delete_namespace(space)
        status = going.wait(name, Reason.REFUSED)
        assert f"namespace {space!r} is being deleted" in status.message
        with pytest.raises(ClusterError) as refused:
            going.submit(shell("true"))
        told = diagnose_refusal(str(refused.value))
        assert told is not None
        assert told.summary == f"namespace {space!r} is being deleted"
    finally:
        api.patch_namespaced_pod(pod, space, {"metadata": {"finalizers": None}})


def test_webhooks_words_become_diagnoses(
    jobs: Jobs, look: KubernetesCluster, closed_queue: Callable[[str], None]
) -> None:
    closed = f"closed-{jobs.namespace}"
    closed_queue(closed)
    soon(lambda: (look.get(VOLCANO_QUEUE, None, closed) or {}).get("status", {}).get("state") == "Closed")
    for queue, reason in (("none-such", Reason.QUEUE_MISSING), (closed, Reason.QUEUE_CLOSED)):
        with pytest.raises(ClusterError) as refused:
            jobs.submit(shell("true"), queue=queue)
        found = diagnose_refusal(str(refused.value))
        assert found is not None
        assert (found.reason, found.objects[0].name) == (reason, queue)


CLAIM = Kind(group="", version="v1", kind="PersistentVolumeClaim", plural="persistentvolumeclaims")
CLASS = Kind(group="storage.k8s.io", version="v1", kind="StorageClass", plural="storageclasses", namespaced=False)


@dataclass(frozen=True, kw_only=True)
class Volume:
    """A claim of a job, and what the job's first diagnosis says about it."""

    storage_class: str | None
    """Name of its StorageClass. None: the claim does not exist."""
    reason: Reason
    words: str
    advice: str
    provisioner: str | None = None
    """Provisioner of the StorageClass. None: the class does not exist."""
    binding: str = "Immediate"


NOW, NEVER = Reason.UNSCHEDULABLE, Reason.NEVER_SCHEDULABLE
NOBODY, STATIC = "csi.example.com", "kubernetes.io/no-provisioner"
VOLUMES = {
    "absent": Volume(storage_class=None, reason=NEVER, words="{claim!r} does not exist", advice="create it"),
    "no-class": Volume(
        storage_class="none-such",
        reason=NEVER,
        words="StorageClass 'none-such' of PersistentVolumeClaim {claim!r} does not exist",
        advice="create the StorageClass",
    ),
    "empty-class": Volume(
        storage_class="",
        reason=NEVER,
        words="no PersistentVolume fits PersistentVolumeClaim {claim!r}, and it has no StorageClass",
        advice="create a PersistentVolume that fits",
    ),
    "static": Volume(
        storage_class="static",
        reason=NEVER,
        words="PersistentVolumeClaim {claim!r}, and its StorageClass has no provisioner",
        advice="create a PersistentVolume that fits",
        provisioner=STATIC,
    ),
    "static-late": Volume(
        storage_class="static-late",
        reason=NOW,
        words="{claim!r} gets its volume only on the node of its pod",
        advice="see whether a node has the provisioner",
        provisioner=STATIC,
        binding="WaitForFirstConsumer",
    ),
    "nobody": Volume(
        storage_class="nobody",
        reason=NOW,
        words="{claim!r} waits for its provisioner 'csi.example.com'",
        advice="check that the provisioner runs",
        provisioner=NOBODY,
    ),
    "nobody-late": Volume(
        storage_class="nobody-late",
        reason=NOW,
        words="{claim!r} gets its volume only on the node of its pod",
        advice="see whether a node has the provisioner",
        provisioner=NOBODY,
        binding="WaitForFirstConsumer",
    ),
}


# kube-scheduler says more of some than Volcano, or nothing while it waits for a volume.
VOLUMES_OF_MCAD = {
    "absent": VOLUMES["absent"],
    "no-class": VOLUMES["no-class"],
    "static-late": replace(
        VOLUMES["static-late"],
        reason=NEVER,
        words="no PersistentVolume fits its claim",
        advice="create a PersistentVolume",
    ),
    "nobody-late": replace(VOLUMES["nobody"], storage_class="nobody-late", binding="WaitForFirstConsumer"),
}


@pytest.fixture
def volumes(look: KubernetesCluster, namespace: str) -> Iterator[None]:
    """The claims of `VOLUMES`, and the StorageClasses of these that have one."""
    made = []
    for name, volume in VOLUMES.items():
        chosen = volume.storage_class
        if volume.provisioner is not None:
            chosen = f"{namespace}-{chosen}"
            kind = {"apiVersion": CLASS.api_version, "kind": CLASS.kind, "metadata": {"name": chosen}}
            how = {"provisioner": volume.provisioner, "volumeBindingMode": volume.binding}
            look.create(CLASS, None, {**kind, **how})
            made.append(chosen)
        if chosen is not None:
            size = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
            claim = {"apiVersion": CLAIM.api_version, "kind": CLAIM.kind, "metadata": {"name": name}}
            look.create(CLAIM, namespace, {**claim, "spec": {**size, "storageClassName": chosen}})
    yield
    for name in made:
        look.delete(CLASS, None, name)


def wait_for_volumes(jobs: Jobs, volumes: Mapping[str, Volume], form: Variant = JOB, **how: Any) -> dict[str, str]:
    """Launch a job for each claim, wait until it says why it waits, and return the jobs' names by their claims."""

    def mounting(claim: str) -> dict[str, Any]:
        return shell("true", num_replicas=2, mounts=[{"kind": "volume", "src": claim, "dst": "/data"}])

    names = {claim: jobs.submit(mounting(claim), **how) for claim in volumes}
    for claim, volume in volumes.items():
        words = volume.words.format(claim=claim)
        status = jobs.wait(names[claim], volume.reason, form, lambda seen, words=words: words in seen.message)  # type: ignore[misc]
        first = status.diagnoses[0]
        assert volume.advice in first.resolution
        assert (status.state, "could take it" in first.summary) == (JobState.PENDING, False)
    return names


@pytest.mark.mcad
@pytest.mark.usefixtures("volumes")
def test_a_wait_of_an_app_wrapper_for_a_volume_names_the_claim(jobs: Jobs, cluster: Any) -> None:
    if "mcad" not in cluster.settings.features:
        pytest.skip("this cluster has no MCAD")
    wait_for_volumes(jobs, VOLUMES_OF_MCAD, MCAD, scheduler="mcad")


@pytest.mark.usefixtures("volumes")
def test_a_wait_for_a_volume_names_the_claim_and_what_is_missing(jobs: Jobs) -> None:
    names = wait_for_volumes(jobs, VOLUMES)
    # What was missing is there: nobody has to launch the job again.
    claim = {"apiVersion": CLAIM.api_version, "kind": CLAIM.kind, "metadata": {"name": "absent"}}
    size = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    jobs.look.create(CLAIM, jobs.namespace, {**claim, "spec": {**size, "storageClassName": "none-such"}})
    jobs.wait(names["absent"], NEVER, until=lambda seen: "StorageClass 'none-such'" in seen.message)


def test_a_host_port_that_another_job_has_is_no_lack_of_room(jobs: Jobs) -> None:
    def listening(script: str, name: str) -> dict[str, Any]:
        ports = [{"name": f"{name}-${{replica_id}}", "ports": [{"containerPort": 80, "hostPort": 23480}]}]
        overlay = {"spec": {"terminationGracePeriodSeconds": 1, "__join__:containers:name": ports}}
        return shell(script, name=name, pod_overlay=overlay)

    first = jobs.submit(listening("sleep 600", "first"))
    soon(lambda: jobs.status(first).state is JobState.RUNNING)
    told = "no node for it now: its host ports are in use"
    second = jobs.submit(listening("true", "second"))
    status = jobs.wait(second, NOW, until=lambda seen: seen.diagnoses[0].summary == told)
    assert "use other host ports" in status.diagnoses[0].resolution


@pytest.mark.mcad
def test_retries_start_a_job_again_whose_pod_was_deleted(jobs: Jobs, cluster: Any) -> None:
    role = shell("sleep 600", num_replicas=2, max_retries=3)
    runs = [(JOB, jobs.submit(role), "trainer-1-0")]
    if "mcad" in cluster.settings.features:
        runs.append((MCAD, jobs.submit(role, scheduler="mcad", requeuing_time_s=1), "trainer-1"))
    for form, name, pod in runs:
        eventually(lambda name=name, form=form: jobs.status(name, form).state is JobState.RUNNING)  # type: ignore[misc]
        jobs.look.delete(POD, jobs.namespace, f"{name}-{pod}")
    for form, name, _ in runs:
        soon(lambda name=name, form=form: jobs.status(name, form).attempt > 1)  # type: ignore[misc]
        assert jobs.status(name, form).state is not JobState.FAILED


@pytest.mark.mcad
def test_app_wrappers_say_who_is_before_them(jobs: Jobs, cluster: Any) -> None:
    if "mcad" not in cluster.settings.features:
        pytest.skip("this cluster has no MCAD")
    huge = shell("true", resource={"cpu": 100_000})
    before = jobs.submit(huge, scheduler="mcad", reserved_millicpu=0, priority=9)
    jobs.wait(before, Reason.NEVER_SCHEDULABLE, MCAD)
    behind = jobs.submit(huge, scheduler="mcad", reserved_millicpu=0)
    line: list[str] = []

    def told(seen: JobStatus) -> bool:
        line[:] = [one.detail for one in seen.diagnoses if one.reason is Reason.WAITING_IN_QUEUE]
        return bool(line) and before in line[0]

    status = jobs.wait(behind, Reason.NEVER_SCHEDULABLE, MCAD, until=told)
    assert "a replica asks for 100000 cpu" in status.diagnoses[0].summary
