import json
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from torchx_pulumi.inputs.rendering import plan_app
from torchx_pulumi.model import labels
from torchx_pulumi.model.app_entry import Stage, read_entry
from torchx_pulumi.model.registration_plan import UID, RegistrationPlan
from torchx_pulumi.model.run_record import read_record
from torchx_pulumi.runs.identity import field_digests
from torchx_pulumi.runs.registration import plan_registration
from torchx_pulumi.runs.run_hash import run_hash
from torchx_pulumi.schedulers import plan_job, variant_of

from tests.unit.builders import registration_of

NOW = datetime(2026, 1, 2, tzinfo=timezone.utc)


def test_the_job_object_is_as_given_with_label_and_annotation(make_order: Callable[..., Any]) -> None:
    order = make_order()
    order.given[0]["metadata"]["labels"] = {"mine": "kept"}
    run = plan_registration(order)
    (head,) = run.objects
    assert head["metadata"]["labels"] == {"mine": "kept", labels.LAUNCH: "abc123"}
    assert head["metadata"]["annotations"][labels.RUN] == run.record["hash"]
    assert head["spec"] == order.given[0]["spec"]
    assert labels.LAUNCH not in order.given[0]["metadata"]["labels"]


def test_the_record_says_what_a_program_of_the_same_job_would_say(make_order: Callable[..., Any]) -> None:
    order = make_order()
    record = read_record(plan_registration(order).record)
    assert record is not None
    assert record.digests == field_digests(order.plan.spec, order.plan.options)
    assert record.hash == run_hash(
        record.digests, {"trainer": 2}, order.plan.spec, order.plan.options, version=record.identity_version
    )
    assert record.attempt == 1


def test_the_record_has_the_digests_that_pods_name_and_the_outputs_name_them(make_order: Callable[..., Any]) -> None:
    order = make_order()
    roles = [replace(role, image_digest="sha256:1") for role in order.plan.spec.roles]
    plan = plan_job(replace(order.plan.spec, roles=roles), order.plan.options, order.plan.job_name)
    run = plan_registration(registration_of(order.entry, plan))
    plain = plan_registration(order)
    assert (run.record["version"], run.record["image_digests"]) == (2, {"trainer": "sha256:1"})
    assert "image_digests" not in plain.record
    assert [run.record[key] for key in ("hash", "digests")] == [plain.record[key] for key in ("hash", "digests")]
    (declared,) = run.outputs["declared"]["roles"]
    image = f"{plain.outputs['images']['trainer']}@sha256:1"
    assert (declared["image"], declared["digest"], run.outputs["images"]) == (image, "sha256:1", {"trainer": image})


def test_the_note_for_colleagues_is_of_a_launched_app(make_order: Callable[..., Any]) -> None:
    entry = read_entry(plan_registration(make_order()).entry, "test")
    assert (entry.stage, entry.owner, entry.launch) == (Stage.LAUNCHED, None, "abc123")


def test_outputs_are_those_of_the_stack_program(make_order: Callable[..., Any]) -> None:
    run = plan_registration(make_order(ui_url="https://ui/x"))
    assert set(run.exports) == {"torchx", "app_id", "app_handle", "state", "reason", "log_command"}
    assert run.exports["app_id"] == "default:train-1"
    assert run.exports["torchx"]["links"]["ui_url"] == "https://ui/x"
    assert "log_archive" not in run.exports["torchx"]["links"]
    assert run.exports["torchx"]["declared"]["created_by"] == "somebody"
    assert run.outputs["uid"] == UID
    assert run.outputs["pod_groups"] == [f"train-1-{UID}"]


def test_the_archive_of_the_logs_is_among_the_outputs(make_order: Callable[..., Any]) -> None:
    run = plan_registration(make_order(log_options={"log_archive": "gs://logs"}))
    assert run.exports["torchx"]["links"]["log_archive"] == "gs://logs"
    assert read_entry(run.entry, "test").log_archive == "gs://logs"


def test_resources_of_a_gang_of_pods_are_called_as_the_components_call_them(make_order: Callable[..., Any]) -> None:
    run = plan_registration(make_order(gang="pods"))
    assert [item["kind"] for item in run.objects] == ["PodGroup", "Service", "Pod", "Pod"]
    assert list(run.names) == ["train", "train.service", "train.trainer-0", "train.trainer-1"]


def test_roles_list_their_pods_up_to_the_limit_of_observed(make_order: Callable[..., Any]) -> None:
    order = make_order()

    def role_of(replicas: int) -> dict[str, Any]:
        role = {"name": "trainer", "image": "app:1", "entrypoint": "sleep", "num_replicas": replicas}
        app = {"name": "train", "roles": [role]}
        plan = plan_app(app, "volcano", {"queue": "default", "layout": "replica"}, app_id="train-1")
        return dict(
            plan_registration(replace(order, plan=plan, given=variant_of(plan.options).render(plan))).roles["trainer"]
        )

    assert [item["name"] for item in role_of(64)["objects"]][63:] == ["train-1-trainer-63-0", "train-1"]
    assert "omitted" not in role_of(64)
    large = role_of(65)
    assert [item["kind"] for item in large["objects"]] == ["Service"]
    assert (large["omitted"], large["replicas"]) == (65, 65)


def test_an_order_survives_being_written_down(make_order: Callable[..., Any]) -> None:
    import dataclasses

    run = plan_registration(make_order())
    assert RegistrationPlan(**json.loads(json.dumps(dataclasses.asdict(run)))).names == run.names
