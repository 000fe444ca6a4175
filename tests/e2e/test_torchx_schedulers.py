"""`torchx run -s pulumi_volcano` and `pulumi_mcad` on the real engine, cluster and node, by command line and Runner."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from torchx.components import dist
from torchx.runner import Runner
from torchx.schedulers import get_default_scheduler_name
from torchx.specs import AppDef, AppState, Resource, Role
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.kube.kinds import POD
from torchx_pulumi.runs.identity import is_runner_env
from torchx_pulumi.schedulers.appwrapper.objects import APP_WRAPPER
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB

from tests.e2e.project import eventually
from tests.e2e.torchx_cli import BIN, TorchxCli, runner_of
from tools.images import add_layer
from tools.local_cluster import Cluster

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]
SCHEDULERS = ["pulumi_volcano", pytest.param("pulumi_mcad", marks=pytest.mark.mcad)]
KINDS = {"pulumi_volcano": VOLCANO_JOB, "pulumi_mcad": APP_WRAPPER}


@pytest.fixture
def cli(pulumi_env: dict[str, str], tmp_path: Path, kubeconfig: Path) -> TorchxCli:
    return TorchxCli(pulumi_env, tmp_path, kubeconfig)


@pytest.fixture
def runner(cli: TorchxCli, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runner]:
    with runner_of(cli, monkeypatch) as found:
        yield found


@pytest.fixture
def busybox(cluster: Any) -> str:
    if not cluster.images:
        pytest.skip("the local cluster has no real node: no container can write a log")
    return str(cluster.images["busybox"])


def options(scheduler: str, namespace: str, **more: Any) -> dict[str, Any]:
    return {"namespace": namespace, **({"queue": "default"} if scheduler == "pulumi_volcano" else {}), **more}


def words(scheduler: str, namespace: str, **more: str) -> str:
    return ",".join(f"{name}={value}" for name, value in options(scheduler, namespace, **more).items())


def app_of(image: str, script: str, **changes: Any) -> AppDef:
    role = {"num_replicas": 1, "resource": Resource(cpu=0, gpu=0, memMB=0), "env": {"COLOUR": "blue"}, **changes}
    return AppDef(
        name="runme",
        roles=[Role(name="trainer", image=image, entrypoint="sh", args=["-c", script], **role)],
        metadata={"team": "vision"},
    )


def wait_for(runner: Runner, handle: str, *states: AppState) -> Any:
    def seen() -> Any:
        status = runner.status(handle)
        return status if status is not None and status.state in states else None

    return eventually(seen)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_the_command_line_runs_shows_follows_and_removes_an_app(
    scheduler: str, cli: TorchxCli, namespace: str, busybox: str, look: KubernetesCluster
) -> None:
    chosen = words(scheduler, namespace)
    run = cli.torchx(
        "run", "--workspace", "", "-s", scheduler, "-cfg", chosen, "--wait", "--log",
        "utils.sh", "--image", busybox, "sh", "-c",
        "for i in 1 2 3; do echo line $i; sleep 0.3; done; echo is $TORCHX_JOB_ID",
    )  # fmt: skip
    handle = run.handle
    # What a pod knows of its app has no namespace, and is as good.
    inside = f"{scheduler}://torchx/{handle.rpartition(':')[2]}"
    assert f"is {inside}\n" in run.text
    assert "SUCCEEDED" in cli.torchx("status", inside).text
    assert cli.torchx("log", f"{inside}/sh/0").text.count("line 2") == 1
    assert [f"line {number}" for number in (1, 2, 3) if f"line {number}" in run.text] == ["line 1", "line 2", "line 3"]
    status = cli.torchx("status", handle)
    assert "SUCCEEDED" in status.text
    described = cli.torchx("describe", handle)
    assert busybox in described.text
    listed = cli.torchx("list", "-s", scheduler)
    assert handle.rpartition("/")[2] in listed.text
    assert "SUCCEEDED" in listed.text
    role = "sh"
    log = cli.torchx("log", f"{handle}/{role}/0")
    assert log.text.count("line 2") == 1
    cli.torchx("cancel", handle)
    assert "SUCCEEDED" in cli.torchx("status", handle).text
    cli.ours("delete", inside)
    assert look.list(KINDS[scheduler], namespace) == []
    cli.ours("delete", handle)
    gone = cli.torchx("status", handle, code=None)
    assert "SUCCEEDED" not in gone.out
    assert "Traceback" not in gone.text


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_the_runner_launches_once_knows_the_app_again_cancels_and_forgets_it(
    scheduler: str, runner: Runner, namespace: str, busybox: str, look: KubernetesCluster
) -> None:
    app = app_of(busybox, "trap 'exit 143' TERM; echo started; sleep 300 & wait", num_replicas=2)
    dry = runner.dryrun(app, scheduler, options(scheduler, namespace))
    assert yaml.safe_load(str(dry.request))["kind"] == KINDS[scheduler].kind
    assert look.list(KINDS[scheduler], namespace) == []
    handle = runner.schedule(dry)
    with pytest.raises(ValueError, match="already exists"):
        runner.schedule(dry)
    status = wait_for(runner, handle, AppState.RUNNING)
    assert len(look.list(KINDS[scheduler], namespace)) == 1
    known = runner.describe(handle)
    assert known is not None
    for role in known.roles:  # nightly's Runner adds who launched it
        role.env = {name: value for name, value in role.env.items() if not is_runner_env(name)}
    assert known.roles == app.roles
    assert known.metadata == app.metadata
    eventually(lambda: all(each.hostname for role in runner.status(handle).roles for each in role.replicas), 240)
    assert [[each.id for each in role.replicas] for role in status.roles] == [[0, 1]]
    assert any(found.app_handle == handle for found in runner.list(scheduler))
    runner.cancel(handle)
    runner.cancel(handle)
    assert wait_for(runner, handle, AppState.CANCELLED).state is AppState.CANCELLED
    eventually(lambda: not look.list(POD, namespace))
    handle_id = handle.rpartition("/")[2]
    runner._scheduler(scheduler).delete(handle_id)
    runner._scheduler(scheduler).delete(handle_id)
    assert runner._scheduler(scheduler).describe(handle_id) is None
    assert look.list(KINDS[scheduler], namespace) == []


@pytest.mark.parametrize(
    "scheduler",
    ["pulumi_volcano", pytest.param("pulumi_mcad", marks=[pytest.mark.mcad, pytest.mark.extended])],
)
def test_a_failed_app_says_why_also_when_its_object_is_gone(
    scheduler: str, cli: TorchxCli, namespace: str, busybox: str, look: KubernetesCluster, kubeconfig: Path
) -> None:
    run = cli.torchx(
        "run", "--workspace", "", "-s", scheduler, "-cfg", words(scheduler, namespace), "--wait",
        "utils.sh", "--image", busybox, "sh", "-c", "echo last words; sleep 2; exit 3", code=None,
    )  # fmt: skip
    handle = run.handle
    before = cli.torchx("status", handle, code=None).text
    assert "FAILED" in before
    assert re.search(r"exited with code 3 \(pod \S+ on node \S+\): last words", before)
    name = handle.rpartition(":")[2]
    look.delete(KINDS[scheduler], namespace, name)
    eventually(lambda: look.get(KINDS[scheduler], namespace, name) is None)
    after = cli.torchx("status", handle, code=None).text
    assert "FAILED" in after
    assert re.search(r"exited with code 3 \(pod \S+ on node \S+\): last words", after)
    cli.ours("delete", handle)


def test_logs_are_cut_to_the_time_and_the_text_that_was_asked_for(runner: Runner, namespace: str, busybox: str) -> None:
    script = "for i in 1 2 3 4; do echo number $i; sleep 1; done"
    handle = runner.run(app_of(busybox, script), "pulumi_volcano", options("pulumi_volcano", namespace))
    lines = list(runner.log_lines(handle, "trainer", 0, should_tail=True))
    assert [line.rstrip("\n").rpartition(" ")[2] for line in lines] == ["1", "2", "3", "4"]
    assert all(line.endswith("\n") for line in lines)
    some = list(runner.log_lines(handle, "trainer", 0, regex="number [23]"))
    assert len(some) == 2
    # The runtime says when it read a line, which may be long after it was printed.
    second, third = (datetime.fromisoformat(line.split(" ")[0][:26]) for line in lines[1:3])
    between = second + (third - second) / 2 + (datetime.now().astimezone().utcoffset() or timedelta())
    late = list(runner.log_lines(handle, "trainer", 0, since=between))
    assert late == lines[2:]
    early = list(runner.log_lines(handle, "trainer", 0, until=between))
    assert early == lines[:2]
    runner._scheduler("pulumi_volcano").delete(handle.rpartition("/")[2])


def test_a_refused_launch_says_what_was_found_and_leaves_nothing(
    cli: TorchxCli, namespace: str, busybox: str, look: KubernetesCluster
) -> None:
    run = ("run", "--workspace", "", "-s", "pulumi_volcano", "-cfg", f"namespace={namespace},queue=nosuch")
    app = ("utils.echo", "--image", busybox, "--msg", "x")
    assert "nosuch" in cli.torchx(*run, *app, code=1).text
    # Refused by Volcano's webhook.
    text = cli.torchx(*run[:-1], f"{run[-1]},validate_spec=False", *app, code=1).text
    assert "it was refused (QueueMissing): queue 'nosuch' does not exist; what to do: correct the option" in text
    assert look.list(VOLCANO_JOB, namespace) == []
    assert "nosuch" not in cli.torchx("list", "-s", "pulumi_volcano").out


def test_a_section_of_the_torchx_configuration_fills_in_what_is_not_said(
    cli: TorchxCli, namespace: str, busybox: str
) -> None:
    (cli.folder / ".torchxconfig").write_text(f"[pulumi_volcano]\nqueue = default\nnamespace = {namespace}\n")
    said = cli.torchx(
        "run", "--workspace", "", "-s", "pulumi_volcano", "--dryrun", "utils.echo", "--image", busybox, "--msg", "hi"
    )
    assert "queue: default" in said.text


def test_what_torchx_had_before_is_still_there(cli: TorchxCli) -> None:
    # TorchX prints what it has read of the log when the job ends, and does not wait for the rest: the job waits.
    seen = cli.folder / "seen"
    script = f"echo still  here; for i in $(seq 200); do test -e {seen} && exit 0; sleep 1; done; exit 1"
    words = ["run", "--workspace", "", "-s", "local_cwd", "--wait", "--log", "utils.sh", "sh", "-c", script]
    said = ""
    with subprocess.Popen(
        [BIN / "torchx", *words],
        cwd=cli.folder,
        env=cli.env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as running:
        assert running.stdout is not None
        for line in running.stdout:
            said += line
            if "still here" in line:
                seen.touch()
    assert "still here" in said
    assert running.returncode == 0, said
    shown = cli.torchx("runopts")
    assert {"pulumi_volcano", "pulumi_mcad", "kubernetes", "local_docker"} <= set(shown.text.replace(":", " ").split())
    assert get_default_scheduler_name() == "local_docker"


def test_apps_that_were_launched_at_once_are_all_there(
    runner: Runner, namespace: str, busybox: str, look: KubernetesCluster
) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def launch(_: int) -> str:
        return str(runner.run(app_of(busybox, "true"), "pulumi_volcano", options("pulumi_volcano", namespace)))

    with ThreadPoolExecutor(8) as threads:
        handles = list(threads.map(launch, range(8)))
        assert len(set(handles)) == 8
        assert len(look.list(VOLCANO_JOB, namespace)) == 8
        delete: Callable[[str], Any] = lambda handle: runner._scheduler("pulumi_volcano").delete(  # noqa: E731
            handle.rpartition("/")[2]
        )
        list(threads.map(delete, handles))
    assert look.list(VOLCANO_JOB, namespace) == []


@pytest.mark.extended
@pytest.mark.skipif(not hasattr(dist, "torchrun"), reason="TorchX 0.7.0 has dist.ddp, which the demo runs")
def test_dist_torchrun_trains_on_two_replicas(cli: TorchxCli, namespace: str, busybox: str, cluster: Any) -> None:
    found = Cluster.up(cluster.name, images=("busybox", "pytorch"))
    image = f"{found.registry}/torchrun-{namespace}:1"
    add_layer(found.images["pytorch"], {"/opt/my-train.py": ROOT / "examples/ddp/my-train.py"}, image)
    run = cli.torchx(
        "run", "--workspace", "", "-s", "pulumi_volcano", "-cfg", words("pulumi_volcano", namespace), "--wait", "--log",
        "dist.torchrun", "-j", "2x1", "--script", "/opt/my-train.py", "--image", image, "--cpu", "1", "--memMB", "1300",
    )  # fmt: skip
    for rank in range(2):
        assert f"rank {rank}: world size 2" in run.text
        assert f"rank {rank}: all_reduce of {rank + 1} with the others: 3 (expected 3)" in run.text
    assert "is deprecated" not in run.text
    status = cli.torchx("status", "--json", run.handle)
    assert '"state": "SUCCEEDED"' in status.out
    cli.torchx("delete", run.handle)
    assert "SUCCEEDED" not in cli.torchx("status", run.handle, code=None).out
