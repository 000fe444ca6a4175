"""The type of progress callbacks. A module of its own: images, engine and adapter use it, and share only the model."""

from collections.abc import Callable

ProgressCallback = Callable[[str], None]
"""Takes one line of progress, without its line end."""
