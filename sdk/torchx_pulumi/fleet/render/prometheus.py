"""The metrics of a fleet, and a fleet as Prometheus text (exposition format 0.0.4) for the textfile collector.

The controller has the same metrics of its apps on `/metrics`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from torchx_pulumi.fleet.collect import Fleet, FleetRow
from torchx_pulumi.fleet.columns import running
from torchx_pulumi.model.status import JobState

BYTES_PER_MB = 1_000_000

Value = float | None

Labels = Mapping[str, str]

Samples = Iterable[tuple[Labels, float]]
"""Labels and values; the labels of all samples of one metric have the same names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauge:
    """One metric with its samples."""

    name: str
    help: str
    samples: Samples


def _amount(name: str, factor: float = 1.0) -> Callable[[FleetRow], Value]:
    def read(row: FleetRow) -> Value:
        value = row.resources_total.get(name)
        return None if value is None else value * factor

    return read


def _time(name: str) -> Callable[[FleetRow], Value]:
    def read(row: FleetRow) -> Value:
        value = getattr(row, name)
        return value.timestamp() if isinstance(value, datetime) else None

    return read


def _gpus_in_use(row: FleetRow) -> Value:
    if "gpu" not in row.resources_total:
        return None
    return running(row, "gpu")


def _one(
    read: Callable[[FleetRow], Value], labels: Callable[[FleetRow], Labels] = lambda _: {}
) -> Callable[[FleetRow], Samples]:
    def samples(row: FleetRow) -> Samples:
        value = read(row)
        return () if value is None else ((labels(row), value),)

    return samples


def _owner(row: FleetRow) -> Labels:
    return {"queue": row.queue or "", "user": row.user or ""}


def _replicas(row: FleetRow) -> Samples:
    counts: Counter[str] = Counter()
    for role in row.roles:
        counts.update(role["counts"])
    return [({"state": state}, count) for state, count in counts.items()]


METRICS: Sequence[tuple[str, str, Callable[[FleetRow], Samples]]] = (
    (
        "torchx_app_info",
        "1 for each app, with its constant attributes.",
        _one(lambda _: 1, lambda row: {"handle": row.handle, "name": row.name, **_owner(row)}),
    ),
    (
        "torchx_app_state",
        "1 for the current state of the app, with its reason.",
        _one(lambda _: 1, lambda row: {**_owner(row), "state": row.state.value, "reason": row.reason}),
    ),
    ("torchx_app_replicas", "Replicas by state, as last seen.", _replicas),
    ("torchx_app_replicas_ready", "Replicas that run or have succeeded.", _one(lambda row: row.replicas_ready)),
    ("torchx_app_replicas_wanted", "Requested replicas.", _one(lambda row: row.replicas_wanted)),
    ("torchx_app_requested_cpu_cores", "CPU cores that all replicas request.", _one(_amount("cpu"))),
    ("torchx_app_requested_gpus", "GPUs that all replicas request.", _one(_amount("gpu"))),
    ("torchx_app_gpus_in_use", "GPUs that the replicas request which run.", _one(_gpus_in_use)),
    (
        "torchx_app_requested_memory_bytes",
        "Memory that all replicas request.",
        _one(_amount("memory_mb", BYTES_PER_MB)),
    ),
    ("torchx_app_attempt", "1 for the first launch.", _one(lambda row: row.attempt)),
    ("torchx_app_queued_timestamp_seconds", "When the app was queued.", _one(_time("queued_at"))),
    ("torchx_app_started_timestamp_seconds", "When the app started to run.", _one(_time("started_at"))),
    ("torchx_app_finished_timestamp_seconds", "When the app ended.", _one(_time("finished_at"))),
    ("torchx_app_seen_timestamp_seconds", "When the app was last seen.", _one(_time("checked_at"))),
    (
        "torchx_app_stale",
        "1 if the app is unfinished and was last seen long ago.",
        _one(lambda row: float(row.stale)),
    ),
)
"""Name, help and samples of each gauge of an app. All have the labels of `identity`, too."""


def to_prometheus(fleet: Fleet) -> str:
    """Return a fleet as Prometheus text with a newline at the end."""
    gauges = fleet_gauges(
        [(identity(row), row) for row in fleet.rows],
        broken=len(fleet.broken),
        unreachable=len(fleet.unreachable),
        read_at=fleet.read_at,
    )
    return "".join(f"{line}\n" for gauge in gauges for line in lines(gauge))


def fleet_gauges(
    apps: Sequence[tuple[Labels, FleetRow]], *, broken: int, unreachable: int, read_at: datetime | None
) -> Iterator[Gauge]:
    """Yield the metrics of a fleet.

    Args:
        apps: Each app, with the labels by which it is unique.
        broken: Number of stacks that could not be read.
        unreachable: Number of clusters that did not answer.
        read_at: When the fleet was read. None: never, and the metric has no sample.
    """
    for name, text, read in METRICS:
        yield Gauge(name=name, help=text, samples=_samples(apps, read))
    counts = Counter(row.state for _, row in apps)
    states = [({"state": state.value}, float(counts[state])) for state in JobState]
    yield Gauge(name="torchx_fleet_apps", help="Apps by state.", samples=states)
    yield _plain("torchx_fleet_broken_stacks", "Stacks that could not be read.", broken)
    yield _plain("torchx_fleet_unreachable_clusters", "Clusters that did not answer.", unreachable)
    seconds = None if read_at is None else read_at.timestamp()
    yield _plain("torchx_fleet_read_timestamp_seconds", "When the fleet was read.", seconds)


def _samples(apps: Sequence[tuple[Labels, FleetRow]], read: Callable[[FleetRow], Samples]) -> Samples:
    for labels, row in apps:
        for more, value in read(row):
            yield {**labels, **more}, value


def _plain(name: str, text: str, value: Value) -> Gauge:
    return Gauge(name=name, help=text, samples=() if value is None else (({}, value),))


def identity(row: FleetRow) -> dict[str, str]:
    """Return the labels of every sample of an app. They are unique in a backend."""
    return {
        "app_id": row.app_id,
        "namespace": row.namespace,
        "project": row.stack.project,
        "scheduler": row.scheduler,
        "stack": row.stack.stack,
    }


def lines(gauge: Gauge) -> Iterator[str]:
    """Yield the lines of a metric: help, type and samples."""
    yield from head(gauge.name, gauge.help)
    for labels, value in gauge.samples:
        yield sample(gauge.name, labels, value)


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


def encodable(text: str) -> str:
    r"""Return the value of a label without what UTF-8 or Prometheus's parser does not know.

    >>> encodable("a\ud800"), encodable("a\0")
    ('a\\ud800', 'a\\x00')
    """
    return text.encode(errors="backslashreplace").decode().replace("\0", "\\x00")


def escape(text: str) -> str:
    """Return the escaped value of a label."""
    return encodable(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def number(value: float) -> str:
    """Return a number without exponent and without trailing zeros.

    >>> number(2.0), number(1.5), number(64000000000.0)
    ('2', '1.5', '64000000000')
    """
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) else repr(value)
