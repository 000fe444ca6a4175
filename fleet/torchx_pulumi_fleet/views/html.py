"""A fleet as one HTML page with its style, script and data. Its security policy allows no requests."""

from __future__ import annotations

from collections import Counter

from torchx_pulumi_fleet.views.columns import ShownApp, detail
from torchx_pulumi_fleet.views.page import fleet_page
from torchx_pulumi_fleet.views.row import Fleet


def to_html(fleet: Fleet) -> str:
    """Return a fleet as an HTML page, which works offline and shows when the fleet was read."""
    apps = Counter(row.stack for row in fleet.rows)
    names = [str(row.stack) if apps[row.stack] == 1 else f"{row.stack}/{row.app_id}" for row in fleet.rows]
    page, _ = fleet_page(
        [detail(ShownApp(name, fleet.backend, row)) for name, row in zip(names, fleet.rows, strict=True)],
        title=f"TorchX apps: {fleet.backend}",
        backends=[fleet.backend],
        problems=fleet.remarks(),
        read_at=fleet.read_at,
        empty=fleet.without_rows(),
    )
    return page
