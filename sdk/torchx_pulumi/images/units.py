"""Amounts in lines of progress."""

from __future__ import annotations


def megabytes(count: int) -> str:
    """Return a number of bytes as text.

    >>> megabytes(12_345_678), megabytes(512)
    ('12.3 MB', '0.5 kB')
    """
    return f"{count / 1e6:.1f} MB" if count >= 1e5 else f"{count / 1e3:.1f} kB"
