"""Logs of real containers are in an archive after a cancellation, a deletion and a replacement of their app."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from torchx import specs
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.kube.kinds import POD
from torchx_pulumi.log_archive import ArchivedJob, ArchivedLog, open_archive
from torchx_pulumi.logs import LogQuery
from torchx_pulumi.logs.reading import read_source
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB

from tests.e2e.project import Project, eventually
from tests.e2e.torchx_cli import BIN, Said, TorchxCli, runner_of
from tests.s3_server import S3Backend

pytestmark = pytest.mark.e2e

COUNTS = "trap 'echo bye; exit 0' TERM; i=0; while true; do i=$((i+1)); echo line $i; sleep 0.05; done"
"""Prints numbered lines, and a last word when it is stopped."""


@pytest.fixture
def cli(
    pulumi_env: dict[str, str], tmp_path: Path, kubeconfig: Path, namespace: str, s3_backend: S3Backend
) -> TorchxCli:
    """The commands; apps of Volcano's have a folder as archive, those of MCAD a bucket."""
    found = TorchxCli({**pulumi_env, **s3_backend.env}, tmp_path, kubeconfig)
    bucket, _, query = s3_backend.url.partition("?")
    config = tmp_path / "torchxconfig"
    config.write_text(
        f"[pulumi_volcano]\nqueue = default\nnamespace = {namespace}\nlog_archive = {tmp_path / 'kept'}\n"
        f"[pulumi_mcad]\nnamespace = {namespace}\nlog_archive = {bucket}/logs?{query}\n"
    )
    found.env["TORCHXCONFIG"] = str(config)
    return found


@pytest.fixture
def busybox(cluster: Any) -> str:
    if not cluster.images:
        pytest.skip("the local cluster has no real node: no container can write a log")
    return str(cluster.images["busybox"])


def numbers(text: str) -> list[int]:
    """Return the numbers of the lines that `COUNTS` printed, in the order of the text."""
    return [int(line.rpartition("line ")[2]) for line in text.splitlines() if "line " in line]


def is_whole(said: Said) -> bool:
    """Return whether a text has each line of `COUNTS` once, from the first to the last word."""
    found = numbers(said.out)
    return found == [*range(1, len(found) + 1)] and len(found) > 20 and said.out.count("bye") == 1


def test_logs_are_read_after_their_pods(
    cli: TorchxCli, namespace: str, busybox: str, look: KubernetesCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def launch(scheduler: str, script: str = COUNTS, options: str = "queue=default") -> str:
        cfg = ("-cfg", options) if scheduler == "pulumi_volcano" else ()
        words = ("utils.sh", "--image", busybox, "sh", "-c")
        return cli.torchx("run", "--workspace", "", "-s", scheduler, *cfg, *words, script).handle

    def pods_of(handle: str) -> list[Any]:
        name = handle.rpartition(":")[2]
        return [pod for pod in look.list(POD, namespace) if pod["metadata"]["name"].startswith(name)]

    def prints(handle: str) -> bool:
        (pod,) = pods_of(handle) or [{}]
        if (pod.get("status") or {}).get("phase") != "Running":
            return False
        return len([*look.logs(namespace, pod["metadata"]["name"])]) > 20

    with ThreadPoolExecutor(4) as pool:
        replaced = pool.submit(_replace, cli, namespace, busybox, monkeypatch, look)
        expired = pool.submit(launch, "pulumi_volcano", "echo done", "queue=default,ttl_seconds_after_finished=1")
        cancelled, deleted = pool.map(launch, ("pulumi_volcano", "pulumi_mcad"))
        for running in (cancelled, deleted):
            eventually(lambda: prints(running), timeout_s=240)  # noqa: B023 - called at once
        follower = subprocess.Popen(
            [BIN / "torchx-pulumi", "log", cancelled, "sh/0", "--follow"],
            cwd=cli.folder,
            env=cli.env,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            orders = [pool.submit(cli.ours, "cancel", cancelled), pool.submit(cli.ours, "delete", deleted)]
            for order in orders:
                assert "1 log copied to" in order.result().err
            out, err = follower.communicate(timeout=180)
        finally:
            follower.kill()
        app_id, before = replaced.result()
    left = [cancelled, deleted, expired.result()]
    eventually(lambda: look.get(VOLCANO_JOB, namespace, left[-1].rpartition(":")[2]) is None, timeout_s=240)
    eventually(lambda: not any(map(pods_of, left)), timeout_s=180)

    # Followed while the pod went: each line once, from wherever it was read.
    assert is_whole(Said(out=out, err=err, code=follower.returncode)), out[-500:] + err
    archived = cli.torchx("log", f"{cancelled}/sh/0")
    assert is_whole(archived)
    assert f"read from the archive {cli.folder / 'kept'}: copied at " in archived.err
    assert is_whole(cli.ours("log", cancelled, "sh/0", "--attempt", "1"))

    # Deleted: no index knows it any more, and the archive in force has its log.
    gone = cli.ours("log", deleted)
    assert is_whole(gone)
    assert "read from the archive s3://" in gone.err

    earlier = cli.ours("log", f"pulumi_volcano://torchx/{app_id}", "trainer/0", "--run", before[:8])
    assert "the first run" in earlier.out
    assert "copied before its end" not in earlier.err

    # Without a controller nobody copied the log before the time to live ended.
    lost = cli.ours("log", left[-1], "sh/0", code=None)
    assert lost.code != 0
    assert f"Archive {cli.folder / 'kept'} has no copy of it" in lost.err
    with ThreadPoolExecutor(3) as pool:
        ends = pool.map(
            lambda handle: cli.ours("delete", handle), (cancelled, left[-1], f"pulumi_volcano://torchx/{app_id}")
        )
        assert all(end.code == 0 for end in ends)


def _replace(
    cli: TorchxCli, namespace: str, busybox: str, monkeypatch: pytest.MonkeyPatch, look: KubernetesCluster
) -> tuple[str, str]:
    """Launch an app, and once more under its name. Return its id and the uid of its first run."""
    role = specs.Role(name="trainer", image=busybox, entrypoint="sh", num_replicas=1, resource=specs.Resource(0, 0, 0))
    role.args = ["-c", "trap 'exit 0' TERM; echo the first run; sleep 600 & wait"]
    with runner_of(cli, monkeypatch) as runner:
        config = {"queue": "default", "namespace": namespace, "log_archive": str(cli.folder / "kept")}
        info = runner.dryrun(specs.AppDef(name="again", roles=[role]), "pulumi_volcano", config)
        handle = runner.schedule(info)
        app_id = handle.rpartition("/")[2]

        def running() -> str | None:
            pods = [pod for pod in look.list(POD, namespace) if pod["metadata"]["name"].startswith("again")]
            status = (pods[0].get("status") or {}) if pods else {}
            started = status.get("phase") == "Running"
            return str(pods[0]["metadata"]["ownerReferences"][0]["uid"]) if started else None

        uid = str(eventually(running, timeout_s=240))
        again = runner.dryrun(
            specs.AppDef(name="again", roles=[role]), "pulumi_volcano", {**config, "on_running_change": "replace"}
        )
        again.request.resource["metadata"]["name"] = app_id.partition(":")[2]
        assert runner.schedule(again) == handle
        return app_id, uid


@pytest.mark.parametrize("gang", ["job", "pods"])
def test_pulumi_up_copies_the_logs_of_the_run_that_it_ends(
    make_project: Callable[..., Project], look: KubernetesCluster, busybox: str, tmp_path: Path, gang: str
) -> None:
    project, folder = make_project(), tmp_path / "kept"
    role = {"image": busybox, "entrypoint": "sh", "args": ["-c", COUNTS], "num_replicas": 1}
    anywhere = {"node_selector": {}, "tolerations": []}
    project.job({**role, **anywhere}, gang=gang, log_archive=str(folder))
    project.up()
    first = {name: project.output(name) for name in ("app_id", "uid", "pod_names")}

    def prints() -> bool:
        pod = look.get(POD, project.namespace, first["pod_names"][0]) or {}
        running = (pod.get("status") or {}).get("phase") == "Running"
        return running and len([*look.logs(project.namespace, first["pod_names"][0])]) > 20

    eventually(prints, timeout_s=240)
    ends = {**role, **anywhere, "args": ["-c", "echo the second run"]}
    project.job(ends, gang=gang, log_archive=str(folder), on_running_change="replace")
    assert "log_archive" not in project.preview()
    assert not folder.exists()
    assert "1 log copied to" in project.up()
    job = ArchivedJob(app_id=first["app_id"], scheduler="volcano", uid=first["uid"])
    found = ArchivedLog(open_archive(str(folder)), job, "trainer", 0)
    lines = [*read_source(found, LogQuery(namespace=project.namespace, pod=found.pod))]
    assert is_whole(Said(out="".join(lines), err="", code=0))
