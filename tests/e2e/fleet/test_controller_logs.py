"""The controller archives the numbered lines of real containers, however their pods go, and others read them then."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.kube.kinds import POD
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB
from torchx_pulumi_fleet.archive import ArchivedRun, open_archive
from torchx_pulumi_fleet.archive.archive import newest_copies

from tests.e2e.fleet.test_controller_stacks import controller, lost_logs
from tests.e2e.project import eventually
from tests.e2e.torchx_cli import TorchxCli

pytestmark = pytest.mark.e2e

COMPONENT = """
from torchx import specs

# A node keeps the log of one earlier run: each lasts for long enough that the one before it can be copied meanwhile.
COUNT = "i=0; while [ $i -lt {0} ]; do i=$((i+1)); echo line $i; done; sleep 10; exit {1}"
# Its grace time is 30 s. What it does first leaves time for its deletion to be noticed.
ENDLESS = (
    "trap 'sleep 10; j=0; while [ $j -lt 500 ]; do j=$((j+1)); i=$((i+1)); echo line $i; done; echo end; exit 0' TERM; "
    "i=0; while true; do i=$((i+1)); echo line $i; sleep 0.05; done"
)

def _app(image: str, script: str, retries: int = 0, restart: str = "Never") -> specs.AppDef:
    role = specs.Role(name="main", image=image, entrypoint="sh", args=["-c", script], num_replicas=2,
                      max_retries=retries, resource=specs.Resource(cpu=0.1, gpu=0, memMB=32),
                      metadata={"kubernetes": {"spec": {"restartPolicy": restart}}})
    return specs.AppDef("count", [role])

def count(image: str, lines: int, code: int = 0, retries: int = 0, restart: str = "Never") -> specs.AppDef:
    return _app(image, COUNT.format(lines, code), retries, restart)

def endless(image: str) -> specs.AppDef:
    return _app(image, ENDLESS)
"""

LINES = 2000


@pytest.fixture
def cli(pulumi_env: dict[str, str], tmp_path: Path, kubeconfig: Path) -> TorchxCli:
    made = TorchxCli(pulumi_env, tmp_path, kubeconfig)
    (tmp_path / "mine.py").write_text(COMPONENT)
    return made


class Logs:
    """The archive of a test."""

    def __init__(self, folder: Path) -> None:
        self.archive = open_archive(str(folder / "logs"))

    def of(self, handle: str) -> list[tuple[ArchivedRun, list[str]]]:
        """Return the archived runs of an app with their lines, without times."""
        name = handle.rpartition(":")[2]
        # A whole copy replaces a partial one, which may be gone once it is read.
        whole = [key for key in newest_copies(self.archive.index()) if not key.partial]
        keys = [key for key in whole if key.job.split("/")[1] == name]
        return [
            (run, [line.partition(" ")[2].rstrip("\n") for line in self.archive.lines(run.key)])
            for run in self.archive.read(keys)
        ]

    def whole(self, handle: str) -> list[tuple[ArchivedRun, list[str]]]:
        return [item for item in self.of(handle) if item[0].complete]


def numbered(lines: list[str]) -> int:
    """Return the number of lines, which are numbered without a gap from 1."""
    numbers = [int(line.removeprefix("line ")) for line in lines if line.startswith("line ")]
    assert numbers == [*range(1, len(numbers) + 1)]
    return len(numbers)


def test_numbered_lines_are_whole_however_the_pods_go(
    cli: TorchxCli, image: str, namespace: str, look: KubernetesCluster, tmp_path: Path
) -> None:
    logs = Logs(tmp_path)

    def run(*words: str, options: str = "") -> str:
        config = f"namespace={namespace},queue=default{options}"
        said = cli.torchx("run", "--workspace", "", "-s", "pulumi_volcano", "-cfg", config, *words, "--image", image)
        return said.handle

    def job(handle: str) -> str:
        return handle.rpartition(":")[2]

    with controller(cli.env, cli.folder, "--namespace", namespace, "--log-archive", str(tmp_path / "logs")) as said:
        ends = run("mine.py:count", "--lines", str(LINES), options=",ttl_seconds_after_finished=5")
        cancelled, deleted = run("mine.py:endless"), run("mine.py:endless")
        restarts = run("mine.py:count", "--lines", "300", "--code", "3", "--restart", "OnFailure")
        retried = run("mine.py:count", "--lines", "300", "--code", "4", "--retries", "2")
        for handle in (cancelled, deleted):
            # From the first line on, the signal of a deletion is caught.
            eventually(lambda handle=handle: writing(look, namespace, job(handle)) == 2, timeout_s=180)
        cli.ours("cancel", cancelled)
        look.delete(VOLCANO_JOB, namespace, job(deleted))
        for handle in (ends, cancelled, deleted):
            eventually(lambda handle=handle: len(logs.whole(handle)) == 2, timeout_s=180)
        assert [numbered(lines) for _, lines in logs.whole(ends)] == [LINES] * 2
        for handle in (cancelled, deleted):
            for record, lines in logs.whole(handle):
                assert numbered(lines) > 500, record
                assert lines[-1] == "end", record
        eventually(lambda: {run.restarts for run, _ in logs.whole(restarts)} >= {0, 1, 2})
        assert {numbered(lines) for _, lines in logs.whole(restarts)} == {300}
        eventually(
            lambda: {(run.replica, run.exit_code) for run, _ in logs.whole(retried)} == {(0, 4), (1, 4)}, timeout_s=180
        )
        cli.ours("delete", restarts)
        eventually(lambda: look.get(VOLCANO_JOB, namespace, job(ends)) is None, timeout_s=180)
    assert lost_logs(said) == []
    read = cli.ours("log", deleted, "main/0", "--archive", str(tmp_path / "logs"))
    assert re.search(r"^\S+ end$", read.out, re.MULTILINE)
    assert "read from the archive" in read.err


def writing(look: KubernetesCluster, namespace: str, name: str) -> int:
    """Return how many pods of a job run and have written some lines."""
    pods = look.list(POD, namespace, {"volcano.sh/job-name": name})
    running = [pod["metadata"]["name"] for pod in pods if pod["status"].get("phase") == "Running"]
    return sum(len([*look.logs(namespace, pod)]) > 20 for pod in running)
