"""AppDefs of many shapes, made with whichever TorchX is installed. One entry per feature or trap."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torchx.components import dist, utils
from torchx.specs import (
    NULL_RESOURCE,
    AppDef,
    BindMount,
    DeviceMount,
    Resource,
    RetryPolicy,
    Role,
    VolumeMount,
    macros,
)


@dataclass(frozen=True)
class Case:
    """An AppDef and the options to launch it with."""

    app: Callable[[], AppDef]
    options: Mapping[str, Any] = field(default_factory=dict)
    """Ours; those that TorchX has are handed to it too."""
    typed: bool = True
    """Whether all values have Kubernetes' types. The models of kubernetes 37, with which TorchX merges overlays, refuse
    others."""


def role(**changes: Any) -> Role:
    given: dict[str, Any] = {"name": "trainer", "image": "img:1", "entrypoint": "main", "args": ["--a", "b"], **changes}
    return Role(**given)


def one(**changes: Any) -> Callable[[], AppDef]:
    return lambda: AppDef("app", [role(**changes)])


def several(*roles: Mapping[str, Any]) -> Callable[[], AppDef]:
    return lambda: AppDef("app", [role(**changes) for changes in roles])


def named(name: str) -> Callable[[], AppDef]:
    return lambda: AppDef(name, [role()])


def resource(**changes: Any) -> Resource:
    return Resource(**{"cpu": 2, "gpu": 0, "memMB": 3000, **changes})


def ddp(*script_args: str, **arguments: Any) -> AppDef:
    """TorchX's own component, which nightly calls torchrun."""
    return getattr(dist, "torchrun", dist.ddp)(*script_args, **arguments)


MACROS = [
    macros.img_root,
    macros.app_id,
    macros.replica_id,
    macros.rank0_env,
    "$${" + macros.rank0_env + ":=localhost}:29500",
    "${unknown} $$HOME $ $1 ${",
]

POD_OVERLAY = {
    "spec": {
        "nodeSelector": {"zone": "a"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "terminationGracePeriodSeconds": 5,
        "volumes": [{"name": "extra", "emptyDir": {}}],
        "priorityClassName": None,
    },
    "metadata": {"labels": {"team": "x", "torchx.pytorch.org/app-name": "overridden"}, "annotations": {"a": "b"}},
    "status": {"phase": "Running"},
}

CASES: dict[str, Case] = {
    "plain": Case(one()),
    "several replicas": Case(one(num_replicas=4)),
    # With a macro of its own, each replica keeps a task of its own.
    "twelve replicas": Case(one(num_replicas=12, args=[macros.replica_id])),
    "several roles": Case(several({"name": "a", "num_replicas": 2}, {"name": "b"}, {"name": "c", "image": "img:2"})),
    "hyphenated role": Case(one(name="my-train", num_replicas=2, args=MACROS)),
    "role with capitals, dots and underscores": Case(one(name="My_Train.v2", num_replicas=2, args=MACROS)),
    "role that ends in a dash": Case(one(name="train-", num_replicas=2, args=MACROS)),
    "role that starts with dashes": Case(one(name="_--train", num_replicas=2, args=MACROS)),
    "role that starts with a digit": Case(one(name="3d-net", num_replicas=2, args=MACROS)),
    "roles that TorchX calls the same": Case(several({"name": "a_b"}, {"name": "ab", "args": MACROS})),
    "role without a usable letter": Case(one(name="___", num_replicas=2, args=MACROS)),
    "role with a very long name": Case(one(name="r" * 45, num_replicas=2, args=MACROS), {"app_id": "a"}),
    "macros in arguments": Case(one(args=MACROS, num_replicas=2)),
    "macros in environment": Case(one(env={f"M{i}": text for i, text in enumerate(MACROS)}, num_replicas=2)),
    "macros in metadata": Case(one(metadata={"a": {"b": ["${app_id}", "${replica_id}"]}})),
    "deprecated macro": Case(one(args=["${base_img_root}"])),
    "field path": Case(one(env={"IP": "[FIELD_PATH]status.podIP", "NOT": "x[FIELD_PATH]y"})),
    "environment that TorchX sets": Case(one(env={"TORCHX_RANK0_HOST": "mine", "TORCHX_IMAGE": "mine", "Z": ""})),
    "odd environment": Case(one(env={"A.B-C_d": 'quotes " and \n lines', "U": "ünïcode"})),
    "empty arguments": Case(one(args=[])),
    "no resource": Case(one(resource=NULL_RESOURCE)),
    "zero resource": Case(one(resource=resource(cpu=0, memMB=0))),
    "whole resource": Case(one(resource=resource(cpu=8, gpu=4, memMB=16000))),
    "fractional cpu": Case(one(resource=resource(cpu=0.5, memMB=1500))),
    "cpu of one and a half": Case(one(resource=resource(cpu=1.5, memMB=1500))),
    "cpu that does not divide": Case(one(resource=resource(cpu=0.29 + 1.001, memMB=1000.7))),
    "less than the reserved share": Case(one(resource=resource(cpu=0.05, memMB=512))),
    "devices": Case(one(resource=resource(devices={"vpc.amazonaws.com/efa": 4, "x.io/y": 1}))),
    "gpu and efa": Case(one(resource=resource(gpu=8, devices={"vpc.amazonaws.com/efa": 4}))),
    "instance type": Case(one(resource=resource(capabilities={"node.kubernetes.io/instance-type": "p4d.24xlarge"}))),
    "other capabilities": Case(one(resource=resource(capabilities={"network": "fast"}))),
    "application retries": Case(one(max_retries=3, num_replicas=2)),
    "replica retries": Case(one(max_retries=3, retry_policy=RetryPolicy.REPLICA, num_replicas=2)),
    "one retry": Case(one(max_retries=1)),
    "mixed retries": Case(several({"name": "a", "max_retries": 5}, {"name": "b", "max_retries": 2}, {"name": "c"})),
    "equal retries": Case(several({"name": "a", "max_retries": 2}, {"name": "b", "max_retries": 2})),
    "elastic": Case(one(num_replicas=4, min_replicas=2)),
    "elastic in one role": Case(several({"name": "a", "num_replicas": 3, "min_replicas": 1}, {"name": "b"})),
    "elastic with all": Case(one(num_replicas=2, min_replicas=2)),
    "bind mounts": Case(one(mounts=[BindMount("/a", "/b"), BindMount("/c", "/d", read_only=True)])),
    "volume mounts": Case(one(mounts=[VolumeMount("a", "/b"), VolumeMount("c", "/d", read_only=True)])),
    "device mount": Case(one(mounts=[DeviceMount("/dev/a", "/dev/b")])),
    "device mounts of every kind": Case(
        one(mounts=[DeviceMount(f"/dev/{p}", f"/dev/{p}", permissions=p) for p in ("r", "w", "m", "rw", "rm", "rwm")])
    ),
    "mixed mounts": Case(one(mounts=[VolumeMount("v", "/v"), DeviceMount("/dev/a", "/x"), BindMount("/h", "/h")])),
    "ports": Case(one(port_map={"c10d": 29500, "http": 8080})),
    "app name with capitals": Case(named("My.App_1")),
    "app name with a slash": Case(named("team/app")),
    "app name with spaces": Case(named(" my app ")),
    "app name too long for a label": Case(named("n" * 70)),
    "app name of signs": Case(named("-_-")),
    "app name that ends in a dash": Case(named("app-")),
    "role name with a slash": Case(one(name="a/b")),
    "service account": Case(one(), {"service_account": "runner"}),
    "priority class": Case(one(), {"priority_class": "high"}),
    "another namespace": Case(one(), {"namespace": "team-a"}),
    "reserved share": Case(one(resource=resource()), {"reserved_millicpu": 250, "reserved_memmb": 0}),
    "efa count": Case(one(resource=resource(devices={"vpc.amazonaws.com/efa": 1})), {"efa_device_count": 4}),
    "efa added": Case(one(resource=resource()), {"efa_device_count": 2}),
    "efa removed": Case(one(resource=resource(devices={"vpc.amazonaws.com/efa": 1})), {"efa_device_count": 0}),
    "overlay": Case(one(metadata={"kubernetes": {"V1Pod": POD_OVERLAY}}, num_replicas=2)),
    "flat overlay": Case(one(metadata={"kubernetes": POD_OVERLAY})),
    "overlay of another kind": Case(one(metadata={"kubernetes": {"__torchx_overlays__": True, "V2Pod": POD_OVERLAY}})),
    "overlay of another scheduler": Case(one(metadata={"mast": {"V1Pod": POD_OVERLAY}})),
    "overlay with several kinds": Case(one(metadata={"kubernetes": {"A": {}, "B": {}}})),
    "overlay with macros": Case(
        one(metadata={"kubernetes": {"V1Pod": {"metadata": {"annotations": {"id": "${app_id}"}}}}})
    ),
    "overlay with PUT": Case(
        one(metadata={"kubernetes": {"V1Pod": {"spec": {"__put__:volumes": [{"name": "dshm", "emptyDir": {}}]}}}})
    ),
    "overlay with a tuple": Case(
        one(metadata={"kubernetes": {"V1Pod": {"spec": {"volumes": ({"name": "dshm", "emptyDir": {}},)}}}})
    ),
    "overlay with JOIN": Case(
        one(
            metadata={
                "kubernetes": {
                    "V1Pod": {
                        "spec": {
                            "__join__:containers:name": [
                                {"name": "trainer-0", "tty": True},
                                {"name": "sidecar", "image": "proxy"},
                            ]
                        }
                    }
                }
            }
        )
    ),
    "overlay with DEL": Case(
        one(metadata={"kubernetes": {"V1Pod": {"spec": {"__del__:nodeSelector": None}, "__del__:none": 1}}})
    ),
    "overlay with numbers for texts": Case(
        one(metadata={"kubernetes": {"V1Pod": {"spec": {"nodeSelector": {"n": 1}}, "metadata": {"labels": {"l": 2}}}}}),
        typed=False,
    ),
    "overlay with the host's network": Case(one(metadata={"kubernetes": {"V1Pod": {"spec": {"hostNetwork": True}}}})),
    "overlay with a field TorchX drops": Case(
        one(metadata={"kubernetes": {"V1Pod": {"spec": {"fieldOfTomorrow": {"a": 1}}}}})
    ),
    "dist.ddp": Case(lambda: ddp("--lr", "1e-4", script="train.py", image="img:1", j="2x2", cpu=1, memMB=1000)),
    "dist.ddp, elastic": Case(lambda: ddp(script="train.py", image="img:1", j="1:3x1", max_retries=2)),
    "dist.ddp, hyphenated": Case(lambda: ddp(script="my-train.py", image="img:1", j="2x1")),
    "dist.ddp, module": Case(lambda: ddp(m="a.b_c", image="img:1", j="2x1", name="exp/run")),
    "dist.ddp, mounts": Case(
        lambda: ddp(script="t.py", image="i", mounts=["type=volume", "src=a", "dst=/b", "readonly"])
    ),
    "utils.echo": Case(lambda: utils.echo(msg="hello", image="alpine:latest", num_replicas=2)),
    "utils.sh": Case(lambda: utils.sh("sleep", "1", image="alpine:latest", env={"A": "b"}, max_retries=1)),
}
