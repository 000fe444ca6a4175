"""The jobs whose identity, names and stored forms are recorded, as plain data: chosen by hand, and generated.

They are fixed with their recordings. Nothing here imports the package, so that every release can read it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

PLAIN: dict[str, Any] = {"name": "trainer", "image": "img:1", "entrypoint": "main", "args": ["--lr", "1e-4"]}

LONG = "extremely-long-name-of-a-training-job-that-nobody-would-type-twice"

CAPABILITIES = {"node.kubernetes.io/instance-type": "p4d.24xlarge"}

OVERLAY = {
    "metadata": {"annotations": {"team": "x"}},
    "spec": {
        "terminationGracePeriodSeconds": 5,
        "hostNetwork": True,
        "__join__:containers:name": [{"name": "trainer-0", "tty": True}],
        "__del__:nodeSelector": None,
    },
}

MOUNTS: dict[str, Any] = {
    "bind": {"kind": "bind", "src": "/data", "dst": "/data"},
    "bind-ro": {"kind": "bind", "src": "/data", "dst": "/data", "read_only": True},
    "volume": {"kind": "volume", "src": "claim", "dst": "/claim"},
    "volume-ro": {"kind": "volume", "src": "claim", "dst": "/claim", "read_only": True},
    "device": {"kind": "device", "src": "/dev/fuse", "dst": "/dev/fuse"},
    "device-r": {"kind": "device", "src": "/dev/fuse", "dst": "/dev/fuse", "permissions": "r"},
    "secret": {"kind": "secret", "src": "tokens", "dst": "/tokens"},
}

RUNNER_ENV = {
    "TORCHX_JOB_ID": "volcano://s/a",
    "TORCHX_INTERNAL_SESSION_ID": "x",
    "TORCHX_TRACKERS": "mlflow",
    "TORCHX_TRACKER_MLFLOW_CONFIG": "c",
    "TORCHX_HOME": "kept",
}

ROLES: dict[str, dict[str, Any]] = {
    "plain": {},
    "no-args": {"args": []},
    "macros": {"args": ["$${${rank0_env}:=localhost}:29500", "${app_id}", "${replica_id}", "${img_root}", "$$HOME"]},
    "args-of-numbers": {"args": ["1", "1.0", "true", ""]},
    "unicode": {"args": ["--title", "gr\u00fc\u00dfe \u65e5\u672c"], "env": {"NAME": "\u00e9\u00e8"}},
    "line-ends": {"args": ["a\nb\tc\r\n", '"quoted" \\ back']},
    "env": {"env": {"LR": "0.1", "SEED": "7"}},
    "env-order": {"env": {"SEED": "7", "LR": "0.1"}},
    "env-runner": {"env": {"LR": "0.1", **RUNNER_ENV}},
    "env-field-path": {"env": {"POD_IP": "[FIELD_PATH]status.podIP"}},
    "env-macros": {"env": {"REPLICA": "${replica_id}", "WORTH": "pa$$word"}},
    "secret-env": {"secret_env": {"TOKEN": {"name": "tokens", "key": "hub"}}},
    "secret-env-optional": {"secret_env": {"TOKEN": {"name": "tokens", "key": "hub", "optional": True}}},
    "env-and-secret-env": {
        "env": {"A": "b"},
        "secret_env": {"TOKEN": {"name": "tokens", "key": "hub"}, "B": {"name": "b", "key": "c"}},
    },
    "replicas": {"num_replicas": 3},
    "many-replicas": {"num_replicas": 12},
    "retries": {"max_retries": 3},
    "retries-replica": {"max_retries": 3, "retry_policy": "REPLICA"},
    "policy-alone": {"retry_policy": "REPLICA"},
    "cpu": {"resource": {"cpu": 1}},
    "cpu-fraction": {"resource": {"cpu": 1.5}},
    "cpu-float": {"resource": {"cpu": 2.0}},
    "cpu-tiny": {"resource": {"cpu": 0.0004}},
    "gpu": {"resource": {"gpu": 8}},
    "memory": {"resource": {"memory_mb": 1500}},
    "memory-zero": {"resource": {"cpu": 0, "gpu": 0, "memory_mb": 0}},
    "negative": {"resource": {"cpu": -1, "gpu": -1, "memory_mb": -1}},
    "devices": {"resource": {"gpu": 1, "devices": {"vpc.amazonaws.com/efa": 4, "example.com/nic": 1}}},
    "capabilities": {"resource": {"capabilities": CAPABILITIES}},
    "capabilities-more": {
        "resource": {"capabilities": {**CAPABILITIES, "speed": 3.0, "kinds": ["a", "b"], "ok": True}}
    },
    "everything-needed": {
        "resource": {"cpu": 4, "gpu": 2, "memory_mb": 32000, "devices": {"vpc.amazonaws.com/efa": 1}},
    },
    "ports": {"port_map": {"c10d": 29500, "http": 8080}},
    "ports-order": {"port_map": {"http": 8080, "c10d": 29500}},
    "node-selector": {"node_selector": {"zone": "a", "disk": "ssd"}},
    "tolerations": {"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]},
    "tolerations-seconds": {
        "tolerations": [{"key": "a", "operator": "Equal", "value": "b", "effect": "NoExecute", "tolerationSeconds": 30}]
    },
    **{f"mount-{name}": {"mounts": [mount]} for name, mount in MOUNTS.items()},
    "mounts": {"mounts": list(MOUNTS.values())[1::2]},
    "overlay": {"pod_overlay": OVERLAY},
    "overlay-put": {"pod_overlay": {"spec": {"__put__:volumes": [{"name": "dshm", "emptyDir": {}}]}}},
    "metadata": {"metadata": {"owner": "somebody", "cost": 3}},
    "role-name-upper": {"name": "My_Trainer.v2"},
    "role-name-unicode": {"name": "\u6a21\u578b"},
    "role-name-long": {"name": "r" * 60},
    "all": {
        "args": ["-m", "train", "${app_id}"],
        "env": {"LR": "0.1", "HOST": "[FIELD_PATH]status.hostIP"},
        "secret_env": {"TOKEN": {"name": "tokens", "key": "hub"}},
        "num_replicas": 2,
        "max_retries": 1,
        "resource": {"cpu": 2.5, "gpu": 1, "memory_mb": 8000, "capabilities": CAPABILITIES},
        "port_map": {"c10d": 29500},
        "mounts": [MOUNTS["volume"], MOUNTS["secret"]],
        "node_selector": {"zone": "a"},
        "tolerations": [{"operator": "Exists"}],
        "pod_overlay": {"spec": {"priority": 3}},
        "metadata": {"a": "b"},
    },
}
"""Roles by name, as the components take them: what each has beside `PLAIN`."""

SEVERAL: dict[str, list[dict[str, Any]]] = {
    "two-roles": [{"num_replicas": 2}, {"name": "reader", "image": "img:2"}],
    "two-roles-turned": [{"name": "reader", "image": "img:2"}, {"num_replicas": 2}],
    "names-that-collide": [{"name": "a_b", "args": ["${rank0_env}"]}, {"name": "ab", "args": ["${rank0_env}"]}],
    "three-roles": [{"name": "head"}, {"num_replicas": 3, "resource": {"gpu": 1}}, {"name": "eval", "env": {"A": "b"}}],
    "retries-mixed": [{"name": "a", "max_retries": 5}, {"name": "b", "max_retries": 2}, {"name": "c"}],
}
"""Roles of jobs with more than one."""

VOLCANO_OPTIONS: dict[str, dict[str, Any]] = {
    "namespace": {"namespace": "team-a"},
    "namespace-default": {"namespace": "default"},
    "queue": {"queue": "gpu.large"},
    "service-account": {"service_account": "runner"},
    "priority-class": {"priority_class": "high"},
    "labels": {"labels": {"team": "x", "example.com/cost": "7"}},
    "annotations": {"annotations": {"ticket": "1", "note": "gr\u00fc\u00dfe"}},
    "ttl": {"ttl_seconds_after_finished": 600},
    "ttl-zero": {"ttl_seconds_after_finished": 0},
    "scheduler-name": {"scheduler_name": "volcano-gpu"},
    "scheduler-name-default": {"scheduler_name": "volcano"},
    "reserved": {"reserved_millicpu": 200, "reserved_memmb": 500},
    "reserved-default": {"reserved_millicpu": 100, "reserved_memmb": 1024},
    "efa-removed": {"efa_device_count": 0},
    "efa": {"efa_device_count": 4},
    "topology": {"network_topology": {"mode": "hard", "highest_tier_allowed": 2}},
    "topology-soft": {"network_topology": {"mode": "soft"}},
    "image-secrets": {"image_secrets": ["pull", "other"]},
    "all": {
        "namespace": "team-a",
        "queue": "gpu",
        "service_account": "runner",
        "priority_class": "high",
        "ttl_seconds_after_finished": 600,
        "network_topology": {"mode": "hard", "highest_tier_allowed": 2},
        "labels": {"team": "x"},
        "annotations": {"ticket": "1"},
        "image_secrets": ["pull"],
    },
}

VOLCANO_JOB_OPTIONS: dict[str, dict[str, Any]] = {
    "plugins": {"plugins": {"svc": [], "env": [], "ssh": []}},
    "plugins-args": {"plugins": {"svc": ["--publish-not-ready-addresses"], "env": []}},
    "plugins-empty": {"plugins": {}},
    "gang-said": {"gang": "job"},
}

MCAD_OPTIONS: dict[str, dict[str, Any]] = {
    "namespace": {"namespace": "team-a"},
    "service-account": {"service_account": "runner"},
    "priority-class": {"priority_class": "high"},
    "image-secret": {"image_secret": "pull"},
    "coscheduler": {"coscheduler_name": "coscheduler"},
    "coscheduler-sigs": {
        "coscheduler_name": "coscheduler",
        "pod_group_api": "scheduling.sigs.k8s.io/v1alpha1",
    },
    "coscheduler-x-k8s": {"coscheduler_name": "coscheduler", "pod_group_api": "scheduling.x-k8s.io/v1alpha1"},
    "network": {"network": "fast-net"},
    "labels": {"labels": {"team": "x"}},
    "annotations": {"annotations": {"ticket": "1"}},
    "reserved": {"reserved_millicpu": 200, "reserved_memmb": 500},
    "efa": {"efa_device_count": 2},
}

MCAD_V1BETA1_OPTIONS: dict[str, dict[str, Any]] = {
    "version-said": {"api_version": "v1beta1"},
    "priority": {"priority": 5},
    "priority-zero": {"priority": 0},
    "requeuing": {"requeuing_time_s": 60, "requeuing_max_time_s": 600, "requeuing_growth": "linear"},
    "requeuing-time": {"requeuing_time_s": 300},
}

MCAD_V1BETA2_OPTIONS: dict[str, dict[str, Any]] = {
    "local-queue": {"local_queue": "team-a"},
    "suspend": {"suspend": True},
    "suspend-false": {"suspend": False},
    "grace": {"annotations": {"workload.codeflare.dev.appwrapper/warmupGracePeriodDuration": "1h"}},
}

GENERATED = 15
"""Programs, and apps, that are generated for each form."""

IMAGES = ("img:1", "registry.example.com/team/img:1", "img:1@sha256:" + "a" * 64, "img@sha256:" + "b" * 64)
"""Images of generated programs. A digest after a tag is no part of the identity."""

NAMES = (
    "train",
    "Team/My App",
    "1-train",
    "-",
    "\u8bad\u7ec3",
    "UPPER_case.dots",
    LONG,
    "n" * 63,
)
"""Names of components and apps, those among them that need a hash."""

FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "volcano-job": ("volcano", {"queue": "default"}),
    "volcano-pods": ("volcano", {"queue": "default", "gang": "pods"}),
    "mcad-v1beta1": ("mcad", {}),
    "mcad-v1beta2": ("mcad", {"api_version": "v1beta2"}),
}
"""Forms by name: scheduler and the options that choose it."""


@dataclass(frozen=True, kw_only=True)
class ProgramJob:
    """A component of a Pulumi program, and what later runs of the program ask for."""

    id: str
    scheduler: str
    name: str
    """Name of the component."""
    ups: tuple[Mapping[str, Any], ...]
    """Arguments of the first `up`, then of the others."""
    organization: str | None = None
    project: str = "proj"
    stack: str = "dev"
    parent: tuple[str, str] | None = None
    """Type and name of the component's parent."""


@dataclass(frozen=True, kw_only=True)
class TorchxJob:
    """An app of `torchx run`."""

    id: str
    scheduler: str
    app: Mapping[str, Any]
    """Fields of the AppDef; roles as `roles` of `torchx.specs`, by field."""
    config: Mapping[str, Any]
    app_id: str
    """Name of the job object, which is random in earnest."""
    session: str = "torchx"
    user: str = "somebody"
    digests: Mapping[str, str] = field(default_factory=dict)
    """Image to digest."""
    ambient: tuple[str, str] | None = None
    """Kubeconfig and context in force."""


def program_jobs() -> Iterator[ProgramJob]:
    """Yield the jobs of Pulumi programs."""
    for form, (scheduler, base) in FORMS.items():
        for name, role in ROLES.items():
            if form == "volcano-pods" and role.get("max_retries"):
                continue
            yield _program(f"{form}/role-{name}", scheduler, {**base, "roles": [{**PLAIN, **role}]})
        for name, roles in SEVERAL.items():
            if form == "volcano-pods" and name == "retries-mixed":
                continue
            yield _program(f"{form}/{name}", scheduler, {**base, "roles": [{**PLAIN, **role} for role in roles]})
        for name, options in _options_of(form).items():
            yield _program(f"{form}/option-{name}", scheduler, {"roles": [PLAIN], **base, **options})
        for index, name in enumerate(NAMES):
            yield _program(f"{form}/name-{index}", scheduler, {"roles": [PLAIN], **base}, name=name)
        yield from _others(form, scheduler, base)
        for index in range(GENERATED):
            yield _generated_program(form, scheduler, base, index)


def _options_of(form: str) -> dict[str, dict[str, Any]]:
    return {
        "volcano-job": {**VOLCANO_OPTIONS, **VOLCANO_JOB_OPTIONS},
        "volcano-pods": {
            name: options for name, options in VOLCANO_OPTIONS.items() if "ttl_seconds_after_finished" not in options
        },
        "mcad-v1beta1": {**MCAD_OPTIONS, **MCAD_V1BETA1_OPTIONS},
        "mcad-v1beta2": {**MCAD_OPTIONS, **MCAD_V1BETA2_OPTIONS},
    }[form]


def _chosen(key: str, among: Sequence[Any]) -> Any:
    """Return one of several values: always the same one for a key."""
    return among[int.from_bytes(sha256(key.encode()).digest()[:8], "big") % len(among)]


def _generated_options(key: str, form: str) -> dict[str, Any]:
    """Return up to three of the options of a form together."""
    known = list(_options_of(form).items())
    found: dict[str, Any] = {}
    for number in range(_chosen(f"{key}/options", (0, 1, 2, 3))):
        found |= _chosen(f"{key}/option-{number}", known)[1]
    return found


def _generated_roles(key: str, form: str) -> list[dict[str, Any]]:
    """Return up to three roles, each with up to four of `ROLES` together."""
    known = [
        role
        for name, role in ROLES.items()
        if not name.startswith("role-name") and not (form == "volcano-pods" and role.get("max_retries"))
    ]
    roles = []
    for number in range(_chosen(f"{key}/roles", (1, 1, 2, 3))):
        role: dict[str, Any] = {**PLAIN, "name": ("trainer", "reader", "eval")[number]}
        for part in range(_chosen(f"{key}/{number}", (1, 2, 3, 4))):
            role |= _chosen(f"{key}/{number}/{part}", known)
        roles.append({**role, "num_replicas": _chosen(f"{key}/{number}/replicas", (1, 2, 5))})
    return roles


def _generated_program(form: str, scheduler: str, base: Mapping[str, Any], index: int) -> ProgramJob:
    key = f"{form}/generated-{index}"
    args = {**base, **_generated_options(key, form), "roles": _generated_roles(key, form)}
    if scheduler == "volcano":
        args["layout"] = _chosen(f"{key}/layout", ("replica", "role", "auto"))
    for role in args["roles"]:
        role["image"] = _chosen(f"{key}/{role['name']}/image", IMAGES)
    more = {"rerun": "2"} if _chosen(f"{key}/rerun", (True, False, False)) else {}
    return _program(key, scheduler, {**args, **more}, name=_chosen(f"{key}/name", NAMES))


def _generated_app(form: str, scheduler: str, base: Mapping[str, Any], index: int) -> TorchxJob:
    key = f"{form}/generated-{index}"
    given = [_role(role) for role in _generated_roles(f"app/{key}", form)]
    roles = [role for role in given if role is not None] or [_role({})]
    config = {**base, **_generated_options(f"app/{key}", form)}
    if scheduler == "volcano":
        config["layout"] = _chosen(f"app/{key}/layout", ("replica", "role", "auto"))
    if config.get("plugins") == {}:  # the program that goes on with it loses the option
        del config["plugins"]
    return _torchx(key, scheduler, _torchx_config(scheduler, config), roles, name=_chosen(f"app/{key}/name", NAMES))


def _torchx_config(scheduler: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return options by their names in `torchx run`."""
    names = {"priority_class": "priority_class_name"} if scheduler == "mcad" else {}
    return {names.get(name, name): value for name, value in config.items()}


def _others(form: str, scheduler: str, base: Mapping[str, Any]) -> Iterator[ProgramJob]:
    """Yield what is not of one field: reruns, fixed names, other stacks and parents, and later changes in place."""
    plain = {**base, "roles": [PLAIN]}
    yield _program(f"{form}/rerun", scheduler, {**plain, "rerun": "2"})
    yield _program(f"{form}/rerun-unicode", scheduler, {**plain, "rerun": "zweiter Versuch \u2116"})
    yield _program(f"{form}/job-name", scheduler, {**plain, "job_name": "chosen-name"})
    yield _program(f"{form}/settings", scheduler, {**plain, "on_running_change": "ignore", "delete_timeout_s": 30})
    yield _program(f"{form}/other-stack", scheduler, plain, stack="prod", project="ml", organization="acme")
    yield _program(f"{form}/parent", scheduler, plain, parent=("acme:index:Team", "team"))
    yield _program(f"{form}/labels-later", scheduler, plain, {**plain, "labels": {"team": "y"}})
    if scheduler == "volcano":
        four = {**base, "roles": [{**PLAIN, "num_replicas": 4, "min_replicas": 2}]}
        less = {**base, "roles": [{**PLAIN, "num_replicas": 2, "min_replicas": 1}]}
        yield _program(f"{form}/elastic", scheduler, four)
        yield _program(f"{form}/shrunk", scheduler, four, less)
        yield _program(f"{form}/shrunk-and-back", scheduler, four, less, four)
        yield _program(f"{form}/priority-later", scheduler, plain, {**plain, "priority_class": "high"})


def _program(id: str, scheduler: str, *ups: Mapping[str, Any], name: str = "train", **more: Any) -> ProgramJob:
    return ProgramJob(id=id, scheduler=scheduler, name=name, ups=(ups[0], *ups), **more)


def torchx_jobs() -> Iterator[TorchxJob]:
    """Yield the apps of `torchx run`."""
    for form, (scheduler, base) in FORMS.items():
        for name, role in ROLES.items():
            given = _role(role)
            if form in ("volcano-job", "mcad-v1beta1") and given is not None:
                yield _torchx(f"{form}/role-{name}", scheduler, base, [given])
        for name in ("two-roles", "names-that-collide", "three-roles"):
            roles = [given for role in SEVERAL[name] if (given := _role(role)) is not None]
            yield _torchx(f"{form}/{name}", scheduler, base, roles)
        for name, options in _options_of(form).items():
            if name == "plugins-empty":  # the program that goes on with it loses the option
                continue
            config = _torchx_config(scheduler, {**base, **options})
            yield _torchx(f"{form}/option-{name}", scheduler, config, [_role({})])
        for index, name in enumerate(NAMES):
            yield _torchx(f"{form}/name-{index}", scheduler, base, [_role({})], name=name)
        yield from _launches(form, scheduler, base)
        for index in range(GENERATED):
            yield _generated_app(form, scheduler, base, index)


def _launches(form: str, scheduler: str, base: Mapping[str, Any]) -> Iterator[TorchxJob]:
    """Yield apps whose options of the launch differ."""
    plain = [_role({})]
    for name, options in {
        "backend": {"pulumi_backend": "s3://bucket/states?region=us-east-1"},
        "own-backend": {"pulumi_backend": None},
        "project": {"pulumi_project": "research"},
        "secrets-provider": {"secrets_provider": "awskms://alias/pulumi"},
        "kubeconfig": {"kubeconfig": "/etc/kube/config"},
        "context": {"kube_context": "gpu-cluster"},
        "both": {"kubeconfig": "/etc/kube/config", "kube_context": "gpu-cluster"},
        "ui-url": {"ui_url": "https://ui.example.com/{namespace}/{name}?s={scheduler}"},
        "log-options": {"log_containers": ["side"], "log_timestamps": False},
    }.items():
        yield _torchx(f"{form}/launch-{name}", scheduler, {**base, **options}, plain)
    yield _torchx(f"{form}/launch-session", scheduler, base, plain, session="my session/1", user="m\u00fcller")
    yield _torchx(f"{form}/launch-ambient", scheduler, base, plain, ambient=("/etc/kube/config", "gpu-cluster"))
    digests = {"img:1": "sha256:" + "a" * 64}
    yield _torchx(f"{form}/launch-digests", scheduler, base, plain, digests=digests)
    yield _torchx(f"{form}/launch-long-id", scheduler, base, plain, app_id="j" * 40)


def _torchx(
    id: str, scheduler: str, config: Mapping[str, Any], roles: list[Any], name: str = "train", **more: Any
) -> TorchxJob:
    app = {"name": name, "roles": roles, "metadata": {"purpose": "test"}}
    backend = {"pulumi_backend": "file:///var/lib/states"}
    return TorchxJob(
        id=id, scheduler=scheduler, app=app, config={**backend, **config}, **{"app_id": "train-k3x9", **more}
    )


def _role(role: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a role as the AppDef has it: what it has no field for is in its metadata. None: it cannot say it."""
    given = {**PLAIN, **role}
    given.pop("pod_overlay", None)
    metadata = dict(given.pop("metadata", {}))
    extras = {name: given.pop(name) for name in ("secret_env", "node_selector", "tolerations") if name in given}
    mounts = given.pop("mounts", [])
    secrets = [{"src": item["src"], "dst": item["dst"]} for item in mounts if item["kind"] == "secret"]
    if secrets:
        extras["secret_mounts"] = secrets
    if extras:
        metadata["torchx_pulumi"] = extras
    if role.get("pod_overlay") is not None:
        if any(key.startswith("__") for key in role["pod_overlay"]["spec"]):
            return None
        metadata["kubernetes"] = {"V1Pod": role["pod_overlay"]}
    return {**given, "metadata": metadata, "mounts": [item for item in mounts if item["kind"] != "secret"]}
