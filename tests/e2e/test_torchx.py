"""The TorchX schedulers on the real engine and the real cluster, through the Runner; and kills."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from torchx import specs
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.runs.index import RunIndex
from torchx_pulumi.schedulers.appwrapper.objects import APP_WRAPPER
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


@pytest.mark.parametrize("kind", ["volcano", pytest.param("mcad", marks=pytest.mark.mcad)])
def test_a_run_from_dry_run_to_delete(
    world: Path, cluster: Any, look: KubernetesCluster, namespace: str, kind: str
) -> None:
    from torchx.runner import get_runner

    given = job(cluster.images["busybox"], "echo $GREETING from $0; echo ${replica_id}; sleep 1", replicas=2)
    with get_runner() as runner:
        info = runner.dryrun(given, f"pulumi_{kind}", options(namespace, kind))
        handle = runner.schedule(info)
        with pytest.raises(ValueError, match="already exists"):
            runner.schedule(info)
    app_id = handle.rpartition("/")[2]
    head = VOLCANO_JOB if kind == "volcano" else APP_WRAPPER
    assert look.get(head, *app_id.split(":")) is not None
    with get_runner() as runner:
        status = runner.wait(handle, wait_interval=0.5)
        assert status is not None
        assert status.state is specs.AppState.SUCCEEDED, status
        assert [replica.id for replica in status.roles[0].replicas] == [0, 1]
        since = datetime.now(timezone.utc) - timedelta(hours=1)
        for replica in (0, 1):
            lines = list(runner.log_lines(handle, "trainer", replica, since=since, should_tail=True))
            assert [line.split(" ", 1)[1] for line in lines] == ["hello from sh\n", f"{replica}\n"]
        described = runner.describe(handle)
        assert described is not None
        assert described.metadata in ({"team": "a"}, {})
        assert described.roles[0].args == given.roles[0].args
        listed = {item.app_handle: str(item.state) for item in runner.list(f"pulumi_{kind}")}
        assert listed[handle] == "SUCCEEDED"
    from torchx_pulumi_stacks.console import main

    assert main(["delete", handle]) == 0
    assert main(["delete", handle]) == 0
    assert look.get(head, *app_id.split(":")) is None
    assert RunIndex().all() == []
    with get_runner() as runner:
        assert runner.status(handle) is None


def test_cancel_keeps_the_job_and_resume_runs_it_again(
    world: Path, cluster: Any, look: KubernetesCluster, namespace: str
) -> None:
    from torchx_pulumi_stacks.entrypoints import create_volcano

    scheduler = create_volcano("torchx")
    app_id = scheduler.submit(
        job(cluster.images["busybox"], "trap 'exit 0' TERM; sleep 1000 & wait", 1), options(namespace, "volcano")
    )
    eventually(lambda: str(scheduler.describe(app_id).state) == "RUNNING", timeout_s=240)
    uid = (look.get(VOLCANO_JOB, *app_id.split(":")) or {})["metadata"]["uid"]
    scheduler.cancel(app_id)
    scheduler.cancel(app_id)
    eventually(lambda: str(scheduler.describe(app_id).state) == "CANCELLED", timeout_s=240)
    scheduler.resume(app_id)
    eventually(lambda: str(scheduler.describe(app_id).state) == "RUNNING", timeout_s=240)
    assert (look.get(VOLCANO_JOB, *app_id.split(":")) or {})["metadata"]["uid"] == uid
    scheduler.delete(app_id)
    assert scheduler.exists(app_id) is False
    scheduler.close()


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


@pytest.mark.parametrize("number", range(int(os.environ.get("TORCHX_PULUMI_KILLS", "2"))))
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
    eventually(lambda: look.list(VOLCANO_JOB, namespace) == [], timeout_s=240)
    assert scheduler.describe(app_id) is None
    assert RunIndex().all() == []
    # The same name can be launched again at once: nothing is left that would be in the way.
    info = scheduler.submit_dryrun(job(cluster.images["busybox"], "true", 1), options(namespace, "volcano"))
    info.request.resource["metadata"]["name"] = name
    assert scheduler.schedule(info) == app_id
    scheduler.delete(app_id)
    scheduler.close()
