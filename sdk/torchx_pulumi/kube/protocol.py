"""The client protocol of an API server: reads, writes, logs and watches.

`KubernetesCluster` implements it for real clusters. `torchx_pulumi.testing.FakeCluster` has what a run's observation
reads, and passes the same contract suite.

All methods that send a request raise `ClusterError` if there is no answer, no permission, or the cluster does not serve
the kind; their docstrings name further errors. A namespace of None means all namespaces, or a kind that has none. A
selector of None matches all objects.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

from torchx_pulumi.kube.kinds import Kind
from torchx_pulumi.kube.pod_list import PodList
from torchx_pulumi.model.cluster_identity import ClusterIdentity
from torchx_pulumi.model.object_fields import mapping_at, text_at
from torchx_pulumi.model.options import Manifest

Selector = Mapping[str, str | None]
"""Labels that an object must have. None: the label exists, with any value."""

Manifests = list[Manifest]
"""Objects. Within a class, `list` is its method."""

Key = tuple[str, str]
"""Namespace, empty for kinds without one, and name."""

EXPIRED = "Expired"
"""Reason of the `ClusterError` of a watch or a list whose version the cluster does not have any more, or not yet."""


def key_of(found: Manifest) -> Key:
    """Return namespace and name of an object."""
    return text_at(found, "metadata", "namespace") or "", text_at(found, "metadata", "name") or ""


def matches(found: Manifest, selector: Selector | None) -> bool:
    """Return whether an object has the labels of a selector."""
    labels = mapping_at(found, "metadata", "labels")
    return all(key in labels and value in (None, labels[key]) for key, value in (selector or {}).items())


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchEvent:
    """One event of a watch."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    """An object that no longer has the labels of the watch is DELETED."""
    object: Manifest
    """The object after the change, of a deleted one the last state. A bookmark has only the version."""

    @property
    def version(self) -> str:
        """Return the version from which a later watch continues after this event."""
        return str((self.object.get("metadata") or {}).get("resourceVersion") or "")


class WatchEvents(Iterator[WatchEvent], Protocol):
    """Iterator over the events of a watch, which blocks until there is one.

    It ends when the cluster ends the watch, which it does every few minutes. It raises a ClusterError if the stream was
    interrupted (retryable), or if the version is too old (`reason` is `Expired`).
    """

    def close(self) -> None:
        """Close the connection. Threads that wait for an event return. Further calls have no effect."""


class LogLines(Iterator[str], Protocol):
    """Iterator over the lines of a log. A line of more than 2**20 characters is returned in parts.

    A followed log blocks until there is a line. A ClusterError (retryable) is raised if the stream was interrupted;
    earlier lines are complete.
    """

    @property
    def finished(self) -> bool:
        """Return whether the log was read to its end and the last line was returned."""

    def close(self) -> None:
        """Close the connection. Threads that wait for a line return. Further calls have no effect."""


class Reader(Protocol):
    """Reads of a cluster."""

    def get(self, kind: Kind, namespace: str | None, name: str) -> Manifest | None:
        """Return an object, or None if it does not exist."""

    def list(self, kind: Kind, namespace: str | None, selector: Selector | None = None) -> list[Manifest]:
        """Return the objects of a kind, sorted by namespace and name."""

    def list_pods(
        self, namespace: str, selector: Selector, *, whole: int | None = None, phase: str | None = None
    ) -> PodList:
        """Return the pods that match a selector.

        Args:
            namespace: Namespace of the pods.
            selector: Labels that a pod must have.
            whole: Pods up to which objects are returned. For more pods, all rows are returned, and objects of the first
                ones, at most this number. 0: rows only. None: no limit.
            phase: Phase that a pod must have. None: any.
        """

    def events(self, namespace: str, names: Collection[str | None]) -> Sequence[Manifest]:
        """Return the events that involve objects of some names, of any kind, sorted by the events' names.

        If a namespace has more events than fit on a page, the normal ones of pods may be left out.
        """

    def serves(self, kind: Kind) -> bool:
        """Return whether the cluster serves the kind."""

    def identify(self) -> ClusterIdentity:
        """Return the identity of the cluster.

        Sends one request and keeps its result for 5 seconds. Without the permission to read the namespace
        `kube-system`, the uid is None.
        """


class Logs(Protocol):
    """Logs of containers."""

    def logs(
        self,
        namespace: str,
        pod: str,
        container: str | None = None,
        *,
        follow: bool = False,
        previous: bool = False,
        timestamps: bool = False,
        tail_lines: int | None = None,
        since: datetime | None = None,
        limit_bytes: int | None = None,
        silence_s: float | None = None,
        keep_ends: bool = False,
    ) -> LogLines:
        """Return the lines of a container's log.

        Args:
            namespace: Namespace of the pod.
            pod: Name of the pod.
            container: Name of the container. None: the only one.
            follow: Continue until the container ends.
            previous: Read the container's run before its last restart.
            timestamps: Each line begins with its RFC 3339 time.
            tail_lines: Number of lines at the end of the log to begin with. None: all lines.
            since: Time, with a zone, of the first line to return; rounded down to seconds. None: all lines.
            limit_bytes: Stop after this number of bytes, possibly inside a line. None: no limit.
            silence_s: Seconds without a line after which the stream counts as interrupted. None: 30 s; no limit if the
                log is followed.
            keep_ends: Lines keep their newline. The last line, and parts of an unfinished line of a followed log, may
                have none.

        Raises:
            ClusterError: No such pod, or (retryable) a container that has not started.
        """


class PodReader(Reader, Logs, Protocol):
    """Reads of a cluster and of the logs of its pods, as an observation of a run needs them."""


class Writer(Protocol):
    """Writes to a cluster and questions about it as a whole."""

    @property
    def api_server(self) -> str:
        """Address of the API server in the kubeconfig. No request is made."""

    @property
    def identity(self) -> str:
        """Digest of that address. No request is made. `identify` returns more."""

    @property
    def namespace(self) -> str:
        """Namespace of the context or of the pod. The default is `default`."""

    def version(self) -> str:
        """Return the version of the API server, for example `v1.31.4`."""

    def allowed(self, verb: str, kind: Kind, namespace: str | None, subresource: str | None = None) -> bool:
        """Return whether these credentials allow a verb.

        Args:
            verb: Verb of Kubernetes: `get`, `list`, `create`, `patch`, `delete`.
            kind: The kind.
            namespace: Namespace. None: all namespaces.
            subresource: Subresource, for example `log`. None: the object itself.
        """

    def create(self, kind: Kind, namespace: str | None, manifest: Manifest, *, dry_run: bool = False) -> Manifest:
        """Create an object and return it as the API server stored it.

        With `dry_run`, the API server and its webhooks check the object, and nothing is created.

        Raises:
            ClusterError: The object is refused. `reason` is `AlreadyExists` if there is an object of that name.
        """

    def replace(self, kind: Kind, namespace: str | None, manifest: Manifest) -> Manifest:
        """Replace an object as a whole, unless it was changed since it was read; return it as it was stored.

        Args:
            kind: Kind of the object.
            namespace: Its namespace. None: the kind has none.
            manifest: The object, with the metadata that it was read with, version and uid among them.

        Raises:
            ClusterError: The object is refused. `reason` is `Conflict` if it was changed or is gone.
        """

    def delete(self, kind: Kind, namespace: str | None, name: str, *, uid: str | None = None) -> bool:
        """Delete an object after the objects that it owns (foreground deletion).

        Args:
            kind: Kind of the object.
            namespace: Namespace. None: the kind has no namespaces.
            name: Name of the object.
            uid: Delete only the object with this uid. None: any object of that name.

        Returns:
            Whether the object existed. It remains until its pods have ended.
        """

    def write_status(self, kind: Kind, namespace: str | None, manifest: Manifest, *, whole: bool = False) -> None:
        """Write the status of an object, unless the object was changed since it was read.

        Args:
            kind: Kind of the object.
            namespace: Its namespace. None: the kind has none.
            manifest: The object as it was read, with the new status.
            whole: Send the object as a whole (verb `update`). False: only its status (verb `patch`).

        Raises:
            ClusterError: `reason` is `Conflict` if the object was changed.
        """


class Watches(Protocol):
    """Lists with their version, and the changes since."""

    def list_versioned(
        self,
        kind: Kind,
        namespace: str | None,
        selector: Selector | None = None,
        *,
        keep: Callable[[Manifest], Manifest | None] = lambda found: found,
    ) -> tuple[list[Manifest], str]:
        """Return the objects as of `list`, and the version from which a watch continues.

        Args:
            kind: The kind.
            namespace: Namespace. None: all namespaces.
            selector: Labels that an object must have. None: all objects.
            keep: Called with each object as soon as its page is read; returns the kept part of it, or None.

        Raises:
            ClusterError: `reason` is `Expired` if the objects changed too much while they were read.
        """

    def watch(
        self, kind: Kind, namespace: str | None, selector: Selector | None = None, *, version: str
    ) -> WatchEvents:
        """Return the changes of objects since the version of a list or of an earlier event, and further ones.

        Raises:
            ClusterError: `reason` is `Expired` if the version is too old: list again.
        """


class Cluster(Reader, Logs, Writer, Watches, Protocol):
    """All that an API server serves. Implementation: KubernetesCluster."""
