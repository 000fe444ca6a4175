"""A fleet of 1,000 stacks on the file backend, next to `pulumi stack ls` and one `pulumi stack output` for each stack.

The checkpoints have what the stack program's have: a Volcano Job of 8 replicas, the roles, the record, the outputs.
Of `pulumi stack output` a few are run, one after the other, and 1,000 are reckoned from them. Wants: under 3 s.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

STACKS = 1_000
SAMPLES = 3
WANTED_S = 3.0
WANTED_RATIO = 20.0


def main() -> int:
    """Measure, print a line per figure and one at the end; 1 where a want is missed."""
    with tempfile.TemporaryDirectory() as folder:
        size = write_backend(Path(folder))
        print(f"fleet: {STACKS} stacks, {size / 1e6:.0f} MB of checkpoints")
        ours_s = measure(Path(folder))
        print(f"torchx-pulumi fleet --json: {ours_s:.2f} s, with Python's own start")
        pulumi = find_pulumi()
        if pulumi is None:
            print("fleet: no pulumi on PATH or built; nothing to compare with")
            theirs_s = float("nan")
        else:
            theirs_s = measure_pulumi(pulumi, Path(folder))
    met = ours_s < WANTED_S and not theirs_s / ours_s < WANTED_RATIO
    verdict = "met" if met else "MISSED"
    print(
        f"bench fleet: {verdict}: {STACKS} stacks in {ours_s:.2f} s (want {WANTED_S:.0f} s), "
        f"{theirs_s / ours_s:.0f}x as fast as pulumi (want {WANTED_RATIO:.0f}x)"
    )
    return 0 if met else 1


def write_backend(folder: Path) -> int:
    """Write the stacks; return the bytes of all checkpoints."""
    place = folder / ".pulumi" / "stacks" / "torchx"
    place.mkdir(parents=True)
    (folder / ".pulumi" / "meta.yaml").write_text("version: 1\n")
    size = 0
    for number in range(STACKS):
        text = json.dumps(checkpoint(number), indent=4)
        (place / f"team.train-{number}.json").write_text(text)
        size += len(text)
    return size


def checkpoint(number: int) -> dict[str, Any]:
    """Make the checkpoint of one app."""
    from torchx_pulumi.inputs.rendering import render_plan
    from torchx_pulumi.model.job_spec import JobSpec, ResourceSpec, RoleSpec
    from torchx_pulumi.model.status import JobState, JobStatus, Reason, ReplicaStatus, RoleStatus
    from torchx_pulumi.outputs.building import assemble, build_declared, build_observed
    from torchx_pulumi.schedulers import plan_job
    from torchx_pulumi.schedulers.volcano.options import VolcanoOptions

    role = RoleSpec(
        name="trainer",
        image="registry.example.com/team/train:1",
        entrypoint="python",
        args=["-m", "train", *(f"--option-{i}=value" for i in range(20))],
        env={f"SETTING_{i}": f"value {i}" for i in range(20)},
        num_replicas=8,
        resource=ResourceSpec(cpu=8, gpu=1, memory_mb=64_000),
    )
    spec = JobSpec(name="train", roles=[role], torchx_version="0.7.0")
    plan = plan_job(spec, VolcanoOptions(queue="default", namespace="team"), f"train-{number}")
    state, reason = (JobState.RUNNING, Reason.RUNNING) if number % 3 else (JobState.SUCCEEDED, Reason.COMPLETED)
    replicas = tuple(
        ReplicaStatus(id=i, pod=f"train-{number}-trainer-0-{i}", state=state, reason=reason, message="", node="node-1")
        for i in range(8)
    )
    now = datetime.now(timezone.utc)
    status = JobStatus(
        state=state, reason=reason, message="", phase="Running", roles=(RoleStatus(name="trainer", replicas=replicas),),
        queued_at=now, started_at=now,
    )  # fmt: skip
    declared = build_declared(plan, spec_hash="f" * 16, created_by="ada")
    torchx = assemble(plan, declared, build_observed(status, observed_at=now), scheduler="volcano")
    manifest = render_plan(plan)
    stack = f"team.train-{number}"
    urn = f"urn:pulumi:{stack}::torchx::"
    root = f"{urn}pulumi:pulumi:Stack::torchx-{stack}"
    component = f"{urn}torchx:index:VolcanoTrainingJob::train"
    names = {"namespace": "team", "job_name": f"train-{number}"}
    resources = [
        resource(root, "pulumi:pulumi:Stack", outputs={"torchx": torchx, "state": state.value}),
        resource(component, "torchx:index:VolcanoTrainingJob", outputs={**torchx, **names}, parent=root),
        resource(
            f"{urn}torchx:index:VolcanoTrainingJob$kubernetes:batch.volcano.sh/v1alpha1:Job::train",
            "kubernetes:batch.volcano.sh/v1alpha1:Job",
            inputs=manifest,
            outputs={**manifest, "__initialApiVersion": "batch.volcano.sh/v1alpha1"},
            parent=component,
            custom=True,
        ),
    ]
    latest = {
        "manifest": {"time": "2026-01-02T12:00:00Z", "magic": "0" * 64, "version": "v3.259.0"},
        "secrets_providers": {"type": "passphrase", "state": {"salt": "v1:x:y"}},
        "resources": resources,
        "metadata": {},
    }
    return {"version": 3, "checkpoint": {"stack": f"organization/torchx/{stack}", "latest": latest}}


def resource(urn: str, type_: str, *, custom: bool = False, **fields: Any) -> dict[str, Any]:
    """Make one resource of a checkpoint."""
    return {"urn": urn, "custom": custom, "type": type_, **fields, "created": "2026-01-02T12:00:00Z"}


def measure(folder: Path) -> float:
    """Return the seconds of our command, the best of three."""
    program = "import sys; from torchx_pulumi.cli.main import main; sys.exit(main())"
    words = [sys.executable, "-c", program, "fleet", "--backend", f"file://{folder}", "--json"]
    seconds = []
    for _ in range(3):
        started = time.perf_counter()
        printed = subprocess.run(words, check=True, capture_output=True, text=True).stdout
        seconds.append(time.perf_counter() - started)
        if len(json.loads(printed)["apps"]) != STACKS:
            raise SystemExit("bench fleet: not every stack was read")
    return min(seconds)


def find_pulumi() -> str | None:
    """Return the `pulumi` command. None: there is none."""
    from tools.bootstrap import pulumi_environment

    try:
        return shutil.which("pulumi", path=pulumi_environment().get("PATH"))
    except Exception as error:  # noqa: BLE001 - a part that is not built is no reason to measure nothing
        print(f"fleet: {error}")
        return shutil.which("pulumi")


def measure_pulumi(pulumi: str, folder: Path) -> float:
    """Return the seconds that `pulumi` takes for the same: the list, and the output of each stack."""
    environment = {
        **os.environ,
        "PULUMI_BACKEND_URL": f"file://{folder}",
        "PULUMI_CONFIG_PASSPHRASE": "x",
        "PULUMI_SKIP_UPDATE_CHECK": "true",
    }

    def run(*words: str) -> float:
        started = time.perf_counter()
        subprocess.run([pulumi, *words], env=environment, check=True, capture_output=True, cwd=folder)
        return time.perf_counter() - started

    listed_s = run("stack", "ls", "--all", "--json")
    each_s = [
        run("stack", "output", "torchx", "--json", "--stack", f"organization/torchx/team.train-{number}")
        for number in range(SAMPLES)
    ]
    whole_s = listed_s + STACKS * sum(each_s) / SAMPLES
    print(
        f"pulumi stack ls: {listed_s:.1f} s, without states; pulumi stack output: {sum(each_s) / SAMPLES:.2f} s for "
        f"one stack; {whole_s:.0f} s for all"
    )
    return whole_s
