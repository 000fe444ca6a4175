"""A team's platform under Kueue, and the page about the way there: the real Kueue, operator, engine and schedulers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.kube.kinds import NAMESPACE, POD, PRIORITY_CLASS, Kind
from torchx_pulumi.schedulers.appwrapper.objects import APP_WRAPPER_V1BETA2

from tests.doc_blocks import ROOT, blocks, commands
from tests.e2e.app_wrappers import shell as shell_role
from tests.e2e.kueue_queues import CLUSTER_QUEUE, FAKE_GPU, FLAVOR, GROUP, KueueQueues
from tests.e2e.mcad_project import MCAD_PROGRAM, McadProject, is_state
from tests.e2e.project import Project, changes, eventually
from tests.e2e.stack_project import StackProject
from tests.e2e.test_docs import shell
from tests.e2e.torchx_cli import HANDLE, TorchxCli
from tools.local_cluster import Cluster

pytestmark = [pytest.mark.e2e, pytest.mark.kueue]

WORKLOAD_PRIORITY_CLASS = Kind(
    group=GROUP, version="v1beta2", kind="WorkloadPriorityClass", plural="workloadpriorityclasses", namespaced=False
)
LABEL = "kueue.x-k8s.io/priority-class"
QUOTA = {"cpu": "8", "memory": "8Gi", "nvidia.com/gpu": "4"}


@pytest.fixture
def kubeconfig(kueue_cluster: Cluster) -> Path:
    return Path(kueue_cluster.kubeconfig)


@pytest.fixture
def team(namespace: str) -> str:
    """Name of the team, of its namespace and of all that the platform makes."""
    return f"{namespace}-team"


@pytest.fixture
def queues(kueue_cluster: Cluster, team: str) -> KueueQueues:
    return KueueQueues(kueue_cluster, team)


@pytest.fixture
def platform(tmp_path: Path, e2e_env: dict[str, str], team: str, look: KubernetesCluster) -> Iterator[StackProject]:
    root = tmp_path / "root"
    root.mkdir()
    made = StackProject(root, e2e_env, team, place="examples/platform", config_dir="examples/platform")
    yield made
    # Kueue keeps a queue as long as there is something in it.
    for job in look.list(APP_WRAPPER_V1BETA2, team):
        look.delete(APP_WRAPPER_V1BETA2, team, job["metadata"]["name"])
    made.destroy()
    cluster_wide = (NAMESPACE, PRIORITY_CLASS, FLAVOR, CLUSTER_QUEUE, WORKLOAD_PRIORITY_CLASS)
    assert [kind.kind for kind in cluster_wide if look.get(kind, None, team) is not None] == []


def test_the_lines_of_the_page_make_a_queue_and_run_a_job_in_it(
    platform: StackProject,
    team: str,
    queues: KueueQueues,
    kueue_cluster: Cluster,
    pulumi_env: dict[str, str],
    tmp_path: Path,
    kubeconfig: Path,
) -> None:
    if not kueue_cluster.images:
        pytest.skip("the local cluster has no real node")
    # No node of the local cluster has the label of the page.
    here = {"set team team": f"set team {team}", '{"nodeLabels": {"pool": "gpu"}}': "{}"}
    shell(commands("docs/kueue.md", "platform", here), platform.folder, platform.env)
    assert (platform.output("local_queue"), platform.output("workload_priority_class")) == (team, team)
    queues.wait_until_active(team)

    env = TorchxCli(pulumi_env, tmp_path, kubeconfig).env
    mine = {
        "=team,namespace=team": f"={team},namespace={team}",
        "--namespace team --queue team": f"--namespace {team} --queue {team}",
    }
    run = {**mine, "busybox:1.36": kueue_cluster.images["busybox"]}
    handle = "pulumi_mcad://torchx/team:echo-k3x9"
    doctor, launch, _ = commands("docs/kueue.md", "first", run)
    # Its other findings are of this machine, and its lines are as wide as the terminal.
    said = " ".join(shell([f"{doctor} --timeout 120 || true"], tmp_path, env).split())
    assert f"{team} admits jobs into ClusterQueue '{team}': 64 of 64 cpu free" in said
    found = HANDLE.search(shell([launch], tmp_path, env))
    assert found
    (look_again,) = commands("docs/kueue.md", "first", {handle: found[0]})[2:]
    finished, refused = (text.strip() for language, _, text in blocks(ROOT / "docs/kueue.md") if language == "text")
    assert finished in shell([look_again], tmp_path, env).replace(found[0], handle)
    del run["--namespace team --queue team"]
    (too_large,) = commands("docs/kueue.md", "never", run)
    assert refused in shell([f"{too_large} 2>&1 || true"], tmp_path, env).replace(f"'{team}'", "'team'")

    (second,) = commands("docs/kueue.md", "priority", run)
    found = HANDLE.search(shell([second.replace("class=team", f"class={team}")], tmp_path, env))
    assert found
    name = found[0].rpartition(":")[2]
    eventually(lambda: queues.workload(name))
    assert queues.workload(name)["spec"]["priority"] == 1000


def test_the_platform_is_kept_by_a_second_run_and_its_quota_and_flavor_count(
    platform: StackProject,
    team: str,
    queues: KueueQueues,
    look: KubernetesCluster,
    kueue_cluster: Cluster,
    make_project: Callable[..., Project],
) -> None:
    platform.configure(team=team, volcano=False, quota=QUOTA, flavor=FAKE_GPU, members="team-users")
    platform.preview()
    platform.up()
    assert changes(platform.up()).keys() == {"unchanged"}
    for step in (platform.refresh, platform.up):
        assert changes(step()).keys() == {"unchanged"}, step
    queues.wait_until_active(team)

    mcad = McadProject(make_project(program=MCAD_PROGRAM), "app:1", api_version="v1beta2", local_queue=team)

    def job(**given: Any) -> dict[str, Any]:
        role = shell_role("sleep 600", num_replicas=4, resource={"cpu": 1, "gpu": 1, "memory_mb": 64})
        return {"namespace": team, "roles": [role], **given}

    urgent, path = f"urgent-{team}", f"/apis/{WORKLOAD_PRIORITY_CLASS.api_version}/{WORKLOAD_PRIORITY_CLASS.plural}"
    body = {"apiVersion": WORKLOAD_PRIORITY_CLASS.api_version, "kind": WORKLOAD_PRIORITY_CLASS.kind, "value": 2000}
    kueue_cluster.api.create(path, {**body, "metadata": {"name": urgent}})
    first, by_pods, plain = job(), job(priority_class=team), job()
    by_label = job(priority_class=team, labels={LABEL: urgent})
    mcad.jobs({"first": first})
    mcad.until(is_state("RUNNING"), "first")
    mcad.jobs({"first": first, "by-pods": by_pods, "by-label": by_label, "plain": plain})
    mcad.project.up()
    names = {name: mcad.project.output(name)["job_name"] for name in ("first", "by-pods", "by-label", "plain")}

    def priority(name: str) -> tuple[int, str | None]:
        spec = eventually(lambda: queues.workload(names[name]))["spec"]
        return spec["priority"], (spec.get("priorityClassRef") or {}).get("kind")

    # The label wins over the class of the pods.
    assert {name: priority(name) for name in names} == {
        "first": (0, None),
        "by-pods": (1000, "PriorityClass"),
        "by-label": (2000, "WorkloadPriorityClass"),
        "plain": (0, None),
    }
    # It may be added to a job that waits, and then not be taken away; a job that runs may not get one.
    raised = {"by-pods": by_pods, "by-label": by_label, "plain": job(labels={LABEL: team})}
    mcad.jobs({"first": first, **raised})
    assert "in place: labels" in mcad.project.up()
    eventually(lambda: priority("plain") == (1000, "WorkloadPriorityClass"))
    mcad.jobs({"first": first, **raised, "plain": plain})
    assert "cannot be taken from a job" in mcad.project.preview(fails=True)
    mcad.jobs({"first": job(labels={LABEL: team}), **raised})
    assert "cannot be given to a job that runs" in mcad.project.preview(fails=True)
    # The quota has room for one: that of the highest priority, on nodes of the flavor. Its class may be another one.
    mcad.jobs(raised)
    mcad.until(is_state("RUNNING"), "by-label")
    assert [mcad.project.output(name)["observed"]["state"] for name in ("by-pods", "plain")] == ["PENDING"] * 2
    pods = [pod for pod in look.list(POD, team) if not pod["metadata"].get("deletionTimestamp")]
    assert [pod["spec"]["nodeSelector"] for pod in pods] == [FAKE_GPU["nodeLabels"]] * 4
    mcad.jobs({**raised, "by-label": job(priority_class=team, labels={LABEL: team})})
    assert "in place: labels" in mcad.project.up()
    eventually(lambda: priority("by-label") == (1000, "WorkloadPriorityClass"))
    mcad.project.destroy()
    kueue_cluster.api.request("DELETE", f"{path}/{urgent}")
