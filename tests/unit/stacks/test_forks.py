"""A process that was forked after gRPC was loaded launches nothing, and says where to launch. The forks are real."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]

SCRIPT = """
import json, os, sys
from pathlib import Path

from torchx import specs
from torchx_pulumi.model.errors import DeployError
from torchx_pulumi.testing import FakeCluster
from torchx_pulumi.torchx_adapter.context import AdapterContext
from torchx_pulumi.torchx_adapter.scheduler import PulumiScheduler
from torchx_pulumi_stacks.engine.pulumi_loading import load_inline
from torchx_pulumi_stacks.entrypoints import make_driver
from torchx_pulumi_stacks.forks import check_process

queue = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "default"}}
cluster = FakeCluster([queue])
created = []
cluster.create = lambda *given, **named: created.append(given)
context = AdapterContext(make_driver=make_driver, connect=lambda *_: cluster)
scheduler = PulumiScheduler("volcano", "torchx", context)
role = specs.Role(name="trainer", image="app:1", entrypoint="true")


def launch():
    options = {"queue": "default", "pulumi_backend": f"file://{os.environ['BACKEND']}", "validate_spec": False}
    scheduler.submit(specs.AppDef("train", [role]), options)


def tell(when, work):
    said = None
    try:
        work()
    except DeployError as error:
        said = str(error)
    kept = [str(path) for root in ("XDG_STATE_HOME", "BACKEND") for path in Path(os.environ[root]).rglob("*")]
    print(json.dumps({"when": when, "pid": os.getpid(), "said": said, "made": created + kept}), flush=True)


def fork(work):
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    os.waitpid(child, 0)


fork(lambda: tell("before", check_process))
load_inline()
assert "grpc" in sys.modules
tell("parent", check_process)
fork(lambda: tell("fork", launch))
fork(lambda: fork(lambda: tell("fork of a fork", launch)))
"""


PRELOADED = """
import os

import grpc
from torchx_pulumi_stacks.entrypoints import create_volcano

create_volcano("torchx")
if os.fork() == 0:
    from torchx_pulumi.model.errors import DeployError
    from torchx_pulumi_stacks.entrypoints import make_driver

    try:
        make_driver().check_process()
    except DeployError as error:
        print("refused:", error, flush=True)
    os._exit(0)
os.wait()
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What each process of the script said, by when it was made."""
    said = run(SCRIPT, tmp_path_factory.mktemp("forks"))
    return {each["when"]: each for each in map(json.loads, said.splitlines())}


def run(script: str, folder: Path) -> str:
    """Run a script in a new process, with its files in a folder; return what it prints."""
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(str(ROOT / name) for name in ("sdk", "components", "stacks")),
        "XDG_STATE_HOME": str(folder / "state"),
        "BACKEND": str(folder / "backend"),
    }
    words = [sys.executable, "-W", "ignore", "-c", script]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False, timeout=60, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_process_forked_after_grpc_was_loaded_launches_nothing_and_says_where_to_launch(
    told: dict[str, Any],
) -> None:
    for when in ("fork", "fork of a fork"):
        assert told[when]["said"] == (
            f"process {told[when]['pid']} was forked after gRPC was loaded, by an earlier launch or by the program, "
            "and gRPC does not work in a fork: nothing was changed. Launch in the process that it was forked from, "
            "also in threads of it, or in a new process: multiprocessing.get_context('spawn'), or subprocess"
        )
        assert told[when]["made"] == []


def test_other_processes_are_not_refused(told: dict[str, Any]) -> None:
    assert told["before"]["said"] is None
    assert told["parent"]["said"] is None


def test_a_fork_of_a_program_that_loaded_grpc_by_itself_is_seen_before_the_first_launch(tmp_path: Path) -> None:
    assert run(PRELOADED, tmp_path).startswith("refused: process ")
