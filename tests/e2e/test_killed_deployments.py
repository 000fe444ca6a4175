"""Programs whose deployment is killed: the next `up` goes on with the same objects, and their pods stay.

`TORCHX_PULUMI_KILLS` is the number of kills at random moments, of a job on Volcano, of its Pods, and on MCAD.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.kube.kinds import NAMESPACE, POD, PRIORITY_CLASS, SECRET, SERVICE, SERVICE_ACCOUNT
from torchx_pulumi.model.labels import LAUNCH
from torchx_pulumi.schedulers.appwrapper.objects import APP_WRAPPER
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB, VOLCANO_POD_GROUP, VOLCANO_QUEUE

from tests.e2e.mcad_project import MCAD_PROGRAM, McadProject
from tests.e2e.project import Project, eventually
from tests.e2e.stack_project import StackProject
from tests.e2e.test_volcano_training_job import kill_between_writes

pytestmark = pytest.mark.e2e

KILLS = int(os.environ.get("TORCHX_PULUMI_KILLS", "0"))
LAUNCH_S = 4.0
"""Longest time until a random kill; a launch takes less."""

Objects = Mapping[str, str]
"""Kind and name of each object to its uid."""


def objects(look: KubernetesCluster, namespace: str) -> Objects:
    """Return the objects that deployments create in a namespace, without those of controllers."""
    return {
        f"{kind.kind}/{item['metadata']['name']}": item["metadata"]["uid"]
        for kind in (VOLCANO_JOB, APP_WRAPPER, VOLCANO_POD_GROUP, POD, SERVICE)
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


def check_goes_on(project: Project, look: KubernetesCluster) -> None:
    """Deploy again, and again: what was created stays, each object is there once, and the state is whole."""
    before = objects(look, project.namespace)
    preview = project.preview()
    text = project.up()
    after = objects(look, project.namespace)
    assert before.items() <= after.items(), f"{before}\n{after}\n{preview}\n{text}"
    project.run("preview", "--expect-no-changes", "--suppress-outputs")
    project.up()
    assert objects(look, project.namespace) == after
    assert len([key for key in after if key.startswith(("Job/", "AppWrapper/", "PodGroup/"))]) == 1
    project.run("refresh", "--yes", "--skip-preview", "--clear-pending-creates")
    project.up()
    project.run("preview", "--expect-no-changes", "--suppress-outputs")
    assert objects(look, project.namespace) == after


def after_random_s() -> Callable[[], bool]:
    """Return whether a random time has passed."""
    end = time.monotonic() + random.uniform(0.3, LAUNCH_S)
    return lambda: time.monotonic() > end


@pytest.mark.parametrize(("gang", "first"), [("job", "Job/"), ("pods", "PodGroup/"), ("pods", "Pod/")])
def test_a_killed_program_goes_on_with_the_same_objects(
    project: Project, look: KubernetesCluster, gang: str, first: str
) -> None:
    project.job({"num_replicas": 3}, gang=gang)
    kill(project, lambda: any(key.startswith(first) for key in objects(look, project.namespace)))
    check_goes_on(project, look)


@pytest.mark.skipif(not KILLS, reason="many kills: set TORCHX_PULUMI_KILLS")
@pytest.mark.parametrize("gang", ["job", "pods"])
def test_a_program_that_is_killed_at_random_moments_goes_on(
    project: Project, look: KubernetesCluster, gang: str
) -> None:
    for number in range(KILLS):
        random.seed(number)
        project.job({"num_replicas": 3}, gang=gang, rerun=str(number))
        kill(project, after_random_s())
        check_goes_on(project, look)
        project.destroy()
        eventually(lambda: not objects(look, project.namespace))


PLATFORM_KINDS = (NAMESPACE, VOLCANO_QUEUE, PRIORITY_CLASS)


@pytest.mark.parametrize("moment", range(KILLS or 2))
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

    random.seed(moment)
    kill(platform, after_random_s() if KILLS else lambda: len(present()) > moment)
    before = present()
    platform.up()
    after = present()
    assert before.items() <= after.items()
    assert len(after) == 5
    platform.run("preview", "--expect-no-changes", "--suppress-outputs")
    platform.run("refresh", "--yes", "--skip-preview", "--clear-pending-creates")
    platform.destroy()
    assert present() == {}


@pytest.mark.mcad
def test_a_killed_program_goes_on_with_the_same_app_wrapper(
    cluster: Any, make_project: Callable[..., Project], look: KubernetesCluster
) -> None:
    project = make_project(program=MCAD_PROGRAM)
    job = McadProject(project, cluster.images["busybox"])
    for number in range(KILLS or 1):
        random.seed(number)
        job.job(rerun=str(number))
        kill(project, after_random_s() if KILLS else lambda: objects(look, project.namespace))
        check_goes_on(project, look)
        project.destroy()
        eventually(lambda: not objects(look, project.namespace))
