"""Type checks of the fields of a kubeconfig's cluster and user. What kubectl refuses is refused here.

Without the checks a field of a wrong type would have another meaning: `insecure-skip-tls-verify: "false"` is a text
that is not empty, and `as-groups: admins` would be six groups of one letter. No message repeats a value, because it may
be a secret.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.text import is_text_list

CLUSTER_TEXTS = (
    "server",
    "tls-server-name",
    "proxy-url",
    "certificate-authority",
    "certificate-authority-data",
)
USER_TEXTS = (
    "token",
    "tokenFile",
    "username",
    "password",
    "client-certificate",
    "client-certificate-data",
    "client-key",
    "client-key-data",
    "as",
    "as-uid",
)
ENCODED = ("certificate-authority-data", "client-certificate-data", "client-key-data")


def check_fields(cluster: Mapping[str, Any], user: Mapping[str, Any], where: str) -> None:
    """Check the types of all fields that requests depend on.

    Args:
        cluster: The cluster of a kubeconfig.
        user: The user of it.
        where: Name of the cluster in messages.

    Raises:
        ClusterError: All problems.
    """
    problems = [*_of_cluster(cluster), *_of_user(user)]
    if problems:
        raise ClusterError(f"{where} cannot be used: in its kubeconfig, {'; '.join(problems)}")


def decoded(text: str) -> bytes:
    """Return the decoded bytes of a field in base64. Line breaks in it are ignored.

    Raises:
        ValueError: The text is not base64. By default the standard library skips unknown characters instead.
    """
    return base64.b64decode("".join(text.split()), validate=True)


def _of_cluster(cluster: Mapping[str, Any]) -> Iterator[str]:
    yield from _texts(cluster, CLUSTER_TEXTS)
    insecure = cluster.get("insecure-skip-tls-verify")
    if not isinstance(insecure, bool | None):
        yield f"insecure-skip-tls-verify must be true or false without quotes, found {_kind(insecure)}"
    elif insecure and (cluster.get("certificate-authority") or cluster.get("certificate-authority-data")):
        yield "insecure-skip-tls-verify and certificate-authority exclude each other; remove one"
    server = cluster.get("server")
    if isinstance(server, str) and not _is_address(server):
        yield "server is not an address; write https://host:port"


def _of_user(user: Mapping[str, Any]) -> Iterator[str]:
    yield from _texts(user, USER_TEXTS)
    for data in ("", "-data"):
        if user.get(f"client-certificate{data}") and not (user.get("client-key") or user.get("client-key-data")):
            yield f"client-certificate{data} is without its key; add client-key or client-key-data"
    groups = user.get("as-groups")
    if not _is_texts(groups):
        yield f"as-groups must be a list of texts, found {_kind(groups)}"
    extra = user.get("as-user-extra")
    if not (extra is None or (isinstance(extra, Mapping) and all(map(_is_texts, extra.values())))):
        yield "as-user-extra must be a mapping of names to lists of texts"
    for name in ("exec", "auth-provider"):
        if not isinstance(user.get(name), Mapping | None):
            yield f"{name} must be a mapping, found {_kind(user[name])}"


def _texts(section: Mapping[str, Any], names: tuple[str, ...]) -> Iterator[str]:
    for name in names:
        value = section.get(name)
        if not isinstance(value, str | None):
            yield f"{name} must be a text, found {_kind(value)}; put it in quotes"
        elif value and name in ENCODED:
            try:
                decoded(value)
            except binascii.Error:
                yield f"{name} is not base64"


def _is_texts(value: Any) -> bool:
    return value is None or is_text_list(value)


def _is_address(server: str) -> bool:
    try:
        parts = urlsplit(server if "://" in server else f"https://{server}")
        return bool(parts.hostname) and parts.port != 0 and not any(letter.isspace() for letter in server)
    except ValueError:
        return False


def _kind(value: Any) -> str:
    kinds = {
        str: "a text",
        bool: "true or false",
        int: "a number",
        float: "a number",
        list: "a list",
        dict: "a mapping",
    }
    return kinds.get(type(value), type(value).__name__)
