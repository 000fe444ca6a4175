"""Fields of a job that somebody edited are told from what Pulumi, controllers and webhooks write."""

from __future__ import annotations

from typing import Any

import pytest
from torchx_pulumi.kube.field_managers import find_foreign, set_by_others, written_edits

AT = "2026-03-01T10:00:00Z"
TEAM = ["metadata.labels.team"]
KEPT = ("spec.queue", "spec.tasks[*].template")


def entry(manager: str, fields: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"manager": manager, "operation": "Update", "time": AT, "fieldsV1": fields, **more}


OURS = entry("pulumi-kubernetes-1234abcd", {"f:metadata": {"f:labels": {"f:launch": {}}}, "f:spec": {"f:queue": {}}})
LABELS = {"f:metadata": {"f:labels": {".": {}, "f:team": {}, "f:example.com/a": {}, "f:more": {}}}}


def live(*entries: dict[str, Any]) -> dict[str, Any]:
    return {
        "metadata": {"labels": {"team": "ops", "example.com/a": "y", "more": "z"}, "managedFields": [OURS, *entries]},
        "spec": {
            "queue": "other",
            "minAvailable": 1,
            "tasks": [{"name": "a", "minAvailable": 1, "maxRetry": 3, "template": {"changed": True}}],
        },
        "status": {"phase": "Running"},
    }


WANTED = {
    "metadata": {"labels": {"team": "ml", "example.com/a": "x"}},
    "spec": {
        "queue": "q",
        "minAvailable": 2,
        "tasks": [{"name": "a", "minAvailable": 2, "template": {"changed": False}}],
    },
}


@pytest.mark.parametrize(
    ("found", "ignored", "paths"),
    [
        (entry("kubectl-label", LABELS), (), ["metadata.labels.team", 'metadata.labels["example.com/a"]']),
        (entry("kubectl-label", LABELS), ["metadata.labels.team"], ['metadata.labels["example.com/a"]']),
        (entry("kubectl-label", LABELS), ["metadata"], []),
        (entry("kubectl-label", LABELS), ["metadata.labels.te"], [*TEAM, 'metadata.labels["example.com/a"]']),
        (entry("kubectl-edit", {"f:spec": {"f:minAvailable": {}}}), (), ["spec.minAvailable"]),
        # Such a list is owned as a whole; its template stays as it was launched.
        (entry("kubectl-edit", {"f:spec": {"f:tasks": {}}}), (), ["spec.tasks[0].minAvailable"]),
        (entry("kubectl-edit", {"f:spec": {"f:queue": {}}}), (), []),
        (entry("vc-controller-manager", {"f:status": {"f:phase": {}}}, subresource="status"), (), []),
        (entry("x", LABELS, subresource="scale"), (), []),
        (entry("pulumi-kubernetes", LABELS), (), []),
        (entry("kubectl-label", {"f:metadata": {"f:labels": {"f:more": {}}}}), (), []),
        ({"manager": None, "fieldsV1": "odd"}, (), []),
    ],
)  # fmt: skip
def test_a_field_with_another_value_of_another_client_is_named(found: Any, ignored: Any, paths: list[str]) -> None:
    edits = find_foreign(live(found), WANTED, (*KEPT, *ignored))
    assert [one.path for one in edits] == paths
    assert written_edits(edits) == ([f"{', '.join(paths)}, set by {found['manager']} at {AT}"] if paths else [])


def test_an_equal_value_is_no_edit_and_another_name_of_pulumi_is_its_own() -> None:
    found = live(entry("kubectl-label", LABELS))
    same = {"metadata": {"labels": found["metadata"]["labels"]}, "spec": {}}
    assert find_foreign(found, same) == []
    mine = {"metadata": {**WANTED["metadata"], "annotations": {"pulumi.com/patchFieldManager": "kubectl-label"}}}
    assert find_foreign(found, mine) == []


@pytest.mark.parametrize("manager", ["kube-controller-manager", "vc-scheduler", "mcad-controller", "kueue"])
def test_without_the_program_what_controllers_set_is_left_out(manager: str) -> None:
    suspended = entry(manager, {"f:spec": {"f:suspend": {}}})
    person = entry("kubectl-patch", {"f:metadata": {"f:labels": {".": {}, "f:team": {}}}, "f:spec": {"f:tasks": {}}})
    edits = set_by_others(live(suspended, person))
    assert [one.path for one in edits] == ["metadata.labels.team", "spec.tasks"]
    never_ours = live(person)
    never_ours["metadata"]["managedFields"].remove(OURS)
    assert set_by_others(never_ours) == []
