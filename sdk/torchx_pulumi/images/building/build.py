"""Builds on the daemon: the context is sent as a stream, and the daemon's output is reported as progress."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final

from torchx_pulumi.images.building.daemon import Daemon, explained, read_events, translated_errors
from torchx_pulumi.images.building.progress import Progress
from torchx_pulumi.model.errors import ImageError

LAST_LINES: Final = 20
"""Last lines of a failed step in its error."""
_STEP: Final = re.compile(r"^Step (\d+/\d+) : (.*)$")


def build(
    daemon: Daemon,
    context: Iterable[bytes],
    *,
    dockerfile: str,
    build_args: Mapping[str, str],
    labels: Mapping[str, str],
    platform: str,
    progress: Progress,
    every_line: bool,
    cached: bool = True,
) -> str:
    """Build an image and return its id. The image gets no name, so a failed build leaves none.

    Args:
        daemon: The daemon.
        context: The archive of the context.
        dockerfile: Path of the Dockerfile in the context.
        build_args: Build arguments with their values.
        labels: Labels of the image.
        platform: Platform of the image.
        progress: Receives the steps.
        every_line: Report all output, not only the steps and one line per second.
        cached: Use the daemon's cache.

    Raises:
        ImageError: A step failed. The message has its name and its last lines.
    """
    step, lines = "before the first step", deque[str](maxlen=LAST_LINES)
    image_id = ""
    with translated_errors("the build"):
        events = daemon.api.build(
            fileobj=progress.counted(context),
            custom_context=True,
            dockerfile=dockerfile,
            buildargs=dict(build_args),
            labels=dict(labels),
            platform=platform,
            pull=False,
            nocache=not cached,
            rm=True,
            forcerm=True,
            decode=True,
            timeout=None,
        )
        for event in read_events(events):
            for line in str(event.get("stream", "")).splitlines():
                if found := _STEP.match(line.strip()):
                    step = f"step {found[1]}: {found[2]}"
                    lines.clear()
                    progress.say(step)
                elif line.strip():
                    lines.append(line.rstrip())
                    (progress.say(line.rstrip()) if every_line else progress.say_now_and_then(line.strip))
            image_id = (event.get("aux") or {}).get("ID") or image_id
            if "error" in event:
                raise ImageError(progress.redact(_failed(step, str(event["error"]), lines)))
    if not image_id:
        raise ImageError(progress.redact(_failed(step, "the daemon returned no image", lines)))
    return image_id


def _failed(step: str, error: str, lines: Iterable[str]) -> str:
    shown = "".join(f"\n    {line}" for line in lines)
    return f"the build failed in {step}\n  {explained(error)}" + (f"\n  its last lines:{shown}" if shown else "")
