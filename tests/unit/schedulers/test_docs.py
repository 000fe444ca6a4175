from __future__ import annotations

from typing import Any

import pytest
from torchx_pulumi.kube import KubernetesCluster

from tests.doc_blocks import block
from tests.fakes import FakeCluster


def test_the_program_of_the_page_explains_a_job_that_waits(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job: dict[str, Any] = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "train-x1", "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z"},
    }
    queue = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "default"}}
    monkeypatch.setattr(KubernetesCluster, "connect", lambda: FakeCluster([job, queue]))
    exec(block("docs/status.md", "diagnose"), {})
    assert capsys.readouterr().out.startswith("ControllerAbsent\n  ")
