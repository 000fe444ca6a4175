"""How ages, amounts and freshness are worded, the same in every view."""

from __future__ import annotations

from torchx_pulumi.fleet.collect import FleetRow
from torchx_pulumi.model.text import one_line


def age(seconds: float | None) -> str:
    """Word an age by its largest unit, two units below ten of it.

    >>> [age(s) for s in (None, 5, 200, 7300, 90000, 2e6)]
    ['-', '5s', '3m20s', '2h1m', '1d1h', '23d']
    """
    if seconds is None:
        return "-"
    units = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))
    for place, (unit, size) in enumerate(units):
        count, rest = divmod(int(seconds), size)
        if count == 0 and unit != "s":
            continue
        if count >= 10 or unit == "s":
            return f"{count}{unit}"
        smaller, size = units[place + 1]
        return f"{count}{unit}{rest // size}{smaller}" if rest // size else f"{count}{unit}"
    return "0s"


def freshness(row: FleetRow) -> str:
    """Word how old the news of an app are, and where they come from."""
    if row.freshness_s is None:
        return "never seen"
    if row.source == "live":
        return "live"
    return f"{age(row.freshness_s)} ago" + (", stale" if row.stale else "")


def gpus(row: FleetRow) -> str:
    """Word the GPUs that an app asks for; empty where it asks for none."""
    count = row.resources_total.get("gpu")
    return f"{count:g}" if isinstance(count, (int, float)) and count > 0 else ""


def cause(row: FleetRow) -> str:
    """Word why an app is in its state, in one line: the first diagnosis, else the message."""
    summary = row.diagnoses[0].get("summary") if row.diagnoses else None
    text = summary if isinstance(summary, str) and summary else row.message
    return one_line(text)
