"""The app and run options that an observed Volcano Job of TorchX's own scheduler `kubernetes` came from. Pure.

Arguments and environment have their macros again where replicas differ by them.
"""

from __future__ import annotations

import copy
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any, Final

from torchx_pulumi.model import labels
from torchx_pulumi.model.errors import Problem, invalid_job
from torchx_pulumi.model.job_spec import ResourceSpec
from torchx_pulumi.model.object_fields import mapping_at, number_at, text_at
from torchx_pulumi.model.options import Observed, rows_of
from torchx_pulumi.planning.macros import FIELD_PATH, IMAGE_ENV, RANK0_HOST_ENV, substitute
from torchx_pulumi.planning.names import is_device_name
from torchx_pulumi.planning.quantities import limits, requests
from torchx_pulumi.schedulers.diagnosis.nodes import amount
from torchx_pulumi.schedulers.pods.template import SHM, SHM_PATH
from torchx_pulumi.schedulers.volcano.job import RETRY_POLICIES
from torchx_pulumi.schedulers.volcano.options import DEFAULT_PLUGINS, VolcanoOptions

OWN_LABELS: Final = (
    *(labels.VERSION, labels.APP_NAME, labels.ROLE_INDEX, labels.ROLE_NAME, labels.REPLICA_ID),
    *(labels.KUBE_APP_NAME, labels.ORGANIZATION, labels.UNIQUE_NAME),
)
"""Labels that TorchX gives to a pod."""

OPTIONS: Final = {
    "queue": "queue",
    "priority_class": "priorityClassName",
    "ttl_seconds_after_finished": "ttlSecondsAfterFinished",
    "scheduler_name": "schedulerName",
    "plugins": "plugins",
}
"""Run option to the field of a job's spec that it is rendered to."""

MOUNT_FIELDS: Final = frozenset({"name", "mountPath", "readOnly"})
"""Fields of a mount that an app can say."""

NOT_SAID: Final = "is a field that an app cannot describe"
LIMIT: Final = "is not a whole number of millicores, MB (10^6 bytes) or devices"
REQUEST: Final = "is not the limit less the amount reserved for the node, which is the same in all tasks"
NO_IMAGE: Final = "is missing, and a role has an image; only jobs that TorchX started are taken over"

Fields = MutableMapping[str, Any]
"""Fields of an object, which are taken out as they are read: what is left cannot be described."""


def describe_job(job: Observed) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a job as the mapping of an AppDef file, and its run options.

    Raises:
        InvalidJobError: TorchX's scheduler did not create it, or has fields that an app cannot describe; all of them.
    """
    job_name, spec = text_at(job, "metadata", "name") or "", copy.deepcopy(dict(mapping_at(job, "spec")))
    problems: list[Problem] = []
    options: dict[str, Any] = {option: spec.pop(field, None) for option, field in OPTIONS.items()}
    # A list without arguments may be stored as null.
    options["plugins"] = {name: list(words or ()) for name, words in (options["plugins"] or {}).items()}
    roles: list[list[Fields]] = []
    for place, task in enumerate(spec.pop("tasks", None) or ()):
        path, own = f"spec.tasks[{place}]", mapping_at(task, "template", "metadata", "labels")
        if own.get(labels.ORGANIZATION) != labels.ORGANIZATION_VALUE or task.pop("replicas", None) != 1:
            text = "is not one replica of TorchX's scheduler `kubernetes`; only jobs that it started are taken over"
            raise invalid_job(job_name, [Problem(path, text)])
        if number_at(own, labels.REPLICA_ID) == 0 or not roles:
            roles.append([])
        roles[-1].append(_read_replica(task, path, options, problems))
    if not roles:
        raise invalid_job(job_name, [Problem("spec.tasks", "has no task")])
    # They are the sums of the tasks'.
    problems += _left("spec", {name: value for name, value in spec.items() if name not in ("minAvailable", "maxRetry")})
    usual = {row.name: row.default for row in rows_of(VolcanoOptions)}
    usual["plugins"] = {name: list(words) for name, words in DEFAULT_PLUGINS.items()}
    replicas_of_all = [replica for replicas in roles for replica in replicas]
    for option, name, unit in (("reserved_millicpu", "cpu", 1e-3), ("reserved_memmb", "memory", 1e6)):
        options[option] = _reserved(replicas_of_all, name, unit, usual[option])
    for replica in replicas_of_all:
        problems += _check_amounts(replica, options)
    options = {name: value for name, value in options.items() if value is not None and value != usual.get(name)}
    options["namespace"] = text_at(job, "metadata", "namespace")
    rank0 = f"VC_{roles[0][0]['task'].removesuffix('-0').upper()}_0_HOSTS"
    # In the first replica of the first role, TorchX names rank 0 by another variable.
    hosts = [[rank0] * len(replicas) for replicas in roles]
    hosts[0][0] = RANK0_HOST_ENV
    read = [_read_role(replicas, names, problems) for replicas, names in zip(roles, hosts, strict=True)]
    app = {"name": roles[0][0]["app"], "roles": read}
    if problems:
        raise invalid_job(job_name, [*_once(problems, roles)])
    return app, options


def _read_replica(task: Fields, path: str, options: Fields, problems: list[Problem]) -> Fields:
    """Return what the task of one replica says of its role, and add to the options of the job what it says of them."""
    template, where = task.pop("template"), f"{path}.template.spec.containers[0]"
    own, annotations = template["metadata"]["labels"], template["metadata"].get("annotations") or {}
    pod = template["spec"]
    container, *pod["containers"] = pod.get("containers") or [{}]
    image, command = container.pop("image", ""), container.pop("command", None) or [""]
    if not image:
        problems.append(Problem(f"{where}.image", NO_IMAGE))
    env, secret_env = _read_environment(container, image)
    mounts, pod["volumes"] = _read_mounts(container, pod)
    resource, amounts = _read_resources(container)
    secrets = [item["name"] for item in pod.pop("imagePullSecrets", None) or ()]
    for option, value in (("service_account", pod.pop("serviceAccountName", None)), ("image_secrets", secrets or None)):
        if options.setdefault(option, value) != value:
            problems.append(Problem(f"{path}.template.spec", f"has another {option} than the tasks before it"))
    more = {
        "labels": {name: own[name] for name in own if name not in OWN_LABELS},
        "annotations": {name: annotations[name] for name in annotations if name != labels.ISTIO_SIDECAR},
    }
    replica = {
        "path": path,
        "task": task.pop("name"),
        "app": own.get(labels.APP_NAME),
        "is_required": task.pop("minAvailable", 1) > 0,
        "amounts": amounts,
        "name": own.get(labels.ROLE_NAME),
        "image": image,
        "entrypoint": command[0],
        "args": command[1:],
        "env": env,
        "secret_env": secret_env,
        # Without a policy, a retry has no effect.
        "max_retries": task.pop("maxRetry", 0) if task.get("policies") else 0,
        "resource": resource,
        "port_map": _read_ports(container),
        "mounts": mounts,
        "node_selector": pod.pop("nodeSelector", None) or {},
        "tolerations": pod.pop("tolerations", None) or [],
    }
    if pod.get("restartPolicy") == "Never":
        del pod["restartPolicy"]
    # In this order: the fields that were read are no part of it.
    replica["pod_overlay"] = _given({"metadata": _given(more), "spec": _given(pod)})
    if task.get("policies") == [*RETRY_POLICIES["APPLICATION"]]:
        del task["policies"]
    for fields, name in ((task, "maxRetry"), (container, "name")):
        fields.pop(name, None)
    problems += [*_left(path, task), *_left(where, container)]
    return replica


def _read_environment(container: Fields, image: str) -> tuple[dict[str, str], dict[str, Any]]:
    """Return plain variables and those of Secrets, without those that every job has; others stay in the container."""
    plain: dict[str, str] = {}
    secret: dict[str, Any] = {}
    other = []
    for variable in container.pop("env", None) or ():
        name, value, source = variable["name"], variable.get("value", ""), variable.get("valueFrom")
        field, key = mapping_at(variable, "valueFrom", "fieldRef"), mapping_at(variable, "valueFrom", "secretKeyRef")
        if key:
            secret[name] = dict(key)
        elif field:
            plain[name] = f"{FIELD_PATH}{field['fieldPath']}"
        elif source:
            other.append(name)
        elif (name, value) not in ((RANK0_HOST_ENV, "localhost"), (IMAGE_ENV, image)):
            plain[name] = value
    container["env"] = other
    return plain, secret


def _read_ports(container: Fields) -> dict[str, int]:
    """Return the ports of a role; those with more than a name and a number stay in the container."""
    ports = [{"protocol": "TCP", **_given(port)} for port in container.pop("ports", None) or ()]
    known = {"name", "containerPort", "protocol"}
    container["ports"] = [port for port in ports if port.keys() != known or port["protocol"] != "TCP"]
    return {port["name"]: port["containerPort"] for port in ports if port not in container["ports"]}


def _read_mounts(container: Fields, pod: Fields) -> tuple[list[dict[str, Any]], list[Any]]:
    """Return the mounts of an app, and the volumes that are not of them; other mounts stay in the container."""
    volumes = {volume["name"]: volume for volume in pod.pop("volumes", None) or ()}
    found, other = [], []
    for mount in container.pop("volumeMounts", None) or ():
        volume, is_read_only = volumes.get(mount["name"], {}), bool(mount.get("readOnly"))
        path, claim = text_at(volume, "hostPath", "path"), text_at(volume, "persistentVolumeClaim", "claimName")
        made: dict[str, Any] = {"src": path or claim, "dst": mount["mountPath"]}
        volumes.pop(mount["name"], None)
        if volume == SHM and mount["mountPath"] == SHM_PATH:
            continue
        source = {"hostPath": {"path": path}} if path else {"persistentVolumeClaim": {"claimName": claim}}
        is_whole = volume == {"name": mount["name"], **source} and _given(mount).keys() <= MOUNT_FIELDS
        if not is_whole:
            other.append(mount["name"])
        elif (container.get("securityContext") or {}).get("privileged") and (path or "").startswith("/dev/"):
            found.append({**made, "kind": "device", "permissions": "r" if is_read_only else "rwm"})
        else:
            found.append({**made, "kind": "bind" if path else "volume", "read_only": is_read_only})
    container["volumeMounts"] = other
    if any(mount["kind"] == "device" for mount in found):
        # TorchX runs a container with devices in this way.
        del container["securityContext"]["privileged"]
    return found, [*volumes.values()]


def _read_resources(container: Fields) -> tuple[dict[str, Any], dict[str, dict[str, float]]]:
    """Return the resource of a replica and its limits and requests; other fields of it stay in the container."""
    given = container.pop("resources", None) or {}
    amounts = {part: _amounts(given.pop(part, None) or {}) for part in ("limits", "requests")}
    container.update({f"resources.{name}": value for name, value in given.items()})
    limited = dict(amounts["limits"])
    cpu, memory, gpu = (limited.pop(name, 0.0) for name in ("cpu", "memory", labels.GPU))
    if int(cpu * 1000) < round(cpu * 1000):
        # TorchX drops fractions of a millicore, and 1000 times the number next to 1.001 is below 1001.
        cpu = math.nextafter(cpu, math.inf)
    devices = {name: int(count) for name, count in limited.items() if is_device_name(name)}
    return {"cpu": cpu, "memory_mb": memory / 1e6, "gpu": gpu, "devices": devices}, amounts


def _reserved(replicas: Sequence[Fields], name: str, unit: float, usual: int) -> int:
    """Return the share of a resource that most replicas leave to the node, the usual one if there are as many."""
    pairs = [(each["amounts"]["limits"].get(name), each["amounts"]["requests"].get(name)) for each in replicas]
    shares = Counter(round((limit - request) / unit) for limit, request in pairs if limit and request)
    return max(shares, key=lambda share: (shares[share], share == usual), default=usual)


def _check_amounts(replica: Fields, options: Mapping[str, Any]) -> Iterator[Problem]:
    """Check that the resource of a replica renders its limits and requests, which are taken out."""
    resource = ResourceSpec(**replica["resource"])
    reserved = {"reserved_cpu_milli": options["reserved_millicpu"], "reserved_memory_mb": options["reserved_memmb"]}
    rendered = {"limits": limits(resource, efa_device_count=None), "requests": requests(resource, **reserved)}
    for part, found in replica.pop("amounts").items():
        wanted = _amounts(rendered[part])
        for name in dict.fromkeys([*wanted, *found]):
            where = f"{replica['path']}.template.spec.containers[0].resources.{part}.{name}"
            if name not in wanted:
                yield Problem(where, NOT_SAID)
            elif wanted[name] != found.get(name) and part == "limits":
                yield Problem(where, LIMIT)
            elif wanted[name] != found.get(name):
                yield Problem(where, REQUEST)


def _read_role(replicas: Sequence[Fields], hosts: Sequence[str], problems: list[Problem]) -> dict[str, Any]:
    """Return a role from its replicas, which differ by macros only."""
    first, required = dict(replicas[0]), sum(replica.pop("is_required") for replica in replicas)
    # Arguments by their places, variables by their names.
    texts: list[Mapping[Any, str]] = [
        dict([*enumerate(each.pop("args")), *each.pop("env").items()]) for each in replicas
    ]
    made = {place: _with_macros([each.get(place, "") for each in texts], hosts) for place in texts[0]}
    differ = [f"args[{place}]" if isinstance(place, int) else place for place, text in made.items() if text is None]
    differ += [name for each in texts for name in each if name not in made]
    same = {name: value for name, value in replicas[0].items() if name not in ("path", "task")}
    differ += [name for name, value in same.items() if any(each[name] != value for each in replicas)]
    if differ:
        text = f"replicas differ by more than their number: {', '.join(dict.fromkeys(map(str, differ)))}"
        problems.append(Problem(first["path"], text))
    del same["app"]
    least = None if required == len(replicas) else required
    args = [made[place] for place in range(len(first["args"]))]
    env = {name: made[name] for name in first["env"]}
    return _given({**same, "args": args, "env": env, "num_replicas": len(replicas), "min_replicas": least})


def _with_macros(texts: Sequence[str], hosts: Sequence[str]) -> str | None:
    """Return the text of a role from those of its replicas and their variables of rank 0. None: no macro makes them.

    >>> _with_macros(["$TORCHX_RANK0_HOST 0 of 10", "$VC_A_0_HOSTS 1 of 10"], ["TORCHX_RANK0_HOST", "VC_A_0_HOSTS"])
    '$$${rank0_env} ${replica_id} of 10'
    """
    escaped = [text.replace("$", "$$") for text in texts]
    named = [text.replace(host, "${rank0_env}") for text, host in zip(escaped, hosts, strict=True)]
    # The first two numbers have one digit.
    pairs = zip(named[0], named[min(1, len(named) - 1)], strict=False)
    for made in ("".join("${replica_id}" if pair == ("0", "1") else pair[0] for pair in pairs), escaped[0]):
        values = [{"replica_id": str(number), "rank0_env": host} for number, host in enumerate(hosts)]
        if [substitute(made, each) for each in values] == list(texts):
            return made
    return None


def _amounts(quantities: Mapping[str, Any]) -> dict[str, float]:
    return {name: round(amount(value), 6) for name, value in quantities.items()}


def _once(problems: Sequence[Problem], roles: Sequence[Sequence[Fields]]) -> Iterator[Problem]:
    """Yield each problem of a role once: that of the first task, with the number of its other tasks that have it."""
    firsts = {replica["path"]: replicas[0]["path"] for replicas in roles for replica in replicas}
    same: dict[tuple[str, str], list[Problem]] = {}
    for problem in problems:
        place = re.sub(r"^spec\.tasks\[\d+\]", lambda found: firsts[found[0]], problem.path)
        same.setdefault((place, problem.message), []).append(problem)
    for first, *others in same.values():
        if others:
            count = "1 other task" if len(others) == 1 else f"{len(others)} other tasks"
            yield Problem(first.path, f"{first.message}; the same in {count} of the role")
        else:
            yield first


def _left(path: str, fields: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield a problem for each field that was not read and says something."""
    for name in _given(fields):
        yield Problem(f"{path}.{name}", NOT_SAID)


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields without those that say nothing: null and what is empty."""
    return {name: value for name, value in fields.items() if value is not None and value not in ({}, [], "")}
