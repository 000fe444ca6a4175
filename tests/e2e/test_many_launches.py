"""Many launches: in a row through one Runner, at once from threads and processes, and what of them waits for a slot.

TORCHX_PULUMI_LAUNCHES and TORCHX_PULUMI_LAUNCHES_IN_A_ROW set their number. Each test prints what the launches used.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from torchx.runner import Runner
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.kube.kinds import POD
from torchx_pulumi.runs.index import RunIndex
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB
from torchx_pulumi_stacks.engine.engine_semaphore import VARIABLE, EngineSlot, max_engines
from torchx_pulumi_stacks.entrypoints import create_volcano

from tests.e2e import fake_node_job
from tests.e2e.launch_usage import (
    HEAD,
    EngineWatch,
    Latencies,
    Usage,
    children,
    engines_of,
    settled_usage,
    timed,
    usage,
)
from tests.e2e.project import eventually
from tests.e2e.torchx_cli import BIN, TorchxCli, runner_of

pytestmark = [pytest.mark.e2e, pytest.mark.extended]

AT_ONCE = int(os.environ.get("TORCHX_PULUMI_LAUNCHES", "6"))
IN_A_ROW = int(os.environ.get("TORCHX_PULUMI_LAUNCHES_IN_A_ROW", "10"))
WARM = min(20, IN_A_ROW // 2)
"""Launches after which nothing may grow any more."""

SLACK_MB = 12.0
GROWTH_MB = 0.05
"""Growth of memory that is allowed in total, and for each launch: allocators do not return all memory."""

SLACK = 3
"""File descriptors and threads that come and go: idle connections, and threads of gRPC."""

SCHEDULER = "pulumi_volcano"
TIMEOUT_S = 600.0


@pytest.fixture
def cli(pulumi_env: dict[str, str], tmp_path: Path, kubeconfig: Path) -> TorchxCli:
    (tmp_path / "tmp").mkdir()
    home = {"TMPDIR": str(tmp_path / "tmp"), "PULUMI_HOME": str(tmp_path / "pulumi-home")}
    return TorchxCli({**pulumi_env, **home}, tmp_path, kubeconfig)


@pytest.fixture
def runner(cli: TorchxCli, look: KubernetesCluster, namespace: str, monkeypatch: Any) -> Iterator[Runner]:
    """A Runner; in the end, all apps are deleted, and nothing of them is left."""
    with runner_of(cli, monkeypatch) as found:
        yield found
    delete_all(namespace)
    assert look.list(VOLCANO_JOB, namespace) == []
    eventually(lambda: look.list(POD, namespace) == [])
    state = cli.folder / "state" / "torchx-pulumi"
    assert RunIndex(state / "runs").all() == []
    assert list((state / "backend/.pulumi/stacks").rglob("*.json")) == []
    assert list((state / "backend/.pulumi/locks").rglob("*.json")) == []
    assert list((state / "engine/work").glob("*")) == []
    assert list(state.glob("engine/slots/*/queue/*")) == []
    assert list((cli.folder / "tmp").glob("*")) == []
    assert engines_of(cli.folder) == []


def delete_all(namespace: str) -> None:
    scheduler = create_volcano("torchx")
    apps = [app.app_id for app in scheduler.list({"namespace": namespace})]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(scheduler.delete, apps))
    scheduler.close()


def options(namespace: str) -> dict[str, Any]:
    return {"namespace": namespace, "queue": "default", "reserved_millicpu": 980, "reserved_memmb": 48}


def launch(runner: Runner, namespace: str) -> str:
    return runner.schedule(runner.dryrun(fake_node_job.train(), SCHEDULER, options(namespace)))


def command(namespace: str) -> list[str]:
    chosen = ",".join(f"{name}={value}" for name, value in options(namespace).items())
    component = f"{fake_node_job.__file__}:train"
    return [str(BIN / "torchx"), "run", "--workspace", "", "-s", SCHEDULER, "-cfg", chosen, component]


def job_names(look: KubernetesCluster, namespace: str) -> set[str]:
    return {job["metadata"]["name"] for job in look.list(VOLCANO_JOB, namespace)}


def files_in(folder: Path) -> int:
    return sum(path.is_file() for path in folder.rglob("*"))


def test_launches_in_a_row_through_one_runner_leave_nothing_behind(
    runner: Runner, cli: TorchxCli, namespace: str, look: KubernetesCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    state = cli.folder / "state" / "torchx-pulumi"
    handles, seconds, rows = [], list[float](), []
    others = children()
    warm: Usage | None = None
    with EngineWatch(cli.folder).running() as watch:
        for number in range(1, IN_A_ROW + 1):
            with timed(seconds):
                handles.append(launch(runner, namespace))
            if number in (1, WARM) or number % 20 == 0 or number == IN_A_ROW:
                now = usage(others)
                warm = now if number == WARM else warm
                rows.append(f"{Latencies(seconds[-20:]).row(f'after {number} in a row', watch, now)}")
    listed: list[float] = []
    for _ in range(2):
        with timed(listed):
            apps = runner.list(SCHEDULER)
    rows.append(
        f"list of {len(apps)} apps: {listed[0]:.2f} s, then {listed[1]:.2f} s; index {files_in(state / 'runs')} files, "
        f"{sum(path.stat().st_size for path in (state / 'runs').rglob('*') if path.is_file()) / 1e3:.0f} kB; "
        f"Pulumi's logs: {files_in(cli.folder / 'pulumi-home' / 'logs')} files"
    )
    with capsys.disabled():
        sys.stdout.write("\n".join(["", HEAD, *rows, ""]))
    assert {handle.rpartition(":")[2] for handle in handles} == job_names(look, namespace)
    assert {handle.rpartition("/")[2] for handle in handles} <= {app.app_id for app in apps}
    assert warm is not None
    fds, threads = warm.fds + SLACK, warm.threads + SLACK
    now = settled_usage(lambda used: used.fds <= fds and used.threads <= threads and not used.children, others)
    assert now.fds <= fds
    assert now.threads <= threads
    assert now.children == set()
    assert (now.servers, now.loops) == (0, warm.loops)
    assert now.memory_mb <= warm.memory_mb + SLACK_MB + GROWTH_MB * (IN_A_ROW - WARM)
    assert list((state / "engine/work").glob("*")) == []
    assert files_in(cli.folder / "tmp") == 0


def test_launches_at_once_from_threads_and_from_processes_all_succeed(
    runner: Runner, cli: TorchxCli, namespace: str, look: KubernetesCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    others = children()
    before, seconds = usage(others), list[float]()

    def timed_launch(_: int) -> str:
        with timed(seconds):
            return launch(runner, namespace)

    with EngineWatch(cli.folder).running() as threads, ThreadPoolExecutor(AT_ONCE) as pool:
        launched = list(pool.map(timed_launch, range(AT_ONCE)))
    assert job_names(look, namespace) == {handle.rpartition(":")[2] for handle in launched}
    after = settled_usage(lambda used: not used.children, others)
    rows = [Latencies(seconds).row("at once from threads", threads, after)]

    commands, texts = list[float](), list[str]()

    def timed_command(_: int) -> None:
        with timed(commands):
            texts.append(cli.torchx(*command(namespace)[1:], timeout_s=TIMEOUT_S).text)

    with EngineWatch(cli.folder).running() as processes, ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(timed_command, range(AT_ONCE)))
    rows.append(Latencies(commands).row("at once from processes", processes, usage()))
    with capsys.disabled():
        sys.stdout.write("\n".join(["", HEAD, *rows, ""]))
    assert len(job_names(look, namespace)) == 2 * AT_ONCE
    assert 1 <= threads.most <= max_engines()
    assert 1 <= processes.most <= max_engines()
    assert after.children == set()
    assert (after.loops, after.servers) == (before.loops, 0)
    assert all("launched" not in text or "Traceback" not in text for text in texts)


def test_launches_that_wait_say_so_and_may_be_interrupted_or_killed(
    runner: Runner, cli: TorchxCli, namespace: str, look: KubernetesCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    slots = cli.folder / "state" / "torchx-pulumi" / "engine" / "slots"
    monkeypatch.setenv(VARIABLE, "1")
    env = {**cli.env, VARIABLE: "1"}
    logs = [cli.folder / f"run-{number}.log" for number in range(3)]
    running: list[subprocess.Popen[bytes]] = []
    try:
        with EngineSlot(slots, print):
            for number, log in enumerate(logs):
                with log.open("wb") as file:
                    started = subprocess.Popen(
                        command(namespace), cwd=cli.folder, env=env, stdout=file, stderr=file, start_new_session=True
                    )
                running.append(started)
                said = f"waiting for a free engine slot, {number} ahead; at most 1 at once on this host ({VARIABLE})"
                eventually(lambda log=log, said=said: said in log.read_text(), TIMEOUT_S)  # type: ignore[misc]
            interrupted, killed, last = running
            interrupted.send_signal(signal.SIGINT)
            assert interrupted.wait(TIMEOUT_S) != 0
            killed.kill()
            killed.wait()
            assert job_names(look, namespace) == set()
        assert last.wait(TIMEOUT_S) == 0, logs[2].read_text()
    finally:
        for process in running:
            process.kill()
            process.wait()
    # The launch that was interrupted is forgotten; `status` puts the one that was killed right.
    apps = {app.app_id for app in runner.list(SCHEDULER)}
    (launched,) = job_names(look, namespace)
    (left,) = apps - {f"{namespace}:{launched}"}
    assert runner.status(f"{SCHEDULER}://torchx/{left}") is None
    assert [app.app_id for app in runner.list(SCHEDULER)] == [f"{namespace}:{launched}"]
