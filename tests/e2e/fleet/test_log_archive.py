"""Logs of real containers are read from the archives of a controller after their app was cancelled or deleted."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.kube.kinds import POD
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB

from tests.e2e.fleet.test_controller_stacks import controller, lost_logs
from tests.e2e.project import eventually
from tests.e2e.torchx_cli import BIN, Said, TorchxCli
from tests.s3_server import S3Backend

pytestmark = pytest.mark.e2e

COUNTS = "trap 'sleep 10; echo bye; exit 0' TERM; i=0; while true; do i=$((i+1)); echo line $i; sleep 0.05; done"
"""Prints numbered lines, and a last word when it is stopped. The pause leaves time for its deletion to be noticed."""


@pytest.fixture
def archives(tmp_path: Path, s3_backend: S3Backend) -> tuple[str, str]:
    """The archives of apps of Volcano's, a folder, and of MCAD's, a bucket."""
    return str(tmp_path / "kept"), s3_backend.url.replace("?", "/logs?")


@pytest.fixture
def cli(
    pulumi_env: dict[str, str],
    tmp_path: Path,
    kubeconfig: Path,
    namespace: str,
    s3_backend: S3Backend,
    archives: tuple[str, str],
) -> TorchxCli:
    found = TorchxCli({**pulumi_env, **s3_backend.env}, tmp_path, kubeconfig)
    config = tmp_path / "torchxconfig"
    config.write_text(
        f"[pulumi_volcano]\nqueue = default\nnamespace = {namespace}\nlog_archive = {archives[0]}\n"
        f"[pulumi_mcad]\nnamespace = {namespace}\nlog_archive = {archives[1]}\n"
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
    cli: TorchxCli, archives: tuple[str, str], namespace: str, busybox: str, look: KubernetesCluster
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

    # Before the controller starts: nobody copies its log before its time to live ends.
    expired = launch("pulumi_volcano", "echo done", "queue=default,ttl_seconds_after_finished=1")
    eventually(lambda: look.get(VOLCANO_JOB, namespace, expired.rpartition(":")[2]) is None)
    allowed = [word for url in archives for word in ("--archive-allow", url)]
    with (
        controller(cli.env, cli.folder, "--namespace", namespace, *allowed) as said,
        ThreadPoolExecutor(2) as pool,
    ):
        cancelled, deleted = pool.map(launch, ("pulumi_volcano", "pulumi_mcad"))
        for running in (cancelled, deleted):
            eventually(lambda: prints(running))  # noqa: B023 - called at once
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
                order.result()
            out, err = follower.communicate(timeout=180)
        finally:
            follower.kill()
        eventually(lambda: not any(map(pods_of, (cancelled, deleted))), timeout_s=180)
        both = [(cancelled, "sh/0"), (deleted,)]
        eventually(lambda: all(is_whole(cli.ours("log", *words, code=None)) for words in both))
    assert lost_logs(said) == []

    # Followed while the pod went: each line once, from wherever it was read.
    assert is_whole(Said(out=out, err=err, code=follower.returncode)), out[-500:] + err
    archived = cli.torchx("log", f"{cancelled}/sh/0")
    assert is_whole(archived)
    assert f"read from the archive {archives[0]}: copied at " in archived.err
    assert is_whole(cli.ours("log", cancelled, "sh/0", "--attempt", "1"))

    # Deleted: no index knows it any more, and the archive in force has its log.
    gone = cli.ours("log", deleted)
    assert is_whole(gone)
    assert "read from the archive s3://" in gone.err

    lost = cli.ours("log", expired, "sh/0", code=None)
    assert lost.code != 0
    assert f"Archive {archives[0]} has no copy of it" in lost.err
    for handle in (cancelled, expired):
        assert cli.ours("delete", handle).code == 0
