"""Errors of preparing and moving images. Their text is all that a user sees."""

from __future__ import annotations


class ImageError(Exception):
    """An image could not be prepared, read or pushed."""
