"""An app of `torchx run` goes over to a Pulumi program, and answers to its handle before and after."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.kube.kinds import POD, SERVICE
from torchx_pulumi.schedulers.appwrapper.objects import APP_WRAPPER
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB, VOLCANO_POD_GROUP

from tests.e2e.project import Project, eventually
from tests.e2e.torchx_cli import TorchxCli, wait_for_pods

pytestmark = pytest.mark.e2e


class Taken(Project):
    """A project that `torchx-pulumi program` wrote, in the stack that `torchx run` made."""

    def __init__(self, folder: Path, env: dict[str, str], backend: str, stack: str, passphrase: Path) -> None:
        self.folder = folder
        self.stack = stack.rpartition("/")[2]
        self.env = {
            **{name: value for name, value in env.items() if name != "PULUMI_CONFIG_PASSPHRASE"},
            "PULUMI_BACKEND_URL": backend,
            "PULUMI_CONFIG_PASSPHRASE_FILE": str(passphrase),
        }
        text = (folder / "Pulumi.yaml").read_text()
        (folder / "Pulumi.yaml").write_text(
            text.replace("runtime: python", f"runtime: {{name: python, options: {{virtualenv: {sys.prefix}}}}}")
        )
        self.run("stack", "select", stack)


@pytest.fixture
def cli(pulumi_env: dict[str, str], tmp_path: Path, kubeconfig: Path) -> TorchxCli:
    return TorchxCli(pulumi_env, tmp_path, kubeconfig)


@pytest.fixture
def busybox(cluster: Any) -> str:
    if not cluster.images:
        pytest.skip("the local cluster has no real node")
    return str(cluster.images["busybox"])


def run_app(cli: TorchxCli, namespace: str, busybox: str, *options: str, workspace: str = "") -> str:
    chosen = ",".join([f"namespace={namespace},queue=default", *options])
    return cli.torchx(
        "run", "--workspace", workspace, "-s", "pulumi_volcano", "-cfg", chosen,
        "utils.sh", "--image", busybox, "sh", "-c", "trap 'exit 0' TERM; echo hello; sleep 600 & wait",
    ).handle  # fmt: skip


def take_over(cli: TorchxCli, e2e_env: dict[str, str], handle: str) -> Taken:
    said = cli.ours("program", handle, "--to", "taken").out.splitlines()
    backend, stack = (next(line.split()[-1] for line in said if word in line) for word in ("login", "select"))
    passphrase = Path(cli.env["XDG_STATE_HOME"]) / "torchx-pulumi" / "passphrase"
    return Taken(cli.folder / "taken", {**e2e_env, **cli.env}, backend, stack, passphrase)


COMPONENT = """
from torchx import specs
from torchx.components import dist

FAKE = {"node_selector": {"torchx-pulumi/node": "fake"}, "tolerations": [
    {"key": "kwok.x-k8s.io/node", "value": "fake", "operator": "Equal", "effect": "NoSchedule"}]}


def torchrun() -> specs.AppDef:
    app = getattr(dist, "torchrun", dist.ddp)("--lr", "1e-4", script="train.py", image="app:1", j="1:2x1", name="ddp")
    app.roles[0].resource = specs.Resource(cpu=0.1, gpu=0, memMB=64)
    app.roles[0].metadata["torchx_pulumi"] = FAKE
    return app


def odd() -> specs.AppDef:
    pod = {
        "metadata": {"annotations": {"letters": "\U0001f600\u2028"}, "__del__:finalizers": None},
        "spec": {"__del__:affinity": None, "priorityClassName": None, "dnsConfig": {"searches": ("a.example.com",)},
                 "__put__:nodeSelector": FAKE["node_selector"], "tolerations": FAKE["tolerations"]},
    }
    role = specs.Role(name="My_Role", image="app:1", entrypoint="sleep", args=["\U0001f600", "${replica_id}", "1e5"],
                      env={"A.B-C": 'quotes " and \\n lines'}, num_replicas=2, port_map={"http": 80},
                      resource=specs.Resource(cpu=0.1, gpu=0, memMB=64), metadata={"kubernetes": {"V1Pod": pod}})
    return specs.AppDef("odd one", [role])
"""


def outputs_of(project: Taken) -> dict[str, Any]:
    return dict(json.loads(project.run("stack", "output", "--json")))


def state_of(cli: TorchxCli, handle: str) -> str:
    found = re.search(r"State: (\w+)", cli.torchx("status", handle, code=None).text)
    return found[1] if found else "none"


def row_of(cli: TorchxCli) -> dict[str, Any]:
    (row,) = json.loads(cli.ours("fleet", "--json").out)["apps"]
    return dict(row)


def wait_for(cli: TorchxCli, look: KubernetesCluster, handle: str, state: str) -> None:
    """Wait until an app has a state: a controller or the node may be busy with others."""
    wait_for_pods(look, handle, state)
    eventually(lambda: state_of(cli, handle) == state)


def test_an_app_goes_over_to_a_program_and_keeps_its_uid(
    cli: TorchxCli, e2e_env: dict[str, str], namespace: str, busybox: str, look: KubernetesCluster, cluster: Any
) -> None:
    # The program has the name of the image with its digest, which another process planned.
    (cli.folder / "code").mkdir()
    (cli.folder / "code/train.py").write_text("print('hello')\n")
    cli.env["DOCKER_HOST"] = "unix:///nonexistent/docker.sock"
    options = (f"image_repo={cluster.registry}/{namespace}", "builder=registry")
    handle = run_app(cli, namespace, busybox, *options, workspace=str(cli.folder / "code"))
    (before,) = look.list(VOLCANO_JOB, namespace)
    project = take_over(cli, e2e_env, handle)
    launched = outputs_of(project)
    (role,) = launched["torchx"]["declared"]["roles"]
    assert role["image"].endswith(f"@{role['digest']}")
    assert role["image"] in (project.folder / "app.json").read_text()
    again = cli.ours("program", handle, "--to", "taken", code=None)
    assert again.code != 0
    assert "exists already" in again.err
    preview = project.preview()
    assert "replace" not in preview
    assert "delete" not in preview.replace("deleted_with", "")
    project.up()
    (after,) = look.list(VOLCANO_JOB, namespace)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert outputs_of(project)["torchx"]["observed"]["uid"] == before["metadata"]["uid"]
    # What `torchx run` exported is there as it was, but for what was seen since.
    taken = outputs_of(project)
    for name in ("app_id", "app_handle", "log_command"):
        assert taken[name] == launched[name]
    for part in ("schema_version", "app", "declared", "links"):
        assert taken["torchx"][part] == launched["torchx"][part], part
    assert taken["state"] == taken["torchx"]["observed"]["state"]
    row = row_of(cli)
    assert (row["handle"], row["user"]) == (handle, launched["torchx"]["declared"]["created_by"])
    project.up()
    project.run("preview", "--expect-no-changes")
    wait_for(cli, look, handle, "RUNNING")
    cli.ours("delete", handle)
    assert look.list(VOLCANO_JOB, namespace) == []


@pytest.mark.parametrize("gang", ["job", pytest.param("pods", marks=pytest.mark.extended)])
def test_torchx_follows_an_app_that_its_program_launches_again(
    cli: TorchxCli, e2e_env: dict[str, str], namespace: str, busybox: str, look: KubernetesCluster, gang: str
) -> None:
    kind = VOLCANO_JOB if gang == "job" else VOLCANO_POD_GROUP
    handle = run_app(cli, namespace, busybox, f"gang={gang}")
    (before,) = [item for item in look.list(kind, namespace) if not item["metadata"].get("ownerReferences")]
    project = take_over(cli, e2e_env, handle)
    project.up()
    wait_for(cli, look, handle, "RUNNING")
    program = project.folder / "__main__.py"
    text = program.read_text()
    program.write_text(text.replace("    app_id=", "    rerun='2',\n    on_running_change='replace',\n    app_id="))
    project.up()
    (after,) = [item for item in look.list(kind, namespace) if not item["metadata"].get("ownerReferences")]
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    # Listed before anything else was asked, so that the list finds the new run by itself.
    listed = cli.torchx("list", "-s", "pulumi_volcano").text
    assert "FAILED" not in listed
    wait_for(cli, look, handle, "RUNNING")
    eventually(lambda: "hello" in cli.torchx("log", handle).text)
    project.run("preview", "--expect-no-changes")
    cli.torchx("cancel", handle)
    wait_for(cli, look, handle, "CANCELLED")
    # A run that was cancelled is over: the program does not launch it again.
    project.up()
    assert state_of(cli, handle) == "CANCELLED"
    cli.ours("delete", handle)
    eventually(lambda: not [*look.list(kind, namespace), *look.list(POD, namespace)])
    # The garbage collector removes it after the object that owns it.
    eventually(lambda: not look.list(SERVICE, namespace))


@pytest.mark.parametrize(
    ("scheduler", "component", "options"),
    [
        pytest.param("volcano", "odd", 'queue=default,plugins={"svc": []}', id="volcano"),
        pytest.param("mcad", "odd", "priority=0", id="mcad", marks=[pytest.mark.mcad, pytest.mark.extended]),
        pytest.param(
            "volcano", "torchrun", "queue=default,network_topology=soft", id="torchrun", marks=pytest.mark.extended
        ),
    ],
)
def test_a_job_of_any_kind_goes_over_and_torchx_goes_on_with_it(
    cli: TorchxCli,
    e2e_env: dict[str, str],
    namespace: str,
    look: KubernetesCluster,
    scheduler: str,
    component: str,
    options: str,
) -> None:
    """Also with TorchX nightly (`tools.e2e`)."""
    kind = VOLCANO_JOB if scheduler == "volcano" else APP_WRAPPER
    (cli.folder / "mine.py").write_text(COMPONENT)
    handle = cli.torchx(
        "run", "--workspace", "", "-s", f"pulumi_{scheduler}", "-cfg", f"namespace={namespace},{options}",
        f"mine.py:{component}",
    ).handle  # fmt: skip
    (before,) = look.list(kind, namespace)
    project = take_over(cli, e2e_env, handle)
    project.up()
    (after,) = look.list(kind, namespace)
    assert (after["metadata"]["uid"], after["spec"]) == (before["metadata"]["uid"], before["spec"])
    project.run("preview", "--expect-no-changes")
    wait_for(cli, look, handle, "RUNNING")
    program = project.folder / "__main__.py"
    text = program.read_text()
    program.write_text(text.replace("    app_id=", "    rerun='2',\n    on_running_change='replace',\n    app_id="))
    project.up()
    (after,) = look.list(kind, namespace)
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert after["spec"] == before["spec"]
    wait_for_pods(look, handle, "RUNNING")
    # What was seen is not written to the stack where another process has its lock; the next look writes it.
    eventually(lambda: state_of(cli, handle) == row_of(cli)["state"] == "RUNNING")
    assert row_of(cli)["handle"] == handle
    cli.torchx("cancel", handle)
    wait_for(cli, look, handle, "CANCELLED")
    cli.ours("delete", handle)
    assert look.list(kind, namespace) == []


def test_what_else_a_program_has_put_into_the_stack_is_not_forgotten_with_the_app(
    cli: TorchxCli, e2e_env: dict[str, str], namespace: str, busybox: str, look: KubernetesCluster
) -> None:
    handle = run_app(cli, namespace, busybox)
    project = take_over(cli, e2e_env, handle)
    mine = "import pulumi\npulumi.Stash('best-record', input={'loss': 1}, opts=pulumi.ResourceOptions(protect=True))\n"
    (project.folder / "__main__.py").write_text(mine)
    project.up()
    assert look.list(VOLCANO_JOB, namespace) == []
    # No object is left in the state, and the engine is asked all the same: it refuses what is protected.
    refused = cli.ours("delete", handle, code=None)
    assert refused.code != 0
    assert "protected" in refused.text
    assert "best-record" in project.run("stack", "export")
    project.run("state", "unprotect", "--all", "--yes")
    cli.ours("delete", handle)
    assert "best-record" not in project.run("stack", "ls", "--all")
    assert cli.ours("fleet", "--json").out.count("handle") == 0


def test_a_stack_with_more_in_it_is_forgotten_after_the_commands_of_the_refusal(
    pulumi_env: dict[str, str],
    tmp_path: Path,
    kubeconfig: Path,
    e2e_env: dict[str, str],
    namespace: str,
    busybox: str,
) -> None:
    config = tmp_path / "config"
    config.write_text(kubeconfig.read_text())
    cli = TorchxCli(pulumi_env, tmp_path, config)
    handle = run_app(cli, namespace, busybox)
    project = take_over(cli, e2e_env, handle)
    program = project.folder / "__main__.py"
    program.write_text(program.read_text() + "\nimport pulumi\npulumi.Stash('best-record', input={'loss': 1})\n")
    project.up()
    # Nothing listens there: the cluster is gone.
    config.write_text(re.sub(r'https://[^"]+', "https://127.0.0.1:9", config.read_text()))
    refused = cli.ours("delete", handle, "--forget-unreachable", code=None)
    assert (refused.code != 0, "also holds pulumi:index:Stash 'best-record'" in refused.text) == (True, True)
    project.env["PULUMI_K8S_DELETE_UNREACHABLE"] = "true"
    project.refresh()
    project.destroy()
    cli.ours("delete", handle, "--forget-unreachable")
    assert cli.ours("fleet", "--offline", "--json").out.count("handle") == 0
