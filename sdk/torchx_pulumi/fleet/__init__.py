"""All apps of a backend: collect their rows, render them."""
