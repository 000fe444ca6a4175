"""Each failure, made on the real cluster, is told with its reason, its object and what to do."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import partial
from typing import Any

import pytest
from torchx_pulumi import render
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.kube.kinds import Kind
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.status import JobState, JobStatus, Reason
from torchx_pulumi.outputs.building import build_observed, same
from torchx_pulumi.schedulers import Variant, find_backend
from torchx_pulumi.schedulers.appwrapper.objects import APP_WRAPPER
from torchx_pulumi.schedulers.appwrapper.options import AppWrapperVersion
from torchx_pulumi.schedulers.diagnosis.refusals import diagnose_refusal
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB, VOLCANO_QUEUE
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
        is_whole = self.detail in seen.diagnoses[0].detail and (self.then is None or reasons[1:2] == [self.then])
        return is_whole and self.state in (None, seen.state)


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
    for name, failure in found.items():
        first = jobs.wait(names[name], failure.reason, until=failure.is_told).diagnoses[0]
        assert [words for words in failure.words if words not in first.summary] == [], (name, first.summary)
    status = jobs.status(names["exit code"])
    assert "ValueError: no such shard" in status.message
    assert status.diagnoses[0].objects[0].name == f"{names['exit code']}-trainer-0-0"


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
