"""Runs and the clusters that they are in, on the real engine and cluster: mismatches, second addresses, second users.

There is one cluster. Another one is simulated by what was recorded of it; its second address is a proxy.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.kube.kubeconfig import find_access
from torchx_pulumi.model.app_entry import RunEntry
from torchx_pulumi.model.cluster_identity import ClusterIdentity
from torchx_pulumi.runs.index import RunIndex
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB

from tests.contract.cluster.conftest import caller
from tests.e2e.cutting_proxy import cutting_proxy
from tests.e2e.project import eventually
from tests.e2e.torchx_cli import TorchxCli

pytestmark = pytest.mark.e2e

OTHER = ClusterIdentity(uid="of-another-cluster", ca="another", address="another", name="context 'old' at https://old")


def written(kubeconfig: Path, path: Path, context: str, **changed: Any) -> Path:
    """Write a kubeconfig of one context to the cluster, under another name."""
    access = find_access(str(kubeconfig))
    whole = json.loads(access.config)
    (cluster,), (user,) = whole["clusters"], whole["users"]
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": context,
        "contexts": [{"name": context, "context": {"cluster": context, "user": context}}],
        "clusters": [{"name": context, "cluster": {**cluster["cluster"], **changed.get("cluster", {})}}],
        "users": [{"name": context, "user": changed.get("user", user["user"])}],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(config))
    return path


@pytest.fixture
def user(pulumi_env: dict[str, str], tmp_path: Path, kubeconfig: Path) -> Iterator[Callable[..., TorchxCli]]:
    """Make users of one backend and passphrase, each with a home and a kubeconfig; what they launched is deleted."""
    made: list[TorchxCli] = []
    passphrase = tmp_path / "passphrase"
    passphrase.write_text("shared")

    def make(name: str, config: Path | None = None) -> TorchxCli:
        home = tmp_path / name
        path = config or written(kubeconfig, home / ".kube" / "config", f"{name}@lab")
        home.mkdir(exist_ok=True)
        cli = TorchxCli(pulumi_env, home, path)
        cli.env["PULUMI_BACKEND_URL"] = f"file://{tmp_path}/backend"
        cli.env["PULUMI_CONFIG_PASSPHRASE_FILE"] = str(passphrase)
        (tmp_path / "backend").mkdir(exist_ok=True)
        made.append(cli)
        return cli

    yield make
    for cli in made:
        for entry in index_of(cli).all():
            cli.ours("delete", handle_of(entry), "--forget-unreachable", code=None)


def index_of(cli: TorchxCli) -> RunIndex:
    return RunIndex(cli.folder / "state" / "torchx-pulumi" / "runs")


def handle_of(entry: RunEntry) -> str:
    return f"pulumi_volcano://torchx/{entry.app_id}"


def launch(cli: TorchxCli, namespace: str, *more: str) -> tuple[str, RunEntry]:
    chosen = ",".join([f"namespace={namespace}", "queue=default", *more])
    said = cli.torchx(
        "run", "-s", "pulumi_volcano", "-cfg", chosen, "--workspace", "", "utils.sh", "--image", "busybox:1.36",
        "sleep", "600",
    )  # fmt: skip
    (entry,) = index_of(cli).all()
    return said.handle, entry


def job(look: KubernetesCluster, entry: RunEntry) -> Any:
    return look.get(VOLCANO_JOB, entry.namespace, entry.job_name)


def test_an_app_of_another_cluster_is_an_error_and_nothing_is_changed(
    user: Callable[..., TorchxCli], namespace: str, look: KubernetesCluster
) -> None:
    cli = user("ada")
    handle, entry = launch(cli, namespace)
    assert entry.cluster_identity == look.identify()
    assert entry.cluster == look.identify().key
    index = index_of(cli)
    changed = replace(entry, cluster_identity=OTHER, uid="is-there")
    index.update(changed, lambda _: changed)
    for program, word in ((cli.torchx, "status"), (cli.torchx, "log"), (cli.torchx, "cancel"), (cli.ours, "delete")):
        said = program(word, handle, code=None)
        assert said.code != 0, said.text
        assert "was launched in context 'old' at https://old (uid of-another-cluster)" in said.text
        assert f"(uid {look.identify().uid}) is another one. Nothing was changed" in said.text
    assert "is another one" in cli.torchx("list", "-s", "pulumi_volcano").err
    assert job(look, entry)["metadata"]["uid"] == entry.uid
    # Also where the state is lost: it must not be taken for an app that is gone.
    backend = Path(cli.env["PULUMI_BACKEND_URL"].removeprefix("file://"))
    (checkpoint,) = backend.glob(f".pulumi/stacks/torchx/{entry.place.stack}.json")
    checkpoint.rename(backend / "kept.json")
    assert "is another one" in cli.ours("delete", handle, code=2).text
    assert index.get(entry) is not None
    (backend / "kept.json").rename(checkpoint)
    index.update(entry, lambda _: entry)
    cli.ours("delete", handle)
    eventually(lambda: job(look, entry) is None)
    assert index.all() == []


def test_a_cluster_is_the_same_under_another_address(
    user: Callable[..., TorchxCli], namespace: str, look: KubernetesCluster, kubeconfig: Path
) -> None:
    cli = user("ada")
    handle, entry = launch(cli, namespace)
    path = Path(cli.env["KUBECONFIG"])
    with cutting_proxy(str(kubeconfig), []) as (proxy, _):
        written(kubeconfig, path, "ada@lab", cluster={"server": f"https://127.0.0.1:{proxy.port}"})
        # Until Volcano has taken the job up it is SUBMITTED.
        eventually(lambda: re.search("RUNNING|PENDING", cli.torchx("status", handle).text))
        assert entry.app_id.partition(":")[2] in cli.torchx("list", "-s", "pulumi_volcano").out
        look.delete(VOLCANO_JOB, entry.namespace, entry.job_name)
        eventually(lambda: job(look, entry) is None)
        assert "its objects are gone from the cluster" in cli.torchx("status", handle).text
        cli.ours("delete", handle)
    assert index_of(cli).all() == []


def powerless(kubeconfig: Path, namespace: str) -> dict[str, str]:
    """Make an account that may do everything in one namespace, and read nothing else; return it as a user."""
    from kubernetes import config

    call = caller(config.new_client_from_config(str(kubeconfig), persist_config=False))
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    call("POST", accounts, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "bob"}})
    version = "rbac.authorization.k8s.io/v1"
    rules = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
    call("POST", f"{rbac}/roles", {"apiVersion": version, "kind": "Role", "metadata": {"name": "all"}, "rules": rules})
    binding = {
        "apiVersion": version,
        "kind": "RoleBinding",
        "metadata": {"name": "bob"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "all"},
        "subjects": [{"kind": "ServiceAccount", "name": "bob", "namespace": namespace}],
    }
    call("POST", f"{rbac}/rolebindings", binding)
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    return {"token": call("POST", f"{accounts}/bob/token", request)["status"]["token"]}


@pytest.mark.extended
def test_who_may_read_one_namespace_only_launches_and_deletes(
    user: Callable[..., TorchxCli], namespace: str, look: KubernetesCluster, kubeconfig: Path, tmp_path: Path
) -> None:
    config = written(kubeconfig, tmp_path / "bob" / "config", "bob@lab", user=powerless(kubeconfig, namespace))
    cli = user("bob", config)
    handle, entry = launch(cli, namespace)
    assert entry.cluster == look.identity
    assert entry.cluster_identity == replace(look.identify(), uid=None)
    cli.torchx("status", handle)
    look.delete(VOLCANO_JOB, entry.namespace, entry.job_name)
    eventually(lambda: job(look, entry) is None)
    assert "its objects are gone from the cluster" in cli.torchx("status", handle).text
    with cutting_proxy(str(kubeconfig), []) as (proxy, _):
        server = {"server": f"https://127.0.0.1:{proxy.port}"}
        written(kubeconfig, config, "bob@lab", cluster=server, user=powerless_again(config))
        assert "is that one is not known" in cli.torchx("status", handle).text
        assert "is that one is not known" in cli.ours("delete", handle, code=2).text
        written(kubeconfig, config, "bob@lab", user=powerless_again(config))
    cli.ours("delete", handle)
    assert index_of(cli).all() == []


def powerless_again(config: Path) -> dict[str, str]:
    """Return the user of a kubeconfig."""
    found: dict[str, str] = yaml.safe_load(config.read_text())["users"][0]["user"]
    return found


def test_a_colleague_without_the_launchers_kubeconfig_works_with_the_app(
    user: Callable[..., TorchxCli], namespace: str, look: KubernetesCluster
) -> None:
    alice = user("alice")
    handle, entry = launch(alice, namespace, f"kubeconfig={alice.env['KUBECONFIG']}")
    Path(alice.env["KUBECONFIG"]).unlink()
    bob = user("bob")
    assert "alice" not in bob.torchx("status", handle).text
    assert entry.app_id.partition(":")[2] in bob.torchx("list", "-s", "pulumi_volcano").out
    # Until Volcano has taken the job up it is SUBMITTED.
    eventually(lambda: {"PENDING", "RUNNING"} & {*bob.ours("fleet", "--live").out.split()})
    bob.torchx("cancel", handle)
    eventually(lambda: job(look, entry)["status"]["state"]["phase"] in ("Aborting", "Aborted"))
    (adopted,) = index_of(bob).all()
    assert (adopted.kubeconfig or adopted.ambient_kubeconfig) == bob.env["KUBECONFIG"]
    bob.ours("delete", handle)
    eventually(lambda: job(look, entry) is None)
    assert index_of(bob).all() == []
    backend = Path(bob.env["PULUMI_BACKEND_URL"].removeprefix("file://"))
    assert not list(backend.glob(f".pulumi/stacks/torchx/{entry.place.stack}.json"))
    index_of(alice).update(entry, lambda _: None)
