"""Progress in lines: not more than one a second, with no value of a build argument in them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

from torchx_pulumi.images.dockerfile import SHOWN_ARGUMENTS
from torchx_pulumi.images.registry.retrying import Backoff
from torchx_pulumi.model.errors import ImageError
from torchx_pulumi.model.progress import ProgressCallback
from torchx_pulumi.model.redaction import MARK, encodings

Result = TypeVar("Result")
_EVERY_S: Final = 1.0
_SHORTEST_SECRET: Final = 3
"""A shorter value is not looked for: it would be found everywhere."""


class Progress:
    """Tells about one image."""

    def __init__(self, tell: ProgressCallback, image: str, build_args: Mapping[str, str]) -> None:
        self._tell = tell
        self._image = image
        hidden = {value for name, value in build_args.items() if name not in SHOWN_ARGUMENTS}
        pieces = {line.strip() for value in hidden for line in (value, *value.splitlines())}
        # The longest first: one may be a part of another.
        forms = {form for piece in pieces if len(piece) >= _SHORTEST_SECRET for form in encodings(piece)}
        self._hidden = sorted(forms, key=len, reverse=True)
        self._last_s = 0.0

    def say(self, text: str) -> None:
        """Tell a line."""
        self._last_s = time.monotonic()
        self._tell(f"image {self._image}: {self.redact(text)}")

    def say_now_and_then(self, text: Callable[[], str]) -> None:
        """Tell a line if nothing was told for a second."""
        if time.monotonic() - self._last_s >= _EVERY_S:
            self.say(text())

    def redact(self, text: str) -> str:
        """Take the values of build arguments out of a text."""
        for value in self._hidden:
            text = text.replace(value, MARK)
        return text

    def counted(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Pass on the pieces of a context, and tell how far it is."""
        sent = 0
        for piece in pieces:
            yield piece
            sent += len(piece)
            self.say_now_and_then(lambda: f"sending the workspace, {megabytes(sent)} so far")  # noqa: B023  at once
        self.say(f"workspace sent, {megabytes(sent)}")


class Layers:
    """How far the layers of a push or a pull are."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._done: dict[str, int] = {}
        self._total: dict[str, int] = {}
        self._finished: set[str] = set()

    def take(self, event: Mapping[str, Any]) -> None:
        """Note an event."""
        layer, status = event.get("id"), str(event.get("status", ""))
        if not layer or status.startswith(("Pulling from", "Digest")):
            return
        detail = event.get("progressDetail") or {}
        self._done.setdefault(layer, 0)
        if detail.get("total"):
            self._total[layer] = int(detail["total"])
            self._done[layer] = int(detail.get("current") or 0)
        if status in ("Pushed", "Layer already exists", "Pull complete", "Already exists"):
            self._finished.add(layer)
            self._done[layer] = self._total.get(layer, 0)

    def __str__(self) -> str:
        layers = f"{len(self._finished)} of {len(self._done)} layers"
        total = sum(self._total.values())
        return f"{self._what} {layers}" + (
            f", {megabytes(sum(self._done.values()))} of {megabytes(total)}" if total else ""
        )


def megabytes(count: int) -> str:
    """Write a number of bytes.

    >>> megabytes(12_345_678), megabytes(512)
    ('12.3 MB', '0.5 kB')
    """
    return f"{count / 1e6:.1f} MB" if count >= 1e5 else f"{count / 1e3:.1f} kB"


def patiently(work: Callable[[], Result], backoff: Backoff, progress: Progress) -> Result:
    """Do something again while it fails in a way that may pass.

    Raises:
        ImageError: Of the last try.
    """
    failed = 0
    while True:
        try:
            return work()
        except ImageError as error:
            failed += 1
            if not error.retryable or not backoff.wait(failed):
                raise
            progress.say(f"broke off, trying again: {error}")
