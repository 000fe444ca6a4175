"""A fleet as Prometheus text (exposition format 0.0.4), for the textfile collector or a Pushgateway."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime

from torchx_pulumi.fleet.collect import Fleet, FleetRow
from torchx_pulumi.model.status import JobState

BYTES_PER_MB = 1_000_000

Value = float | None


def _amount(name: str, factor: float = 1.0) -> Callable[[FleetRow], Value]:
    def read(row: FleetRow) -> Value:
        value = row.resources_total.get(name)
        return value * factor if isinstance(value, (int, float)) else None

    return read


def _time(name: str) -> Callable[[FleetRow], Value]:
    def read(row: FleetRow) -> Value:
        value = getattr(row, name)
        return value.timestamp() if isinstance(value, datetime) else None

    return read


METRICS: Sequence[tuple[str, str, Callable[[FleetRow], Value]]] = (
    ("torchx_app_replicas_ready", "Replicas that run or have succeeded.", lambda row: row.replicas_ready),
    ("torchx_app_replicas_wanted", "Requested replicas.", lambda row: row.replicas_wanted),
    ("torchx_app_requested_cpu_cores", "CPU cores that all replicas request.", _amount("cpu")),
    ("torchx_app_requested_gpus", "GPUs that all replicas request.", _amount("gpu")),
    (
        "torchx_app_requested_memory_bytes",
        "Memory that all replicas request.",
        _amount("memory_mb", BYTES_PER_MB),
    ),
    ("torchx_app_attempt", "1 for the first launch.", lambda row: row.attempt),
    ("torchx_app_queued_timestamp_seconds", "When the app was queued.", _time("queued_at")),
    ("torchx_app_started_timestamp_seconds", "When the app started to run.", _time("started_at")),
    ("torchx_app_finished_timestamp_seconds", "When the app ended.", _time("finished_at")),
    ("torchx_app_seen_timestamp_seconds", "When the app was last seen.", _time("checked_at")),
    (
        "torchx_app_stale",
        "1 if the app is unfinished and was last seen long ago.",
        lambda row: float(row.stale),
    ),
)
"""Name, help and value of each gauge of an app. All have the labels of `identity`."""


def to_prometheus(fleet: Fleet) -> str:
    """Return a fleet as Prometheus text with a newline at the end."""
    return "".join(f"{line}\n" for line in lines(fleet))


def lines(fleet: Fleet) -> Iterator[str]:
    """Yield the lines of each metric: help, type and samples."""
    yield from head("torchx_app_info", "1 for each app, with its constant attributes.")
    for row in fleet.rows:
        more = {"handle": row.handle, "name": row.name, "queue": row.queue or "", "user": row.user or ""}
        yield sample("torchx_app_info", {**identity(row), **more}, 1)
    yield from head("torchx_app_state", "1 for the current state of the app, with its reason.")
    for row in fleet.rows:
        more = {"queue": row.queue or "", "user": row.user or "", "state": row.state.value, "reason": row.reason}
        yield sample("torchx_app_state", {**identity(row), **more}, 1)
    for name, text, read in METRICS:
        yield from head(name, text)
        for row in fleet.rows:
            value = read(row)
            if value is not None:
                yield sample(name, identity(row), value)
    yield from head("torchx_fleet_apps", "Apps by state.")
    counts = Counter(row.state for row in fleet.rows)
    for state in JobState:
        yield sample("torchx_fleet_apps", {"state": state.value}, counts[state])
    yield from head("torchx_fleet_broken_stacks", "Stacks that could not be read.")
    yield sample("torchx_fleet_broken_stacks", {}, len(fleet.broken))
    yield from head("torchx_fleet_unreachable_clusters", "Clusters that did not answer.")
    yield sample("torchx_fleet_unreachable_clusters", {}, len(fleet.unreachable))
    yield from head("torchx_fleet_read_timestamp_seconds", "When the fleet was read.")
    yield sample("torchx_fleet_read_timestamp_seconds", {}, fleet.read_at.timestamp())


def identity(row: FleetRow) -> dict[str, str]:
    """Return the labels of every sample of an app. They are unique in a backend."""
    return {
        "app_id": row.app_id,
        "namespace": row.namespace,
        "project": row.stack.project,
        "scheduler": row.scheduler,
        "stack": row.stack.stack,
    }


def head(name: str, text: str) -> Iterator[str]:
    """Yield the lines with the help and the type of a gauge."""
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n")
    yield f"# HELP {name} {escaped}"
    yield f"# TYPE {name} gauge"


def sample(name: str, labels: Mapping[str, str], value: float) -> str:
    r"""Return the line of a sample.

    >>> sample("up", {"job": 'a"b\\c'}, 1)
    'up{job="a\\"b\\\\c"} 1'
    """
    body = ",".join(f'{label}="{escape(text)}"' for label, text in labels.items())
    return f"{name}{{{body}}} {number(value)}" if body else f"{name} {number(value)}"


def escape(text: str) -> str:
    """Return the escaped value of a label."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def number(value: float) -> str:
    """Return a number without exponent and without trailing zeros.

    >>> number(2.0), number(1.5), number(64000000000.0)
    ('2', '1.5', '64000000000')
    """
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) else repr(value)
