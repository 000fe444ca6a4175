from dataclasses import replace

import pytest
from torchx_pulumi.model.job_spec import JobSpec, ResourceSpec, RoleSpec
from torchx_pulumi.model.run_record import IDENTITY_VERSION
from torchx_pulumi.runs.identity import changed_fields, field_digests
from torchx_pulumi.runs.run_hash import run_hash
from torchx_pulumi.schedulers.volcano.options import GangMode, VolcanoOptions

ROLE = RoleSpec(name="trainer", image="app:1", entrypoint="python", args=("-m", "train"), env={"LR": "0.1"})
SPEC = JobSpec(name="job", roles=(ROLE,))
OPTIONS = VolcanoOptions(queue="default")


def job(**changes: object) -> JobSpec:
    return replace(SPEC, roles=(replace(ROLE, **changes),))  # type: ignore[arg-type]


def hash_of(spec: JobSpec = SPEC, options: VolcanoOptions = OPTIONS, rerun: str | None = None) -> str:
    launched = {role.name: role.num_replicas for role in spec.roles}
    digests = field_digests(spec, options, rerun=rerun)
    return run_hash(digests, launched, spec, options, rerun=rerun, version=IDENTITY_VERSION)


@pytest.mark.parametrize(
    ("changed", "path"),
    [
        (job(image="app:2"), "roles[trainer].image"),
        (job(entrypoint="bash"), "roles[trainer].entrypoint"),
        (job(args=("-m", "other")), "roles[trainer].args"),
        (job(env={"LR": "0.2"}), "roles[trainer].env[LR]"),
        (job(env={"LR": "0.1", "SEED": "1"}), "roles[trainer].env[SEED]"),
        (job(max_retries=3), "roles[trainer].max_retries"),
        (job(resource=ResourceSpec(cpu=0.5)), "roles[trainer].resource.cpu"),
        (job(resource=ResourceSpec(gpu=1)), "roles[trainer].resource.gpu"),
        (job(port_map={"http": 80}), "roles[trainer].port_map"),
        (job(node_selector={"zone": "a"}), "roles[trainer].node_selector"),
    ],
)
def test_an_immutable_field_of_a_role_changes_the_hash_and_is_named(changed: JobSpec, path: str) -> None:
    assert hash_of(changed) != hash_of()
    assert changed_fields(field_digests(SPEC, OPTIONS), field_digests(changed, OPTIONS)) == [path]


def test_the_retry_policy_counts_where_there_are_retries() -> None:
    once, retried = job(retry_policy="REPLICA"), job(max_retries=3, retry_policy="REPLICA")
    assert hash_of(once) == hash_of()
    assert hash_of(retried) != hash_of(job(max_retries=3))
    assert changed_fields(field_digests(SPEC, OPTIONS), field_digests(once, OPTIONS)) == ["roles[trainer].retry_policy"]


@pytest.mark.parametrize(
    ("options", "path"),
    [
        (VolcanoOptions(queue="other"), "queue"),
        (VolcanoOptions(queue="default", namespace="ml"), "namespace"),
        (VolcanoOptions(queue="default", gang=GangMode.PODS), "gang"),
        (VolcanoOptions(queue="default", ttl_seconds_after_finished=0), "ttl_seconds_after_finished"),
        (VolcanoOptions(queue="default", plugins={"svc": []}), "plugins"),
    ],
)
def test_an_immutable_option_changes_the_hash_and_is_named(options: VolcanoOptions, path: str) -> None:
    assert hash_of(options=options) != hash_of()
    assert changed_fields(field_digests(SPEC, OPTIONS), field_digests(SPEC, options)) == [path]


@pytest.mark.parametrize(
    "options",
    [
        VolcanoOptions(queue="default", priority_class="high"),
        VolcanoOptions(queue="default", labels={"team": "a"}),
        VolcanoOptions(queue="default", annotations={"note": "a"}),
    ],
)
def test_an_option_that_changes_in_place_keeps_the_hash(options: VolcanoOptions) -> None:
    assert hash_of(options=options) == hash_of()
    assert field_digests(SPEC, options) != field_digests(SPEC, OPTIONS)


def test_min_replicas_keeps_the_hash() -> None:
    assert hash_of(job(min_replicas=1)) == hash_of()


def test_more_replicas_launched_change_the_hash() -> None:
    digests = field_digests(SPEC, OPTIONS)
    two, four = (run_hash(digests, {"trainer": n}, SPEC, OPTIONS, version=IDENTITY_VERSION) for n in (2, 4))
    assert two != four


def test_rerun_changes_the_hash() -> None:
    assert len({hash_of(), hash_of(rerun="1"), hash_of(rerun="2")}) == 3


def test_order_and_names_of_roles_are_identity() -> None:
    other = replace(ROLE, name="reader")
    ab, ba = replace(SPEC, roles=(ROLE, other)), replace(SPEC, roles=(other, ROLE))
    assert hash_of(ab) != hash_of(ba)


def test_who_launched_and_with_which_release_is_not_identity() -> None:
    runner = {
        "TORCHX_JOB_ID": "volcano://s/a",
        "TORCHX_INTERNAL_SESSION_ID": "x",
        "TORCHX_PARENT_RUN_ID": "p",
        "TORCHX_TRACKERS": "mlflow",
        "TORCHX_TRACKER_MLFLOW_CONFIG": "c",
    }
    launched = replace(job(env={"LR": "0.1", **runner}), torchx_version="9.9", name="other", metadata={"a": "b"})
    assert hash_of(launched) == hash_of()


def test_spelling_of_absent_and_of_numbers_is_not_identity() -> None:
    assert hash_of(job(resource=ResourceSpec(cpu=-1, gpu=-1, memory_mb=-1))) == hash_of()
    assert hash_of(job(resource=ResourceSpec(cpu=2))) == hash_of(job(resource=ResourceSpec(cpu=2.0)))
    assert hash_of(job(args=["-m", "train"])) == hash_of()


def test_no_value_is_in_the_digests() -> None:
    digests = field_digests(job(env={"TOKEN": "hunter2"}), OPTIONS)
    assert "hunter2" not in repr(digests)
    assert all(len(value) == 12 for value in digests.values())


def test_the_digests_of_a_job_are_fixed_for_ever() -> None:
    # A change of one of these relaunches every job that runs.
    assert field_digests(SPEC, OPTIONS) == {
        "queue": "1080a60800d9",
        "roles": "9b00735a2605",
        "roles[trainer].args": "8a83af3e2f98",
        "roles[trainer].entrypoint": "2d0edc2f0650",
        "roles[trainer].env[LR]": "5a4747fcdafe",
        "roles[trainer].image": "bc1b61cc2017",
    }


OVERLAY = {"spec": {"tolerations": [{"key": "a"}]}}


@pytest.mark.parametrize(
    ("one", "other", "path"),
    [
        (job(env={"A": "1", "B": "2"}), job(env={"B": "2", "A": "1"}), "roles[trainer].env"),
        (job(port_map={"a": 1, "b": 2}), job(port_map={"b": 2, "a": 1}), "roles[trainer].port_map"),
        (
            job(pod_overlay=OVERLAY),
            job(pod_overlay={"spec": {"tolerations": ({"key": "a"},)}}),
            "roles[trainer].pod_overlay",
        ),
        (
            job(pod_overlay={"spec": {"__put__:volumes": [], "volumes": [1]}}),
            job(pod_overlay={"spec": {"volumes": [1], "__put__:volumes": []}}),
            "roles[trainer].pod_overlay",
        ),
    ],
)
def test_order_and_form_are_named_where_they_count(one: JobSpec, other: JobSpec, path: str) -> None:
    assert changed_fields(field_digests(one, OPTIONS), field_digests(other, OPTIONS)) == [path]


def test_a_variable_more_is_named_and_not_the_order_of_all() -> None:
    one, other = job(env={"B": "1", "C": "1"}), job(env={"A": "1", "B": "1", "C": "1"})
    assert changed_fields(field_digests(one, OPTIONS), field_digests(other, OPTIONS)) == ["roles[trainer].env[A]"]
