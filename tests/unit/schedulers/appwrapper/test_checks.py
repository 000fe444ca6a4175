"""Rules for MCAD's options, and what its user is told."""

from __future__ import annotations

from typing import Any

import pytest
from torchx_pulumi.model.errors import InvalidJobError
from torchx_pulumi.model.job_spec import RoleSpec
from torchx_pulumi.model.status import Reason
from torchx_pulumi.schedulers import plan_job
from torchx_pulumi.schedulers.appwrapper.checks import check_mcad_launch, check_mcad_options
from torchx_pulumi.schedulers.appwrapper.options import AppWrapperVersion, MCADOptions, PodGroupVersion
from torchx_pulumi.schedulers.diagnosis.refusals import diagnose_refusal

from tests.unit.builders import job, role
from tests.unit.typed_checks import check_typed


def paths(**chosen: Any) -> list[str]:
    return [problem.path for problem in check_typed(MCADOptions, MCADOptions(**chosen), "options", check_mcad_options)]


def warnings(*roles: RoleSpec, **chosen: Any) -> str:
    return "\n".join(plan_job(job(roles=list(roles) or [role()]), MCADOptions(**chosen), "app-x1").warnings)


def test_good_options_have_no_problems() -> None:
    chosen: dict[str, Any] = {
        "namespace": "team-a",
        "service_account": "runner",
        "priority": -3,
        "priority_class": "high.v2",
        "image_secret": "pull",
        "coscheduler_name": "coscheduler",
        "network": "fast-net",
        "pod_group_api": PodGroupVersion.SIGS,
        "requeuing_time_s": 0,
        "requeuing_growth": "none",
    }
    assert paths(**chosen) == []
    assert paths(api_version=AppWrapperVersion.V1BETA2, local_queue="team-a", labels={"a": "b"}) == []
    assert paths(api_version="v1beta2", suspend=True) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("namespace", "a.b"),
        ("service_account", "Not Valid"),
        ("priority", "high"),
        ("priority", 1.5),
        ("priority", True),
        ("priority", 2**31),
        ("priority_class", "Not Valid"),
        ("image_secret", ""),
        ("coscheduler_name", "Not Valid"),
        ("network", ""),
        ("network", 3),
        ("pod_group_api", "scheduling.k8s.io/v1"),
        ("pod_group_api", None),
        ("api_version", "v1"),
        ("requeuing_time_s", -1),
        ("requeuing_growth", "fast"),
        ("suspend", "yes"),
        ("labels", {"a b": "c"}),
        ("efa_device_count", -1),
    ],
)
def test_an_option_that_makes_no_sense_is_named(field: str, value: Any) -> None:
    assert paths(**{field: value}) == [f"options.{field}"] or paths(**{field: value})[0].startswith(f"options.{field}[")


@pytest.mark.parametrize(
    ("chosen", "field"),
    [
        ({"local_queue": "q"}, "local_queue"),
        ({"suspend": True}, "suspend"),
        ({"api_version": "v1beta2", "priority": 1}, "priority"),
        ({"api_version": "v1beta2", "requeuing_time_s": 1}, "requeuing_time_s"),
        ({"api_version": "v1beta2", "local_queue": "Not Valid"}, "local_queue"),
        ({"api_version": "v1beta2", "local_queue": "q", "suspend": True}, "suspend"),
    ],
)
def test_what_the_chosen_controller_would_not_read_is_refused(chosen: dict[str, Any], field: str) -> None:
    assert paths(**chosen) == [f"options.{field}"]


def test_elasticity_is_refused_and_asking_for_all_replicas_is_not() -> None:
    spec = job(roles=[role(num_replicas=2, min_replicas=2), role(name="b", num_replicas=2, min_replicas=1)])
    problems = list(check_mcad_launch(spec, MCADOptions(), "app", {}))
    assert [problem.path for problem in problems] == ["roles[1].min_replicas"]


@pytest.mark.parametrize("app_id", ["a" * 64, "1app", "App", "", None, "a.b"])
def test_an_app_id_that_cannot_name_a_service_is_refused(app_id: Any) -> None:
    assert [p.path for p in check_mcad_launch(job(), MCADOptions(), app_id, {})] == ["app_id"]


def test_a_plain_job_has_no_warnings() -> None:
    assert warnings() == ""


def test_retries_are_warned_of_loudly_since_mcad_does_not_end_them() -> None:
    said = warnings(role(max_retries=2))
    assert "for ever" in said
    assert "RetriesExhausted" in said


def test_retries_that_do_not_cover_a_deleted_pod_are_warned_of() -> None:
    said = warnings(role(max_retries=2), api_version=AppWrapperVersion.V1BETA2)
    assert "If a pod is deleted" in said
    assert "without a retry, and its other pods run on for 10 minutes" in said
    assert "Set layout to role, in which Jobs make the pods" in said
    assert warnings(role(), api_version=AppWrapperVersion.V1BETA2) == ""
    assert warnings(role(max_retries=2), api_version=AppWrapperVersion.V1BETA2, layout="role") == ""


def test_retries_that_differ_or_are_of_a_replica_are_warned_of() -> None:
    said = warnings(role(max_retries=3, retry_policy="REPLICA"), role(name="b", max_retries=1))
    assert "trainer: 3, b: 1" in said
    assert "REPLICA" in said
    assert "which is 0" in warnings(role(max_retries=3), role(name="b"))


def test_pull_secret_and_service_account_together_are_warned_of() -> None:
    assert "image_secret and service_account" in warnings(image_secret="a", service_account="b")


def test_a_pod_group_api_without_a_coscheduler_is_warned_of() -> None:
    assert "no effect" in warnings(pod_group_api=PodGroupVersion.SIGS)


def test_a_port_out_of_range_is_warned_of_and_one_that_is_no_number_refused() -> None:
    assert "'bad' of role 'trainer' is 70000" in warnings(role(port_map={"bad": 70000}))
    with pytest.raises(InvalidJobError, match="must be a whole number"):
        warnings(role(port_map={"bad": "70000"}))


@pytest.mark.parametrize(
    ("version", "replicas", "warned"), [("v1beta2", 8, False), ("v1beta2", 9, True), ("v1beta1", 9, False)]
)
def test_more_pods_than_the_operators_webhook_lets_pass_are_a_warning(
    version: str, replicas: int, *, warned: bool
) -> None:
    # The limit counts the pods of all roles.
    said = warnings(role(num_replicas=replicas - 1), role(name="reader"), api_version=version, layout="replica")
    assert ("the operator's webhook refuses more than 8 (Kueue 18)" in said) is warned
    assert ("set layout to role or auto, in which replicas share a Job" in said) is warned


def test_a_refusal_for_the_number_of_pods_says_what_to_do() -> None:
    message = (
        'admission webhook "vappwrapper.kb.io" denied the request: spec.components: Invalid value: '
        "[]v1beta2.AppWrapperComponent{Raw:[]uint8{0x7b, 0x22}}: components contains 9 podspecs; at most 8 are allowed"
    )
    found = diagnose_refusal(message)
    assert found is not None
    assert (found.reason, found.detail) == (Reason.REFUSED, "components contains 9 podspecs; at most 8 are allowed")
    assert "set layout to role or auto" in found.resolution
