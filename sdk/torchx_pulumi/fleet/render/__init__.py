"""A fleet as people and programs read it: a table, JSON, one self-contained page, Prometheus text. Text out only."""

from torchx_pulumi.fleet.render.json_text import fleet_values, to_json
from torchx_pulumi.fleet.render.page import to_html
from torchx_pulumi.fleet.render.prometheus import to_prometheus
from torchx_pulumi.fleet.render.table import to_table

__all__ = ["fleet_values", "to_html", "to_json", "to_prometheus", "to_table"]
