"""Commands copy the logs of the pods that they delete."""

from __future__ import annotations

from pathlib import Path

from torchx_pulumi.log_archive import ArchivedCluster, copying_logs, open_archive
from torchx_pulumi.logs import LogQuery, read_lines
from torchx_pulumi.testing import FakeCluster

from tests.unit.log_archive.pods import JOB, pod


def test_logs_of_ended_pods_can_be_read_after_the_deletion(tmp_path: Path) -> None:
    cluster = FakeCluster([pod()], logs={("default", "train-trainer-0-0"): ["a", "b", "c"]})
    archive = open_archive(str(tmp_path / "logs"))
    said: list[str] = []
    with copying_logs(cluster, archive, JOB, progress=said.append):
        pass
    found = ArchivedCluster(archive, JOB, "trainer", 0)
    lines = [*read_lines(found, LogQuery(namespace="default", pod=found.pod, timestamps=False))]
    assert lines == ["a\n", "b\n", "c\n"]
    assert said[-1] == f"1 log copied to {archive.name}"
