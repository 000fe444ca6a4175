"""A fleet as a team has it, for the pages: names, states, times, many replicas, a run that failed.

Run this module to write the pictures of the docs:
`.venv/bin/python -m tests.e2e.fleet.page_fleet docs/images`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, NamedTuple

from playwright.sync_api import expect
from torchx_pulumi.cli.main import main
from torchx_pulumi.model.timestamps import format_time
from torchx_pulumi_fleet.tracker.live_fleet import LiveApp, LiveFleet, live_id

from tests.e2e.fleet.test_controller_page import Log, viewed
from tests.e2e.fleet.test_fleet_page import started_browser
from tests.fleet.tracker.states import checkpoint, output, write_stack
from tests.fleet.web.site_server import app


class Launch(NamedTuple):
    """An app of the fleet; times are minutes."""

    name: str
    suffix: str
    state: str
    reason: str
    queue: str
    user: str
    replicas: int
    cpu: int
    gpu: int
    age: int
    waited: int
    ran: int | None = None
    message: str = ""
    attempt: int = 1
    todo: str = ""
    """What its diagnosis advises. Empty: it has no diagnosis."""
    scheduler: str = "volcano"
    namespace: str = "ml"
    context: str = "prod"


LAUNCHES = (
    Launch("llama-pretrain", "k3x9f", "RUNNING", "Running", "research", "ana", 96, 16, 8, 3130, 42, attempt=3),
    Launch("vit-finetune", "b7qw2", "RUNNING", "Running", "research", "bo", 8, 12, 2, 184, 3),
    Launch("whisper-distill", "m4dza", "RUNNING", "Running", "speech", "chen", 4, 8, 4, 95, 11),
    Launch("retriever-index", "z0plc", "RUNNING", "Running", "batch", "dora", 12, 4, 0, 61, 1, context="west"),
    Launch(
        "diffusion-xl", "t9v5n", "PENDING", "OverQuota", "research", "ana", 16, 16, 8, 37, 0,
        message="queue 'research' has no room for it: it asks for 128 GPUs, the queue has 112",
    ),
    Launch(
        "reward-model", "e2rj8", "PENDING", "Unschedulable", "speech", "emil", 2, 8, 4, 12, 0,
        message="no node has 4 free GPUs",
    ),
    Launch(
        "tokenizer-stats", "q8hyb", "SUBMITTED", "Submitted", "batch", "data/nightly", 1, 2, 0, 1, 0, context="west",
    ),
    Launch(
        "vit-finetune", "c1xk7", "FAILED", "OutOfMemory", "research", "bo", 8, 12, 2, 260, 5, 47,
        message="was killed by the kernel for using more memory than its limit of 64G (exit code 137) "
        "(1 of 8 replicas; pod vit-finetune-c1xk7-trainer-3 on node gpu-00)", attempt=2,
        todo="ask for more memory (memMB of the role's resource), or use less (smaller batches)",
    ),
    Launch("eval-mmlu", "h5w3s", "SUCCEEDED", "Completed", "batch", "chen", 2, 8, 1, 322, 2, 38),
    Launch("eval-gsm8k", "y6n0d", "SUCCEEDED", "Completed", "batch", "chen", 2, 8, 1, 371, 1, 29),
    Launch("llama-pretrain", "f8u2p", "CANCELLED", "Cancelled", "research", "ana", 96, 16, 8, 3400, 60, 190),
    Launch(
        "asr-ablation", "s3b9g", "FAILED", "ExitCode", "speech", "emil", 4, 8, 4, 1510, 14, 0, namespace="speech",
        message="exited with code 2 (4 of 4 replicas; pod asr-ablation-s3b9g-trainer-0 on node gpu-03)",
        todo="read the log: the last lines say what the program complained about",
    ),
    Launch(
        "caption-sft", "w2k8d", "PENDING", "ImageUnavailable", "research", "data/nightly", 2, 8, 4, 9, 0,
        message="image 'registry.example/ml/caption-sft:2.4' cannot be pulled: it is not in the registry "
        "(2 of 2 replicas; pod caption-sft-w2k8d-trainer-0 on node gpu-07)",
        todo="push it, or correct its name",
    ),
    Launch(
        "embeddings", "n5j1r", "RUNNING", "Running", "", "chen", 6, 8, 0, 72, 1, scheduler="mcad", namespace="search",
    ),
)  # fmt: skip
"""The apps, of which the first has many replicas."""

QUEUES = [
    {"name": "research", "cluster": "prod", "capability": {"cpu": 2000.0, "gpu": 896.0},
     "allocated": {"cpu": 1632.0, "gpu": 784.0}},
    {"name": "speech", "cluster": "prod", "capability": {"cpu": 256.0, "gpu": 32.0},
     "allocated": {"cpu": 32.0, "gpu": 16.0}},
    {"name": "batch", "cluster": "prod", "capability": {}, "allocated": {"cpu": 48.0}},
]  # fmt: skip


def outputs(now: datetime) -> Iterator[tuple[Launch, dict[str, Any]]]:
    """Yield each app with its stack output `torchx`."""
    for one in LAUNCHES:
        queued = now - timedelta(minutes=one.age)
        started = queued + timedelta(minutes=one.waited) if one.waited else None
        finished = started + timedelta(minutes=one.ran) if started and one.ran is not None else None
        times = {"queued_at": queued, "started_at": started, "finished_at": finished}
        job = f"{one.name}-{one.suffix}"
        seen = {
            **{name: time and format_time(time) for name, time in times.items()},
            "state": one.state, "reason": one.reason, "message": one.message, "attempt": one.attempt,
            "observed_at": format_time(finished or started or queued),
            "diagnoses": [diagnosis(one)] if one.todo else [],
            "roles": [{"name": "trainer", **replicas(one)}],
        }  # fmt: skip
        resource = {"cpu": one.cpu, "gpu": one.gpu, "memory_mb": 65536}
        asked = {"name": "trainer", "image": f"registry.example/ml/{one.name}:2.4", "replicas": one.replicas}
        yield one, output(
            job, observed=seen,
            app={"name": one.name, "id": f"{one.namespace}:{job}", "namespace": one.namespace,
                 "handle": f"pulumi_{one.scheduler}://torchx/{one.namespace}:{job}",
                 "scheduler": one.scheduler, "queue": one.queue or None},
            declared={"created_by": one.user, "roles": [{**asked, "resource": resource}],
                      "resources_total": {name: value * one.replicas for name, value in resource.items()}},
            links={"log_command": f"kubectl --context {one.context} --namespace {one.namespace} logs {job}-trainer-0"},
        )  # fmt: skip


def diagnosis(one: Launch) -> dict[str, Any]:
    """Return why an app failed, or does not start."""
    pod = {"kind": "Pod", "namespace": one.namespace, "name": f"{one.name}-{one.suffix}-trainer-0"}
    lines = {"OutOfMemory": "epoch 4, step 1210: loss 1.932\nKilled", "ExitCode": "train.py: error: --lr is required"}
    return {
        "reason": one.reason, "summary": one.message, "detail": lines.get(one.reason, ""), "resolution": one.todo,
        "objects": [pod],
    }  # fmt: skip


def replicas(one: Launch) -> dict[str, Any]:
    """Return the observed replicas of an app: of many, those that run are counted and not listed."""
    states = [one.state] * one.replicas
    if one.state == "FAILED":
        states = ["FAILED" if number == min(3, one.replicas - 1) else "CANCELLED" for number in range(one.replicas)]
    if one.replicas > 50 and one.state == "RUNNING":
        states[17], states[61], states[62] = "FAILED", "PENDING", "PENDING"
    listed = [
        {
            "id": number, "state": state, "pod": f"{one.name}-{one.suffix}-trainer-{number}",
            "reason": {"FAILED": (one.message and one.reason) or "NodeLost", "PENDING": "Starting"}.get(state, ""),
            "exit_code": 137 if state == "FAILED" else None, "restarts": one.attempt - 1,
            "node": "" if state in ("PENDING", "SUBMITTED") else f"gpu-{number // 8:02}",
        }
        for number, state in enumerate(states)
        if one.replicas <= 20 or number < 8 or state != one.state
    ]  # fmt: skip
    counts = {state: states.count(state) for state in dict.fromkeys(states)}
    return {"counts": counts, "replicas": listed, "omitted": one.replicas - len(listed)}


ATTEMPTS = {1: [(0.0, 1.0)], 2: [(0.0, 0.4), (0.46, 1.0)], 3: [(0.0, 0.2), (0.24, 0.6), (0.62, 1.0)]}
"""Number of attempts to the beginning and the end of each, as parts of the time since the start."""


def runs_of(live: LiveApp) -> dict[str, Any]:
    """Return the runs of an app, with the attempts of its first replica."""
    now = datetime.now(timezone.utc)
    row = live.row(now)
    start, end = row.started_at, row.finished_at
    took = (end or now) - (start or now)
    attempts = [
        {
            "role": "trainer", "replica": 0, "attempt": number, "container": "main", "pod": f"{row.name}-trainer-0",
            "default": True, "init": False, "running": last == 1 and end is None, "archived": last < 1,
            "complete": True, "exit_code": None if last == 1 and end is None else 137,
            "started_at": format_time(start + took * first),
            "finished_at": None if last == 1 and end is None else format_time(start + took * last),
        }
        for number, (first, last) in enumerate(ATTEMPTS[row.attempt], 1)
        if start is not None
    ]  # fmt: skip
    run = {
        "uid": live.app.uid, "current": True, "archived": True, "state": row.state.value, "reason": row.reason,
        "attempt": row.attempt, "started_at": start and format_time(start), "finished_at": end and format_time(end),
        "attempts": attempts[::-1], "omitted": 0,
    }  # fmt: skip
    return {"runs": [run], "updates": [], "notes": []}


def fill(fleet: LiveFleet) -> dict[str, str]:
    """Put the apps into a fleet as a controller that watches their clusters has them; return their addresses."""
    addresses = {}
    for one, made in outputs(datetime.now(timezone.utc)):
        name = f"{one.name}-{one.suffix}"
        tracked = replace(app(name, namespace=one.namespace), output=made)
        fleet.put_stack(tracked)
        fleet.put_seen(tracked.key, tracked.uid, made["observed"], cluster=one.context)
        addresses[name] = f"#{live_id(tracked.key)}"
    return addresses


def write_offline(folder: Path, now: datetime) -> str:
    """Write the offline page of the fleet, and return its address."""
    for one, made in outputs(now):
        write_stack(folder, f"ml.{one.name}-{one.suffix}", checkpoint(made))
    file = folder / "fleet.html"
    assert main(["fleet", "--backend", f"file://{folder}", "--html", str(file)]) == 0
    file.write_text(file.read_text().replace(str(folder), "/mnt/pulumi-state"))
    return file.as_uri()


def write_pictures(folder: Path) -> None:
    """Write the pictures of the docs: the page of a fleet, and the log of an app on a phone."""
    log = Log([f"epoch 3, step {step}: loss {2.1 - step / 900:.4f}, 11{step % 97:02} tokens/s" for step in range(400)])
    view = {"viewport": {"width": 1240, "height": 780}}
    with started_browser() as browser, viewed(browser, log, runs_of, QUEUES, **view) as made:
        fill(made.server.fleet)
        page = made.open()
        expect(page.locator("#queues")).to_contain_text("112 free")
        page.screenshot(path=folder / "fleet-page.png")
        page.set_viewport_size({"width": 390, "height": 620})
        page.get_by_role("link", name="llama-pretrain-k3x9f").click()
        page.locator("#tab-log").click()
        expect(page.locator("#log")).to_contain_text("step 399")
        page.wait_for_timeout(500)
        page.screenshot(path=folder / "controller-log.png")


if __name__ == "__main__":
    write_pictures(Path(sys.argv[1]))
