"""Every example runs on the real node, to its end."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.kube.kinds import POD
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB

from tests.e2e.project import eventually
from tests.e2e.stack_project import StackProject

pytestmark = pytest.mark.e2e


@pytest.fixture
def env(e2e_env: dict[str, str]) -> dict[str, str]:
    """Environment with the YAML language host and our plugin, as the wheel installs it."""
    from tools.bootstrap import pulumi_environment

    path = pulumi_environment(languages=("python", "yaml"))["PATH"]
    return {**e2e_env, "PATH": f"{Path(sys.prefix) / 'bin'}:{path}"}


@pytest.fixture
def example(tmp_path: Path, env: dict[str, str], namespace: str, request: pytest.FixtureRequest) -> StackProject:
    root, place = tmp_path / "root", request.param
    root.mkdir()
    return StackProject(root, env, namespace, place=place, config_dir="stacks" if place == "." else place)


def logs_of(look: KubernetesCluster, project: StackProject, app_id: str) -> list[str]:
    """Wait until the job has completed and return the logs of its replicas, one text each."""
    name = app_id.partition(":")[2]

    def phase() -> Any:
        return (
            ((look.get(VOLCANO_JOB, project.namespace, name) or {}).get("status") or {}).get("state", {}).get("phase")
        )

    eventually(lambda: phase() in ("Completed", "Failed"))
    pods = look.list(POD, project.namespace, {"volcano.sh/job-name": name})
    logs = ["\n".join(look.logs(project.namespace, pod["metadata"]["name"])) for pod in pods]
    assert phase() == "Completed", logs
    return logs


@pytest.mark.parametrize("example", ["examples/volcano_python"], indirect=True)
def test_volcano_python(example: StackProject, look: KubernetesCluster, image: str) -> None:
    example.run("config", "set", "image", image)
    example.run("config", "set", "namespace", example.namespace)
    example.up()
    first, second = logs_of(look, example, example.output("app_id"))
    host = example.output("rank0_host").partition(".")[0]
    assert "replica 0 of " in first
    assert f"rank 0 is at {host}" in second


@pytest.mark.parametrize("example", ["examples/from_app"], indirect=True)
def test_from_app(example: StackProject, look: KubernetesCluster, image: str) -> None:
    example.run("config", "set", "image", image)
    example.run("config", "set", "namespace", example.namespace)
    example.up()
    app_id = example.output("app_id")
    assert logs_of(look, example, app_id) == [f"hello from {app_id.partition(':')[2]}"] * 2


@pytest.mark.parametrize("example", ["examples/yaml"], indirect=True)
def test_yaml(example: StackProject, look: KubernetesCluster, image: str) -> None:
    example.run("config", "set", "image", image)
    example.run("config", "set", "namespace", example.namespace)
    example.up()
    app_id = example.output("appId")
    job_name = app_id.partition(":")[2]
    assert logs_of(look, example, app_id) == [f"replica {index} of {job_name}" for index in (0, 1)]


@pytest.mark.parametrize("example", ["."], indirect=True)
def test_the_example_stacks_can_be_previewed(example: StackProject) -> None:
    for name, shown in (("component", "my-train"), ("appfile", "hello"), ("mcad", "hello")):
        example.run("stack", "init", f"example-{name}")
        assert shown in example.run("preview", "--stack", f"example-{name}")
