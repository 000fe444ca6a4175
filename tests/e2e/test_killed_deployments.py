"""Programs whose deployment is killed: the next `up` goes on with the same objects, and their pods stay.

`TORCHX_PULUMI_KILLS` is the number of kills at random moments, of a job on Volcano, of its Pods, and on MCAD.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.kube.kinds import NAMESPACE, POD, PRIORITY_CLASS, SECRET, SERVICE, SERVICE_ACCOUNT, Kind
from torchx_pulumi.model.labels import LAUNCH
from torchx_pulumi.runs.index import RunIndex
from torchx_pulumi.schedulers.appwrapper.objects import APP_WRAPPER
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB, VOLCANO_POD_GROUP, VOLCANO_QUEUE
from torchx_pulumi_stacks.engine.work_dir import place_key
from torchx_pulumi_stacks.entrypoints import create_volcano

from tests.e2e.launch_orders import kill_engine
from tests.e2e.mcad_project import MCAD_PROGRAM, McadProject
from tests.e2e.project import FAKE_NODE, Project, changes, eventually, kill_between_writes
from tests.e2e.stack_project import StackProject

pytestmark = pytest.mark.e2e

KILLS = int(os.environ.get("TORCHX_PULUMI_KILLS", "0"))
LAUNCH_S = 4.0
"""Longest time until a random kill; a launch takes less."""

LAUNCH_APP = """\
import json, sys
from torchx import specs
from torchx.runner import get_runner

name, scheduler, fields, options = json.loads(sys.argv[1])
role = specs.Role(name="trainer", entrypoint="sh", resource=specs.Resource(cpu=1, gpu=0, memMB=64), **fields)
with get_runner() as runner:
    runner.schedule(runner.dryrun(specs.AppDef(name=name, roles=[role]), scheduler, options))
"""
"""Launches an app as `torchx run` does."""

Objects = Mapping[str, str]
"""Kind and name of each object to its uid."""


KINDS = (VOLCANO_JOB, APP_WRAPPER, VOLCANO_POD_GROUP, POD, SERVICE)


def objects(look: KubernetesCluster, namespace: str, kinds: Sequence[Kind] = KINDS) -> Objects:
    """Return the objects that deployments create in a namespace, without those of controllers."""
    return {
        f"{kind.kind}/{item['metadata']['name']}": item["metadata"]["uid"]
        for kind in kinds
        for item in look.list(kind, namespace)
        if not item["metadata"].get("ownerReferences")
        and any(LAUNCH in (item["metadata"].get(place) or {}) for place in ("labels", "annotations"))
    }


def kill(project: Project, reached: Callable[[], Any]) -> None:
    """Start a deployment, kill it at a moment, and remove its lock."""
    process = project.start("up", "--yes", "--skip-preview")
    until = time.monotonic() + 120
    while process.poll() is None and not reached():
        assert time.monotonic() < until, "the moment did not come"
        time.sleep(0.005)
    kill_between_writes(project, process)
    project.run("cancel", "--yes", "dev")


def check_goes_on(
    project: Project, look: KubernetesCluster, kinds: Sequence[Kind] = KINDS, *, replaced: Objects | None = None
) -> None:
    """Deploy again, and again: what was created stays, each object is there once, and the state is whole.

    Args:
        project: The project whose deployment was killed.
        look: Its cluster.
        kinds: Kinds of its objects.
        replaced: Objects of the run that the deployment replaces. None: it replaces none.
    """
    before = dict(objects(look, project.namespace, kinds).items() - (replaced or {}).items())
    text = project.up()
    after = objects(look, project.namespace, kinds)
    assert before.items() <= after.items(), f"{before}\n{after}\n{text}"
    assert len([key for key in after if key.startswith(("Job/", "AppWrapper/", "PodGroup/"))]) == 1
    project.run("refresh", "--yes", "--skip-preview", "--clear-pending-creates")
    project.up()
    project.run("preview", "--expect-no-changes", "--suppress-outputs")
    assert objects(look, project.namespace, kinds) == after


def after_random_s(seed: int) -> Callable[[], bool]:
    """Return a function that says whether a random time has passed since this call."""
    end = time.monotonic() + random.Random(seed).uniform(0.3, LAUNCH_S)
    return lambda: time.monotonic() > end


@pytest.mark.parametrize(
    ("gang", "first"),
    [("job", "Job/"), ("pods", "Pod/"), pytest.param("pods", "PodGroup/", marks=pytest.mark.extended)],
)
def test_a_killed_program_goes_on_with_the_same_objects(
    project: Project, look: KubernetesCluster, gang: str, first: str
) -> None:
    project.job({"num_replicas": 3}, gang=gang)
    kill(project, lambda: any(key.startswith(first) for key in objects(look, project.namespace)))
    check_goes_on(project, look)


@pytest.mark.parametrize("gang", ["pods", pytest.param("job", marks=pytest.mark.extended)])
def test_objects_that_the_state_lacks_are_imported_as_they_are(
    project: Project, look: KubernetesCluster, gang: str
) -> None:
    project.job({"num_replicas": 3}, gang=gang)
    project.up()
    before = objects(look, project.namespace)
    (job_object,) = [
        item["urn"] for item in project.resources() if item["urn"].endswith((":Job::train", "Group::train"))
    ]
    # The outputs of the component, with its record, stay.
    project.run("state", "delete", "--yes", "--target-dependents", job_object)
    assert f"{len(before)} to import" in project.preview()
    assert "imported, as the last deployment was interrupted" in project.up()
    assert objects(look, project.namespace) == before
    for step in (project.refresh, project.up):
        assert changes(step()).keys() == {"unchanged"}
    project.job({"num_replicas": 3, "min_replicas": 2}, gang=gang)
    assert "in place:" in project.up()
    assert objects(look, project.namespace) == before


@pytest.mark.parametrize(
    "moment", [*(pytest.param(name, marks=pytest.mark.extended) for name in ("index", "order")), "object"]
)
def test_a_killed_launch_of_torchx_run_is_finished_or_removed(
    e2e_env: dict[str, str],
    look: KubernetesCluster,
    namespace: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    moment: str,
) -> None:
    state = tmp_path / "state"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    for name in ("PATH", "KUBECONFIG", "PYTHONPATH"):
        monkeypatch.setenv(name, e2e_env[name])
    # The user's own backend, which the first launch makes.
    for name in ("PULUMI_BACKEND_URL", "PULUMI_CONFIG_PASSPHRASE", "PULUMI_CONFIG_PASSPHRASE_FILE", "TORCHXCONFIG"):
        monkeypatch.delenv(name, raising=False)
    role = {"image": "app:1", "args": ["-c", "sleep 600"], "num_replicas": 2, "metadata": {"torchx_pulumi": FAKE_NODE}}
    app = ["train", "pulumi_volcano", role, {"namespace": namespace, "queue": "default"}]
    process = subprocess.Popen([sys.executable, "-c", LAUNCH_APP, json.dumps(app)])
    reached: dict[str, Callable[[], Any]] = {
        "index": lambda: list(state.rglob("runs/volcano/*@*.json")),
        "order": lambda: list(state.rglob("order.json")),
        "object": lambda: objects(look, namespace),
    }
    until = time.monotonic() + 120
    while not reached[moment]():
        assert time.monotonic() < until, f"no {moment}; the launch {'runs' if process.poll() is None else 'has ended'}"
        time.sleep(0.01)
    process.kill()
    process.wait()
    (entry,) = RunIndex().all()
    if moment == "object":
        # The machine was lost: the engine's processes as well.
        kill_engine(place_key(entry.place))
    before = objects(look, namespace)
    scheduler = create_volcano("torchx")
    described = scheduler.describe(entry.app_id)
    after = objects(look, namespace)
    assert len(after) == (0 if described is None else 1)
    assert described is None or before.items() <= after.items()
    scheduler.delete(entry.app_id)
    assert objects(look, namespace) == {}
    assert RunIndex().all() == []
    scheduler.close()


@pytest.mark.extended
@pytest.mark.parametrize("gang", ["job", "pods"])
def test_a_program_that_is_killed_at_random_moments_goes_on(
    project: Project, look: KubernetesCluster, gang: str
) -> None:
    for number in range(KILLS):
        job = {"gang": gang, "on_running_change": "replace"}
        replaced: Objects = {}
        if number % 3 == 2:
            project.job({"num_replicas": 3}, rerun="before", **job)
            project.up()
            replaced = objects(look, project.namespace)
        project.job({"num_replicas": 3}, rerun=str(number), **job)
        kill(project, after_random_s(number))
        check_goes_on(project, look, replaced=replaced)
        project.destroy()
        eventually(lambda: not objects(look, project.namespace))


PLATFORM_KINDS = (NAMESPACE, VOLCANO_QUEUE, PRIORITY_CLASS)


@pytest.mark.counted
@pytest.mark.parametrize(
    "moment", [pytest.param(number, marks=[pytest.mark.extended] if number else []) for number in range(KILLS or 2)]
)
def test_a_killed_platform_goes_on_with_the_same_objects(
    tmp_path: Path, e2e_env: dict[str, str], look: KubernetesCluster, namespace: str, moment: int
) -> None:
    name = f"{namespace}-team"
    platform = StackProject(tmp_path, e2e_env, name, place="stacks/platform", config_dir="stacks/platform")
    platform.configure(
        namespace=name,
        createNamespace=True,
        queue={"name": name},
        priorityClass={"name": name, "value": 1000},
        serviceAccount="trainer",
        pullSecret="registry",
    )
    platform.run("config", "set", "--secret", "dockerConfigJson", '{"auths": {}}')

    def present() -> Objects:
        found = [look.get(kind, None, name) for kind in PLATFORM_KINDS]
        found += [look.get(kind, name, given) for kind, given in ((SERVICE_ACCOUNT, "trainer"), (SECRET, "registry"))]
        return {item["kind"]: item["metadata"]["uid"] for item in found if item is not None}

    kill(platform, after_random_s(moment) if KILLS else lambda: len(present()) > moment)
    before = present()
    platform.up()
    after = present()
    assert before.items() <= after.items()
    assert len(after) == 5
    platform.run("preview", "--expect-no-changes", "--suppress-outputs")
    platform.run("refresh", "--yes", "--skip-preview", "--clear-pending-creates")
    platform.destroy()
    assert present() == {}


@pytest.mark.counted
@pytest.mark.mcad
def test_a_killed_program_goes_on_with_the_same_app_wrapper(
    cluster: Any, make_project: Callable[..., Project], look: KubernetesCluster
) -> None:
    project = make_project(program=MCAD_PROGRAM)
    job = McadProject(project, cluster.images["busybox"])
    for number in range(KILLS or 1):
        job.job(rerun=str(number))
        kill(project, after_random_s(number) if KILLS else lambda: objects(look, project.namespace))
        check_goes_on(project, look)
        project.destroy()
        eventually(lambda: not objects(look, project.namespace))
