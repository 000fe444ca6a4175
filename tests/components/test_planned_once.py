"""A launch plans its job once, whatever launches it; the hash of its run renders another job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pulumi
import pytest
from torchx.specs import AppDef, Role
from torchx_pulumi.inputs.appdef import read_app
from torchx_pulumi.runs.run_hash import NAME
from torchx_pulumi.schedulers import SchedulerBackend
from torchx_pulumi.torchx_adapter.context import AdapterContext
from torchx_pulumi.torchx_adapter.scheduler import PulumiScheduler
from torchx_pulumi_components import MCADTrainingJob, VolcanoTrainingJob

from tests.fakes import FakeCluster, FakeDriver

APP = AppDef(name="train", roles=[Role(name="trainer", image="img:1", entrypoint="main", num_replicas=2)])
OPTIONS: dict[str, dict[str, Any]] = {"volcano": {"queue": "test"}, "mcad": {"coscheduler_name": "scheduler"}}


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the jobs that are planned."""
    names: list[str] = []
    plan = SchedulerBackend.plan

    def counted(self: Any, spec: Any, *given: Any, **named: Any) -> Any:
        names.extend([spec.name] if spec.name != NAME else [])
        return plan(self, spec, *given, **named)

    monkeypatch.setattr(SchedulerBackend, "plan", counted)
    return names


@pytest.mark.parametrize("scheduler", OPTIONS)
def test_a_launch_by_torchx_plans_its_job_once(
    planned: list[str], scheduler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.chdir(tmp_path)
    cluster = FakeCluster()
    driver = FakeDriver(cluster)
    context = AdapterContext(make_driver=lambda: driver, connect=lambda *_: cluster)
    PulumiScheduler(scheduler, "torchx", context).submit(APP, dict(OPTIONS[scheduler]))
    assert planned == ["train"]


@pytest.mark.parametrize("component", [VolcanoTrainingJob, MCADTrainingJob])
def test_a_launch_by_a_component_plans_its_job_once(planned: list[str], engine: Any, component: Any) -> None:
    options = OPTIONS["volcano" if component is VolcanoTrainingJob else "mcad"]
    engine.run(lambda: component.from_app("train", read_app(APP), **options))
    assert planned == ["train"]


@pytest.mark.parametrize("component", [VolcanoTrainingJob, MCADTrainingJob])
def test_a_run_that_is_kept_is_planned_once(planned: list[str], engine: Any, component: Any) -> None:
    options = OPTIONS["volcano" if component is VolcanoTrainingJob else "mcad"]
    engine.run(lambda: component.from_app("train", read_app(APP), **options))
    prefix = f"urn:pulumi:dev::proj::torchx:index:{component.__name__}"
    engine.mocks.state = engine.records()
    for item in engine.mocks.resources:
        engine.mocks.state[f"{prefix}${item.typ}::{item.name}"] = item.inputs
    name = engine.record()["job_name"]
    planned.clear()
    engine.run(lambda: component.from_app("train", read_app(APP), **options))
    assert (planned, engine.record()["job_name"], engine.record()["attempt"]) == (["train"], name, 1)


@pytest.mark.parametrize("component", [VolcanoTrainingJob, MCADTrainingJob])
@pytest.mark.parametrize("preview", [False, True])
def test_a_job_with_secret_and_unknown_values_is_planned_once(
    planned: list[str], engine: Any, component: Any, preview: bool
) -> None:
    later = pulumi.output.UNKNOWN if preview else "known"
    env = {"TOKEN": pulumi.Output.secret("hunter22"), "LATER": pulumi.Output.from_input(later)}
    role = {"name": "trainer", "image": "img:1", "entrypoint": "main", "env": env}
    options = OPTIONS["volcano" if component is VolcanoTrainingJob else "mcad"]
    engine.run(lambda: component("train", {"roles": [role], **options}), preview=preview)
    assert planned == ["train"]
