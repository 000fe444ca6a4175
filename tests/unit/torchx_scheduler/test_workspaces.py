"""Patched images between the dry run and the launch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from torchx_pulumi import images
from torchx_pulumi.torchx_scheduler.workspaces import Workspaces


def test_what_was_planned_for_one_scheduler_is_made_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = SimpleNamespace(reference="repo/app:tx-1", warnings=(), left_out=())
    monkeypatch.setattr(images, "plan_patch", lambda *_, **__: plan)
    built: list[Any] = []
    monkeypatch.setattr(images, "build_plans", lambda plans, _tell: built.extend(plans) or {plan.reference: "sha256:1"})
    role = SimpleNamespace(name="trainer", image="base:1")
    Workspaces().patch(role, ".", {"image_repo": "repo/app"})
    assert role.image == "repo/app:tx-1"
    other = Workspaces()
    pushed = {role.image: other.patched()[role.image]}
    assert pushed == {"repo/app:tx-1": ("repo/app", "tx-1")}
    assert other.make(pushed, lambda _line: None) == {"repo/app:tx-1": "sha256:1"}
    assert built == [plan]
