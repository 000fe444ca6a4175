"""A fleet as one HTML page with its style, script and data. Its security policy allows no requests."""

from __future__ import annotations

from torchx_pulumi.fleet.collect import Fleet
from torchx_pulumi.fleet.columns import ShownApp, detail
from torchx_pulumi.fleet.page import fleet_page


def to_html(fleet: Fleet) -> str:
    """Return a fleet as an HTML page, which works offline and shows when the fleet was read."""
    page, _ = fleet_page(
        [detail(ShownApp(str(row.stack), fleet.backend, row)) for row in fleet.rows],
        title=f"TorchX apps: {fleet.backend}",
        backends=[fleet.backend],
        problems=fleet.remarks(),
        read_at=fleet.read_at,
    )
    return page
