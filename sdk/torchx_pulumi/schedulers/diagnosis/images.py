"""Why an image cannot be pulled, from the kubelet's messages.

The kubelet alternates between the error of an attempt and a note that it waits before the next one; both have the
cause.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class PullError:
    """The cause of a failed pull and what to do."""

    cause: str
    resolution: str = "check the image's name and that nodes can pull it"


ADD_CREDENTIALS: Final = "give the service account, or the job, an image pull secret of that registry"
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
"""The kubelet's waiting reason -> the error, where the reason alone tells it."""

_BACK_OFF = re.compile(r'^Back-off pulling image "[^"]*"(?:: )?(?:ErrImagePull: )?')
_PORT = re.compile(r"(?<=:)\d{4,5}(?=->)")


def find_pull_error(reason: str, message: str) -> PullError | None:
    """Return why an image cannot be pulled. None: the kubelet does not say.

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
