"""The problem of one container: how it ended, or why it does not start."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from torchx_pulumi.model.object_fields import text_at
from torchx_pulumi.model.options import Observed
from torchx_pulumi.model.status import STOP_CODES, Reason
from torchx_pulumi.schedulers.diagnosis.evidence import PodProblem
from torchx_pulumi.schedulers.pods.containers import (
    CRASH_LOOP,
    IMAGE_WAITS,
    REFUSED_WAITS,
    START_ERRORS,
    Container,
    Termination,
)

ADD_CREDENTIALS: Final = "give the service account, or the job, an image pull secret of that registry"

_BACK_OFF = re.compile(r'^Back-off pulling image "[^"]*"(?:: )?(?:ErrImagePull: )?')

_PORT = re.compile(r"(?<=:)\d{4,5}(?=->)")

MAX_LAST_LINES: Final = 12
"""Lines of a termination message that a diagnosis shows."""

MAX_LAST_CHARACTERS: Final = 1200
"""Characters of them."""


@dataclass(frozen=True, slots=True)
class PullError:
    """The cause of a failed pull and what to do."""

    cause: str
    resolution: str = "check the image's name and that nodes can pull it"


RATE_LIMIT: Final = PullError(
    "the registry limits how often it may be asked", "wait, pull with credentials, or use a mirror of the registry"
)
UNREACHABLE: Final = PullError(
    "the registry cannot be reached", "check the registry's host in the image's name, and that nodes can reach it"
)
PLATFORM: Final = PullError(
    "it is not made for the node's processor", "build the image for the node's platform, or select other nodes"
)
ABSENT: Final = PullError(
    "it is not in the registry",
    "check name and tag (`docker manifest inspect IMAGE`), push it, and launch again",
)

PATTERNS: Final[Mapping[str, PullError]] = {
    r"toomanyrequests|too many requests|rate.?limit|\b429\b": RATE_LIMIT,
    r"unauthori[sz]ed|authentication required|\b401\b|\b403\b|forbidden|authorization failed|no basic auth": PullError(
        "the registry refuses the credentials, or wants some", ADD_CREDENTIALS
    ),
    r"pull access denied|requested access to the resource is denied": PullError(
        "it does not exist, or needs credentials", f"check name and tag, and {ADD_CREDENTIALS}"
    ),
    r"no match for platform|no matching manifest|exec format": PLATFORM,
    r"no such host|connection refused|i/o timeout|dial tcp|network is unreachable|tls|x509|certificate": UNREACHABLE,
    r"deadline exceeded|server gave http response|connection reset|\bEOF\b": UNREACHABLE,
    r"not ?found|manifest unknown|does not exist|name unknown|\b404\b|no such image": ABSENT,
    r"no space left": PullError("the node's disk is full", "free space on the node's disk, or select other nodes"),
}
"""Pattern of the registry's message -> the error; the first that matches counts."""

REASONS: Final = {
    "InvalidImageName": PullError(
        "its name is not one of an image", "correct the image's name: registry/repository:tag, in small letters"
    ),
    "ErrImageNeverPull": PullError("it is not on the node, and imagePullPolicy Never forbids pulling it"),
    "RegistryUnavailable": UNREACHABLE,
}
"""The kubelet's waiting reason -> the error, if the reason alone tells it."""


def find_pull_error(reason: str, message: str) -> PullError | None:
    """Return why an image cannot be pulled, or None if the kubelet does not say.

    Args:
        reason: The kubelet's waiting reason, for example `ErrImagePull`. Empty: the message is of an event.
        message: Its message.

    >>> find_pull_error("ImagePullBackOff", 'Back-off pulling image "x": ErrImagePull: x: not found').cause
    'it is not in the registry'
    """
    if reason in REASONS:
        return REASONS[reason]
    text = registry_message(message)
    return next((error for pattern, error in PATTERNS.items() if re.search(pattern, text, re.IGNORECASE)), None)


def registry_message(message: str) -> str:
    """Return the registry's part of a message; the same for an error and for the note that the next attempt waits.

    >>> registry_message('Back-off pulling image "x": ErrImagePull: x: not found')
    'x: not found'
    >>> registry_message('Back-off pulling image "x"')
    ''
    """
    return _PORT.sub("*", _BACK_OFF.sub("", message.strip()).removeprefix("ErrImagePull: ")).strip()


UNKNOWN_PULL_ERROR: Final = PullError("the registry did not say why")


def signal_name(code: int) -> str | None:
    """Return the name of the signal that an exit code stands for, or None for any other code.

    >>> signal_name(137), signal_name(3)
    ('SIGKILL', None)
    """
    try:
        return signal.Signals(code - 128).name if 128 < code < 128 + 65 else None
    except ValueError:
        return None


def find_container_problem(container: Container, events: Sequence[Observed], log: str = "") -> PodProblem | None:
    """Return the problem of a container, or None if it has none.

    `events` are those of its pod. `log` is the end of the log of a container that failed without a termination message.
    """
    if container.waiting in IMAGE_WAITS:
        return _image_problem(container, events)
    if container.waiting in REFUSED_WAITS:
        return refused_container(container.waiting_message or container.waiting or "")
    if container.waiting == CRASH_LOOP:
        last = container.previous or Termination(exit_code=0, reason=None, message=None, finished_at=None)
        cause = termination_problem(container, last, log)
        times = "once" if container.restarts == 1 else f"{container.restarts} times"
        what = f"ends again and again, restarted {times} so far; the last time it {cause.what}"
        return PodProblem(reason=Reason.CRASH_LOOP, what=what, detail=cause.detail, resolution=cause.resolution)
    if container.ended is not None and container.ended.exit_code:
        return termination_problem(container, container.ended, log)
    return None


def is_pull_error_unknown(container: Container) -> bool:
    """Return whether an image cannot be pulled and only the pod's events may say why."""
    return container.waiting in IMAGE_WAITS and (
        find_pull_error(container.waiting or "", container.waiting_message) is None
    )


def _image_problem(container: Container, events: Sequence[Observed]) -> PodProblem:
    image = container.image or "?"
    error = find_pull_error(container.waiting or "", container.waiting_message)
    message = registry_message(container.waiting_message)
    if error is None:
        for event in events:
            text = registry_message(text_at(event, "message") or "")
            if "Failed" in (text_at(event, "reason") or "") and image in text and find_pull_error("", text):
                error, message = find_pull_error("", text), text
                break
    error = error or UNKNOWN_PULL_ERROR
    return PodProblem(
        reason=Reason.IMAGE_UNAVAILABLE,
        what=f"image {image!r} cannot be pulled: {error.cause}",
        detail=message,
        resolution=error.resolution,
    )


def refused_container(message: str) -> PodProblem:
    """Return the problem of a container that cannot be created or started."""
    missing = re.search(r'(secret|configmap|serviceaccount|persistentvolumeclaim) "([^"]+)" not found', message, re.I)
    if missing:
        advice = f"create {missing[1]} {missing[2]!r} in the job's namespace, or correct its name in the job"
    elif re.search(r"executable file not found|no such file or directory", message):
        advice = "correct the entrypoint: the image has no such program, or its interpreter is absent"
    else:
        advice = "correct what the message names in the job, and launch again"
    what = "the container cannot be made or started"
    return PodProblem(reason=Reason.CONTAINER_REFUSED, what=what, detail=message, resolution=advice)


def termination_problem(container: Container, end: Termination, log: str = "") -> PodProblem:
    """Return the problem of a container whose run ended with an exit code other than 0.

    `log` is the end of its log, if it wrote no termination message.
    """
    code = end.exit_code or 0
    written = [line.rstrip() for line in (end.message or log).strip().splitlines()]
    lines = "\n".join(written[-MAX_LAST_LINES:])[-MAX_LAST_CHARACTERS:]
    reason = Reason.SIDECAR_FAILED if container.sidecar else Reason.INIT_FAILED if container.init else Reason.EXIT_CODE
    other = repr(container.name) if reason is not Reason.EXIT_CODE and container.name else None
    suffix = f" (container {other})" if other else ""
    if end.reason in START_ERRORS:
        return replace(refused_container(lines or end.reason or ""), at=end.finished_at)
    if end.reason == "OOMKilled":
        limit = f" of {container.memory_limit}" if container.memory_limit else ""
        return PodProblem(
            reason=Reason.OUT_OF_MEMORY,
            what=f"was killed by the kernel for using more memory than its limit{limit} (exit code {code}){suffix}",
            detail=lines,
            resolution="ask for more memory (memMB of the role's resource), or use less (smaller batches)",
            at=end.finished_at,
        )
    name = signal_name(code)
    return PodProblem(
        reason=reason,
        what=f"exited with code {code}{f' ({name})' if name else ''}{suffix}",
        detail=lines,
        resolution=_exit_advice(code, other),
        at=end.finished_at,
        follows=code in STOP_CODES,
    )


def _exit_advice(code: int, container: str | None) -> str:
    if code in STOP_CODES:
        return "it was told to stop: see what ended the others first, or who deleted it"
    if code == 137:
        return "it was killed, but not because of its memory limit: see the node's events and its other pods"
    if code in (126, 127):
        return "correct the entrypoint: the shell found no such program, or may not run it"
    which = f" of container {container}" if container else ""
    return f"read the log{which}: the last lines say what the program complained about"
