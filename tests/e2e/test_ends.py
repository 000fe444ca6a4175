"""The end of a run on the real engine and cluster: it reaches the stack, and it is no change for anybody."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.kube.kinds import POD
from torchx_pulumi.schedulers.volcano.control import CONTROL
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB

from tests.e2e.project import Project, eventually, finite
from tests.e2e.test_handover import Taken
from tests.e2e.torchx_cli import TorchxCli, wait_for_pods

pytestmark = pytest.mark.e2e

NO_CHANGE = ("preview", "--expect-no-changes", "--suppress-outputs")


@pytest.fixture
def cli(pulumi_env: dict[str, str], tmp_path: Path, kubeconfig: Path) -> TorchxCli:
    return TorchxCli(pulumi_env, tmp_path, kubeconfig)


@pytest.fixture
def busybox(cluster: Any) -> str:
    if not cluster.images:
        pytest.skip("the local cluster has no real node")
    return str(cluster.images["busybox"])


def outputs_of(cli: TorchxCli, kind: str = "pulumi:pulumi:Stack") -> dict[str, Any]:
    """Return the outputs of the stack, or of its component, as its only checkpoint has them."""
    (path,) = Path(cli.env["XDG_STATE_HOME"]).rglob(".pulumi/stacks/torchx/*.json")
    resources = json.loads(path.read_text())["checkpoint"]["latest"]["resources"]
    return next(item["outputs"] for item in resources if item["type"] == kind)


def observed_of(cli: TorchxCli) -> dict[str, Any]:
    """Return the observation in the component's outputs."""
    observed: dict[str, Any] = outputs_of(cli, "torchx:index:VolcanoTrainingJob")["observed"]
    return observed


def test_the_first_command_that_sees_the_end_writes_it_to_the_stack(
    cli: TorchxCli, namespace: str, busybox: str, look: KubernetesCluster
) -> None:
    handle = cli.torchx(
        "run", "--workspace", "", "-s", "pulumi_volcano", "-cfg", f"namespace={namespace},queue=default",
        "utils.sh", "--image", busybox, "sh", "-c", "exit 3",
    ).handle  # fmt: skip
    assert outputs_of(cli)["state"] == "SUBMITTED"
    (job,) = look.list(VOLCANO_JOB, namespace)

    def phase() -> Any:
        return (look.list(VOLCANO_JOB, namespace)[0].get("status") or {}).get("state", {}).get("phase")

    eventually(lambda: phase() in ("Failed", "Aborted", "Completed"), timeout_s=180)
    # No process may be started for it: there is no engine.
    path = cli.env["PATH"]
    cli.env["PATH"] = ":".join(folder for folder in path.split(":") if not (Path(folder) / "pulumi").exists())
    try:
        assert "FAILED" in cli.torchx("status", handle).text
    finally:
        cli.env["PATH"] = path
    outputs = outputs_of(cli)
    observed = outputs["torchx"]["observed"]
    assert (outputs["state"], outputs["reason"]) == ("FAILED", "ExitCode")
    assert (observed["state"], observed["uid"]) == ("FAILED", job["metadata"]["uid"])
    assert observed["roles"][0]["replicas"][0]["exit_code"] == 3
    (row,) = json.loads(cli.ours("fleet", "--offline", "--json").out)["apps"]
    assert (row["state"], row["source"]) == ("FAILED", "state")
    cli.ours("delete", handle)
    assert look.list(VOLCANO_JOB, namespace) == []


def test_an_end_written_into_a_stack_that_a_program_took_over_is_no_change(
    cli: TorchxCli, e2e_env: dict[str, str], namespace: str, busybox: str, look: KubernetesCluster
) -> None:
    handle = cli.torchx(
        "run", "--workspace", "", "-s", "pulumi_volcano", "-cfg", f"namespace={namespace},queue=default",
        "utils.sh", "--image", busybox, "sh", "-c", "trap 'exit 4' TERM; sleep 600 & wait",
    ).handle  # fmt: skip
    said = cli.ours("program", handle, "--to", "taken").out.splitlines()
    backend, stack = (next(line.split()[-1] for line in said if word in line) for word in ("login", "select"))
    passphrase = Path(cli.env["XDG_STATE_HOME"]) / "torchx-pulumi" / "passphrase"
    project = Taken(cli.folder / "taken", {**e2e_env, **cli.env}, backend, stack, passphrase)
    project.up()
    cli.ours("cancel", handle)
    # At once, whatever the cluster does with it.
    seen = observed_of(cli)
    assert (seen["reason"], seen["message"][:13]) == ("Cancelled", "cancelled at ")
    assert outputs_of(cli)["reason"] == "Cancelled"
    project.run(*NO_CHANGE)
    wait_for_pods(look, handle, "CANCELLED")
    eventually(lambda: "CANCELLED" in cli.torchx("status", handle).text)
    assert observed_of(cli)["state"] == "CANCELLED", observed_of(cli)
    project.run(*NO_CHANGE)
    for step in (("refresh", "--yes", "--skip-preview"), ("up", "--yes", "--skip-preview")):
        project.run(*step)
        requested = outputs_of(cli, "torchx:index:VolcanoTrainingJob")["requested"]
        assert (requested["action"], requested["counter"]) == ("cancel", 1)
        assert outputs_of(cli)["torchx"]["requested"] == requested
    cli.ours("resume", handle)
    seen = observed_of(cli)
    assert (seen["state"], seen["reason"], seen["message"][:22]) == (
        "PENDING", "Restarting", "asked to run again at ",
    )  # fmt: skip
    project.run(*NO_CHANGE)
    wait_for_pods(look, handle, "RUNNING")
    eventually(lambda: "RUNNING" in cli.torchx("status", handle).text)
    cli.ours("delete", handle)


def test_resumes_spend_retries_and_the_one_that_would_end_the_job_is_refused(
    cli: TorchxCli, namespace: str, busybox: str, look: KubernetesCluster
) -> None:
    handle = cli.torchx(
        "run", "--workspace", "", "-s", "pulumi_volcano", "-cfg", f"namespace={namespace},queue=default",
        "utils.sh", "--image", busybox, "--max_retries", "2", "sh", "-c", "trap 'exit 4' TERM; sleep 600 & wait",
    ).handle  # fmt: skip

    def status() -> Any:
        (found,) = look.list(VOLCANO_JOB, namespace)
        return found.get("status") or {}

    def reaches(phase: str) -> None:
        eventually(lambda: (status().get("state") or {}).get("phase") == phase)

    reaches("Running")
    cli.ours("cancel", handle)
    reaches("Aborted")
    assert "left for failures and further resumes: 0" in cli.ours("resume", handle).text
    reaches("Running")
    cli.ours("cancel", handle)
    reaches("Aborted")
    refused = cli.ours("resume", handle, code=None).text
    assert "volcano counts a resume as a retry, none is left" in refused
    # Other fields of the status change once more when Volcano learns that the pods are gone.
    assert (status()["state"]["phase"], status()["retryCount"]) == ("Aborted", 1)
    # Another client does it all the same.
    (job,) = look.list(VOLCANO_JOB, namespace)
    CONTROL.resume(look, namespace, job["metadata"]["name"], job["metadata"]["uid"])
    reaches("Failed")
    told = cli.torchx("status", handle).text
    assert "RetriesExhausted" in told
    assert "a resume ended it, nothing of it failed" in told
    cli.ours("delete", handle)


def test_a_protected_object_that_is_gone_leaves_the_state_by_the_refresh_of_the_message(
    project: Project, look: KubernetesCluster
) -> None:
    project.job(protect=True)
    project.up()
    name = project.output("job_name")
    look.delete(VOLCANO_JOB, project.namespace, name)
    eventually(lambda: look.get(VOLCANO_JOB, project.namespace, name) is None)
    refused = project.preview(fails=True)
    assert "protects it. Nothing was changed. Run `pulumi refresh`" in refused
    project.refresh()
    project.up()
    project.run(*NO_CHANGE)
    assert look.list(VOLCANO_JOB, project.namespace) == []


def test_no_end_and_no_deletion_after_it_is_a_change_of_a_programs_stack(
    project: Project, look: KubernetesCluster
) -> None:
    project.job({"pod_overlay": finite()})
    project.up()
    name = project.output("job_name")

    def job() -> Any:
        return look.get(VOLCANO_JOB, project.namespace, name)

    eventually(lambda: ((job() or {}).get("status") or {}).get("state", {}).get("phase") == "Completed")
    project.run(*NO_CHANGE)
    project.up()
    assert project.output("observed")["state"] == "SUCCEEDED"
    # As a time to live does it, at a moment that no slow machine can miss.
    look.delete(VOLCANO_JOB, project.namespace, name)
    eventually(lambda: job() is None)
    project.run(*NO_CHANGE, "--refresh")
    project.up("--refresh")
    assert job() is None
    project.refresh()
    observed = project.output("observed")
    assert (observed["state"], observed["source"]) == ("SUCCEEDED", "record")
    project.run(*NO_CHANGE)
    assert look.list(VOLCANO_JOB, project.namespace) == []
    eventually(lambda: not look.list(POD, project.namespace))
    # Only a wish for another run launches it again.
    project.job({"pod_overlay": finite(), "min_replicas": 1})
    assert "has nothing to act on" in project.up()
    assert job() is None
    project.job({"pod_overlay": finite()}, rerun="again")
    uid = project.output("uid")
    project.up()
    assert project.output("uid") not in (uid, None)
