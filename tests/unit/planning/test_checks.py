from __future__ import annotations

from typing import Any

import pytest
from torchx_pulumi.model.job_spec import JobSpec, MountSpec, ResourceSpec, SecretRef

from tests.unit.builders import job, role
from tests.unit.typed_checks import check_job


def problems_of(spec: JobSpec) -> list[tuple[str, str]]:
    return [(problem.path, problem.message) for problem in check_job(spec)]


def the_problem(**changes: Any) -> tuple[str, str]:
    (found,) = problems_of(job(roles=[role(**changes)]))
    return found


def test_good_job_has_no_problems() -> None:
    good = role(
        args=("--a",),
        env={"A": "[FIELD_PATH]metadata.labels['x']", "B.c-d": ""},
        secret_env={"T": SecretRef(name="s", key="k.txt"), "U": SecretRef(name="s", key="k" * 253)},
        num_replicas=4,
        min_replicas=1,
        max_retries=3,
        retry_policy="REPLICA",
        resource=ResourceSpec(cpu=-1, gpu=-1, memory_mb=-1, devices={"vpc.amazonaws.com/efa": 1}),
        port_map={"c10d": 29500},
        mounts=[MountSpec(kind="bind", src="/a", dst="/b"), MountSpec(kind="secret", src="s", dst="/s")],
        node_selector={"zone": "a"},
        tolerations=[{"operator": "Exists"}, {"key": "a", "value": "b", "effect": "NoExecute", "tolerationSeconds": 5}],
        pod_overlay={"spec": {"volumes": ({},), "x": None}},
    )
    assert problems_of(job(roles=[good])) == []


@pytest.mark.parametrize("name", ["", "  ", "<MISSING>", None, 5, "\ud800"])
def test_app_needs_a_name(name: Any) -> None:
    assert problems_of(job(name=name))[0][0] == "name"


def test_app_needs_roles() -> None:
    assert problems_of(job(roles=[])) == [("roles", "is empty, must have at least one role; add a role")]


@pytest.mark.parametrize("roles", [None, "trainer", 5, {}])
def test_roles_are_a_list(roles: Any) -> None:
    assert problems_of(job(roles=roles))[0][0] == "roles"


def test_roles_have_names_of_their_own() -> None:
    found = problems_of(job(roles=[role(), role(name="b"), role()]))
    assert found == [("roles[2].name", "is 'trainer', as is roles[0]; rename one")]


def test_problem_says_where_what_is_allowed_and_what_was_found() -> None:
    found = the_problem(num_replicas=2, min_replicas=3)
    assert found == ("roles[0].min_replicas", "is 3, must be 1 to 2 (num_replicas), or unset for all of them")


@pytest.mark.parametrize(
    ("field", "value", "path"),
    [
        ("image", "<MISSING>", "image"),
        ("image", "", "image"),
        ("image", " img", "image"),
        ("image", "A B:1", "image"),
        ("args", ["a", "${app_idd}"], "args[1]"),
        ("env", {"A": "${replica}"}, "env['A']"),
        ("resource", ResourceSpec(cpu=-2), "resource.cpu"),
        ("resource", ResourceSpec(gpu=-2), "resource.gpu"),
        ("image", None, "image"),
        ("entrypoint", "<MISSING>", "entrypoint"),
        ("entrypoint", 5, "entrypoint"),
        ("args", "one text", "args"),
        ("args", None, "args"),
        ("args", ["a", 1], "args[1]"),
        ("env", None, "env"),
        ("env", {"1A": "x"}, "env['1A']"),
        ("env", {"A B": "x"}, "env['A B']"),
        ("env", {"": "x"}, "env['']"),
        ("env", {5: "x"}, "env[5]"),
        ("env", {"A": 5}, "env['A']"),
        ("env", {"A": "[FIELD_PATH]metadata.nothing"}, "env['A']"),
        ("secret_env", [], "secret_env"),
        ("secret_env", {"A": "text"}, "secret_env['A']"),
        ("secret_env", {"A": SecretRef(name="Not Valid", key="k")}, "secret_env['A'].name"),
        ("secret_env", {"A": SecretRef(name="s", key="a/b")}, "secret_env['A'].key"),
        ("secret_env", {"A": SecretRef(name="s", key="k" * 254)}, "secret_env['A'].key"),
        ("secret_env", {"A": SecretRef(name="s", key="k", optional="yes")}, "secret_env['A'].optional"),  # type: ignore[arg-type]
        ("num_replicas", 0, "num_replicas"),
        ("num_replicas", -1, "num_replicas"),
        ("num_replicas", True, "num_replicas"),
        ("num_replicas", "2", "num_replicas"),
        ("num_replicas", 10**9, "num_replicas"),
        ("min_replicas", 0, "min_replicas"),
        ("min_replicas", 2, "min_replicas"),
        ("min_replicas", "1", "min_replicas"),
        ("max_retries", -1, "max_retries"),
        ("max_retries", None, "max_retries"),
        ("retry_policy", "ROLE", "retry_policy"),
        ("retry_policy", "HOT_SPARE", "retry_policy"),
        ("retry_policy", None, "retry_policy"),
        ("resource", None, "resource"),
        ("resource", ResourceSpec(cpu="2"), "resource.cpu"),  # type: ignore[arg-type]
        ("resource", ResourceSpec(cpu=float("nan")), "resource.cpu"),
        ("resource", ResourceSpec(memory_mb=float("inf")), "resource.memory_mb"),  # type: ignore[arg-type]
        ("resource", ResourceSpec(gpu=1.5), "resource.gpu"),  # type: ignore[arg-type]
        ("resource", ResourceSpec(devices={"x.io/d": -1}), "resource.devices['x.io/d']"),
        ("resource", ResourceSpec(devices={"x.io/d": 1.5}), "resource.devices['x.io/d']"),  # type: ignore[dict-item]
        ("resource", ResourceSpec(devices={"efa": 1}), "resource.devices['efa']"),
        ("resource", ResourceSpec(devices=[]), "resource.devices"),  # type: ignore[arg-type]
        ("resource", ResourceSpec(capabilities=5), "resource.capabilities"),  # type: ignore[arg-type]
        ("port_map", {"tcp_store": 1}, "port_map['tcp_store']"),
        ("port_map", {"a-name-of-16-char": 1}, "port_map['a-name-of-16-char']"),
        ("port_map", {"http": 0}, "port_map['http']"),
        ("port_map", {"http": 65536}, "port_map['http']"),
        ("port_map", [80], "port_map"),
        ("mounts", None, "mounts"),
        ("mounts", ["text"], "mounts[0]"),
        ("mounts", [MountSpec(kind="nfs", src="a", dst="/b")], "mounts[0]"),
        ("mounts", [MountSpec(kind="bind", src="", dst="/b")], "mounts[0].src"),
        ("mounts", [MountSpec(kind="bind", src="/a/../b", dst="/b")], "mounts[0].src"),
        ("mounts", [MountSpec(kind="device", src="/a/../b", dst="/b")], "mounts[0].src"),
        ("mounts", [MountSpec(kind="volume", src="a", dst="")], "mounts[0].dst"),
        ("mounts", [MountSpec(kind="volume", src="a", dst="/dev/shm")], "mounts[0].dst"),
        ("mounts", [MountSpec(kind="volume", src="a", dst="/b", read_only=None)], "mounts[0].read_only"),  # type: ignore[arg-type]
        ("mounts", [MountSpec(kind="device", src="/a", dst="/b", permissions="x")], "mounts[0].permissions"),
        ("mounts", [MountSpec(kind="secret", src="Not Valid", dst="/b")], "mounts[0].src"),
        ("mounts", [MountSpec(kind="volume", src=c, dst="/b") for c in "ab"], "mounts[1].dst"),
        ("node_selector", {"a": "not valid"}, "node_selector['a']"),
        ("node_selector", {"a b": "c"}, "node_selector['a b']"),
        ("tolerations", {}, "tolerations"),
        ("tolerations", ["text"], "tolerations[0]"),
        ("tolerations", [{"key": "a", "effects": "x"}], "tolerations[0].effects"),
        ("tolerations", [{"key": "a", "operator": "In"}], "tolerations[0].operator"),
        ("tolerations", [{"value": "a"}], "tolerations[0].operator"),
        ("tolerations", [{"key": "a", "operator": "Exists", "value": "b"}], "tolerations[0].value"),
        ("tolerations", [{"key": "a", "effect": "Never"}], "tolerations[0].effect"),
        ("tolerations", [{"key": "a", "tolerationSeconds": "5"}], "tolerations[0].tolerationSeconds"),
        ("pod_overlay", [], "pod_overlay"),
        ("pod_overlay", {"spec": {5: "x"}}, "pod_overlay.spec"),
        ("pod_overlay", {"spec": {"x": object()}}, "pod_overlay.spec.x"),
        ("metadata", None, "metadata"),
    ],
)
def test_wrong_field_is_named(field: str, value: Any, path: str) -> None:
    assert the_problem(**{field: value})[0] == f"roles[0].{path}"


def test_one_text_for_arguments_gets_a_hint() -> None:
    assert "put the text into a list" in the_problem(args="--lr 1")[1]


def test_variable_with_two_sources_is_refused() -> None:
    path, message = the_problem(env={"A": "x"}, secret_env={"A": SecretRef(name="s", key="k")})
    assert path == "roles[0].secret_env['A']"
    assert "also in roles[0].env" in message


def test_value_of_a_variable_is_never_repeated() -> None:
    assert "12345" not in the_problem(env={"TOKEN": 12345})[1]


def test_node_selector_may_not_contradict_the_instance_type() -> None:
    key = "node.kubernetes.io/instance-type"
    found = the_problem(node_selector={key: "a"}, resource=ResourceSpec(capabilities={key: "b"}))
    assert found[0] == f"roles[0].node_selector[{key!r}]"


def test_unknown_mount_lists_the_known_kinds() -> None:
    assert the_problem(mounts=[MountSpec(kind="nfs", src="a", dst="/b")])[1] == (
        "is of unknown kind 'nfs', must be bind, volume, device, secret"
    )
