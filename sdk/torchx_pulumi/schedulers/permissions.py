"""Permissions that every scheduler needs, and the loss without each. A refusal of an optional one is logged once.

`docs/permissions.md` shows them; the doctor checks them. The packages of the schedulers add their own.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from torchx_pulumi.kube import Reader
from torchx_pulumi.kube.kinds import EVENT, NAMESPACE, NODE, POD, Kind
from torchx_pulumi.model.documentation import page
from torchx_pulumi.model.errors import ClusterError

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")

REFUSED_S: Final = 300.0
"""How long a refusal is remembered at most before the cluster is asked again."""

FIRST_S: Final = 5.0
"""The same after the first refusal, which may pass: of an API server that starts. Each further one is kept longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """One thing that a user may be allowed to do."""

    verb: str
    kind: Kind
    part: str | None = None
    """Subresource. None: the object itself."""
    everywhere: bool = False
    """In all namespaces, by a ClusterRole."""
    without: str = ""
    """The loss without it. Empty: it is required."""

    @property
    def resource(self) -> str:
        """Return the resource as a Role names it, with its group."""
        name = f"{self.kind.plural}/{self.part}" if self.part else self.kind.plural
        return f"{name}.{self.kind.group}" if self.kind.group else name

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}"


JOB_OBJECT_VERBS: Final = ("create", "get", "list", "patch", "delete")
"""On the kind of the job: TorchX's own, and `patch`, by which the Kubernetes provider creates and changes objects."""

LIST_PODS = Permission(
    verb="list",
    kind=POD,
    without="pods are asked for by their names, of a Volcano job only those that wait or failed, at most 16",
)
GET_PODS = Permission(
    verb="get", kind=POD, without="why replicas wait or failed is not known, and logs may not be read"
)
LIST_EVENTS = Permission(verb="list", kind=EVENT, without="events do not explain why a job waits")
LIST_NODES = Permission(
    verb="list",
    kind=NODE,
    everywhere=True,
    without="which nodes could take a job, and whether any ever can, is not known",
)

GET_NAMESPACES = Permission(
    verb="get",
    kind=NAMESPACE,
    everywhere=True,
    without="a cluster is known by its certificate and address only; a namespace that is being deleted is not noticed",
)

READING: Final = (
    LIST_PODS,
    GET_PODS,
    Permission(verb="get", kind=POD, part="log", without="logs are not read, and the last lines of failed replicas"),
    LIST_EVENTS,
    LIST_NODES,
    GET_NAMESPACES,
)


def on_job_object(kind: Kind) -> tuple[Permission, ...]:
    """Return the permissions on the kind of the job object; all but the last are required."""
    required = (Permission(verb=verb, kind=kind) for verb in JOB_OBJECT_VERBS)
    return (*required, Permission(verb="watch", kind=kind, without="the end of a deletion is seen a few seconds later"))


@dataclass(slots=True)
class _Refusals:
    """The refusals of one cluster."""

    until: dict[tuple[Permission, str | None], float] = field(default_factory=dict)
    """Permission and namespace to the time until which the cluster is not asked again."""
    kept_s: dict[tuple[Permission, str | None], float] = field(default_factory=dict)
    """Permission and namespace to how long the last refusal in a row was remembered."""
    told: set[tuple[Permission, str | None]] = field(default_factory=set)


_refused: WeakKeyDictionary[Any, _Refusals] = WeakKeyDictionary()
_guard = threading.Lock()


def if_permitted(
    cluster: Reader, permission: Permission, namespace: str | None, read: Callable[[], Answer]
) -> Answer | None:
    """Return an optional read, or None without its permission, which is logged once for each cluster and namespace.

    Args:
        cluster: The cluster. No request is made for 5 s after a refusal, and for up to `REFUSED_S` after several in a
            row.
        permission: Permission that the read needs.
        namespace: Namespace of the read. None: all namespaces.
        read: The request.

    Raises:
        ClusterError: The request failed for another reason.
    """
    key = (permission, namespace)
    with _guard:
        # A cluster that passes requests on has the original as its `origin`.
        known = _refused.setdefault(getattr(cluster, "origin", cluster), _Refusals())
        if known.until.get(key, 0.0) > time.monotonic():
            return None
    try:
        answer = read()
    except ClusterError as error:
        if error.reason != "Forbidden":
            raise
    else:
        known.kept_s.pop(key, None)
        return answer
    with _guard:
        kept_s = known.kept_s[key] = min(4 * known.kept_s.get(key, FIRST_S / 4), REFUSED_S)
        known.until[key] = time.monotonic() + kept_s
        is_new = key not in known.told
        known.told.add(key)
    if is_new:
        where = f"in namespace {namespace}" if namespace else "in all namespaces"
        logger.warning("no permission to %s %s: %s (%s)", permission, where, permission.without, page("permissions"))
    return None
