"""Backends in a folder as users have them: relative, shared, of the old layout, renamed; and variables of theirs."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.kube.kinds import POD
from torchx_pulumi.model.app_entry import RunEntry, Stage
from torchx_pulumi.model.errors import ClusterError, DeployError
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB
from torchx_pulumi_stacks.engine import AutomationDriver

from tests.e2e.launch_orders import make_order, no_process_is_left
from tests.e2e.project import eventually

pytestmark = pytest.mark.e2e

OF_THE_USER = {
    "PULUMI_RUN_PROGRAM": "true",
    "PULUMI_OPTION_RUN_PROGRAM": "true",
    "PULUMI_OPTION_TARGET": "urn:pulumi:a::b::c::d",
    "PULUMI_OPTION_REFRESH": "true",
    "PULUMI_OPTION_PREVIEW_ONLY": "true",
    "PULUMI_OPTION_EXPECT_NO_CHANGES": "true",
    "PULUMI_OPTION_CWD": "/",
    "PULUMI_CONTINUE_ON_ERROR": "true",
    "PULUMI_SKIP_CHECKPOINTS": "true",
    "PULUMI_DIY_BACKEND_ZSTD": "true",
    "PULUMI_DIY_BACKEND_LEGACY_LAYOUT": "true",
    "PULUMI_STACK": "another",
    "PULUMI_CONFIG": "no JSON",
    "PULUMI_DIY_BACKEND_GZIP": "true",
    "PULUMI_PARALLEL": "1",
}


@pytest.fixture
def make(
    e2e_env: dict[str, str], kubeconfig: Path, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Any]]:
    """Make orders for a backend in `tmp_path`; what they made is removed in the end."""
    for name in ("PATH", "KUBECONFIG", "PYTHONPATH"):
        monkeypatch.setenv(name, e2e_env[name])
    for name in ("PULUMI_BACKEND_URL", "PULUMI_CONFIG_PASSPHRASE", "PULUMI_CONFIG_PASSPHRASE_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    made: list[RunEntry] = []

    def make_one(name: str, **options: Any) -> Any:
        given = {"backend": f"file://{tmp_path}/backend", "kubeconfig": str(kubeconfig), **options}
        order = make_order(namespace, name, **given)
        made.append(order.entry)
        return order

    yield make_one
    (tmp_path / "backend/.pulumi").mkdir(parents=True, exist_ok=True)
    for entry in made:
        AutomationDriver().destroy(replace(entry, stage=Stage.DELETING), print)
        no_process_is_left(entry)


def job(look: KubernetesCluster, entry: RunEntry) -> Any:
    return look.get(VOLCANO_JOB, entry.namespace, entry.job_name)


def pulumi(folder: Path, *words: str, **variables: str) -> str:
    """Run the CLI as a user does, in a project of our name, on the backend in a folder."""
    project = folder / "project"
    project.mkdir(exist_ok=True)
    (project / "Pulumi.yaml").write_text(json.dumps({"name": "torchx", "runtime": "python"}))
    env = {**os.environ, "PULUMI_BACKEND_URL": f"file://{folder}/backend", "PULUMI_CONFIG_PASSPHRASE": "x", **variables}
    done = subprocess.run(
        ["pulumi", "--non-interactive", *words], cwd=project, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_variables_of_the_user_change_no_launch_and_no_deletion(
    make: Callable[..., Any], look: KubernetesCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in OF_THE_USER.items():
        monkeypatch.setenv(variable, value)
    driver, order = AutomationDriver(), make("train-v")
    assert driver.launch(order, print) == job(look, order.entry)["metadata"]["uid"]
    found = driver.find(order.entry.place)
    assert found is not None
    driver.destroy(replace(found, stage=Stage.DELETING), print)
    assert job(look, order.entry) is None
    assert driver.find(order.entry.place) is None
    assert [path for path in (tmp_path / "backend").rglob("*.json*") if "train-v" in path.name] == []


def test_relative_paths_mean_the_callers_folder(
    make: Callable[..., Any],
    look: KubernetesCluster,
    kubeconfig: Path,
    tmp_path: Path,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from torchx.specs import AppDef, Resource, Role
    from torchx_pulumi_stacks.entrypoints import create_volcano

    here = tmp_path / "my work"
    (here / "empty").mkdir(parents=True)
    monkeypatch.chdir(here)
    (here / "kc.json").write_text(kubeconfig.read_text())
    (here / "pass").write_text("correct horse")
    monkeypatch.setenv("KUBECONFIG", "missing:kc.json")
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE_FILE", "pass")
    monkeypatch.setenv("PULUMI_HOME", "home")
    role = Role(name="trainer", image="app:1", entrypoint="sleep", args=["600"], resource=Resource(0, 0, 0))
    for number, (url, more) in enumerate({"file://.": {}, "file://./x": {"kubeconfig": "kc.json"}}.items()):
        scheduler = create_volcano("test")
        app_id = scheduler.submit(
            AppDef(name=f"rel{number}", roles=[role]),
            {"queue": "default", "namespace": namespace, "pulumi_backend": url, **more},
        )
        where = here / ("." if number == 0 else "x")
        states = [path.stem for path in (where / ".pulumi/stacks/torchx").glob("*.json")]
        assert len(states) == 1
        if number == 1:
            # What the launch was given is known in every folder; what the environment says now is of this one.
            monkeypatch.chdir(here / "empty")
            monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE_FILE", str(here / "pass"))
            monkeypatch.setenv("PULUMI_HOME", str(here / "home"))
        scheduler.delete(app_id)
        monkeypatch.chdir(here)
        assert look.get(VOLCANO_JOB, namespace, app_id.partition(":")[2]) is None
        assert list((where / ".pulumi/stacks/torchx").glob("*.json")) == []
    assert list((here / "empty").iterdir()) == []
    strays = [path for path in tmp_path.rglob(".pulumi") if path not in (here / ".pulumi", here / "x/.pulumi")]
    assert strays == []
    assert (here / "home").is_dir()


def test_a_shared_folder_stays_shared(make: Callable[..., Any], tmp_path: Path) -> None:
    shared = tmp_path / "backend"
    shared.mkdir()
    shared.chmod(0o2775)
    before = os.umask(0o002)
    try:
        AutomationDriver().launch(make("train-s"), print)
    finally:
        os.umask(before)
    folders = [path for path in shared.rglob("*") if path.is_dir()]
    assert {path.name for path in folders} >= {".pulumi", "stacks", "history", "locks", "torchx"}
    modes = {str(path.relative_to(shared)): stat.S_IMODE(path.stat().st_mode) for path in folders}
    assert {mode & 0o2070 for mode in modes.values()} == {0o2070}, modes
    files = [path for path in shared.rglob("*") if path.is_file()]
    assert {stat.S_IMODE(path.stat().st_mode) & 0o060 for path in files} == {0o060}


def test_stacks_of_the_old_layout_are_not_hidden(
    make: Callable[..., Any], look: KubernetesCluster, tmp_path: Path
) -> None:
    (tmp_path / "backend").mkdir()
    legacy = {"PULUMI_DIY_BACKEND_LEGACY_LAYOUT": "true", "PULUMI_DIY_BACKEND_IGNORE_DEPRECATION_ERROR": "true"}
    pulumi(tmp_path, "stack", "init", "mine", **legacy)
    # By its resources the upgrade knows the project of a stack.
    urn = "urn:pulumi:mine::torchx::pulumi:pulumi:Stack::torchx-mine"
    resource = {"urn": urn, "type": "pulumi:pulumi:Stack", "custom": False}
    deployment = tmp_path / "deployment.json"
    deployment.write_text(json.dumps({"version": 3, "deployment": {"resources": [resource]}}))
    pulumi(tmp_path, "stack", "import", "--stack", "mine", "--file", str(deployment), **legacy)
    driver, order = AutomationDriver(), make("train-o")
    with pytest.raises(DeployError, match=r"old layout.*mine\.json.*pulumi state upgrade"):
        driver.launch(order, print)
    assert "mine" in pulumi(tmp_path, "stack", "ls", "--all", **legacy)
    pulumi(tmp_path, "state", "upgrade", "--yes", PULUMI_DIY_BACKEND_IGNORE_DEPRECATION_ERROR="true")
    driver.launch(order, print)
    driver.destroy(replace(order.entry, stage=Stage.DELETING), print)
    assert job(look, order.entry) is None
    assert "mine" in pulumi(tmp_path, "stack", "ls", "--all")


def test_a_renamed_stack_is_followed(make: Callable[..., Any], look: KubernetesCluster, tmp_path: Path) -> None:
    driver, order = AutomationDriver(), make("train-r")
    uid = driver.launch(order, print)
    passphrase = str(tmp_path / "state/torchx-pulumi/passphrase")
    variables = {"PULUMI_CONFIG_PASSPHRASE_FILE": passphrase}
    os.environ.pop("PULUMI_CONFIG_PASSPHRASE", None)
    pulumi(tmp_path, "stack", "rename", "other", "--stack", order.entry.place.stack, **variables)
    told: list[str] = []
    found = driver.recover(replace(order.entry, stage=Stage.LAUNCHED, owner=None), told.append)
    assert found is not None
    assert (found.uid, found.place.stack) == (uid, "other")
    assert "torchx/other now" in told[0]
    driver.destroy(replace(order.entry, stage=Stage.DELETING), print)
    assert job(look, order.entry) is None
    assert [path for path in (tmp_path / "backend").rglob("*") if "other" in path.name] == []


def test_requests_act_for_the_user_that_the_kubeconfig_names(
    kubeconfig: Path, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import yaml
    from kubernetes import client, config

    with config.new_client_from_config(str(kubeconfig)) as admin:
        rights = client.RbacAuthorizationV1Api(admin)
        rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]
        rights.create_namespaced_role(namespace, {"metadata": {"name": "reader"}, "rules": rules})
        group = {"kind": "Group", "name": "pod readers", "apiGroup": "rbac.authorization.k8s.io"}
        binding = {
            "metadata": {"name": "reader"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
            "subjects": [group],
        }
        rights.create_namespaced_role_binding(namespace, binding)
    whole = yaml.safe_load(kubeconfig.read_text())

    def acting(**user: Any) -> KubernetesCluster:
        users = [{**item, "user": {**item["user"], **user}} for item in whole["users"]]
        return KubernetesCluster.connect(json.dumps({**whole, "users": users}))

    groups = ["others", "pod readers"]

    def may_read() -> bool:
        try:
            return acting(**{"as": "ann", "as-groups": groups}).list(POD, namespace) == []
        except ClusterError as error:
            if error.reason != "Forbidden":
                raise
            return False

    # The API server learns of a role by a watch of its own.
    eventually(may_read)
    for official in (False, True):
        if official:
            # Requests through a proxy are left to the official client; this address needs none.
            monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
            monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
        with pytest.raises(ClusterError, match="ann") as caught:
            acting(**{"as": "ann", "as-uid": str(official)}).list(POD, namespace)
        assert caught.value.reason == "Forbidden"
        assert acting(**{"as": "ann", "as-groups": groups, "as-uid": str(official)}).list(POD, namespace) == []
