"""Views of a fleet as text: a table, JSON, a self-contained HTML page, and Prometheus metrics."""
