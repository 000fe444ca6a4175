"""E8: what is not known in a preview is previewed: it stays unknown, and a running job stays where it is."""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Iterator
from importlib.metadata import version as installed
from typing import Any

import pulumi
import pytest
from torchx_pulumi.testing import FakeCluster, cluster_for_tests
from torchx_pulumi_components import MCADTrainingJob, VolcanoTrainingJob
from torchx_pulumi_components.exports import stack_outputs

from tests.components.test_volcano_training_job import ML, NAMESPACE, queue

FORMS: dict[str, tuple[Any, dict[str, Any], str]] = {
    "volcano-job": (VolcanoTrainingJob, {"queue": "default"}, "kubernetes:batch.volcano.sh/v1alpha1:Job"),
    "volcano-pods": (
        VolcanoTrainingJob,
        {"queue": "default", "gang": "pods"},
        "kubernetes:scheduling.volcano.sh/v1beta1:PodGroup",
    ),
    "volcano-role": (
        VolcanoTrainingJob,
        {"queue": "default", "layout": "role"},
        "kubernetes:batch.volcano.sh/v1alpha1:Job",
    ),
    "mcad-v1beta1": (MCADTrainingJob, {}, "kubernetes:workload.codeflare.dev/v1beta1:AppWrapper"),
    "mcad-v1beta2": (
        MCADTrainingJob,
        {"api_version": "v1beta2"},
        "kubernetes:workload.codeflare.dev/v1beta2:AppWrapper",
    ),
}
NEEDED = [
    NAMESPACE,
    ML,
    queue(),
    {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": {"name": "q", "namespace": "default"}},
    {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "runner", "namespace": "default"}},
    {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "runner", "namespace": "ml"}},
]
FIELDS: dict[str, tuple[tuple[Any, ...], Any]] = {
    "namespace": (("namespace",), "ml"),
    "service_account": (("service_account",), "runner"),
    "labels": (("labels",), {"team": "a"}),
    "one-label": (("labels", "team"), "a"),
    "annotations": (("annotations",), {"note": "a"}),
    "rerun": (("rerun",), "1"),
    "efa": (("efa_device_count",), 4),
    "reserved": (("reserved_memmb",), 10),
    "image": (("roles", 0, "image"), "app:2"),
    "args": (("roles", 0, "args"), ["a", "b"]),
    "one-arg": (("roles", 0, "args", 1), "b"),
    "env": (("roles", 0, "env"), {"A": "1"}),
    "secret_env": (("roles", 0, "secret_env"), {"A": {"name": "s", "key": "k"}}),
    "one-secret": (("roles", 0, "secret_env", "A"), {"name": "s", "key": "k"}),
    "cpu": (("roles", 0, "resource", "cpu"), 2),
    "gpu": (("roles", 0, "resource", "gpu"), 2),
    "memory": (("roles", 0, "resource", "memory_mb"), 2000),
    "devices": (("roles", 0, "resource", "devices"), {"example.com/nic": 2}),
    "one-device": (("roles", 0, "resource", "devices", "example.com/nic"), 2),
    "capabilities": (("roles", 0, "resource", "capabilities"), {"node.kubernetes.io/instance-type": "p4d"}),
    "resource": (("roles", 0, "resource"), {"cpu": 2, "gpu": 1}),
    "ports": (("roles", 0, "port_map"), {"c10d": 29500}),
    "one-port": (("roles", 0, "port_map", "c10d"), 29500),
    "mounts": (("roles", 0, "mounts"), [{"kind": "bind", "src": "/a", "dst": "/b"}]),
    "source": (("roles", 0, "mounts", 0, "src"), "/a"),
    "place": (("roles", 0, "mounts", 0, "dst"), "/b"),
    "node_selector": (("roles", 0, "node_selector"), {"zone": "a"}),
    "tolerations": (("roles", 0, "tolerations"), [{"operator": "Exists"}]),
    "overlay": (("roles", 0, "pod_overlay"), {"spec": {"priority": 3}}),
    "retries": (("roles", 0, "max_retries"), 0),
    "in-overlay": (("roles", 0, "pod_overlay", "spec", "priority"), 3),
}
OWN: dict[str, dict[str, tuple[tuple[Any, ...], Any]]] = {
    "volcano-job": {
        "queue": (("queue",), "default"),
        "priority_class": (("priority_class",), "high"),
        "plugins": (("plugins",), {"svc": []}),
        "one-plugin": (("plugins", "svc"), ["--x"]),
        "image_secrets": (("image_secrets",), ["pull"]),
        "ttl": (("ttl_seconds_after_finished",), 60),
        "retries": (("roles", 0, "max_retries"), 2),
    },
    "mcad-v1beta1": {"priority": (("priority",), 2), "retries": (("roles", 0, "max_retries"), 2)},
    "mcad-v1beta2": {"local_queue": (("local_queue",), "q"), "suspend": (("suspend",), True)},
}
ALL = os.environ.get("TORCHX_PULUMI_CASES") == "all"
OFTEN = ("namespace", "image", "env", "cpu", "gpu", "memory", "devices", "overlay")
CASES = [
    pytest.param(form, path, value, id=f"{form}-{name}")
    for form in FORMS
    for name, (path, value) in {**FIELDS, **OWN.get(form, {})}.items()
    if ALL or form == "volcano-job" or name in OFTEN or name in OWN.get(form, {})
]
"""Every field of one form, and of the others those that fail most easily. `TORCHX_PULUMI_CASES=all`: every field."""


def args_of(form: str, path: tuple[Any, ...], value: Any) -> Any:
    """Return arguments with a value in one place; what is around it is made."""
    mounts = [{"kind": "bind", "src": "/x", "dst": "/y"}] if "mounts" in path and len(path) > 3 else []
    role = {
        "name": "trainer",
        "image": "app:1",
        "entrypoint": "python",
        "args": ["-m", "train"],
        "num_replicas": 2,
        "mounts": mounts,
    }
    args = {**copy.deepcopy(FORMS[form][1]), "roles": [role]}
    at: Any = args
    for key in path[:-1]:
        at = at.setdefault(key, {}) if isinstance(at, dict) else at[key]
    at[path[-1]] = value
    return args


def unknown(*, secret: bool = False) -> Any:
    output = pulumi.Output.from_input(pulumi.output.UNKNOWN)
    return pulumi.Output.secret(output) if secret else output


def run(engine: Any, form: str, make_args: Any, *objects: Any, preview: bool = False) -> Any:
    priority = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}}

    def program() -> Any:
        with cluster_for_tests(FakeCluster([*NEEDED, priority, *objects])):
            return FORMS[form][0]("train", make_args())

    return engine.run(program, preview=preview)


def remember(engine: Any, form: str) -> list[Any]:
    """Put what was registered into the state, and return the objects as a cluster has them."""
    prefix = f"urn:pulumi:dev::proj::torchx:index:{FORMS[form][0].__name__}"
    engine.mocks.state, live = engine.records(), []
    for item in engine.mocks.resources:
        engine.mocks.state[f"{prefix}${item.typ}::{item.name}"] = item.inputs
        if item.typ.startswith("kubernetes:"):
            manifest = copy.deepcopy(item.inputs)
            manifest["metadata"] |= {"uid": f"uid-of-{item.name}", "creationTimestamp": "2026-01-01T00:00:00Z"}
            state = {"phase": "Running"} if FORMS[form][2].endswith(":Job") else "Running"
            live.append({**manifest, "status": {"phase": "Running", "state": state}})
    return live


def registered(engine: Any) -> dict[str, Any]:
    return {item.name: item.inputs for item in engine.mocks.resources if item.typ.startswith("kubernetes:")}


def leaves_of(value: Any, *path: Any) -> Iterator[tuple[tuple[Any, ...], Any]]:
    if isinstance(value, (dict, list)):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves_of(item, *path, key)
    else:
        yield path, value


def unknowns(value: Any) -> set[tuple[Any, ...]]:
    return {path for path, item in leaves_of(value) if isinstance(item, pulumi.output.Unknown)}


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        if isinstance(value, pulumi.output.Unknown):
            return value
        value = value[key]
    return value


@pytest.mark.parametrize(("form", "path", "value"), CASES)
def test_what_is_not_known_is_previewed_and_a_running_job_is_kept_meanwhile(
    engine: Any, form: str, path: tuple[Any, ...], value: Any
) -> None:
    run(engine, form, lambda: args_of(form, path, value))
    known = registered(engine)
    live, state = remember(engine, form), engine.mocks.state
    engine.mocks.state = {}
    run(engine, form, lambda: args_of(form, path, unknown()), preview=True)
    found = registered(engine)
    assert found.keys() == known.keys()
    # An address in memory may contain any digits.
    said = re.sub(r"0x[0-9a-f]+", "", repr([item.inputs for item in engine.mocks.resources] + [engine.mocks.outputs]))
    assert "unknown-leaf" not in said
    assert "1000" not in said
    for name, manifest in found.items():
        # All that is said of an object in the preview is what `up` makes of it.
        for where, item in leaves_of(manifest):
            if not isinstance(item, pulumi.output.Unknown):
                assert item == at(known[name], where), where
    assert unknowns(list(found.values()))
    engine.mocks.state = state
    job = run(engine, form, lambda: args_of(form, path, unknown()), *live, preview=True)
    assert registered(engine).keys() == known.keys()
    whole = engine.value(stack_outputs(job)["torchx"])
    assert "unknown-leaf" not in repr([item.inputs for item in engine.mocks.resources] + [engine.mocks.outputs, whole])
    assert engine.value(job.observed)["state"] not in ("UNKNOWN", "SUCCEEDED")
    (metadata,) = [item.inputs["metadata"] for item in engine.mocks.resources if item.typ == FORMS[form][2]]
    assert metadata["name"] == known["train"]["metadata"]["name"]
    assert metadata["namespace"] == known["train"]["metadata"]["namespace"]
    record = engine.record()
    assert record["value"]["job_name"] == metadata["name"] if "value" in record else record["job_name"]


@pytest.mark.parametrize("form", FORMS)
def test_what_is_not_known_and_secret_is_both(engine: Any, form: str) -> None:
    path = ("roles", 0, "env", "TOKEN")
    job = run(engine, form, lambda: args_of(form, path, unknown(secret=True)), preview=True)
    specs = [item["spec"] for item in registered(engine).values()]
    # Releases before 3.261 send what is not known without a mark: it has no value to hide.
    specs = [spec for spec in specs if not isinstance(spec, pulumi.output.Unknown)]
    assert all(pulumi.runtime.rpc._special_sig_key in spec and unknowns(spec) == {("value",)} for spec in specs)
    assert specs or installed("pulumi") < "3.261"
    assert engine.loop.run_until_complete(job.declared.is_known()) is False
    assert engine.loop.run_until_complete(job.declared.is_secret()) is False


@pytest.mark.parametrize("field", ["num_replicas", "min_replicas", "name"])
def test_a_structure_that_is_not_known_is_named(engine: Any, field: str) -> None:
    with pytest.raises(pulumi.RunError, match=rf"roles\[0\].{field}: must be known in preview"):
        run(engine, "volcano-job", lambda: args_of("volcano-job", ("roles", 0, field), unknown()), preview=True)


@pytest.mark.parametrize("field", ["timeout_s", "delete_timeout_s"])
def test_a_timeout_that_is_not_known_is_one_problem(engine: Any, field: str) -> None:
    with pytest.raises(pulumi.RunError, match="has 1 problem") as caught:
        run(engine, "volcano-job", lambda: args_of("volcano-job", (field,), unknown()), preview=True)
    assert f"{field}: must be known in preview" in str(caught.value)


def test_unknown_numbers_of_another_language_are_previewed(engine: Any, plugin: Any) -> None:
    def program() -> Any:
        role = {
            "name": "trainer",
            "image": "app:1",
            "entrypoint": "e",
            "resource": {"gpu": unknown(), "cpu": unknown()},
        }
        inputs = {"queue": "default", "roles": [role]}
        return plugin.construct("train", "torchx:index:VolcanoTrainingJob", inputs)

    result = engine.run(program, preview=True)
    assert unknowns(registered(engine))
    assert engine.loop.run_until_complete(result.state["declared"].is_known()) is False
