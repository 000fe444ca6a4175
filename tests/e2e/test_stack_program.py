"""The stack program on the real engine and cluster: both ways to an app, outputs, and every mistake of a user."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.kube.kinds import NAMESPACE, POD, Kind
from torchx_pulumi.schedulers.appwrapper.objects import APP_WRAPPER
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB

from tests.e2e.project import FAKE_NODE, changes, eventually, finite
from tests.e2e.stack_project import StackProject

pytestmark = pytest.mark.e2e

DDP = ["-j", "2x1", "--script", "my-train.py", "--image", "localhost:1/absent:1", "--cpu", "1", "--memMB", "1200"]


@pytest.fixture
def stack(tmp_path: Path, e2e_env: dict[str, str], namespace: str) -> StackProject:
    root = tmp_path / "root"
    root.mkdir()
    return StackProject(root, e2e_env, namespace, config_dir="stacks")


def app(**role: Any) -> dict[str, Any]:
    base = {"name": "trainer", "image": "app:1", "entrypoint": "sleep", "args": ["600"], "num_replicas": 2}
    return {"name": "train", "roles": [{**base, **FAKE_NODE, "pod_overlay": finite(), **role}]}


def write_app(stack: StackProject, content: Any) -> None:
    (stack.root / "app.yaml").write_text(content if isinstance(content, str) else yaml.safe_dump(content))


def options(stack: StackProject, **more: Any) -> dict[str, Any]:
    return {"queue": "default", "namespace": stack.namespace, **more}


def test_an_app_file_runs_to_its_end_and_is_read_back(stack: StackProject, look: KubernetesCluster) -> None:
    write_app(stack, app())
    stack.configure(appFile="app.yaml", options=options(stack))
    assert "log_command" in stack.run("preview")
    stack.up()
    first = stack.output("torchx")
    assert first["schema_version"] == 1
    assert first["app"]["id"] == stack.output("app_id")
    name = first["app"]["id"].partition(":")[2]

    def phase() -> Any:
        return ((look.get(VOLCANO_JOB, stack.namespace, name) or {}).get("status") or {}).get("state", {}).get("phase")

    eventually(lambda: phase() == "Completed")
    stack.run("refresh", "--yes", "--skip-preview", "--run-program")
    seen = stack.output("torchx")
    assert seen["declared"] == first["declared"]
    assert (stack.output("state"), stack.output("reason")) == ("SUCCEEDED", "Completed")
    assert [replica["exit_code"] for replica in seen["observed"]["roles"][0]["replicas"]] == [0, 0]
    assert changes(stack.up()).keys() <= {"unchanged", "updated"}
    assert changes(stack.up()).keys() == {"unchanged"}
    assert stack.output("torchx")["observed"] == seen["observed"]
    assert f"volcano.sh/job-name={name}" in stack.output("log_command")
    # Outputs are read without the passphrase.
    stack.env = {**stack.env, "PULUMI_CONFIG_PASSPHRASE": "wrong"}
    assert json.loads(stack.run("stack", "output", "--json"))["torchx"]["app"]["namespace"] == stack.namespace


def test_a_torchx_component_finds_rank_0_and_says_why_it_waits(stack: StackProject, look: KubernetesCluster) -> None:
    stack.configure(component="dist.ddp", arguments=DDP, options=options(stack))
    stack.up()
    name = stack.output("app_id").partition(":")[2]
    job = look.get(VOLCANO_JOB, stack.namespace, name)
    assert job is not None
    command = job["spec"]["tasks"][1]["template"]["spec"]["containers"][0]["command"]
    assert "VC_MY_TRAIN_0_HOSTS" in " ".join(command)

    def is_pulled() -> bool:
        pods = look.list(POD, stack.namespace, {"volcano.sh/job-name": name})
        containers = [one for pod in pods for one in pod["status"].get("containerStatuses", ())]
        return bool(containers) and all("image" in str(one["state"].get("waiting")) for one in containers)

    def reason() -> Any:
        stack.run("refresh", "--yes", "--skip-preview", "--run-program")
        return stack.output("reason")

    # Until jobs of other tests leave it room on the node, it waits for that.
    eventually(is_pulled)
    eventually(lambda: reason() == "ImageUnavailable")
    assert stack.output("state") == "PENDING"
    assert "localhost:1/absent:1" in stack.output("torchx")["observed"]["message"]


def test_up_can_wait_for_the_end_and_fails_with_its_outputs_written(stack: StackProject) -> None:
    write_app(stack, app(pod_overlay=finite(exit_code=3)))
    config = {"appFile": "app.yaml", "options": options(stack), "waitFor": "completed", "timeout": 180}
    stack.configure(**config)
    text = stack.run("up", "--yes", "--skip-preview", "--suppress-outputs", fails=True)
    assert "exited with code 3" in text
    assert (stack.output("state"), stack.output("reason")) == ("FAILED", "ExitCode")
    write_app(stack, app())
    stack.configure(**config)
    stack.up()
    assert (stack.output("state"), stack.output("reason")) == ("SUCCEEDED", "Completed")


def test_the_namespace_comes_and_goes_with_the_stack_whose_kubeconfig_is_secret(
    stack: StackProject, look: KubernetesCluster, kubeconfig: Path
) -> None:
    write_app(stack, app())
    name = f"{stack.namespace}-own"
    stack.configure(appFile="app.yaml", options={"queue": "default", "namespace": name}, createNamespace=True)
    stack.run("config", "set", "--secret", "kubeconfig", kubeconfig.read_text())
    stack.env = {**stack.env, "KUBECONFIG": "/nowhere"}
    stack.run("preview")
    stack.up()
    assert look.get(NAMESPACE, None, name) is not None
    assert look.get(VOLCANO_JOB, name, stack.output("app_id").partition(":")[2]) is not None
    token = yaml.safe_load(kubeconfig.read_text())["users"][0]["user"]
    text = json.dumps(stack.resources())
    assert not [value for value in token.values() if str(value) in text]
    stack.destroy()
    assert look.get(NAMESPACE, None, name) is None


HOSTS_OWN = "an unhandled error occurred: program exited with non-zero exit code: 1"
"""What Pulumi's language host adds to every pulumi.RunError."""


def test_a_mistake_is_one_message_and_leaves_nothing(stack: StackProject, look: KubernetesCluster) -> None:
    config: dict[str, Any] = {"appFile": "app.yaml", "options": options(stack)}
    write_app(stack, app())
    stack.configure(**{**config, "options": options(stack, queue="no-such-queue")})
    refused(stack, look, "no-such-queue")
    stack.configure(**config)
    write_app(stack, app(min_replicas=3))
    refused(stack, look, "min_replicas")
    write_app(stack, app())
    place = stack.root / "kubeconfig"
    place.write_text(kubeconfig_of(1))
    stack.env = {**stack.env, "KUBECONFIG": str(place)}
    refused(stack, look, "cannot be reached")


def kubeconfig_of(port: int) -> str:
    return json.dumps(
        {
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
            "users": [{"name": "u", "user": {"token": "x"}}],
            "contexts": [{"name": "lab", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "lab",
        }
    )


def refused(stack: StackProject, look: KubernetesCluster, message: str) -> None:
    """Check that `up` says it once, without a traceback, and leaves nothing (`Project.run` looks for tracebacks)."""
    text = stack.run("up", "--yes", "--skip-preview", "--suppress-progress", fails=True)
    diagnostics = text.partition("Diagnostics:")[2].partition("Resources:")[0]
    assert message in diagnostics, text
    errors = [line for line in diagnostics.splitlines() if "error:" in line and HOSTS_OWN not in line]
    assert len(errors) == 1, text
    assert look.list(VOLCANO_JOB, stack.namespace) == []
    assert look.list(POD, stack.namespace) == []
    kinds = {resource["type"] for resource in stack.resources()}
    assert {kind for kind in kinds if not kind.startswith("pulumi:providers:")} <= {"pulumi:pulumi:Stack"}, kinds


@pytest.mark.parametrize(
    ("scheduler", "kind"), [("volcano", VOLCANO_JOB), pytest.param("mcad", APP_WRAPPER, marks=pytest.mark.mcad)]
)
def test_the_environment_of_another_shell_launches_nothing_again(
    stack: StackProject, look: KubernetesCluster, scheduler: str, kind: Kind
) -> None:
    queue = {"queue": "default"} if scheduler == "volcano" else {}
    stack.configure(
        component="dist.ddp", arguments=DDP, scheduler=scheduler, options={**queue, "namespace": stack.namespace}
    )
    shell = {name: value for name, value in stack.env.items() if name != "LOGLEVEL"}
    ci = {"LOGLEVEL": "INFO", "TZ": "Asia/Tokyo", "USER": "ci", "PYTHONHASHSEED": "1"}
    stack.env = shell
    stack.up()
    (first,) = look.list(kind, stack.namespace)
    for env in ({**shell, **ci}, shell):
        stack.env = env
        assert changes(stack.up()).keys() == {"unchanged"}
        (found,) = look.list(kind, stack.namespace)
        assert found["metadata"]["uid"] == first["metadata"]["uid"]
    look.delete(kind, stack.namespace, first["metadata"]["name"])
    eventually(lambda: not look.list(kind, stack.namespace))
    stack.env = {**shell, **ci}
    stack.up()
    assert look.list(kind, stack.namespace) == []
