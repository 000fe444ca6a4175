"""Orders for the driver, and a process that launches or deletes one and is killed at a chosen point.

As a program: `python -m tests.e2e.launch_orders '{"do": "launch", "kill_at": "creating", ...}'`.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torchx_pulumi.inputs.rendering import plan_app
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.model.app_entry import RunEntry, StackRef, Stage
from torchx_pulumi.model.run_record import IDENTITY_VERSION
from torchx_pulumi.planning.names import owner_digest
from torchx_pulumi.runs.identity import field_digests
from torchx_pulumi.runs.registration import Registration
from torchx_pulumi.runs.run_hash import run_hash
from torchx_pulumi.stack_state.backend import stack_name
from torchx_pulumi.storage.owners import this_process
from torchx_pulumi_stacks.engine.work_dir import place_key

from tests.e2e.project import eventually
from tests.unit.builders import registration_of

FAKE_NODE = {
    "node_selector": {"torchx-pulumi/node": "fake"},
    "tolerations": [{"key": "kwok.x-k8s.io/node", "value": "fake", "operator": "Equal", "effect": "NoSchedule"}],
}


def make_order(
    namespace: str, name: str, backend: str, kubeconfig: str, *, queue: str = "default", gang: str = "job", **entry: Any
) -> Registration:
    """Make an order of two replicas on fake nodes; the same one each time for the same arguments."""
    role = {"name": "trainer", "image": "app:1", "entrypoint": "sleep", "args": ["600"], "num_replicas": 2, **FAKE_NODE}
    app = {"name": "train", "roles": [role]}
    plan = plan_app(app, "volcano", {"queue": queue, "namespace": namespace, "gang": gang}, app_id=name)
    cluster = KubernetesCluster.connect(kubeconfig)
    stack = stack_name(namespace, name, "volcano", cluster.identity)
    urn = f"urn:pulumi:{stack}::torchx::torchx:index:VolcanoTrainingJob::train"
    made = RunEntry(
        app_id=f"{namespace}:{name}",
        scheduler="volcano",
        choice=gang,
        place=StackRef(backend=backend, project="torchx", stack=stack),
        cluster=cluster.identity,
        kubeconfig=None,
        kube_context=None,
        session="test",
        user="somebody",
        name="train",
        queue=queue,
        app={"name": "train"},
        pods={"trainer": [f"{name}-trainer-0-0", f"{name}-trainer-1-0"]},
        declared={},
        launch=owner_digest("organization", "torchx", stack, urn),
        run=run_hash(
            field_digests(plan.spec, plan.options), {"trainer": 2}, plan.spec, plan.options, version=IDENTITY_VERSION
        ),
        launched_at="2026-01-01T00:00:00Z",
        stage=Stage.LAUNCHING,
        owner=this_process(),
        ambient_kubeconfig=kubeconfig,
    )
    return registration_of(replace(made, **entry), plan)


def processes_of(key: str) -> list[int]:
    """Find the engine's processes that work on a stack."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            variables = (folder / "environ").read_bytes().split(b"\0")
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if f"TORCHX_PULUMI_PLACE={key}".encode() in variables and state != "Z":
            found.append(int(folder.name))
    return found


def no_process_is_left(entry: RunEntry) -> None:
    """Check that nothing works on a stack. A process that is killed ends a moment later."""
    eventually(lambda: not processes_of(place_key(entry.place)))


def kill_engine(key: str) -> None:
    """Kill the engine's processes that work on a stack, and those that they start meanwhile."""
    while found := processes_of(key):
        for pid in found:
            # It may have ended with one that was killed before it.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def main(asked: Mapping[str, Any]) -> None:
    """Launch or delete, and be killed: at a word of progress, or after some seconds; with or without the engine."""
    from torchx_pulumi_stacks.engine import AutomationDriver

    order = make_order(**asked["order"])

    def die() -> None:
        if asked.get("with_engine", True):
            kill_engine(place_key(order.entry.place))
        os.kill(os.getpid(), signal.SIGKILL)

    def tell(line: str) -> None:
        if asked.get("kill_at") and line.startswith(asked["kill_at"]):
            time.sleep(asked.get("later_s", 0.0))
            die()

    driver = AutomationDriver()
    if asked.get("kill_at") == "":
        # Before the engine starts: the stack is made, and nothing else.
        import torchx_pulumi_stacks.engine.app_stack as app_stack

        app_stack.AppStack.up = lambda *_: die()  # type: ignore[assignment,method-assign,return-value]
    if asked.get("kill_after_s") is not None:
        import threading

        threading.Timer(asked["kill_after_s"], die).start()
    if asked["do"] == "launch":
        driver.launch(order, tell)
    else:
        driver.destroy(replace(order.entry, stage=Stage.DELETING), tell)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
