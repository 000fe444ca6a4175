"""Jobs of MCAD that a program hands to MCAD's successor by one word: the real engine and MCAD, in a cluster of its own.

Both have definitions of one name, so that the cluster gets the successor's in place of MCAD's, as where one moves.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.kube.kinds import POD
from torchx_pulumi.schedulers.appwrapper.objects import APP_WRAPPER, APP_WRAPPER_V1BETA2

from tests.e2e.app_wrappers import FAKE
from tests.e2e.mcad_project import MCAD_PROGRAM, McadProject, is_state
from tests.e2e.project import Project, changes, eventually, finite
from tools.bootstrap import ensure
from tools.local_cluster import Cluster

pytestmark = [pytest.mark.e2e, pytest.mark.extended]

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
DONE = {"roles": [{"args": ["true"], **FAKE, "pod_overlay": finite()}]}
LONG = {"roles": [{"args": ["sleep 600"], **FAKE}]}
WORD = {"api_version": "v1beta2"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    found = Cluster.up(f"takeover-{os.getpid()}", real_node=False, kwok_nodes=1, features=("mcad",))
    yield found
    found.down()


@pytest.fixture(scope="module")
def kubeconfig(cluster: Cluster) -> Path:
    return Path(cluster.kubeconfig)


def replace_definition(cluster: Cluster, look: KubernetesCluster) -> None:
    """Put the successor's definition in the place of MCAD's, which removes all AppWrappers of MCAD."""
    path = f"{DEFINITIONS}/{APP_WRAPPER.plural}.{APP_WRAPPER.group}"
    cluster.api.request("DELETE", path)
    eventually(lambda: cluster.api.get(path) is None)
    (file,) = (ensure(["appwrapper"])["appwrapper"].parent / "share" / "crd").glob("*_appwrappers.yaml")
    cluster.api.create(DEFINITIONS, file.read_bytes(), kind="yaml")
    eventually(lambda: look.serves(APP_WRAPPER_V1BETA2) and not look.serves(APP_WRAPPER))


def test_a_running_job_is_refused_and_a_finished_one_not_run_again(
    cluster: Cluster, make_project: Callable[..., Project], kubeconfig: Path
) -> None:
    mcad = McadProject(make_project(program=MCAD_PROGRAM), "app:1")
    project, look = mcad.project, KubernetesCluster.connect(str(kubeconfig))
    mcad.jobs({"done": DONE, "long": LONG})
    mcad.until(is_state("SUCCEEDED"), "done")
    mcad.until(is_state("RUNNING"), "long")
    project.up()
    first = {name: project.output(name) for name in ("done", "long")}

    def app_wrappers() -> dict[str, str]:
        found = look.list(APP_WRAPPER, project.namespace)
        return {each["metadata"]["name"]: each["metadata"]["uid"] for each in found}

    # With api_version alone, and with local_queue too: nothing changes.
    before = app_wrappers()
    assert len(before) == 2
    for change in (WORD, {**WORD, "local_queue": "team"}):
        mcad.jobs({"done": DONE, "long": {**LONG, **change}})
        for text in (project.preview(fails=True), project.run("up", "--yes", "--skip-preview", fails=True)):
            assert f"changing {', '.join(change)} would relaunch run {first['long']['job_name']}" in text
        mcad.jobs({"done": {**DONE, **change}, "long": LONG})
        for text in (project.preview(), project.up()):
            assert f"finished run {first['done']['job_name']} (SUCCEEDED) is kept as it is" in text
            assert changes(text).keys() == {"unchanged"}
        assert app_wrappers() == before

    # The cluster changes hands. What ran there then is gone.
    replace_definition(cluster, KubernetesCluster.connect(str(kubeconfig)))
    look = KubernetesCluster.connect(str(kubeconfig))
    mcad.jobs({"done": {**DONE, **WORD, "local_queue": "team"}, "long": {**LONG, **WORD, "local_queue": "team"}})
    assert changes(project.preview()).keys() == {"unchanged"}
    for _ in range(2):
        text = project.up()
        for name, run in first.items():
            assert f"run {run['job_name']}" in text, name
        assert "it is not started again" in text
        assert look.list(APP_WRAPPER_V1BETA2, project.namespace) == []
    assert project.output("done")["observed"]["state"] == "SUCCEEDED"
    assert project.output("done")["uid"] == first["done"]["uid"]
    assert project.output("long")["observed"]["reason"] == "NotFound"

    # Run again on purpose, it goes to the successor.
    mcad.jobs({"done": {**DONE, **WORD, "rerun": "on the successor"}})
    project.up()
    (found,) = look.list(APP_WRAPPER_V1BETA2, project.namespace)
    assert found["metadata"]["uid"] == project.output("done")["uid"] != first["done"]["uid"]
    project.destroy()
    assert look.list(APP_WRAPPER_V1BETA2, project.namespace) == []
    assert look.list(POD, project.namespace, {"app.kubernetes.io/instance": found["metadata"]["name"]}) == []
