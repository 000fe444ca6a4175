"""`torchx-pulumi prune` deletes a run that has ended, with its logs; what is active, protected or a program's stays."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB

from tests.doc_blocks import ROOT
from tests.e2e.fleet.cluster_watch import Server
from tests.e2e.project import eventually
from tests.e2e.test_handover import take_over
from tests.e2e.torchx_cli import TorchxCli
from tests.s3_server import S3Backend

pytestmark = pytest.mark.e2e

CRON_JOB = ROOT / "examples" / "prune" / "cronjob.yaml"

COMPONENT = """
from torchx import specs

def job(image: str, script: str) -> specs.AppDef:
    role = specs.Role(name="main", image=image, entrypoint="sh", args=["-c", script], num_replicas=1,
                      resource=specs.Resource(cpu=0.05, gpu=0, memMB=32))
    return specs.AppDef("job", [role])
"""

SCRIPTS = {
    "finished": "echo hello",
    "failed": "exit 3",
    "active": "trap 'exit 0' TERM; sleep 900 & wait",
    "protected": "true",
    "relaunched": "true",
    "taken": "true",
}

REASONS = {
    "active": "it is RUNNING",
    "protected": "is protected (`pulumi state unprotect`)",
    "relaunched": "it was launched again: its cluster has a later run of it",
    "taken": "a Pulumi program took its stack over",
}
"""Why apps are left alone."""


@pytest.fixture
def config(tmp_path: Path, kubeconfig: Path) -> Path:
    """The kubeconfig of the commands; a test changes the user in it."""
    return Path(shutil.copy(kubeconfig, tmp_path / "config"))


@pytest.fixture
def cli(pulumi_env: dict[str, str], tmp_path: Path, config: Path) -> TorchxCli:
    return TorchxCli(pulumi_env, tmp_path, config)


@pytest.fixture
def account(kubeconfig: Path, namespace: str) -> Iterator[str]:
    """Make the account of the page in the namespace, with its rights only; yield its token."""
    server = Server(kubeconfig)
    text = CRON_JOB.read_text().replace("training", namespace)
    made = [each for each in yaml.safe_load_all(text) if each["kind"] not in ("CronJob", "Secret")]
    name = f"prune-{namespace}"
    paths = {}
    for each in made:
        if each["kind"].startswith("Cluster"):
            # Of the whole cluster, which has other tests.
            each["metadata"]["name"] = name
            if "roleRef" in each:
                each["roleRef"]["name"] = name
        api = "/api/v1" if each["apiVersion"] == "v1" else f"/apis/{each['apiVersion']}"
        within = f"/namespaces/{namespace}" if "namespace" in each["metadata"] else ""
        paths[each["kind"]] = path = f"{api}{within}/{each['kind'].lower()}s"
        server.ask("POST", path, each)
    whose = f"system:serviceaccount:{namespace}:torchx-prune"
    for asks in (
        {"verb": "delete", "namespace": namespace, "group": "batch.volcano.sh", "resource": "jobs"},
        {"verb": "get", "resource": "namespaces", "name": "kube-system"},
    ):
        # The API server decides by a cache, which has a new binding some time later.
        review = {"spec": {"user": whose, "resourceAttributes": asks}}
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        eventually(lambda review=review, path=path: server.ask("POST", path, review)["status"]["allowed"])
    token = server.ask("POST", f"{paths['ServiceAccount']}/torchx-prune/token", {"spec": {"expirationSeconds": 3600}})
    yield token["status"]["token"]
    for kind in ("ClusterRoleBinding", "ClusterRole"):
        server.ask("DELETE", f"{paths[kind]}/{name}")


@pytest.fixture
def busybox(cluster: object) -> str:
    images: dict[str, str] = getattr(cluster, "images", {})
    if not images:
        pytest.skip("the local cluster has no real node")
    return images["busybox"]


def test_runs_that_have_ended_are_pruned_and_nothing_else(
    cli: TorchxCli,
    e2e_env: dict[str, str],
    namespace: str,
    look: KubernetesCluster,
    busybox: str,
    config: Path,
    account: str,
) -> None:
    (cli.folder / "mine.py").write_text(COMPONENT)
    logs = cli.folder / "logs"
    backend = Path(cli.env["XDG_STATE_HOME"]) / "torchx-pulumi/backend"

    def run(script: str) -> str:
        options = f"namespace={namespace},queue=default"
        return cli.torchx(
            "run", "--workspace", "", "-s", "pulumi_volcano", "-cfg", options, "mine.py:job", "--image", busybox,
            "--script", script,
        ).handle  # fmt: skip

    with ThreadPoolExecutor(3) as pool:
        handles = dict(zip(SCRIPTS, pool.map(run, SCRIPTS.values()), strict=True))
    names = {kind: handle.rpartition(":")[2] for kind, handle in handles.items()}

    def phase(kind: str) -> str:
        job = look.get(VOLCANO_JOB, namespace, names[kind]) or {}
        return str((job.get("status") or {}).get("state", {}).get("phase"))

    def files(kind: str) -> list[Path]:
        folders = (backend / ".pulumi", logs, backend.parent / "runs")
        return [path for folder in folders for path in folder.rglob("*") if path.is_file() and names[kind] in str(path)]

    def prune(*words: str, before: str = "1s", code: int = 0) -> dict[str, str]:
        """Return the line of each app, and the summary."""
        given = ("--ended-before", before, "--namespace", namespace, "--with-logs", "--log-archive", str(logs))
        *lines, summary = cli.ours("prune", *given, *words, code=code).out.splitlines()
        return {kind: line for line in lines for kind in names if names[kind] in line} | {"": summary}

    def jobs() -> set[str]:
        return {item["metadata"]["name"] for item in look.list(VOLCANO_JOB, namespace)}

    ended = {kind for kind in names if kind != "active"}
    eventually(lambda: all(phase(kind) in ("Completed", "Failed") for kind in ended))
    eventually(lambda: phase("active") == "Running")
    cli.ours("controller", "--once", "--namespace", namespace, "--log-archive", str(logs))
    assert any("log.gz" in path.name for path in files("finished"))

    program = take_over(cli, e2e_env, handles["taken"])
    program.up()
    stacks = {kind: next((backend / ".pulumi/stacks/torchx").glob(f"*{names[kind]}*.json")) for kind in names}
    resources = json.loads(stacks["protected"].read_text())["checkpoint"]["latest"]["resources"]
    urn = next(item["urn"] for item in resources if item["type"].startswith("kubernetes:batch"))
    words = ["pulumi", "state", "protect", urn, "--yes", "--stack", f"organization/torchx/{stacks['protected'].stem}"]
    env = {**cli.env, "PULUMI_BACKEND_URL": f"file://{backend}"}
    env["PULUMI_CONFIG_PASSPHRASE_FILE"] = str(backend.parent / "passphrase")
    subprocess.run(words, env=env, cwd=cli.folder, check=True, capture_output=True)
    again = look.get(VOLCANO_JOB, namespace, names["relaunched"]) or {}
    look.delete(VOLCANO_JOB, namespace, names["relaunched"])
    eventually(lambda: names["relaunched"] not in jobs())
    kept = {key: again["metadata"].get(key) for key in ("name", "labels", "annotations")}
    look.create(VOLCANO_JOB, namespace, {**again, "metadata": kept, "status": {}})

    whole = json.loads(config.read_text())
    administrator = whole["users"][0]["user"]
    whole["users"][0]["user"] = {"token": account}
    config.write_text(json.dumps(whole))
    assert prune(before="1h") == {"": "0 pruned, 0 left alone, 0 failed, 6 younger or of other states"}
    listed = prune("--dry-run")
    assert listed[""] == "2 would be pruned, 4 left alone, 0 failed, 0 younger or of other states"
    assert f"would be pruned: {namespace}:{names['finished']}: SUCCEEDED since " in listed["finished"]
    assert listed["finished"].endswith(f", Job {namespace}/{names['finished']}, 1 archived log")
    assert jobs() == {*names.values()}
    for kind, why in REASONS.items():
        assert f"left alone: {namespace}:{names[kind]}: " in listed[kind]
        assert why in listed[kind]

    only = prune("--state", "FAILED")
    assert only.keys() == {"failed", ""}
    assert only["failed"] == f"pruned: {listed['failed'].partition(': ')[2]}"
    done = prune()
    assert done[""] == "1 pruned, 4 left alone, 0 failed, 0 younger or of other states"
    assert {kind: line for kind, line in done.items() if kind in REASONS} == {kind: listed[kind] for kind in REASONS}
    assert (files("finished"), files("failed")) == ([], [])
    assert jobs() == {names[kind] for kind in REASONS}
    assert phase("active") == "Running"
    assert prune()[""] == "0 pruned, 4 left alone, 0 failed, 0 younger or of other states"
    assert all(any("log.gz" in path.name for path in files(kind)) for kind in ("protected", "taken"))
    whole["users"][0]["user"] = administrator
    config.write_text(json.dumps(whole))
    cli.ours("delete", handles["active"])


def test_a_run_is_pruned_in_a_bucket(
    cli: TorchxCli, s3_backend: S3Backend, namespace: str, look: KubernetesCluster, busybox: str
) -> None:
    cli.env |= {**s3_backend.env, "PULUMI_BACKEND_URL": s3_backend.url}
    (cli.folder / "mine.py").write_text(COMPONENT)
    words = ("-cfg", f"namespace={namespace},queue=default", "mine.py:job", "--image", busybox, "--script", "true")
    name = cli.torchx("run", "--workspace", "", "-s", "pulumi_volcano", *words).handle.rpartition(":")[2]

    def has_ended() -> bool:
        job = look.get(VOLCANO_JOB, namespace, name) or {}
        return (job.get("status") or {}).get("state", {}).get("phase") == "Completed"

    eventually(has_ended)
    assert f"would be pruned: {namespace}:{name}: " in cli.ours("prune", "--ended-before", "1s", "--dry-run").out
    assert f"pruned: {namespace}:{name}: " in cli.ours("prune", "--ended-before", "1s").out
    assert look.get(VOLCANO_JOB, namespace, name) is None
    assert cli.ours("prune", "--ended-before", "1s").out.startswith("0 pruned, 0 left alone, 0 failed, 0 younger")
