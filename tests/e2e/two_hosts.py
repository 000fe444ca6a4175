"""One of two hosts that share a home and a host name, in a PID namespace of its own: `python -m tests.e2e.two_hosts`.

It is the namespace's first process. It takes orders as JSON lines, forks a process for each operation, reaps whatever
ends in the namespace, and says what it did as JSON lines.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import psutil
import torchx.schedulers.ids
from torchx import specs
from torchx_pulumi.model.errors import TorchxPulumiError
from torchx_pulumi.storage.owners import pid_namespace
from torchx_pulumi.torchx_adapter import lookup
from torchx_pulumi.torchx_adapter.scheduler import PulumiScheduler
from torchx_pulumi_stacks.entrypoints import create_volcano

FAKE_NODE = {
    "spec": {
        "nodeSelector": {"torchx-pulumi/node": "fake"},
        "tolerations": [{"key": "kwok.x-k8s.io/node", "value": "fake", "operator": "Equal", "effect": "NoSchedule"}],
    }
}


def dry_run(scheduler: PulumiScheduler, namespace: str, number: int) -> Any:
    """Make the request of the app of a number: the same one on either host."""
    torchx.schedulers.ids.random_uint64 = lambda: 10**15 + number
    resource = specs.Resource(cpu=1, gpu=0, memMB=64)
    role = specs.Role(
        name="trainer", image="app:1", entrypoint="sleep", args=["600"], num_replicas=2, resource=resource
    )
    role.metadata["kubernetes"] = FAKE_NODE
    return scheduler.submit_dryrun(specs.AppDef(name="two", roles=[role]), {"queue": "default", "namespace": namespace})


def operate(asked: dict[str, Any]) -> str:
    """Do one operation, and return what came of it."""
    scheduler = create_volcano("torchx")
    app_id = asked["app_id"]
    if asked["do"] == "launch":
        return scheduler.schedule(dry_run(scheduler, asked["namespace"], asked["number"]))
    if asked["do"] == "status":
        described = scheduler.describe(app_id)
        scheduler.list({"namespace": asked["namespace"]})
        return "none" if described is None else str(described.state)
    if asked["do"] == "settle":
        # What cancel, resume and delete do first.
        entry = scheduler._lookup.settled(app_id, logging.info)
        return "none" if entry is None else str(entry.stage)
    scheduler.delete(app_id, take_over=asked.get("take_over", False))
    return "deleted"


def run(asked: dict[str, Any], folder: Path) -> None:
    """Do one operation in a process of its own, and leave what came of it in a file."""
    said: dict[str, str]
    code = 0
    # The test reads what the host says there.
    os.dup2(2, 1)
    try:
        said = {"did": operate(asked)}
    except (TorchxPulumiError, ValueError) as error:
        said = {"refused": f"{type(error).__name__}: {error}"}
    except BaseException:  # noqa: BLE001 - whatever it is, the test shows it
        said, code = {"broke": traceback.format_exc()}, 1
    result, part = result_of(folder, os.getpid()), folder / f"{pid_namespace()}-{os.getpid()}.part"
    part.write_text(json.dumps(said))
    # Whole or not at all: it may be killed at any moment.
    part.rename(result)
    os._exit(code)


def result_of(folder: Path, pid: int) -> Path:
    """Return the file of what came of an operation. The hosts share the folder, and use the same process ids."""
    return folder / f"{pid_namespace()}-{pid}"


def send(pid: int, number: int, *, with_engine: bool) -> None:
    """Send a signal to an operation, and to the processes that it started."""
    processes = [psutil.Process(pid)]
    if with_engine:
        with contextlib.suppress(psutil.Error):
            processes += processes[0].children(recursive=True)
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.send_signal(number)


def say(**told: Any) -> None:
    print(json.dumps(told), flush=True)  # noqa: T201 - this is how the test hears of it


def main() -> None:
    """Be a host until the input ends."""
    folder, namespace = Path(sys.argv[1]), pid_namespace()
    logging.basicConfig(filename=folder / f"host-{namespace}.log", level=logging.INFO)
    lookup.BUSY_WAIT_S = 40.0
    working: dict[int, dict[str, Any]] = {}
    # Loaded before the first fork: an operation then starts in milliseconds.
    import torchx_pulumi_stacks.engine.app_stack

    say(ready=torchx_pulumi_stacks.engine.app_stack.__name__, namespace=namespace)
    buffer = b""
    while True:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                if pid in working:
                    asked, result = working.pop(pid), result_of(folder, pid)
                    said = json.loads(result.read_text()) if result.exists() else {"killed": status}
                    result.unlink(missing_ok=True)
                    say(ended=asked["id"], took_s=round(time.monotonic() - asked["since"], 2), **said)
        if not select.select([0], [], [], 0.02)[0]:
            continue
        data = os.read(0, 65536)
        if not data:
            return
        *lines, buffer = (buffer + data).split(b"\n")
        for line in lines:
            asked = json.loads(line)
            if asked["do"] == "signal":
                found = [pid for pid, other in working.items() if other["app_id"] == asked["app_id"]]
                for pid in found[: asked["at_most"]]:
                    send(pid, asked["number"], with_engine=asked["with_engine"])
                continue
            child = os.fork()
            if child == 0:
                signal.signal(signal.SIGINT, signal.default_int_handler)
                run(asked, folder)
            working[child] = {**asked, "since": time.monotonic()}


if __name__ == "__main__":
    main()
