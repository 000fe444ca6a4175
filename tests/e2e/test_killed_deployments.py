"""Programs whose deployment is killed: the next `up` goes on with the same objects, and their pods stay.

`TORCHX_PULUMI_KILLS` is the number of kills at random moments, of a job on Volcano, of its Pods, and on MCAD.
"""

from __future__ import annotations

import json
import os
import random
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.kube.kinds import NAMESPACE, POD, SERVICE, Kind
from torchx_pulumi.model.labels import LAUNCH
from torchx_pulumi.runs.index import RunIndex
from torchx_pulumi.schedulers.appwrapper.objects import APP_WRAPPER
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB, VOLCANO_POD_GROUP
from torchx_pulumi.stack_state.checkpoint import UnreadableStateError, parse_checkpoint
from torchx_pulumi_stacks.engine.work_dir import place_key
from torchx_pulumi_stacks.entrypoints import create_volcano

from tests.e2e.launch_orders import kill_engine
from tests.e2e.mcad_project import MCAD_PROGRAM, McadProject
from tests.e2e.project import FAKE_NODE, PROGRAM, Project, changes, eventually, kill_between_writes
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


def change_state(project: Project, change: Callable[[dict[str, Any]], None]) -> None:
    """Make the state what a kill leaves at a moment that is too short to wait for."""
    path = project.folder / "state.json"
    project.run("stack", "export", "--file", str(path))
    whole = json.loads(path.read_text())
    change(whole["deployment"])
    path.write_text(json.dumps(whole))
    project.run("stack", "import", "--file", str(path))


def forget_launch(deployment: dict[str, Any]) -> None:
    """Leave the intent of a launch whose object was created."""
    deployment["resources"] = [item for item in deployment["resources"] if not item["urn"].endswith(":Job::train")]
    for item in deployment["resources"]:
        if item["type"].startswith("torchx:"):
            item["outputs"] = {}


def check_imported(project: Project, look: KubernetesCluster, wanted: Objects) -> None:
    assert "imported, as the last deployment was interrupted" in project.up()
    assert objects(look, project.namespace) == wanted
    project.run("refresh", "--yes", "--skip-preview", "--clear-pending-creates")
    project.run("preview", "--expect-no-changes", "--suppress-outputs")


@pytest.mark.parametrize("policy", ["ignore", "replace"])
def test_a_killed_launch_is_completed_and_then_changed(project: Project, look: KubernetesCluster, policy: str) -> None:
    changed = {"role": {"image": "app:2"}, "on_running_change": policy}
    project.job()
    project.up()
    before = objects(look, project.namespace)
    change_state(project, forget_launch)
    project.job(**changed)
    assert re.search("Undo the change and run `(pulumi )?up` once", project.preview(fails=True))
    project.job()
    check_imported(project, look, before)
    project.job(**changed)
    project.up()
    assert (objects(look, project.namespace) == before) is (policy == "ignore")


def test_a_killed_replacement_under_a_fixed_name_is_imported(project: Project, look: KubernetesCluster) -> None:
    fixed = {"job_name": "mine", "on_running_change": "replace"}
    project.job(**fixed)
    project.up()
    before = {item["urn"]: item for item in project.resources()}
    project.job({"image": "app:2"}, **fixed)
    project.up()
    new = objects(look, project.namespace)

    def killed(deployment: dict[str, Any]) -> None:
        """The engine has noted the deletion of the old object, and not yet the creation of the new one."""
        (job,) = (item for item in deployment["resources"] if item["urn"].endswith(":Job::train"))
        begun = {key: value for key, value in job.items() if key not in ("id", "outputs")}
        deployment["pending_operations"] = [{"type": "creating", "resource": begun}]
        before[job["urn"]]["pendingReplacement"] = True
        deployment["resources"] = [
            item if item["urn"].endswith("::train-intent") else before[item["urn"]] for item in deployment["resources"]
        ]

    change_state(project, killed)
    advice = re.search(r"`pulumi (state delete --target-dependents) '(\S+)'`", project.preview(fails=True))
    assert advice is not None
    project.run(*advice[1].split(), advice[2], "--yes")
    check_imported(project, look, new)


def test_a_job_of_a_lost_state_is_imported_once_a_change_is_undone(project: Project, look: KubernetesCluster) -> None:
    project.job(job_name="mine")
    project.up()
    before = objects(look, project.namespace)
    project.run("stack", "rm", "dev", "--force", "--yes")
    project.run("stack", "init", "dev")
    project.job({"image": "app:2"}, job_name="mine")
    assert "is another run of this component, which the state lacks" in project.preview(fails=True)
    project.job(job_name="mine")
    project.up()
    assert objects(look, project.namespace) == before
    project.run("preview", "--expect-no-changes", "--suppress-outputs")


@pytest.mark.parametrize("left", ["", '{"version": 3'])
def test_a_state_that_was_cut_is_restored_from_an_export(project: Project, look: KubernetesCluster, left: str) -> None:
    project.job()
    project.up()
    before, saved = objects(look, project.namespace), str(project.folder / "saved.json")
    project.run("stack", "export", "--file", saved)
    project._state_file().write_text(left)
    with pytest.raises(UnreadableStateError, match="`pulumi stack import --file FILE` restores"):
        parse_checkpoint(left)
    project.run("stack", "import", "--file", saved)
    project.run("preview", "--expect-no-changes", "--suppress-outputs")
    assert objects(look, project.namespace) == before


def test_a_run_in_a_cluster_that_is_gone_is_given_up_by_the_command_of_the_message(
    project: Project, look: KubernetesCluster
) -> None:
    project.job()
    project.up()
    name = project.output("job_name")
    look.delete(VOLCANO_JOB, project.namespace, name)
    eventually(lambda: not objects(look, project.namespace))

    def move(deployment: dict[str, Any]) -> None:
        """Let the run have been launched in another cluster."""
        (component,) = (item for item in deployment["resources"] if item["type"].startswith("torchx:"))
        record = component["outputs"]["record"]
        record["cluster"] = dict.fromkeys(record["cluster"], "another")

    change_state(project, move)
    text = " ".join(project.preview(fails=True).split())
    advice = re.search(r"to give that run up, remove it from the state \(`pulumi (.*?) '(\S+)'`", text)
    assert advice is not None, text
    project.run(*advice[1].split(), "--yes", advice[2])
    project.up()
    assert len(objects(look, project.namespace)) == 1


OWN_PROVIDER = PROGRAM.replace(
    "opts = pulumi.ResourceOptions(",
    "import pulumi_kubernetes\n"
    'own = pulumi_kubernetes.Provider("own", kubeconfig=pathlib.Path("kubeconfig").read_text())\n'
    "opts = pulumi.ResourceOptions(\n    provider=own,",
)


def test_an_object_that_cannot_be_looked_for_is_imported_by_the_command_in_the_message(
    make_project: Callable[..., Project], look: KubernetesCluster, kubeconfig: Path
) -> None:
    project = make_project(program=OWN_PROVIDER)
    (project.folder / "kubeconfig").write_text(kubeconfig.read_text())
    project.env["KUBECONFIG"] = str(project.folder / "none")
    project.job()
    project.up()
    before = objects(look, project.namespace)
    change_state(project, forget_launch)
    advice = re.search(r"`pulumi (import [^`]+)`", project.preview())
    assert advice is not None
    (own,) = (item["urn"] for item in project.resources() if item["urn"].endswith("::own"))
    project.run(*shlex.split(advice[1].replace("NAME=URN", f"own={own}")), "--yes", "--skip-preview")
    project.up()
    assert objects(look, project.namespace) == before
    project.run("preview", "--expect-no-changes", "--suppress-outputs")


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


@pytest.mark.counted
def test_a_killed_stack_program_goes_on_with_the_same_namespace(
    tmp_path: Path, e2e_env: dict[str, str], look: KubernetesCluster, namespace: str
) -> None:
    name = f"{namespace}-own"
    stack = StackProject(tmp_path, e2e_env, name, config_dir="stacks")
    role = {"name": "trainer", "image": "app:1", "entrypoint": "sleep", "args": ["600"], **FAKE_NODE}
    (tmp_path / "app.yaml").write_text(json.dumps({"name": "train", "roles": [role]}))
    stack.configure(appFile="app.yaml", options={"queue": "default", "namespace": name}, createNamespace=True)

    def uid() -> str | None:
        return ((look.get(NAMESPACE, None, name) or {}).get("metadata") or {}).get("uid")

    for number in range(KILLS or 1):
        kill(stack, after_random_s(number) if KILLS else uid)
        before = uid()
        check_goes_on(stack, look)
        assert before in (None, uid())
        stack.destroy()
        eventually(lambda: uid() is None)


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
