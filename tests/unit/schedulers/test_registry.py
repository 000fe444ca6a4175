"""One road for every scheduler: options by name, command line, outputs, identity."""

from __future__ import annotations

from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml
from torchx_pulumi import render
from torchx_pulumi.cli.main import main
from torchx_pulumi.inputs.rendering import plan_app
from torchx_pulumi.inputs.run_options import read_options
from torchx_pulumi.model.errors import InvalidJobError
from torchx_pulumi.outputs.building import log_command
from torchx_pulumi.runs.identity import changed_fields, field_digests, is_in_place
from torchx_pulumi.schedulers import backend_of, find_backend, plan_job, scheduler_names
from torchx_pulumi.schedulers.appwrapper.options import AppWrapperVersion, MCADOptions, PodGroupVersion
from torchx_pulumi.schedulers.protocol import call_late

from tests.unit.builders import job, options

APP = {"name": "app", "roles": [{"name": "trainer", "image": "img:1", "entrypoint": "main"}]}


def test_every_scheduler_is_found_by_the_options_it_has() -> None:
    assert backend_of(options()) is find_backend("volcano")
    assert backend_of(MCADOptions()) is find_backend("mcad")
    assert {name: find_backend(name).name for name in scheduler_names()} == {"volcano": "volcano", "mcad": "mcad"}


def test_options_of_mcad_are_read_from_text_and_camel_case() -> None:
    given = {
        "priority": "5",
        "priorityClass": "high",
        "imageSecret": "pull",
        "pod_group_api": "scheduling.sigs.k8s.io/v1alpha1",
        "apiVersion": "v1beta2",
        "suspend": "True",
        "labels": "a=b",
        "image_repo": "ignored",
        "network": None,
    }
    assert read_options(given, "mcad") == MCADOptions(
        priority=5,
        priority_class="high",
        image_secret="pull",
        pod_group_api=PodGroupVersion.SIGS,
        api_version=AppWrapperVersion.V1BETA2,
        suspend=True,
        labels={"a": "b"},
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"priority": "high"}, "must be a whole number"),
        ({"pod_group_api": "v1"}, "must be scheduling.x-k8s.io/v1alpha1 or scheduling.sigs.k8s.io/v1alpha1"),
        ({"api_version": "v1"}, "must be v1beta1 or v1beta2"),
        ({"queue": "q"}, "is an option of Volcano"),
        ({"gang": "pods"}, "use coscheduler_name"),
        ({"layout": "roles"}, "must be replica or role or auto"),
        ({"network_topology": "hard"}, "is an option of Volcano"),
        ({"plugins": {}}, "is an option of Volcano"),
        ({"success_roles": ["a"]}, "is an option of Volcano, an AppWrapper ends when all its pods have"),
        ({"start_after": {}}, "is an option of Volcano, an AppWrapper makes all its pods at once"),
        ({"nonsense": 1}, "is unknown; known are"),
        ({"priorty": 1}, "is unknown; did you mean 'priority'?"),
        ({"priority_class": "a", "priority_class_name": "b"}, "is given twice"),
    ],
)
def test_options_that_mcad_does_not_take_are_refused_by_name(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidJobError, match=said) as error:
        read_options(given, "mcad")
    assert error.value.problems[0].path.startswith("options.")


def test_mcad_needs_no_queue() -> None:
    assert render(APP, "mcad", app_id="app-x1")["kind"] == "AppWrapper"


def test_all_problems_of_an_mcad_job_come_at_once() -> None:
    app = {"name": "app", "roles": [{**APP["roles"][0], "num_replicas": 2, "min_replicas": 1, "image": ""}]}  # type: ignore[dict-item]
    with pytest.raises(InvalidJobError) as error:
        render(app, "mcad", {"priority": "x", "queue": "q"}, app_id="A")
    found = {problem.path for problem in error.value.problems}
    assert found == {"app_id", "options.priority", "options.queue", "roles[0].image", "roles[0].min_replicas"}


def test_the_command_prints_the_app_wrapper_and_its_warnings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "app.yaml"
    file.write_text(yaml.safe_dump({"name": "app", "roles": [{**APP["roles"][0], "max_retries": 1}]}))  # type: ignore[dict-item]
    words = ["render", "--scheduler", "mcad", "--app-id", "app-x1", "--option", "priority=3", str(file)]
    assert main(words) == 0
    printed = capsys.readouterr()
    made = yaml.safe_load(printed.out)
    assert (made["kind"], made["spec"]["priority"]) == ("AppWrapper", 3)
    assert "warning: max_retries 1" in printed.err


def test_logs_are_found_by_a_label_that_the_pods_have() -> None:
    plan = plan_app(APP, "mcad", {}, app_id="app-x1")
    assert "--selector app.kubernetes.io/instance=app-x1 " in log_command(plan)
    assert "--selector volcano.sh/job-name=app-x1 " in log_command(plan_job(job(), options(), "app-x1"))


def test_only_priority_and_suspension_of_an_app_wrapper_change_in_place() -> None:
    before = field_digests(job(), MCADOptions())
    chosen: dict[str, Any] = {
        "priority": 1,
        "suspend": True,
        "labels": {"a": "b"},
        "priority_class": "high",
        "image_secret": "pull",
        "coscheduler_name": "co",
        "network": "net",
        "api_version": AppWrapperVersion.V1BETA2,
    }
    changed = changed_fields(before, field_digests(job(), MCADOptions(**chosen)))
    assert changed == sorted([*(chosen.keys() - {"priority_class"}), "priority_class_name"])
    assert [path for path in changed if is_in_place(path)] == ["labels", "priority", "suspend"]


@pytest.mark.parametrize("scheduler", scheduler_names())
def test_what_is_imported_late_is_there(scheduler: str) -> None:
    backend = find_backend(scheduler)
    given = [getattr(one, field.name) for one in (backend, *backend.variants.values()) for field in fields(one)]
    calls = (*given, *dict(backend.doctor_checks).values())
    places = [one.args[0] for one in calls if getattr(one, "func", None) is call_late]
    assert places
    for module, name in (place.split(":") for place in places):
        assert callable(getattr(import_module(module), name))
