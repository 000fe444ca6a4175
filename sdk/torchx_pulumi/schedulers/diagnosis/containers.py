"""What is wrong with one container: how it ended, or why it does not start."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from typing import Final

from torchx_pulumi.model.object_fields import items_at, mapping_at, number_at, text_at, time_at
from torchx_pulumi.model.status import STOP_CODES, Reason
from torchx_pulumi.schedulers.diagnosis.evidence import Finding, Observed
from torchx_pulumi.schedulers.pods.pull_errors import UNSAID, pull_cause, pull_words
from torchx_pulumi.schedulers.pods.status import IMAGE_WAITS, REFUSED_WAITS, exit_code

MAX_LAST_LINES: Final = 12
"""Lines of a termination message that a diagnosis shows."""

MAX_LAST_CHARACTERS: Final = 1200
"""Characters of them."""

IMAGE_ADVICE: Final = {
    "it is not in the registry": "check name and tag (`docker manifest inspect IMAGE`), push it, and launch again",
    "the registry refuses the credentials, or wants some": "give the service account, or the job, an image pull secret "
    "of that registry",
    "it does not exist, or needs credentials": "check name and tag, and give the service account, or the job, an image "
    "pull secret of that registry",
    "the registry limits how often it may be asked": "wait, pull with credentials, or use a mirror of the registry",
    "the registry cannot be reached": "check the registry's host in the image's name, and that nodes can reach it",
    "its name is not one of an image": "correct the image's name: registry/repository:tag, in small letters",
    "it is not made for the node's processor": "build the image for the node's platform, or select other nodes",
    "the node's disk is full": "have the node's disk cleaned, or select other nodes",
}
"""Cause of a failed pull -> what to do."""


def last_lines(text: str | None) -> str:
    """Return the end of a termination message."""
    lines = [line.rstrip() for line in (text or "").strip().splitlines()]
    return "\n".join(lines[-MAX_LAST_LINES:])[-MAX_LAST_CHARACTERS:]


def signal_name(code: int) -> str | None:
    """Name the signal that an exit code stands for.

    >>> signal_name(137), signal_name(3)
    ('SIGKILL', None)
    """
    try:
        return signal.Signals(code - 128).name if 128 < code < 128 + 65 else None
    except ValueError:
        return None


def container_findings(pod: Observed, events: list[Observed], log: str = "") -> Iterator[Finding]:
    """Yield what is wrong with the containers of a pod, init containers first."""
    sidecars = {
        text_at(one, "name") for one in items_at(pod, "spec", "initContainers") if one.get("restartPolicy") == "Always"
    }
    main = text_at(next(iter(items_at(pod, "spec", "containers")), None), "name")
    for status in items_at(pod, "status", "initContainerStatuses"):
        beside = text_at(status, "name") in sidecars
        yield from _read(pod, status, (events, log), Reason.SIDECAR_FAILED if beside else Reason.INIT_FAILED)
    for status in items_at(pod, "status", "containerStatuses"):
        own = main is None or text_at(status, "name") in (main, None)
        yield from _read(pod, status, (events, log), None if own else Reason.SIDECAR_FAILED)


def _read(pod: Observed, status: Observed, told: tuple[list[Observed], str], role: Reason | None) -> Iterator[Finding]:
    (events, log), name = told, text_at(status, "name")
    waiting, ended = mapping_at(status, "state", "waiting"), mapping_at(status, "state", "terminated")
    word = text_at(waiting, "reason") or ""
    if word in IMAGE_WAITS:
        yield _image(pod, status, word, events)
    elif word in REFUSED_WAITS:
        yield refused(text_at(waiting, "message") or word, name)
    elif word == "CrashLoopBackOff":
        yield _crash_loop(pod, status, role, log)
    elif exit_code(status):
        yield _ended(pod, status, ended, role, log, exit_code(status) or 0)


def _image(pod: Observed, status: Observed, word: str, events: list[Observed]) -> Finding:
    name = text_at(status, "name")
    wanted = [one for key in ("containers", "initContainers") for one in items_at(pod, "spec", key)]
    image = next((text_at(one, "image") for one in wanted if text_at(one, "name") == name), None)
    image = image or text_at(status, "image") or "?"
    said = text_at(status, "state", "waiting", "message") or ""
    cause, words = pull_cause(word, said), pull_words(said)
    if cause == UNSAID:
        told = (
            pull_words(text_at(event, "message") or "")
            for event in events
            if "Failed" in (text_at(event, "reason") or "")
        )
        words = next((text for text in told if image in text and pull_cause("", text) != UNSAID), words)
        cause = pull_cause("", words)
    return Finding(
        reason=Reason.IMAGE_UNAVAILABLE,
        what=f"image {image!r} cannot be pulled: {cause}",
        detail=words,
        resolution=IMAGE_ADVICE.get(cause, "check the image's name and that nodes can pull it"),
        container=name,
    )


def refused(said: str, container: str | None) -> Finding:
    """Judge a container that cannot be made or started."""
    missing = re.search(r'(secret|configmap|serviceaccount|persistentvolumeclaim) "([^"]+)" not found', said, re.I)
    if missing:
        advice = f"create {missing[1]} {missing[2]!r} in the job's namespace, or correct its name in the job"
    elif re.search(r"executable file not found|no such file or directory", said):
        advice = "correct the entrypoint: the image has no such program, or its interpreter is absent"
    else:
        advice = "correct what the message names in the job, and launch again"
    return Finding(
        reason=Reason.CONTAINER_REFUSED,
        what="the container cannot be made or started",
        detail=said,
        resolution=advice,
        container=container,
    )


def _crash_loop(pod: Observed, status: Observed, role: Reason | None, log: str) -> Finding:
    last = mapping_at(status, "lastState", "terminated")
    count = number_at(status, "restartCount") or 0
    cause = _ended(pod, status, last, role, log, exit_code(status, before=True) or 0)
    times = "once" if count == 1 else f"{count} times"
    return Finding(
        reason=Reason.CRASH_LOOP,
        what=f"ends again and again, started anew {times} so far; the last time it {cause.what}",
        detail=cause.detail,
        resolution=cause.resolution,
        container=text_at(status, "name"),
    )


def _ended(pod: Observed, status: Observed, ended: Observed, role: Reason | None, log: str, code: int) -> Finding:
    name = text_at(status, "name")
    word, lines = text_at(ended, "reason"), last_lines(text_at(ended, "message") or log)
    at, whose = time_at(ended, "finishedAt"), f" (container {name!r})" if role and name else ""
    if word == "OOMKilled":
        limit = _memory_limit(pod, name)
        used = f"more memory than its limit{f' of {limit}' if limit else ''}"
        return Finding(
            reason=Reason.OUT_OF_MEMORY,
            what=f"was killed by the kernel for using {used} (exit code {code}){whose}",
            detail=lines,
            resolution="ask for more memory (memMB of the role's resource), or use less (smaller batches)",
            at=at,
            container=name,
        )
    if word in ("StartError", "ContainerCannotRun"):
        found = refused(lines or word, name)
        return Finding(
            reason=found.reason,
            what=found.what,
            detail=found.detail,
            resolution=found.resolution,
            at=at,
            container=name,
        )
    killed = signal_name(code)
    return Finding(
        reason=role or Reason.EXIT_CODE,
        what=f"exited with code {code}{f' ({killed})' if killed else ''}{whose}",
        detail=lines,
        resolution=_exit_advice(code, name if role else None),
        at=at,
        follows=code in STOP_CODES,
        container=name,
    )


def _exit_advice(code: int, container: str | None) -> str:
    if code in STOP_CODES:
        return "it was told to stop: see what ended the others first, or who deleted it"
    if code == 137:
        return "it was killed, though not for its memory limit: see the node's events, and what it was running beside"
    if code in (126, 127):
        return "correct the entrypoint: the shell found no such program, or may not run it"
    which = f" of container {container!r}" if container else ""
    return f"read the log{which}: the last lines say what the program complained about"


def _memory_limit(pod: Observed, container: str | None) -> str | None:
    for one in items_at(pod, "spec", "containers"):
        if text_at(one, "name") == container:
            return text_at(one, "resources", "limits", "memory")
    return None
