"""The metrics of a fleet, and a fleet as Prometheus text (exposition format 0.0.4) for the textfile collector.

The controller has the same metrics of its apps on `/metrics`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from torchx_pulumi.model.status import JobState

from torchx_pulumi_fleet.views.columns import running
from torchx_pulumi_fleet.views.row import Fleet, FleetRow

BYTES_PER_MB = 1_000_000

Value = float | None

Labels = Mapping[str, str]

Samples = Iterable[tuple[Labels, float]]
"""Labels and values; the labels of all samples of one metric have the same names."""


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


class _FleetText(Collector):
    """The metrics of one fleet."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        fleet = self._fleet
        return fleet_gauges(
            [(identity(row), row) for row in fleet.rows],
            broken=len(fleet.broken),
            unreachable=len(fleet.unreachable),
            read_at=fleet.read_at,
        )


def to_prometheus(fleet: Fleet) -> str:
    """Return a fleet as Prometheus text with a newline at the end."""
    registry = CollectorRegistry()
    registry.register(_FleetText(fleet))
    return generate_latest(registry).decode()


def fleet_gauges(
    apps: Sequence[tuple[Labels, FleetRow]], *, broken: int, unreachable: int, read_at: datetime | None
) -> Iterator[Metric]:
    """Yield the metrics of a fleet.

    Args:
        apps: Each app, with the labels by which it is unique.
        broken: Number of stacks that could not be read.
        unreachable: Number of clusters that did not answer.
        read_at: When the fleet was read. None: never, and the metric has no sample.
    """
    for name, text, read in METRICS:
        yield gauge(name, text, _samples(apps, read))
    counts = Counter(row.state for _, row in apps)
    states = [({"state": state.value}, float(counts[state])) for state in JobState]
    yield gauge("torchx_fleet_apps", "Apps by state.", states)
    yield _plain("torchx_fleet_broken_stacks", "Stacks that could not be read.", broken)
    yield _plain("torchx_fleet_unreachable_clusters", "Clusters that did not answer.", unreachable)
    seconds = None if read_at is None else read_at.timestamp()
    yield _plain("torchx_fleet_read_timestamp_seconds", "When the fleet was read.", seconds)


def _samples(apps: Sequence[tuple[Labels, FleetRow]], read: Callable[[FleetRow], Samples]) -> Samples:
    for labels, row in apps:
        for more, value in read(row):
            yield {**labels, **more}, value


def _plain(name: str, text: str, value: Value) -> Metric:
    return gauge(name, text, () if value is None else (({}, value),))


def gauge(name: str, text: str, samples: Samples) -> Metric:
    """Return a gauge with its help and its samples."""
    family = GaugeMetricFamily(name, text)
    for labels, value in samples:
        family.add_sample(name, {label: encodable(content) for label, content in labels.items()}, value)
    return family


def identity(row: FleetRow) -> dict[str, str]:
    """Return the labels of every sample of an app. They are unique in a backend."""
    return {
        "app_id": row.app_id,
        "namespace": row.namespace,
        "project": row.stack.project,
        "scheduler": row.scheduler,
        "stack": row.stack.stack,
    }


def encodable(text: str) -> str:
    r"""Return the value of a label without what UTF-8 or Prometheus's parser does not know.

    >>> encodable("a\ud800"), encodable("a\0")
    ('a\\ud800', 'a\\x00')
    """
    return text.encode(errors="backslashreplace").decode().replace("\0", "\\x00")
