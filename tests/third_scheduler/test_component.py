"""The public component of the third scheduler: one class, and its entry in a provider."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pulumi
import pytest
from torchx_pulumi_components.plugin import schema
from torchx_pulumi_stacks.config import read_config

from tests.components.conftest import engine as engine
from tests.third_scheduler.indexed_job.component import IndexedTrainingJob
from tools.components import files

ROLE = {"name": "trainer", "image": "app:1", "entrypoint": "python", "num_replicas": 2}


def test_one_class_registers_the_job_its_service_and_its_record(engine: Any) -> None:
    job = engine.run(lambda: IndexedTrainingJob("train", {"roles": [ROLE], "active_deadline_s": 60}))
    made = engine.mocks.one("kubernetes:batch/v1:Job").inputs
    assert made["metadata"]["name"] == engine.value(job.job_name)
    assert (made["spec"]["completions"], made["spec"]["activeDeadlineSeconds"]) == (2, 60)
    assert engine.mocks.one("kubernetes:core/v1:Service").name == "train.service"
    assert {item.name for item in engine.mocks.of_type("pulumi:index:Stash")} == {"train-intent"}
    assert engine.value(job.observed)["state"] == "SUBMITTED"


def test_the_stack_program_takes_it(tmp_path: Path) -> None:
    (tmp_path / "app.yaml").write_text("name: train\nroles: [{name: a, image: i, entrypoint: m}]\n")
    values = {"torchx:scheduler": "indexed_job", "torchx:appFile": "app.yaml"}
    pulumi.runtime.set_all_config(values, [])
    try:
        assert read_config(pulumi.Config("torchx"), tmp_path).scheduler == "indexed_job"
    finally:
        pulumi.runtime.set_all_config({}, [])


def test_mistakes_name_arguments(engine: Any) -> None:
    with pytest.raises(pulumi.RunError, match=r"active_deadline_s"):
        engine.run(lambda: IndexedTrainingJob("train", {"roles": [ROLE], "active_deadline_s": -1}))


def test_it_is_part_of_the_schema_of_other_languages() -> None:
    resource = schema()["resources"]["torchx:index:IndexedTrainingJob"]
    assert {"roles", "namespace", "activeDeadlineS", "waitFor", "jobName"} <= resource["inputProperties"].keys()
    assert resource["requiredInputs"] == ["roles"]


def test_what_is_made_of_the_option_tables_is_up_to_date() -> None:
    differs = [path for path, text in files().items() if path.read_text() != text]
    assert not differs, "`make schema` writes them, and what it makes of a scheduler of tests is copied by hand"
