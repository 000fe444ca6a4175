"""H4: one hash for jobs of which the same is rendered, and another one for all others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from torchx_pulumi.inputs.rendering import render_plan
from torchx_pulumi.model.errors import InvalidJobError
from torchx_pulumi.model.job_spec import JobSpec, MountSpec, ResourceSpec, RoleSpec, SecretRef
from torchx_pulumi.model.launch_options import OnRunningChange
from torchx_pulumi.model.options import Options, TaskLayout
from torchx_pulumi.model.run_record import IDENTITY_VERSION, RunRecord
from torchx_pulumi.model.status import JobState, JobStatus, Reason
from torchx_pulumi.runs.decision import Action, decide
from torchx_pulumi.runs.identity import changed_fields, field_digests
from torchx_pulumi.runs.identity_fields import canonical
from torchx_pulumi.runs.run_hash import run_hash
from torchx_pulumi.schedulers import plan_job
from torchx_pulumi.schedulers.appwrapper.options import MCADOptions
from torchx_pulumi.schedulers.volcano.options import NetworkTopology, VolcanoOptions

PAIRS = int(os.environ.get("TORCHX_PULUMI_IDENTITIES", "500"))

TYPE = "node.kubernetes.io/instance-type"
A, B = SecretRef(name="a", key="k"), SecretRef(name="b", key="k", optional=True)
TOLERATION = {"key": "gpu", "operator": "Exists"}

ROLES: dict[str, list[Any]] = {
    "image": ["img:1", "img:2"],
    "entrypoint": ["main", "other"],
    "args": [(), ["a"], ("a",), ("${replica_id}",), ("0",), ("${app_id}", "$$x"), ("${app_id}", "$x")],
    "env": [{}, {"A": "1", "B": "2"}, {"B": "2", "A": "1"}, {"TORCHX_JOB_ID": "x"}, {"TORCHX_IMAGE": "mine"}],
    "secret_env": [{}, {"X": A, "Y": B}, {"Y": B, "X": A}, {"X": replace(A, optional=True)}],
    "num_replicas": [1, 2, 3],
    "max_retries": [0, 2],
    "retry_policy": ["APPLICATION", "REPLICA"],
    "port_map": [{}, {"a": 1, "b": 2}, {"b": 2, "a": 1}],
    "mounts": [
        (),
        (MountSpec(kind="bind", src="/a", dst="/b"),),
        (MountSpec(kind="bind", src="/a", dst="/b", permissions="r"),),
        (MountSpec(kind="device", src="/a", dst="/b", permissions="r"),),
        (MountSpec(kind="device", src="/a", dst="/b", permissions="r", read_only=True),),
        (MountSpec(kind="device", src="/a", dst="/b"), MountSpec(kind="secret", src="s", dst="/s")),
        (MountSpec(kind="secret", src="s", dst="/s", read_only=True), MountSpec(kind="device", src="/a", dst="/b")),
    ],
    "node_selector": [{}, {"zone": "a"}, {TYPE: "p4d"}],
    "tolerations": [(), (TOLERATION,), [dict(reversed(TOLERATION.items()))], (TOLERATION, {"operator": "Exists"})],
    "pod_overlay": [
        None,
        {},
        {"spec": {"tolerations": [TOLERATION]}},
        {"spec": {"tolerations": (TOLERATION,)}},
        {"spec": {"priority": 1, "hostNetwork": None}},
        {"spec": {"priority": 1.0}},
        {"spec": {"priority": True}},
        {"spec": {"__put__:tolerations": [], "tolerations": [TOLERATION]}},
        {"spec": {"tolerations": [TOLERATION], "__put__:tolerations": []}},
        {"spec": {"__put__:nodeSelector": {"zone": "a"}}},
        {"spec": {"__del__:nodeSelector": None}},
    ],
    "metadata": [{}, {"owner": "me"}],
}
RESOURCES: dict[str, list[Any]] = {
    "cpu": [None, 0, -1, 2, 2.0, 0.0004, 0.0003],
    "gpu": [None, 0, 1],
    "memory_mb": [None, 1000, 2000],
    "devices": [{}, {"vpc.amazonaws.com/efa": 4}, {"example.com/a": 1, "example.com/b": 2}],
    "capabilities": [{}, {TYPE: "p4d"}, {"kinds": {"a", "b"}}, {"speed": 3}],
}
SHARED: dict[str, list[Any]] = {
    "namespace": ["default", "ml"],
    "service_account": [None, "runner"],
    "reserved_millicpu": [100, 5000],
    "reserved_memmb": [1024, 5000, 6000],
    "efa_device_count": [None, 0, 4],
}
OPTIONS: dict[type[Any], dict[str, list[Any]]] = {
    VolcanoOptions: SHARED
    | {
        "queue": ["default", "other"],
        "gang": ["job", "pods"],
        "scheduler_name": ["volcano", "mine"],
        "ttl_seconds_after_finished": [None, 0],
        "network_topology": [None, NetworkTopology(), NetworkTopology(mode="soft")],
        "plugins": [None, {"env": [], "svc": ["--publish-not-ready-addresses"]}, {"svc": []}],
        "image_secrets": [(), ["pull"], ("pull",)],
    },
    MCADOptions: SHARED
    | {
        "priority_class": [None, "high"],
        "image_secret": [None, "pull"],
        "coscheduler_name": [None, "gangs"],
        "network": [None, "fast"],
        "pod_group_api": ["scheduling.x-k8s.io/v1alpha1", "scheduling.sigs.k8s.io/v1alpha1"],
        "api_version": ["v1beta1", "v1beta2"],
        "local_queue": [None, "team"],
        "requeuing_time_s": [None, 300, 60],
        "requeuing_max_time_s": [None, 0],
        "requeuing_growth": [None, "exponential", "linear"],
    },
}
IN_PLACE: dict[type[Any], dict[str, Any]] = {
    VolcanoOptions: {"priority_class": "high", "labels": {"team": "a"}, "annotations": {"note": "a"}},
    MCADOptions: {"priority": 3, "labels": {"team": "a"}, "annotations": {"note": "a"}},
}


def pair_of(seed: int) -> tuple[tuple[JobSpec, Options], tuple[JobSpec, Options]]:
    """Return two jobs that differ in one field or two, or not at all."""
    random = Random(seed)
    kind = random.choice(list(OPTIONS))
    fields = {(part, name): values for part, name, values in _fields(kind)}
    one = {field: random.choice(values) if random.random() < 0.2 else values[0] for field, values in fields.items()}
    changed = random.sample(list(fields), 2)
    return _job(kind, one), _job(kind, one | {field: random.choice(fields[field]) for field in changed})


def _fields(kind: type[Any]) -> list[tuple[str, str, list[Any]]]:
    return [
        (part, name, values)
        for part, table in (("role", ROLES), ("resource", RESOURCES), ("option", OPTIONS[kind]))
        for name, values in table.items()
    ]


def _job(kind: type[Any], drawn: dict[tuple[str, str], Any]) -> tuple[JobSpec, Options]:
    parts: dict[str, dict[str, Any]] = {"role": {}, "resource": {}, "option": {"queue": "q"}}
    for (part, name), value in drawn.items():
        parts[part][name] = value
    if kind is MCADOptions:
        del parts["option"]["queue"]
    role = RoleSpec(name="trainer", resource=ResourceSpec(**parts["resource"]), **parts["role"])
    return JobSpec(name="job", roles=[role]), kind(**parts["option"])


def manifest_of(spec: JobSpec, options: Options) -> str | None:
    """Render a job, without what TorchX's Runner adds. None: it is refused."""
    (role,) = spec.roles
    env = {name: value for name, value in role.env.items() if name != "TORCHX_JOB_ID"}
    try:
        manifest = render_plan(plan_job(replace(spec, roles=[replace(role, env=env)]), options, "job-1"))
    except InvalidJobError:
        return None
    return json.dumps(canonical(manifest, IDENTITY_VERSION), sort_keys=True)


def digests_of(spec: JobSpec, options: Options, rerun: str | None = None) -> dict[str, str]:
    return field_digests(spec, options, rerun=rerun)


def hash_of(spec: JobSpec, options: Options, rerun: str | None = None) -> str:
    launched = {role.name: role.num_replicas for role in spec.roles}
    digests = digests_of(spec, options, rerun)
    return run_hash(digests, launched, spec, options, rerun=rerun, version=IDENTITY_VERSION)


def test_hashes_are_equal_where_manifests_are_and_nowhere_else() -> None:
    seen = {True: 0, False: 0}
    for seed in range(PAIRS):
        pair = pair_of(seed)
        one, other = (manifest_of(*job) for job in pair)
        if one is None or other is None:
            continue
        seen[one == other] += 1
        assert (hash_of(*pair[0]) == hash_of(*pair[1])) is (one == other), seed
        if one != other:
            # What is rendered of the same fields is the same: a recorded run is compared by both.
            assert changed_fields(digests_of(*pair[0]), digests_of(*pair[1])), seed
    assert min(seen.values()) > PAIRS / 5


def volcano(resource: Any = None, **changes: Any) -> tuple[JobSpec, Options]:
    options = {key: changes.pop(key) for key in list(changes) if key in OPTIONS[VolcanoOptions]}
    role = {"name": "trainer", "image": "img:1", "entrypoint": "main", **changes}
    spec = JobSpec(name="job", roles=[RoleSpec(resource=ResourceSpec(**(resource or {})), **role)])
    return spec, VolcanoOptions(**{"queue": "default", **options})


def test_the_digest_that_is_named_after_a_tag_is_no_part_of_the_identity_and_a_given_one_is() -> None:
    plain, pinned = volcano(), volcano(image="img:1@sha256:1")
    named = [volcano(image_digest=digest) for digest in ("sha256:1", "sha256:2")]
    assert {hash_of(*job) for job in (plain, *named)} == {hash_of(*plain)}
    assert [digests_of(*job) for job in named] == [digests_of(*plain)] * 2
    assert manifest_of(*named[0]) == manifest_of(*pinned)
    assert hash_of(*pinned) != hash_of(*plain)
    assert changed_fields(digests_of(*plain), digests_of(*pinned)) == ["roles[trainer].image"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (volcano(), volcano(resource={"capabilities": {"kinds": {"a", "b"}}})),
        (volcano(), volcano(retry_policy="REPLICA")),
        (volcano(), volcano(plugins={"svc": ["--publish-not-ready-addresses"], "env": []})),
        (
            volcano(mounts=[MountSpec(kind="bind", src="/a", dst="/b")]),
            volcano(mounts=[MountSpec(kind="bind", src="/a", dst="/b", permissions="r")]),
        ),
        (volcano(resource={"cpu": 0.0003}), volcano(resource={"cpu": 0.0004})),
    ],
)
def test_a_change_of_which_nothing_is_rendered_keeps_a_running_job(one: Any, other: Any) -> None:
    record = RunRecord(
        app_id="job-1",
        job_name="job-1",
        namespace="default",
        hash=hash_of(*one),
        digests=digests_of(*one),
        launched={"trainer": 1},
        replicas={"trainer": 1},
        attempt=1,
        launched_at="",
        identity_version=IDENTITY_VERSION,
    )
    desired = replace(record, digests=digests_of(*other), hash=hash_of(*other), launched={"trainer": 1})
    running = JobStatus(state=JobState.RUNNING, reason=Reason.NOT_FOUND, message="")
    now: Any = None
    assert decide(record, desired, running, OnRunningChange.FAIL, now).action is Action.KEEP


REFERRING = volcano(
    env={"DB_URL": "postgres://me:$(DB_PASSWORD)@db/x", "POD": "[FIELD_PATH]metadata.name"},
    secret_env={"DB_PASSWORD": A},
)
REFERRING_DIGESTS = {
    "queue": "1080a60800d9",
    "roles": "9b00735a2605",
    "roles[trainer].entrypoint": "e4a9e4d8baa7",
    "roles[trainer].env": "045a9f610f90",
    "roles[trainer].env[DB_URL]": "43c9caab5a42",
    "roles[trainer].env[POD]": "686e2587fe53",
    "roles[trainer].image": "55aad34a44f6",
    "roles[trainer].secret_env[DB_PASSWORD]": "2a32cb0304bd",
}
"""Recorded by a release that rendered the variables as given."""


@pytest.mark.parametrize(
    ("asked", "digests", "hash_"),
    [
        (volcano(), digests_of(*volcano()), "of-another-release"),
        (REFERRING, REFERRING_DIGESTS, "b6fdba68a9309033"),
    ],
)
def test_a_run_whose_fields_are_unchanged_is_the_same_run_whatever_a_later_release_renders(
    asked: Any, digests: dict[str, str], hash_: str
) -> None:
    record = RunRecord(
        app_id="job-1",
        job_name="job-1",
        namespace="default",
        hash=hash_,
        digests=digests,
        launched={"trainer": 2},
        replicas={"trainer": 2},
        attempt=1,
        launched_at="",
        identity_version=IDENTITY_VERSION,
    )
    now: Any = None
    for launched, action in (({"trainer": 2}, Action.DONE_AND_GONE), ({"trainer": 3}, Action.RELAUNCH)):
        desired = replace(record, digests=digests_of(*asked), hash=hash_of(*asked), launched=launched)
        assert desired.hash != hash_
        assert decide(record, desired, None, OnRunningChange.FAIL, now).action is action


@pytest.mark.parametrize("kind", IN_PLACE)
def test_what_may_change_in_place_is_not_in_the_hash(kind: type[Any]) -> None:
    spec, _ = volcano(num_replicas=3)
    options = {"queue": "q"} if kind is VolcanoOptions else {}
    elastic = replace(spec, name="other", torchx_version="9", roles=[replace(spec.roles[0], min_replicas=1)])
    assert hash_of(elastic, kind(**options, **IN_PLACE[kind])) == hash_of(spec, kind(**options))


@pytest.mark.parametrize("args", [(), ("--shard=${replica_id}",), ("$${${rank0_env}:=localhost}",)])
def test_the_layout_is_not_in_the_hash(args: tuple[str, ...]) -> None:
    spec, options = volcano(num_replicas=3, args=args)
    jobs = [(spec, replace(options, layout=layout)) for layout in TaskLayout]
    assert len({manifest_of(*job) for job in jobs}) == 2
    assert [digests_of(*job) for job in jobs] == [digests_of(spec, options)] * len(jobs)
    assert {hash_of(*job) for job in jobs} == {hash_of(spec, options)}


def test_replicas_and_rerun_are_in_the_hash() -> None:
    jobs = [volcano(num_replicas=count) for count in (1, 2, 3, 4)]
    hashes = {hash_of(*job) for job in jobs} | {hash_of(*jobs[0], rerun=text) for text in ("", "1", "2")}
    assert len(hashes) == 7


def test_digests_do_not_vary_by_process() -> None:
    text = (
        "from torchx_pulumi.runs.identity import digest;"
        "print(digest({'kinds': {'a', 'b', 'c', 'd'}, 'more': frozenset({'x', 'y'})}))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", text], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(found) == 1


def test_no_value_is_in_a_hash_and_a_hash_is_short() -> None:
    assert len(hash_of(*volcano(env={"TOKEN": "hunter2"}))) == 16


def test_the_hash_of_a_job_is_fixed_for_a_release() -> None:
    # A change of this value changes the names of new runs; recorded runs keep theirs.
    assert hash_of(*volcano(env={"LR": "0.1"}, num_replicas=2)) == "737e4ea81e64e72e"
