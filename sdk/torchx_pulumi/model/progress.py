"""Progress callbacks. A module of its own: images, engine and adapter use it, and share only the model."""

from collections.abc import Callable

ProgressCallback = Callable[[str], None]
"""Takes one line of progress, without its line end."""


def once_each(progress: ProgressCallback) -> ProgressCallback:
    """Return a callback that passes each line on once."""
    told: set[str] = set()

    def tell(line: str) -> None:
        if line not in told:
            told.add(line)
            progress(line)

    return tell
