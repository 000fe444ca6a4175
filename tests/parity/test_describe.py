"""A Volcano Job of TorchX's own scheduler, as the cluster stores it, is described so that ours renders the same again."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
from torchx_pulumi.inputs.rendering import render_app
from torchx_pulumi.model.errors import InvalidJobError
from torchx_pulumi.planning.quantities import canonical
from torchx_pulumi.schedulers.volcano.describe import describe_job

from tests.parity.apps import CASES
from tests.parity.differences import compare, explain
from tests.parity.test_volcano import VERSION, runs_here, torchx_manifest

UNSAID = {
    # A role without a usable letter has no name by which its replicas could find rank 0.
    "role without a usable letter": r"replicas differ by more than their number: args\[3\], args\[4\]",
    "overlay with PUT": r"containers\[0\]\.volumeMounts: is a field that no app can say",
    "overlay with a tuple": r"containers\[0\]\.volumeMounts: is a field that no app can say",
    "overlay with JOIN": r"containers\[0\]\.tty: is a field that no app can say",
}
"""Case to the reason for which the job of TorchX nightly, which has overlays, is not described."""

OTHERWISE = {"replica retries": "spec.maxRetry", "role that ends in a dash": "name"}
"""Case to the end of the paths that differ: retries that no policy asks for have no effect, and a name is no label."""


def stored(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return a job as the cluster has it: Volcano's webhook writes each task again, without what is empty."""

    def without_empty(value: Any) -> Any:
        if isinstance(value, dict):
            parts = {key: without_empty(part) for key, part in value.items()}
            kept = {key: part for key, part in parts.items() if key == "env" or part not in (None, {}, [], "", False)}
            return {key: canonical(part) if key in ("cpu", "memory") else part for key, part in kept.items()}
        return [without_empty(part) for part in value] if isinstance(value, list) else value

    job = copy.deepcopy(manifest)
    job["metadata"] |= {"namespace": "ml", "uid": "u"}
    tasks = [{"minAvailable": 1, "maxRetry": 3} | task for task in job["spec"]["tasks"]]
    written = [{**without_empty(task), "minAvailable": task["minAvailable"]} for task in tasks]
    job["spec"] |= {"minAvailable": 1, "tasks": written}
    return job


@pytest.mark.parametrize("name", CASES)
def test_a_described_job_renders_what_runs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[name]
    if not runs_here(case):
        pytest.skip("this TorchX has no such option, or its client refuses the values")
    app_id = case.options.get("app_id", "app-x1")
    live = stored(torchx_manifest(case, app_id, monkeypatch))
    before = copy.deepcopy(live)
    if VERSION == "nightly" and name in UNSAID:
        with pytest.raises(InvalidJobError, match=UNSAID[name]):
            describe_job(live)
        return
    app, options = describe_job(live)
    assert live == before
    assert options["namespace"] == "ml"
    ours = stored(render_app(app, "volcano", options, app_id=app_id))
    pairs = compare(live["spec"], ours["spec"], "spec")
    unexplained = [pair for pair in pairs if explain(pair, VERSION) is None]
    assert [pair for pair in unexplained if not pair.path.endswith(OTHERWISE.get(name, "\0"))] == []


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    return stored(torchx_manifest(CASES["several roles"], "app-x1", monkeypatch))


def test_all_fields_that_no_app_can_say_are_named_at_once(live: dict[str, Any]) -> None:
    live["spec"]["volumes"] = [{"mountPath": "/data"}]
    first, second, third, _ = live["spec"]["tasks"]
    first["dependsOn"] = {"name": ["b-0"]}
    second["template"]["spec"]["containers"][0] |= {"image": "img:9", "workingDir": "/w"}
    third["policies"] = [{"event": "TaskCompleted", "action": "CompleteJob"}]
    third["template"]["spec"]["containers"][0]["env"] = [
        {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}
    ]
    with pytest.raises(InvalidJobError) as caught:
        describe_job(live)
    assert [problem.path for problem in caught.value.problems] == [
        "spec.tasks[0].dependsOn",
        "spec.tasks[1].template.spec.containers[0].workingDir",
        "spec.tasks[2].policies",
        "spec.tasks[2].template.spec.containers[0].env",
        "spec.volumes",
        "spec.tasks[0]",
    ]
    assert re.search("replicas differ by more than their number: .*image", str(caught.value))


def test_a_job_that_torchx_did_not_create_is_refused(live: dict[str, Any]) -> None:
    live["spec"]["tasks"][1]["replicas"] = 2
    with pytest.raises(InvalidJobError, match=r"spec\.tasks\[1\]: is not one replica of TorchX's scheduler"):
        describe_job(live)
    del live["spec"]["tasks"][0]["template"]["metadata"]["labels"]["app.kubernetes.io/managed-by"]
    with pytest.raises(InvalidJobError, match=r"spec\.tasks\[0\]: is not one replica of TorchX's scheduler"):
        describe_job(live)
    for spec in ({}, {"tasks": []}):
        with pytest.raises(InvalidJobError, match=r"spec\.tasks: has no task"):
            describe_job({**live, "spec": spec})
