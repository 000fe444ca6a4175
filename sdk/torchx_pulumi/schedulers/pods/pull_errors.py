"""What the kubelet says of an image that it cannot pull, in words that do not change from try to try.

The kubelet alternates between the error of a try and a note that it waits before the next one; both carry the cause.
"""

from __future__ import annotations

import re
from typing import Final

CAUSES: Final[tuple[tuple[str, str], ...]] = (
    (r"toomanyrequests|too many requests|rate.?limit|\b429\b", "the registry limits how often it may be asked"),
    (
        r"unauthori[sz]ed|authentication required|\b401\b|\b403\b|forbidden|authorization failed|no basic auth",
        "the registry refuses the credentials, or wants some",
    ),
    (r"pull access denied|requested access to the resource is denied", "it does not exist, or needs credentials"),
    (r"no match for platform|no matching manifest|exec format", "it is not made for the node's processor"),
    (
        r"no such host|connection refused|i/o timeout|dial tcp|network is unreachable|tls|x509|certificate|"
        r"deadline exceeded|server gave http response|connection reset|\bEOF\b",
        "the registry cannot be reached",
    ),
    (r"not ?found|manifest unknown|does not exist|name unknown|\b404\b|no such image", "it is not in the registry"),
    (r"no space left", "the node's disk is full"),
)
"""Pattern of a registry's words -> the cause in ours; the first that matches counts."""

WORDS: Final = {
    "InvalidImageName": "its name is not one of an image",
    "ErrImageNeverPull": "it is not on the node, and imagePullPolicy Never forbids pulling it",
    "RegistryUnavailable": "the registry cannot be reached",
}
"""The kubelet's word -> the cause, where the word alone says it."""

UNSAID: Final = "the registry did not say why"

_BACK_OFF = re.compile(r'^Back-off pulling image "[^"]*"(?:: )?(?:ErrImagePull: )?')
_PORT = re.compile(r"(?<=:)\d{4,5}(?=->)")


def pull_cause(word: str, said: str) -> str:
    """Say in our words why an image cannot be pulled.

    Args:
        word: The kubelet's word, for example `ErrImagePull`.
        said: Its message.

    >>> pull_cause("ImagePullBackOff", 'Back-off pulling image "x": ErrImagePull: x: not found')
    'it is not in the registry'
    """
    if word in WORDS:
        return WORDS[word]
    text = pull_words(said)
    return next((cause for pattern, cause in CAUSES if re.search(pattern, text, re.IGNORECASE)), UNSAID)


def pull_words(said: str) -> str:
    """Return the words of the registry; the same for an error and for the note that the next try has to wait.

    >>> pull_words('Back-off pulling image "x": ErrImagePull: x: not found')
    'x: not found'
    >>> pull_words('Back-off pulling image "x"')
    ''
    """
    return _PORT.sub("*", _BACK_OFF.sub("", said.strip()).removeprefix("ErrImagePull: ")).strip()
