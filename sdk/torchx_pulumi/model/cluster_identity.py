"""The identity of a cluster, and the comparison of two identities. Pure: no file, no request.

An address alone does not identify a cluster: a tunnel can lead to another cluster later, every pod reaches its cluster
at the same address, and one cluster can have several addresses. The uid of the namespace `kube-system` is created with
the cluster and never changes, but not every user may read it. docs/decisions/0011 has the rules.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from torchx_pulumi.model.codec import from_json, to_json

HOME_NAMESPACE = "kube-system"
"""Namespace whose uid stands for the cluster."""

DIGEST_LENGTH = 12
"""Hexadecimal digits of a digest."""


class Match(Enum):
    """Whether two identities are of one cluster."""

    SAME = "same"
    DIFFERENT = "different"
    UNDECIDED = "undecided"
    """The known values do not decide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterIdentity:
    """The known values that identify a cluster."""

    uid: str | None = None
    """Uid of the namespace `kube-system`. None: not known, usually because it may not be read."""
    ca: str | None = None
    """Digest of the certificate authority that the access names. None: it names none, or it is not known."""
    address: str
    """Digest of the API server's address (`kubeconfig.identity_of`)."""
    name: str = field(default="", compare=False)
    """Name in messages: context and address; empty if unknown."""

    @property
    def key(self) -> str:
        """Return the key of the cluster in names of files and stacks: a digest of its uid, else of its address."""
        return self.address if self.uid is None else digest_of(f"uid:{self.uid}".encode())

    @property
    def keys(self) -> tuple[str, ...]:
        """Return every key that an app in this cluster may have been launched with, the preferred one first."""
        return tuple(dict.fromkeys((self.key, self.address)))

    def __str__(self) -> str:
        return f"{self.name or 'a cluster'}{f' (uid {self.uid})' if self.uid else ''}"


def compare(recorded: ClusterIdentity, present: ClusterIdentity) -> Match:
    """Compare the cluster that was recorded with the one that is present.

    Two uids decide. Without them, an equal address and an equal authority mean the same cluster. Everything else is
    undecided: a different address alone proves nothing.

    >>> here = ClusterIdentity(ca="c", address="a")
    >>> compare(here, here).value, compare(here, ClusterIdentity(ca="c", address="b")).value
    ('same', 'undecided')
    """
    if recorded.uid is not None and present.uid is not None:
        return Match.SAME if recorded.uid == present.uid else Match.DIFFERENT
    alike = (recorded.address, recorded.ca) == (present.address, present.ca)
    return Match.SAME if alike else Match.UNDECIDED


def mismatch_words(subject: str, launched_in: object, present: ClusterIdentity, match: Match) -> str:
    """Return the message about a present cluster that is not, or may not be, the one of a launch.

    `subject` is the launched job in words, `launched_in` the name of its cluster, if known, and `match` the result of
    `compare`.
    """
    start = f"{subject} was launched in {launched_in or 'a cluster with another address'}"
    if match is Match.DIFFERENT:
        return f"{start}; {present} is another one"
    return (
        f"{start}; whether {present} is that one is not known: its object is not there, the address or the certificate "
        f"authority is another one, and the uid of namespace {HOME_NAMESPACE} is not known of both"
    )


def digest_of(data: bytes) -> str:
    """Return the digest of an address, an authority or a uid."""
    return hashlib.sha256(data).hexdigest()[:DIGEST_LENGTH]


def authority_digest(certificates: bytes | None) -> str | None:
    """Return the digest of an authority's certificates, whatever their line ends; None for no certificates."""
    return digest_of(b"".join(certificates.split())) if certificates else None


def write_identity(identity: ClusterIdentity) -> dict[str, str]:
    """Return an identity as plain JSON values, without unknown ones."""
    return {name: value for name, value in to_json(identity).items() if value}


def read_identity(value: object) -> ClusterIdentity | None:
    """Read what `write_identity` wrote; None stays None.

    Raises:
        ValueError: The value is not an identity.
    """
    if value is None:
        return None
    if not isinstance(value, Mapping) or not value.get("address"):
        raise ValueError(f"the identity of its cluster is {type(value).__name__} without an address")
    return from_json(ClusterIdentity, {name: item for name, item in value.items() if item})
