"""Views of a fleet as text: a table, JSON, a self-contained HTML page, and Prometheus metrics."""

from torchx_pulumi.fleet.render.page import to_html
from torchx_pulumi.fleet.render.prometheus import to_prometheus
from torchx_pulumi.fleet.render.table import to_table
from torchx_pulumi.fleet.render.values import fleet_values, to_json

__all__ = ["fleet_values", "to_html", "to_json", "to_prometheus", "to_table"]
