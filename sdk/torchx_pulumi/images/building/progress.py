"""Progress lines, at most one per second, without values of build arguments."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from torchx_pulumi.images.dockerfile import SHOWN_ARGUMENTS
from torchx_pulumi.model.progress import ProgressCallback
from torchx_pulumi.model.redaction import MARK, encodings
from torchx_pulumi.model.text import megabytes

_EVERY_S: Final = 1.0
_SHORTEST_SECRET: Final = 3
"""Characters of the shortest value that is removed. A shorter one would match too many texts."""


class Progress:
    """Reports the progress of one image."""

    def __init__(self, report: ProgressCallback, image: str, build_args: Mapping[str, str]) -> None:
        self._report = report
        self._image = image
        hidden = {value for name, value in build_args.items() if name not in SHOWN_ARGUMENTS}
        pieces = {line.strip() for value in hidden for line in (value, *value.splitlines())}
        # The longest first, because one may be a part of another.
        forms = {form for piece in pieces if len(piece) >= _SHORTEST_SECRET for form in encodings(piece)}
        self._hidden = sorted(forms, key=len, reverse=True)
        self._last_s = 0.0

    def say(self, text: str) -> None:
        """Report a line."""
        self._last_s = time.monotonic()
        self._report(f"image {self._image}: {self.redact(text)}")

    def say_now_and_then(self, text: Callable[[], str]) -> None:
        """Report a line if the last one is at least a second old."""
        if time.monotonic() - self._last_s >= _EVERY_S:
            self.say(text())

    def redact(self, text: str) -> str:
        """Return a text with the values of build arguments replaced."""
        for value in self._hidden:
            text = text.replace(value, MARK)
        return text

    def counted(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the pieces of a context and report the sent bytes."""
        sent = 0
        for piece in pieces:
            yield piece
            sent += len(piece)
            self.say_now_and_then(lambda: f"sending the workspace, {megabytes(sent)} so far")  # noqa: B023  called at once
        self.say(f"workspace sent, {megabytes(sent)}")


class Layers:
    """Progress of the layers of a push or pull."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._done: dict[str, int] = {}
        self._total: dict[str, int] = {}
        self._finished: set[str] = set()

    def take(self, event: Mapping[str, Any]) -> None:
        """Process an event of the daemon."""
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
