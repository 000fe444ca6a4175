"""The one error of the bootstrap."""

from __future__ import annotations


class BootstrapError(Exception):
    """A part cannot be had. The message says where, what was found, and what to do; it is shown as it is."""
