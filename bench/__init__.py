"""Performance programs: ratios against the alternative, side by side in one run. Not in the wheel."""

from __future__ import annotations

from collections.abc import Mapping


def verdict(name: str, found: Mapping[str, float], wanted: Mapping[str, float]) -> int:
    """Print which figures are above what is wanted of them at most; return 1 where one is, else 0.

    Args:
        name: Name of the program.
        found: Figures by name.
        wanted: The most that is wanted, by the names of some of them.
    """
    missed = [f"{key} {found[key]:.2f}, want {most:g}" for key, most in wanted.items() if found[key] > most]
    print(f"bench {name}: {'MISSED: ' + '; '.join(missed) if missed else 'met'}")
    return 1 if missed else 0
