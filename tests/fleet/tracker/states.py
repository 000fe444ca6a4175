"""Backends as Pulumi writes them, with as much in a checkpoint as the fleet reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torchx_pulumi.model.app_entry import RunEntry, StackRef, write_entry
from torchx_pulumi.model.run_record import RunRecord, write_record
from torchx_pulumi.runs.index import RunIndex
from torchx_pulumi.schedulers.registry import component_type

from tests.unit.builders import run_entry

STACK = "pulumi:pulumi:Stack"
STASH = "pulumi:index:Stash"
NOW = "2026-01-02T12:00:00Z"


def output(name: str = "train-x1", **changes: Any) -> dict[str, Any]:
    """The stack output `torchx`; `observed`, `declared`, `app` and `links` are merged."""
    observed = {
        "state": "RUNNING",
        "phase": "Running",
        "reason": "Running",
        "message": "",
        "conditions": [],
        "roles": [
            {
                "name": "trainer",
                "replicas": [
                    {
                        "id": 0,
                        "pod": f"{name}-trainer-0",
                        "state": "RUNNING",
                        "reason": "Running",
                        "message": "",
                        "restarts": 0.0,
                    },
                    {
                        "id": 1,
                        "pod": f"{name}-trainer-1",
                        "state": "PENDING",
                        "reason": "Starting",
                        "message": "pull",
                        "restarts": 1.0,
                    },
                ],
                "omitted": 0.0,
                "counts": {"RUNNING": 1.0, "PENDING": 1.0},
            }
        ],
        "attempt": 1.0,
        "queued_at": "2026-01-02T11:00:00Z",
        "started_at": "2026-01-02T11:01:00Z",
        "observed_at": "2026-01-02T11:59:00Z",
        "source": "live",
        **changes.get("observed", {}),
    }
    declared = {
        "roles": [
            {
                "name": "trainer",
                "image": "img:1",
                "replicas": 2.0,
                "resource": {"cpu": 2.0, "gpu": 1.0, "memory_mb": 1000.0, "devices": {}},
            }
        ],
        "resources_total": {"cpu": 4.0, "gpu": 2.0, "memory_mb": 2000.0, "devices": {}},
        "spec_hash": "h",
        "created_by": "ada",
        **changes.get("declared", {}),
    }
    app = {
        "id": f"team:{name}",
        "handle": f"pulumi_volcano://torchx/team:{name}",
        "name": "train",
        "scheduler": "volcano",
        "namespace": "team",
        "queue": "default",
        **changes.get("app", {}),
    }
    links = {"log_command": f"kubectl --context here --namespace team logs {name}", **changes.get("links", {})}
    parts = {"schema_version": 1.0, "app": app, "declared": declared, "observed": observed, "links": links}
    return {**parts, **{name: changes[name] for name in ("requested",) if name in changes}}


ODD_NUMBERS = (
    *(10**400, -(10**400), float("nan"), float("inf"), -float("inf"), 1e300, 10**12, -1, True, None),
    *("7", [7], {"x": 7}, {"x": 10**400}),
)
"""Values that a stack may have where a number is expected."""


def odd_output(name: str, number: Any) -> dict[str, Any]:
    """The stack output `torchx` with a value in each place of a number."""
    resource = {"cpu": number, "gpu": number, "memory_mb": number, "devices": {"efa": number}}
    replica = {"id": number, "pod": "p", "state": "FAILED", "exit_code": number, "restarts": number}
    seen = {"name": "trainer", "replicas": [replica], "omitted": number, "counts": {"RUNNING": number}}
    asked = {"name": "trainer", "replicas": number, "min_replicas": number, "resource": resource}
    return output(
        name,
        observed={"roles": [seen], "attempt": number},
        declared={"roles": [asked], "resources_total": resource},
    )


def checkpoint(
    torchx: Any = None, *, record: RunRecord | None = None, entry: RunEntry | None = None, **outputs: Any
) -> dict[str, Any]:
    """A checkpoint of the file backend. No `torchx`: a stack that holds no app. One of another shape: no component."""
    if torchx is not None:
        outputs["torchx"] = torchx
    resources: list[dict[str, Any]] = [{"urn": "urn:pulumi:s::p::x::p-s", "type": STACK, "outputs": outputs}]
    if isinstance(torchx, dict) and "app" in torchx:
        job = component_type(torchx["app"]["scheduler"])
        urn, (namespace, _, job_name) = f"urn:pulumi:s::p::{job}::train", torchx["app"]["id"].partition(":")
        made = {"namespace": namespace, "job_name": job_name, "declared": torchx["declared"]}
        made |= {name: torchx[name] for name in ("observed", "requested") if name in torchx}
        if record is not None:
            made |= {"record": write_record(record), "uid": record.uid}
        if entry is not None:
            made["uid"] = entry.uid
        resources.append({"urn": urn, "type": job, "outputs": made})
        if entry is not None:
            note = {"type": STASH, "parent": urn, "inputs": {"input": write_entry(entry)}}
            resources.append({"urn": f"urn:pulumi:s::p::{job}${STASH}::train-app", **note})
    latest = {"manifest": {"time": NOW, "magic": "m", "version": "v3"}, "resources": resources}
    return {"version": 3, "checkpoint": {"stack": "organization/torchx/s", "latest": latest}}


def write_stack(folder: Path, stack: str, content: Any, project: str = "torchx") -> Path:
    place = folder / ".pulumi" / "stacks" / project / f"{stack}.json"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(content if isinstance(content, str) else json.dumps(content, indent=4))
    return place


def noted(stack: str) -> RunEntry:
    """The note of a launch by `torchx run` in a stack."""
    place = StackRef(backend="file:///b", project="torchx", stack=stack)
    return run_entry(app_id=f"team:{stack}", place=place, user="ada", app={}, launched_at="")


def saw(entry: RunEntry, seen: dict[str, Any]) -> None:
    """Note in this user's index what was seen last of an app."""
    index = RunIndex()
    if index.get(entry) is None:
        index.add(entry)
    index.observe(entry, lambda _: seen)
