from __future__ import annotations

import string

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from torchx_pulumi.planning import names
from torchx_pulumi.schedulers.volcano.names import hosts_env, longest_tail, task_env

ROLE_NAMES = st.text(st.sampled_from(string.ascii_letters + string.digits + "-_./ é"), min_size=1, max_size=60)


@given(st.lists(ROLE_NAMES, unique=True, min_size=1, max_size=8))
def test_roles_of_a_job_never_share_a_name(roles: list[str]) -> None:
    made = names.role_names(roles)
    assert len(set(made)) == len(roles)


@given(st.lists(ROLE_NAMES, unique=True, min_size=1, max_size=8))
def test_tasks_and_variables_of_roles_are_valid_and_distinct(roles: list[str]) -> None:
    made = names.role_names(roles)
    tasks = [names.task_name(name, replica) for name in made for replica in range(3)]
    assert all(map(names.is_dns_label, tasks))
    assert len(set(tasks)) == len(tasks)
    variables = [task_env(task)[0] for task in tasks]
    assert len(set(variables)) == len(variables)


@given(st.text(max_size=100), st.text(max_size=100))
def test_job_names_of_different_apps_differ(one: str, other: str) -> None:
    assume(one != other)
    assert names.job_name(one, "x") != names.job_name(other, "x")


@given(st.text(max_size=100), st.integers(0, 53))
def test_job_name_fits_with_its_longest_pod_name(app: str, tail: int) -> None:
    made = names.job_name(app, "x", tail=tail)
    assert names.is_service_name(made)
    assert len(made) + tail <= names.MAX_LABEL


@given(st.lists(ROLE_NAMES, unique=True, min_size=1, max_size=4), ROLE_NAMES)
def test_some_job_name_fits_whatever_the_roles_are_called(roles: list[str], app: str) -> None:
    tasks = {names.task_name(name, replica): 1 for name in names.role_names(roles) for replica in range(50)}
    tail = longest_tail(tasks)
    assert len(names.job_name(app, "x", tail=tail)) + tail <= names.MAX_LABEL


def test_job_names_of_different_identities_differ() -> None:
    assert names.job_name("app", "1") != names.job_name("app", "2")


def test_job_name_starts_with_a_letter() -> None:
    assert names.job_name("3d", "x").startswith("j-3d-")


@given(st.text(max_size=100))
def test_label_value_is_always_valid(text: str) -> None:
    assert names.is_label_value(names.label_value(text))


@given(st.from_regex(r"\A[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?\Z"))
def test_valid_label_value_stays_as_it_is(text: str) -> None:
    assert names.label_value(text) == text


@pytest.mark.parametrize(
    ("role", "made"),
    [("trainer", "trainer"), ("My_Role", "myrole"), ("a-", "a-"), ("_--a", "a"), ("3d", "3d"), ("r" * 40, "r" * 40)],
)
def test_role_is_called_as_in_torchx_where_that_works(role: str, made: str) -> None:
    assert names.role_names([role]) == (made,)


def test_a_role_name_that_is_too_long_ends_with_a_hash_of_it() -> None:
    (made,) = names.role_names(["r" * 41])
    assert made == f"{'r' * 31}-{names.short_hash('r' * 41)}"


def test_all_roles_that_torchx_calls_the_same_get_a_hash() -> None:
    made = names.role_names(["a_b", "ab", "c"])
    assert made[2] == "c"
    assert all(name.startswith("ab-") for name in made[:2])


def test_name_of_a_role_does_not_depend_on_its_position() -> None:
    assert set(names.role_names(["a_b", "ab"])) == set(names.role_names(["ab", "a_b"]))


def test_hash_that_another_role_has_as_its_name_is_not_taken() -> None:
    taken = f"ab-{names.short_hash('a_b')}"
    made = names.role_names(["a_b", "ab", taken])
    assert len(set(made)) == 3
    assert made[2] == taken


def test_variable_is_formed_as_volcano_forms_it() -> None:
    assert hosts_env("my-train") == "VC_MY_TRAIN_0_HOSTS"
    assert hosts_env("train-") == "VC_TRAIN__0_HOSTS"
