"""The TorchX schedulers on the real engine and the real cluster, through the Runner; and kills."""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torchx import specs
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.runs.index import RunIndex
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB

from tests.e2e.project import eventually

pytestmark = pytest.mark.e2e


@pytest.fixture
def world(
    e2e_env: dict[str, str], namespace: str, kubeconfig: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """The environment of the session's cluster in this process, with a state folder of the test's own."""
    for name in ("PATH", "KUBECONFIG", "PYTHONPATH"):
        monkeypatch.setenv(name, e2e_env[name])
    for name in ("PULUMI_BACKEND_URL", "PULUMI_CONFIG_PASSPHRASE", "PULUMI_CONFIG_PASSPHRASE_FILE", "TORCHXCONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    from torchx_pulumi_stacks.entrypoints import create_mcad, create_volcano

    for scheduler in (create_volcano("torchx"), create_mcad("torchx")):
        for app in scheduler.list({"namespace": namespace}):
            scheduler.delete(app.app_id)
        scheduler.close()


def job(image: str, script: str, replicas: int = 2) -> Any:
    role = specs.Role(
        name="trainer",
        image=image,
        entrypoint="sh",
        args=["-c", script],
        env={"GREETING": "hello"},
        num_replicas=replicas,
        resource=specs.Resource(cpu=1, gpu=0, memMB=64, devices={}),
    )
    return specs.AppDef(name="train", roles=[role], metadata={"team": "a"})


def options(namespace: str, kind: str) -> dict[str, Any]:
    """Ask for little: what is left of a core after the node's share."""
    given = {"namespace": namespace, "reserved_millicpu": 980, "reserved_memmb": 48}
    return {**given, "queue": "default"} if kind == "volcano" else given


LAUNCH = """
import json, os, sys
from torchx import specs
from torchx_pulumi_stacks.entrypoints import create_volcano
namespace, image, name, options = json.loads(sys.argv[1])
role = specs.Role(name="trainer", image=image, entrypoint="sh", num_replicas=2,
                  args=["-c", "trap 'exit 0' TERM; sleep 1000 & wait"],
                  resource=specs.Resource(cpu=1, gpu=0, memMB=64))
scheduler = create_volcano("torchx")
info = scheduler.submit_dryrun(specs.AppDef(name="train", roles=[role]), options)
info.request.resource["metadata"]["name"] = name
print("begun", flush=True)
scheduler.schedule(info)
print("done", flush=True)
sys.stdin.read()
scheduler.delete(f"{namespace}:{name}")
"""
"""A process that launches an app, and deletes it when it is told to."""


@pytest.mark.extended
@pytest.mark.parametrize("number", range(int(os.environ.get("TORCHX_PULUMI_KILLS", "10"))))
def test_the_next_call_finds_the_truth_after_a_kill(
    world: Path, cluster: Any, look: KubernetesCluster, namespace: str, number: int
) -> None:
    from torchx_pulumi_stacks.entrypoints import create_volcano

    name, deleting = f"killed-{number}", number % 2 == 1
    given = json.dumps([namespace, cluster.images["busybox"], name, options(namespace, "volcano")])
    command = [sys.executable, "-c", LAUNCH, given]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == "begun\n"
        if deleting:
            assert child.stdout.readline() == "done\n"
            child.stdin.close()
        time.sleep(random.Random(number).uniform(0.0, 1.5))
        child.kill()
    scheduler, app_id = create_volcano("torchx"), f"{namespace}:{name}"
    described = scheduler.describe(app_id)
    jobs = [job["metadata"]["name"] for job in look.list(VOLCANO_JOB, namespace)]
    assert jobs in ([], [name])
    if described is None:
        assert [item.app_id for item in scheduler.list({"namespace": namespace})] == []
    else:
        assert [item.app_id for item in scheduler.list({"namespace": namespace})] == [app_id]
    scheduler.delete(app_id)
    scheduler.delete(app_id)
    eventually(lambda: look.list(VOLCANO_JOB, namespace) == [])
    assert scheduler.describe(app_id) is None
    assert RunIndex().all() == []
    # The same name can be launched again at once: nothing is left that would be in the way.
    info = scheduler.submit_dryrun(job(cluster.images["busybox"], "true", 1), options(namespace, "volcano"))
    info.request.resource["metadata"]["name"] = name
    assert scheduler.schedule(info) == app_id
    scheduler.delete(app_id)
    scheduler.close()


@pytest.mark.parametrize("number", range(int(os.environ.get("TORCHX_PULUMI_KILLS", "3"))))
def test_a_killed_torchx_run_is_put_right_by_the_next_command(
    world: Path, cluster: Any, look: KubernetesCluster, namespace: str, number: int
) -> None:
    """Alone or with all that it started, from its first moment until after its end."""
    import psutil
    from torchx_pulumi_stacks.entrypoints import create_volcano

    chance = random.Random(number)
    given = ",".join(f"{name}={value}" for name, value in options(namespace, "volcano").items())
    script = ("utils.sh", "--image", cluster.images["busybox"], "--num_replicas", "1", "sleep", "600")
    command = [str(Path(sys.executable).with_name("torchx")), "run", "-s", "pulumi_volcano", "-cfg", given]
    with subprocess.Popen([*command, "--workspace", "", *script], stdout=subprocess.PIPE, text=True) as child:
        time.sleep(chance.uniform(0.3, 1.8))
        others = psutil.Process(child.pid).children(recursive=True) if number % 2 else []
        child.kill()
        for other in others:
            with contextlib.suppress(psutil.NoSuchProcess):
                other.kill()
    scheduler = create_volcano("torchx")
    apps = [item.app_id for item in scheduler.list({"namespace": namespace})]
    living = [app_id for app_id in apps if scheduler.describe(app_id) is not None]
    jobs = [f"{namespace}:{found['metadata']['name']}" for found in look.list(VOLCANO_JOB, namespace)]
    assert jobs == living
    assert [item.app_id for item in scheduler.list({"namespace": namespace})] == living
    for app_id in living:
        scheduler.delete(app_id)
    eventually(lambda: look.list(VOLCANO_JOB, namespace) == [])
    assert RunIndex().all() == []
    kept = [path.name for path in (world / "state/torchx-pulumi/backend/.pulumi").rglob("*.json") if path.is_file()]
    assert kept == []
    eventually(lambda: engines_below(world) == [])
    scheduler.close()


def engines_below(folder: Path) -> list[int]:
    """Find the processes of engines whose home is below a folder."""
    import psutil

    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("PULUMI_HOME", "").startswith(str(folder)):
                found.append(process.pid)
    return found
