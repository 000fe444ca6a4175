"""What each replica's process sees of a rendered Volcano Job: the pods that Volcano and the kubelet make of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from torchx_pulumi.model import labels
from torchx_pulumi.model.job_plan import JobPlan
from torchx_pulumi.planning.references import expand
from torchx_pulumi.schedulers.volcano.job import render_volcano

POD = "<pod>"
"""Stands for the name of a replica's own pod, which is also its host name."""


def process_views(plan: JobPlan) -> dict[tuple[str, int], dict[str, str]]:
    """Return, for each role and replica id, what its process sees: one text for each thing.

    As Volcano's job controller and its plugins env and svc make pods (`pkg/controllers/job`): their variables come
    after those of the template, so that `$(VC_...)` is expanded in the command only.
    """
    job = render_volcano(plan)
    counts = {task["name"]: task["replicas"] for task in job["spec"]["tasks"]}
    hosts: dict[str, str] = {}
    if "svc" in job["spec"]["plugins"]:
        for task, count in counts.items():
            key = task.upper().replace("-", "_")
            hosts[f"VC_{key}_HOSTS"] = ",".join(
                f"{plan.job_name}-{task}-{place}.{plan.job_name}" for place in range(count)
            )
            hosts[f"VC_{key}_NUM"] = str(count)
    found = {}
    for task in job["spec"]["tasks"]:
        role = task["template"]["metadata"]["labels"][labels.ROLE_NAME]
        first = int(task["name"].rpartition("-")[2])
        for place in range(task["replicas"]):
            found[role, first + place] = _view(plan, task, place, hosts)
    return found


def _view(plan: JobPlan, task: Mapping[str, Any], place: int, hosts: Mapping[str, str]) -> dict[str, str]:
    name, template = f"{plan.job_name}-{task['name']}-{place}", task["template"]
    metadata = template["metadata"]
    of_task = {"volcano.sh/task-index": str(place), "volcano.sh/task-spec": task["name"]}
    fields = {"metadata.name": name, "spec.nodeName": "n0"}
    for part in ("labels", "annotations"):
        for key, value in {**metadata.get(part, {}), **of_task}.items():
            fields[f"metadata.{part}['{key}']"] = value
    for part in ("labels", "annotations"):
        own = {key: value for key, value in fields.items() if key.startswith(f"metadata.{part}[")}
        fields[f"metadata.{part}"] = json.dumps(own, sort_keys=True)
    main, *others = template["spec"]["containers"]
    env: dict[str, str] = {}
    for one in main.get("env", ()):
        source = one.get("valueFrom", {})
        if "fieldRef" in source:
            env[one["name"]] = fields.get(source["fieldRef"]["fieldPath"], "")
        elif source:
            env[one["name"]] = json.dumps(source, sort_keys=True)
        else:
            env[one["name"]] = expand(one.get("value", ""), env)
    plugins = {**hosts, "VK_TASK_INDEX": str(place), "VC_TASK_INDEX": str(place)}
    env |= plugins
    words = [expand(word, env) for word in [*main.get("command", ()), *main.get("args", ())]]
    rest = {key: value for key, value in main.items() if key not in ("name", "env", "command", "args")}
    seen = {
        "command": json.dumps(words),
        "container": json.dumps(rest, sort_keys=True),
        "pod": json.dumps({**template["spec"], "containers": others}, sort_keys=True),
        "retries": json.dumps([task["maxRetry"], task.get("policies")]),
        **{f"env {key}": value for key, value in env.items()},
        **{f"field {key}": value for key, value in fields.items()},
    }
    mounted = "".join(f"{volume}" for volume in template["spec"].get("volumes", ()))
    for key, value in fields.items():
        if f"'{key}'" in mounted:
            seen[f"file {key}"] = value
    return {key: value.replace(name, POD) for key, value in seen.items()}
