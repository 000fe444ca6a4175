"""What a controller tells of itself, as a test sets it; and metrics as Prometheus reads them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timezone

from prometheus_client.parser import text_string_to_metric_families
from torchx_pulumi_fleet.web.metrics import ControllerMetrics
from torchx_pulumi_fleet.writer.controller import WatchState

NOW = datetime(2026, 1, 2, 12, tzinfo=timezone.utc)
"""The time of the apps of `states.output`."""


@dataclass
class Told:
    """A controller's accessors with values that may be set."""

    is_leading: bool = True
    begun: tuple[str, ...] = ()
    states: list[WatchState] = field(default_factory=list)
    writes: dict[tuple[str, str], int] = field(default_factory=dict)
    read_at: datetime | None = NOW
    pending: tuple[str, ...] = ("one", "two")
    broken: int = 1

    def problems(self) -> tuple[str, ...]:
        return self.begun

    def watches(self) -> list[WatchState]:
        return self.states


def scraped(metrics: ControllerMetrics) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Return each sample's name to its labels and values; a sample that is there twice is an error."""
    body, content_type = metrics.render()
    assert content_type == "text/plain; version=0.0.4; charset=utf-8"
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(body.decode()):
        for sample in family.samples:
            samples, labels = found.setdefault(sample.name, {}), tuple(sorted(sample.labels.items()))
            assert labels not in samples, sample
            samples[labels] = sample.value
    return found


def value(metrics: ControllerMetrics, name: str, **labels: str) -> float | None:
    """Return the sum of the samples of a name that have some labels. None: there is none."""
    samples = scraped(metrics).get(name, {})
    values = [number for found, number in samples.items() if labels.items() <= dict(found).items()]
    return sum(values) if values else None
