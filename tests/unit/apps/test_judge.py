"""How a run stands, by a table: one row for each rule and its exceptions."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from torchx_pulumi.apps.judge import judge
from torchx_pulumi.apps.look import Look, Remembered
from torchx_pulumi.model.requested import Requested, RequestedAction
from torchx_pulumi.schedulers.diagnosis.evidence import ObservedObjects

from tests.unit.apps.judge_cases import CASES
from tests.unit.apps.simulated_cluster import TASKS, UID, VARIANTS
from tests.unit.schedulers import app_wrappers, observed_objects
from tests.unit.schedulers.observed_objects import ENDED, Manifest

NOW = datetime(2026, 3, 1, 10, 1, tzinfo=timezone.utc)
ROWS = [tuple(cell.strip() for cell in line.split("|")) for line in CASES.strip().splitlines()]


def options_of(text: str) -> tuple[list[str], dict[str, str]]:
    """Return the words of a cell, and its values by name."""
    words = text.split()
    return [one for one in words if "=" not in one], dict(one.split("=", 1) for one in words if "=" in one)


def job_object(kind: str, text: str) -> Manifest:
    words, more = options_of(text)
    phase = None if words[0] == "-" else words[0]
    again, limit = int(more.get("again", 0)), int(more.get("limit", 0))
    counts = {name: int(more[word]) for name, word in (("Succeeded", "ok"), ("failed", "bad")) if word in more}
    if kind == "volcano":
        found = observed_objects.vcjob(phase, status={"retryCount": again})
        found["spec"]["queue"] = "gone" if "noqueue" in words else "default"
        if limit:
            found["spec"] |= {"maxRetry": limit, "policies": [{"event": "PodFailed", "action": "RestartJob"}]}
    elif kind == "v1beta1":
        found = app_wrappers.mcad(phase, retries=limit, numberOfRequeueings=again, **counts)
    elif kind == "v1beta2":
        found = app_wrappers.operators(phase, retries=limit, resettingCount=again)
    else:
        found = observed_objects.pod_group(phase)
        found |= {
            "metadata": app_wrappers.metadata(),
            "spec": {"queue": "q1", "minMember": int(more.get("members", 2))},
        }
    found["metadata"] |= {"uid": UID, "resourceVersion": more.get("v", "100")}
    if "del" in words:
        found["metadata"]["deletionTimestamp"] = ENDED
    return found


def pod(kind: str, index: int, word: str) -> Manifest:
    task = TASKS[index] if index < len(TASKS) else "other-0"
    make = app_wrappers.pod if kind.startswith("v1") else observed_objects.pod
    end = observed_objects.terminated({"bad": 3, "other": 3}.get(word.rstrip("!"), 0))
    if word == "killed!":
        end[0]["state"]["terminated"] = {"exitCode": 137, "reason": "ContainerStatusUnknown", "finishedAt": None}
    ended: dict[str, Any] = {"reason": word} if word[0].isupper() else {"containerStatuses": end}
    found = {
        "wait": lambda: make(task, "Pending"),
        "run": lambda: make(task, "Running"),
        "ok": lambda: make(task, "Succeeded", containerStatuses=end),
    }.get(word.rstrip("!"), lambda: make(task, "Failed", **ended))()
    # By the clocks of node and API server, each pod ended before it was deleted.
    found["metadata"] |= {"uid": f"pod-{index}", "namespace": "default", "resourceVersion": "50"}
    if word.endswith("!"):
        found["metadata"]["deletionTimestamp"] = "2026-03-01T10:00:50Z"
    return found


def pods_of(kind: str, text: str) -> list[Manifest]:
    return [pod(kind, index, word) for index, word in enumerate(text.split()) if word != "-"]


def remembered(kind: str, text: str) -> Remembered:
    words, more = options_of(text)
    objects = {}
    for name, value in more.items():
        phase, *flags = value.split("+")
        again = "again=1" if "again" in flags else ""
        objects[name] = job_object(kind, f"{phase} {'del' if 'del' in flags else ''} {again}")
    pods = {one["metadata"]["name"]: one for one in pods_of(kind, " ".join(words))}
    last = objects.get("last")
    whole = objects.get("whole", last if last and "deletionTimestamp" not in last["metadata"] else None)
    return Remembered(last=last, whole=whole, pods=pods)


def request_of(text: str) -> Requested | None:
    words, more = options_of(text)
    if not words:
        return None
    at = "2026-03-01T10:00:45Z"
    return Requested(
        action=RequestedAction(words[0]), at=at, uid=more.get("uid", UID), resource_version=more.get("v", "60")
    )


def observation(text: str) -> dict[str, Any] | None:
    words, more = options_of(text)
    if not words:
        return None
    return {
        "state": words[0],
        "reason": words[1],
        "phase": more.get("phase"),
        "attempt": int(more.get("attempt", 1)),
        "uid": more.get("uid", UID),
        "resource_version": more.get("v", "80"),
        "observed_at": "2026-03-01T10:00:30Z",
    }


def look_of(kind: str, job: str, pods: str, memory: str) -> Look:
    words, _ = options_of(job)
    variant = VARIANTS[kind]
    at = NOW + timedelta(minutes=1) if "late" in words else NOW
    expected = None
    if kind == "pods":
        expected = {"trainer": [f"app-{task}-0" for task in TASKS]}
    objects: ObservedObjects | None = ObservedObjects(
        job_object=None if words[0] == "gone" else job_object(kind, job),
        pods=None if pods == "hidden" else tuple(pods_of(kind, pods)),
        expected=expected,
        queues=() if "noqueue" in words else None,
        at=at,
    )
    return Look(
        variant=variant,
        at=at,
        uid=UID,
        objects=None if words[0] == "unread" else objects,
        confirmed="watched" not in words,
        changing="changing" in words,
        remembered=remembered(kind, memory),
    )


def told(found: Mapping[str, Any] | None, previous: Mapping[str, Any] | None) -> str:
    if found is None:
        return "none"
    return "stays" if found is previous else f"{found['state']} {found['reason']}"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: " ".join(" ".join(row).split()))
def test_judge(row: tuple[str, ...]) -> None:
    _, kind, job, pods, memory, requested, previous, answer = row
    look, request, before = look_of(kind, job, pods, memory), request_of(requested), observation(previous)
    found = judge(look, request, before)
    assert told(found, before) == answer
    # Whoever looks again and sees the same says the same.
    assert judge(look, request, found) is found


def test_a_pod_that_stays_in_deletion_is_named_with_its_node() -> None:
    found = judge(look_of("pods", "Running", "ok run!", ""), None, None)
    assert found is not None
    assert found["message"] == "being stopped; being deleted (1 of 2 replicas; pod app-trainer-1-0 on node n0)"


@pytest.mark.parametrize(
    ("job", "said"),
    [
        ("Aborting v=130", "asked to run again at 2026-03-01T10:00:45Z"),
        ("Restarting v=130 again=1", "asked to run again at 2026-03-01T10:00:45Z"),
        (
            "Restarting v=190 again=2",
            "being restarted; exited with code 3 (1 of 2 replicas; pod app-trainer-0-0 on node n0)",
        ),
    ],
)
def test_a_job_that_a_resume_starts_again_says_so_and_not_that_it_failed(job: str, said: str) -> None:
    found = judge(
        look_of("volcano", job, "bad! run!", ""), request_of("resume v=100"), observation("RUNNING Cancelled")
    )
    assert found is not None
    assert (found["reason"], found["message"]) == ("Restarting", said)
    assert any(one["reason"] == "Restarting" for one in found.get("diagnoses", ())) is said.startswith("being")


def test_the_table_has_rows_for_each_clause_and_variant() -> None:
    assert len(ROWS) >= 120
    assert {row[0] for row in ROWS} == set("abcdefghi")
    assert {row[1] for row in ROWS} == {*VARIANTS}
    assert len({row[:7] for row in ROWS}) == len(ROWS)
