"""Rows of pods in memory have the words that an API server prints."""

from __future__ import annotations

from typing import Any

import pytest
from torchx_pulumi.kube.pod_list import row_of

RUNS: dict[str, Any] = {"ready": True, "state": {"running": {}}}
COMPLETED: dict[str, Any] = {"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}
STOPPED: dict[str, Any] = {"started": False, "state": {"terminated": {"exitCode": 143, "reason": "Error"}}}


def pod(phase: str, init: dict[str, Any], main: dict[str, Any], *, policy: str | None, initialized: bool) -> Any:
    """Return a pod with an init container, which with the policy `Always` is a sidecar."""
    return {
        "metadata": {"name": "app-trainer-1-0"},
        "spec": {
            "initContainers": [{"name": "first", **({"restartPolicy": policy} if policy else {})}],
            "containers": [{"name": "main"}],
        },
        "status": {
            "phase": phase,
            "conditions": [{"type": "Initialized", "status": str(initialized)}],
            "initContainerStatuses": [{"name": "first", **init}],
            "containerStatuses": [{"name": "main", **main}],
        },
    }


@pytest.mark.parametrize(
    ("found", "word"),
    [
        (pod("Pending", RUNS, {}, policy=None, initialized=False), "Init:0/1"),
        (pod("Pending", STOPPED, {}, policy=None, initialized=False), "Init:Error"),
        (pod("Running", COMPLETED, RUNS, policy=None, initialized=True), "Running"),
        (pod("Running", {"started": True, **RUNS}, RUNS, policy="Always", initialized=True), "Running"),
        (pod("Pending", {"started": False, **RUNS}, {}, policy="Always", initialized=False), "Init:0/1"),
        (pod("Succeeded", STOPPED, COMPLETED, policy="Always", initialized=True), "Completed"),
    ],
)
def test_a_sidecar_that_has_started_is_no_init_container_that_is_waited_for(found: Any, word: str) -> None:
    assert row_of(found, None).status == word
