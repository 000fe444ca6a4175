"""The apps of a fleet as rows, and rows as a table, a page, values and metrics."""
