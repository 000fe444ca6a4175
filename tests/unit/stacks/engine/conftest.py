"""Entries, orders and backends for the driver's parts, without an engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.inputs.rendering import plan_app
from torchx_pulumi.model.app_entry import StackRef, Stage
from torchx_pulumi.runs.registration import Registration
from torchx_pulumi.stack_state import stack_locks
from torchx_pulumi_stacks.engine import app_stack

from tests.unit.builders import registration_of, run_entry


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder of the test's own, and no choice of Pulumi's in the environment."""
    for name in ("PULUMI_BACKEND_URL", "PULUMI_CONFIG_PASSPHRASE", "PULUMI_CONFIG_PASSPHRASE_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PULUMI_HOME", str(tmp_path / "pulumi"))
    return tmp_path / "state" / "torchx-pulumi"


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many attempts to get a lock as the product makes, sooner after each other."""
    for module, name in ((stack_locks, "RETRY_PAUSES_S"), (app_stack, "LOCK_RETRY_PAUSES_S")):
        monkeypatch.setattr(module, name, tuple(pause_s / 10 for pause_s in getattr(module, name)))


@pytest.fixture
def make_order(tmp_path: Path) -> Callable[..., Registration]:
    """Make orders of two replicas."""

    def make(gang: str = "job", **changed: Any) -> Registration:
        role = {"name": "trainer", "image": "app:1", "entrypoint": "sleep", "num_replicas": 2}
        app = {"name": "train", "roles": [role]}
        plan = plan_app(app, "volcano", {"queue": "default", "gang": gang}, app_id="train-1")
        entry = run_entry(
            choice=gang,
            place=StackRef(backend=f"file://{tmp_path}/backend", project="torchx", stack="default.train-1"),
            cluster="",
            user="somebody",
            app={"name": "train"},
            launch="abc123",
            run="",
            stage=Stage.LAUNCHING,
        )
        return registration_of(replace(entry, **changed), plan)

    return make
