"""What 0.1.0 launched goes on under this version: looked at, deployed again, refreshed, cancelled and deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.kube.kinds import POD, SERVICE
from torchx_pulumi.model.labels import LAUNCH, RUN
from torchx_pulumi.runs.index import RunIndex
from torchx_pulumi.schedulers.appwrapper.objects import APP_WRAPPER
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB, VOLCANO_POD_GROUP

from tests.e2e.earlier import Earlier, UpgradedProject
from tests.e2e.project import FAKE_NODE, eventually, finite
from tests.e2e.test_handover import Taken

pytestmark = pytest.mark.e2e

RUNNING: dict[str, Any] = {"image": "app:1", "args": ["-c", "sleep 600"], "num_replicas": 2}
ENDED: dict[str, Any] = {**RUNNING, "num_replicas": 1}


@pytest.fixture(scope="session")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Earlier:
    """0.1.0, from its wheel."""
    return Earlier(tmp_path_factory.mktemp("released") / "venv", "0.1.0")


@pytest.fixture
def make_upgraded(
    tmp_path: Path, e2e_env: dict[str, str], namespace: str, earlier: Earlier
) -> Iterator[Callable[[str], UpgradedProject]]:
    """Make projects of 0.1.0, which are destroyed in the end."""
    made: list[UpgradedProject] = []

    def make(name: str) -> UpgradedProject:
        made.append(UpgradedProject(tmp_path / name, e2e_env, namespace, earlier))
        return made[-1]

    yield make
    for project in made:
        project.upgrade()
        project.run("cancel", "--yes", "dev")
        project.run("refresh", "--yes", "--skip-preview", "--clear-pending-creates")
        project.destroy()


def volcano(namespace: str, role: Mapping[str, Any] | None = None, **args: Any) -> Any:
    """Return a job of two replicas on fake nodes."""
    base = {"name": "trainer", "image": "app:1", "entrypoint": "sleep", "args": ["600"], "num_replicas": 2, **FAKE_NODE}
    return ["volcano", {"queue": "default", "namespace": namespace, "roles": [{**base, **(role or {})}], **args}]


def objects(look: KubernetesCluster, namespace: str) -> dict[str, Any]:
    """Return what stands for runs in a namespace: kind and name to uid, owner and hash.

    Volcano makes PodGroups of its Jobs, and copies labels and annotations to them.
    """
    found = {}
    for kind in (VOLCANO_JOB, APP_WRAPPER, VOLCANO_POD_GROUP):
        for item in look.list(kind, namespace):
            metadata = item["metadata"]
            if LAUNCH in (metadata.get("labels") or {}) and not metadata.get("ownerReferences"):
                key = f"{kind.kind}/{metadata['name']}"
                found[key] = (metadata["uid"], metadata["labels"][LAUNCH], metadata["annotations"][RUN])
    return found


def test_jobs_of_a_program_go_on_with_their_uids(
    make_upgraded: Callable[[str], UpgradedProject], look: KubernetesCluster, namespace: str
) -> None:
    project = make_upgraded("program")
    ending = {"pod_overlay": finite()}
    jobs = {
        "running": volcano(namespace),
        "gang": volcano(namespace, {"min_replicas": 1}, gang="pods"),
        "ended": volcano(namespace, ending),
        "vanished": volcano(namespace, {**ending, "image": "app:3"}),
    }
    project.jobs(jobs)
    project.up()
    name = project.output("vanished")["job_name"]
    names = [project.output(key)["job_name"] for key in ("ended", "vanished")]
    eventually(lambda: {_phase(look, namespace, ended) for ended in names} == {"Completed"})
    # 0.1.0 sees the ends, and records them; then somebody deletes one of the objects.
    project.up()
    look.delete(VOLCANO_JOB, namespace, name)
    eventually(lambda: look.get(VOLCANO_JOB, namespace, name) is None)
    before = objects(look, namespace)
    uids = {key: project.output(key)["uid"] for key in jobs}
    project.upgrade()
    preview = project.preview()
    assert "RELAUNCH" not in preview
    project.up()
    assert objects(look, namespace) == before
    assert {key: project.output(key)["uid"] for key in jobs} == uids
    states = {key: project.output(key)["observed"]["state"] for key in jobs}
    assert (states["ended"], states["vanished"]) == ("SUCCEEDED", "SUCCEEDED")
    project.refresh()
    project.up()
    project.run("preview", "--expect-no-changes", "--suppress-outputs")
    assert objects(look, namespace) == before
    # A change of what runs is found by the hash of 0.1.0; one in place is made in place, and a new run is a new one.
    project.jobs({**jobs, "running": volcano(namespace, {"image": "app:2"})})
    assert "changing roles[trainer].image would relaunch" in project.run("preview", fails=True)
    smaller = volcano(namespace, {"min_replicas": 1})
    project.jobs({**jobs, "running": smaller, "ended": volcano(namespace, ending, rerun="2")})
    project.up()
    after = {key: project.output(key)["uid"] for key in jobs}
    assert {key for key in jobs if after[key] != uids[key]} == {"ended"}
    # Volcano's controller may not be about to create a pod when its job goes.
    rerun = project.output("ended")["job_name"]
    eventually(lambda: _phase(look, namespace, rerun) == "Completed")
    project.destroy()
    assert objects(look, namespace) == {}
    assert [look.list(kind, namespace) for kind in (POD, SERVICE)] == [[], []]


def test_runs_of_shared_tasks_stand_next_to_a_job_that_goes_on(
    make_upgraded: Callable[[str], UpgradedProject], look: KubernetesCluster, namespace: str
) -> None:
    project = make_upgraded("layouts")
    old = {"old": volcano(namespace)}
    project.jobs(old)
    project.up()
    before = objects(look, namespace)
    project.upgrade()
    kept = {"old": volcano(namespace, layout="role")}
    project.jobs(kept)
    project.run("preview", "--expect-no-changes", "--suppress-outputs")
    # A record of 0.1.0 has no layout: each replica is a task.
    project.jobs(
        {
            **kept,
            "role": volcano(namespace, {"num_replicas": 4}, layout="role"),
            "auto": volcano(namespace, {"num_replicas": 101}),
        }
    )
    project.up()
    tasks = {
        key: [task["replicas"] for task in (look.get(VOLCANO_JOB, namespace, name) or {})["spec"]["tasks"]]
        for key in ("old", "role", "auto")
        for name in (project.output(key)["job_name"],)
    }
    assert tasks == {"old": [1, 1], "role": [1, 3], "auto": [1, 100]}
    assert before.items() <= objects(look, namespace).items()
    project.run("preview", "--expect-no-changes", "--suppress-outputs")
    project.downgrade()
    project.jobs(
        {**old, "role": volcano(namespace, {"num_replicas": 4}), "auto": volcano(namespace, {"num_replicas": 101})}
    )
    assert "has version 2, this release of torchx-pulumi reads up to 1" in project.run("preview", fails=True)
    project.upgrade()
    project.jobs(kept)
    project.up()
    assert objects(look, namespace) == before


def _phase(look: KubernetesCluster, namespace: str, name: str) -> str | None:
    job = look.get(VOLCANO_JOB, namespace, name) or {}
    phase: str | None = job.get("status", {}).get("state", {}).get("phase")
    return phase


@pytest.fixture
def world(
    e2e_env: dict[str, str], namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[str, str]]:
    """A state folder and a backend that both versions have; what is left in it is deleted by this one."""
    theirs = ("PULUMI_BACKEND_URL", "PULUMI_CONFIG_PASSPHRASE", "PULUMI_CONFIG_PASSPHRASE_FILE", "TORCHXCONFIG")
    mine = {"XDG_STATE_HOME": str(tmp_path / "state")}
    env = {**{name: value for name, value in e2e_env.items() if name not in theirs}, **mine}
    for name in theirs:
        monkeypatch.delenv(name, raising=False)
    for name in ("PATH", "KUBECONFIG", "PYTHONPATH", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, env[name])
    monkeypatch.chdir(tmp_path)
    yield env
    from torchx_pulumi_stacks.entrypoints import create_mcad, create_volcano

    for scheduler in (create_volcano("torchx"), create_mcad("torchx")):
        for app in scheduler.list({"namespace": namespace}):
            scheduler.delete(app.app_id)
        scheduler.close()


def app(
    namespace: str, fields: Mapping[str, Any], *, name: str = "train", scheduler: str = "volcano", **options: Any
) -> Any:
    """Return an app on fake nodes."""
    overlay = fields.get("overlay")
    metadata = {"torchx_pulumi": FAKE_NODE, **({"kubernetes": {"V1Pod": overlay}} if overlay else {})}
    given = {"namespace": namespace, **({"queue": "default"} if scheduler == "volcano" else {}), **options}
    role = {key: value for key, value in fields.items() if key != "overlay"}
    return [name, f"pulumi_{scheduler}", {**role, "metadata": metadata}, given]


def test_apps_of_torchx_run_are_looked_at_cancelled_and_deleted(
    world: dict[str, str], earlier: Earlier, look: KubernetesCluster, namespace: str, tmp_path: Path
) -> None:
    ended = {**ENDED, "overlay": finite(3)}
    handles = earlier.launch(
        [
            app(namespace, RUNNING),
            app(namespace, RUNNING, gang="pods"),
            app(namespace, ended),
            app(namespace, ended, name="unseen"),
            app(namespace, {**ENDED, "overlay": finite()}, name="vanished"),
        ],
        env=world,
        folder=tmp_path,
    )
    running, gang, seen, unseen, vanished = handles
    name = vanished.rpartition(":")[2]
    eventually(lambda: _phase(look, namespace, name) == "Completed")
    eventually(lambda: _phase(look, namespace, unseen.rpartition(":")[2]) == "Failed")
    earlier.launch([], seen, vanished, env=world, folder=tmp_path)
    look.delete(VOLCANO_JOB, namespace, name)
    eventually(lambda: look.get(VOLCANO_JOB, namespace, name) is None)
    before = objects(look, namespace)
    from torchx.runner import get_runner
    from torchx_pulumi_stacks.console import main

    with get_runner() as runner:
        states = {handle: str(runner.status(handle).state) for handle in handles}  # type: ignore[union-attr]
        assert states[running] in ("RUNNING", "PENDING")
        assert states[gang] in ("RUNNING", "PENDING")
        assert (states[seen], states[unseen]) == ("FAILED", "FAILED")
        assert states[vanished] == "SUCCEEDED"
        listed = {item.app_handle for item in runner.list("pulumi_volcano")}
        assert set(handles) <= listed
        assert objects(look, namespace) == before
        runner.cancel(running)
        eventually(lambda: str(runner.status(running).state) == "CANCELLED")  # type: ignore[union-attr]
        assert objects(look, namespace) == before
    assert main(["fleet", "--json"]) == 0
    for handle in handles:
        assert main(["delete", handle]) == 0
    assert objects(look, namespace) == {}
    assert [look.list(kind, namespace) for kind in (POD, SERVICE)] == [[], []]
    assert RunIndex().all() == []


def test_a_refused_launch_of_torchx_run_left_nothing(
    world: dict[str, str], earlier: Earlier, look: KubernetesCluster, namespace: str, tmp_path: Path
) -> None:
    refused = app(namespace, RUNNING, queue="nosuch", validate_spec=False)
    earlier.launch([refused], env=world, folder=tmp_path, code=1)
    from torchx_pulumi_stacks.entrypoints import create_volcano

    scheduler = create_volcano("torchx")
    assert scheduler.list({"namespace": namespace}) == []
    scheduler.close()
    assert objects(look, namespace) == {}


@pytest.mark.mcad
def test_an_app_of_mcad_is_looked_at_and_deleted(
    world: dict[str, str], cluster: Any, earlier: Earlier, look: KubernetesCluster, namespace: str, tmp_path: Path
) -> None:
    if "mcad" not in cluster.settings.features:
        pytest.skip("this cluster has no MCAD")
    (handle,) = earlier.launch([app(namespace, RUNNING, scheduler="mcad")], env=world, folder=tmp_path)
    before = objects(look, namespace)
    from torchx.runner import get_runner
    from torchx_pulumi_stacks.console import main

    with get_runner() as runner:
        eventually(lambda: str(runner.status(handle).state) == "RUNNING", 240)  # type: ignore[union-attr]
    assert objects(look, namespace) == before
    assert main(["delete", handle]) == 0
    assert objects(look, namespace) == {}


def test_an_app_of_torchx_run_goes_over_to_a_program_with_its_uid(
    world: dict[str, str], earlier: Earlier, look: KubernetesCluster, namespace: str, tmp_path: Path
) -> None:
    (handle,) = earlier.launch([app(namespace, RUNNING)], env=world, folder=tmp_path)
    before = objects(look, namespace)
    (entry,) = RunIndex().all()
    from torchx_pulumi_stacks.console import main

    assert main(["program", handle, "--to", str(tmp_path / "taken")]) == 0
    passphrase = tmp_path / "state" / "torchx-pulumi" / "passphrase"
    project = Taken(tmp_path / "taken", world, entry.place.backend, entry.place.stack, passphrase)
    project.up()
    project.run("preview", "--expect-no-changes", "--suppress-outputs")
    assert objects(look, namespace) == before
    assert main(["delete", handle]) == 0
    assert objects(look, namespace) == {}
