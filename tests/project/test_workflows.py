"""The workflows run pinned actions, and get the rights that they need."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

WORKFLOWS = sorted((Path(__file__).resolve().parents[2] / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned_by_commit_and_named_by_version(path: Path) -> None:
    used = re.findall(r"uses: (.*)", path.read_text(encoding="utf-8"))
    assert used
    assert [action for action in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action)] == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_job_writes_only_what_it_is_made_for(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert workflow["permissions"] == {"contents": "read"}
    writing = {
        name: {scope for scope, access in job.get("permissions", {}).items() if access == "write"}
        for name, job in workflow["jobs"].items()
    }
    wanted = {"publish": {"id-token"}, "page": {"contents"}, "site": {"pages", "id-token"}}
    assert {name: scopes for name, scopes in writing.items() if scopes} == (wanted if path.stem == "release" else {})
