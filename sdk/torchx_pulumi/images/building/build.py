"""One build on the daemon: the context goes over as a stream, what the daemon says comes back as progress."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final

from torchx_pulumi.images.building.daemon import Daemon, explained, in_our_words, read_events
from torchx_pulumi.images.building.progress import Progress
from torchx_pulumi.model.errors import ImageError

LAST_LINES: Final = 20
"""Lines of a failed step that its error shows."""
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
    """Build an image and return its id; it has no name yet, so that a build that fails leaves none.

    Args:
        daemon: Builds it.
        context: The archive.
        dockerfile: Its path in the context.
        build_args: All of them.
        labels: All of them.
        platform: What it is built for.
        progress: Is told the steps.
        every_line: Tell all that the daemon says, not only the steps and a line now and then.
        cached: Take steps from the daemon's cache.

    Raises:
        ImageError: A step failed; its name and its last lines are in the message.
    """
    step, lines = "before the first step", deque[str](maxlen=LAST_LINES)
    image_id = ""
    with in_our_words("the build"):
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
        raise ImageError(progress.redact(_failed(step, "the daemon named no image", lines)))
    return image_id


def _failed(step: str, error: str, lines: Iterable[str]) -> str:
    shown = "".join(f"\n    {line}" for line in lines)
    return f"the build failed in {step}\n  {explained(error)}" + (f"\n  its last lines:{shown}" if shown else "")
