"""`as`, `as-uid`, `as-groups` and `as-user-extra` of a kubeconfig's user: the headers by which a request acts for them.

A group has a header of its own: the API server reads two names in one header as one group. A mapping of headers cannot
hold that, urllib3's `HTTPHeaderDict` can.
"""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from torchx_pulumi.kube.transport import urllib3
from torchx_pulumi.model.errors import ClusterError

Headers = Sequence[tuple[str, str]]

_TOKEN = f"{string.ascii_letters}{string.digits}!#$&'*+-.^_`|~"
"""Characters that may stand in the name of a header; all others, and `%`, are written as `%XX`."""


def impersonation(user: Mapping[str, Any], where: str) -> Headers:
    """Return the headers of a kubeconfig's user. Empty: requests act for the user whose credentials they carry.

    Args:
        user: The user of a kubeconfig.
        where: What messages call the cluster.

    Raises:
        ClusterError: Groups without a user, or a value that no header can hold.
    """
    headers = list(_headers(user))
    if headers and not user.get("as"):
        raise ClusterError(
            f"{where} cannot be used: its kubeconfig has as-uid, as-groups or as-user-extra without `as`, "
            "which names the user to act for; add it, or remove the others"
        )
    for name, value in headers:
        if any(ord(letter) < 32 or ord(letter) == 127 for letter in value):
            raise ClusterError(
                f"{where} cannot be used: the value of {name} in its kubeconfig has a control character; "
                "write it as one line of text"
            )
    # A header holds bytes, which Python writes as Latin-1. The API server reads them as UTF-8.
    return [(name, value.encode().decode("latin-1")) for name, value in headers]


def _headers(user: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if user.get("as"):
        yield "Impersonate-User", str(user["as"])
    if user.get("as-uid"):
        yield "Impersonate-Uid", str(user["as-uid"])
    for group in user.get("as-groups") or ():
        yield "Impersonate-Group", str(group)
    for key, values in (user.get("as-user-extra") or {}).items():
        for value in values or ():
            yield f"Impersonate-Extra-{quote(str(key), safe=_TOKEN)}", str(value)


def with_headers(headers: Mapping[str, str] | None, more: Headers) -> Any:
    """Return headers with others added, each on a line of its own."""
    # Version 1 has no public name for it.
    whole = urllib3().response.HTTPHeaderDict(headers or {})
    for name, value in more:
        whole.add(name, value)
    return whole
