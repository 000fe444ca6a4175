"""The seam to an API server: what this package reads of a cluster, and the little that it does to one.

`KubernetesCluster` is the real thing; `torchx_pulumi.testing.FakeCluster` passes the same contract suite.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Protocol

from torchx_pulumi.kube.kinds import Kind
from torchx_pulumi.model.cluster_identity import ClusterIdentity
from torchx_pulumi.model.options import Manifest


class LogLines(Protocol):
    """The lines of a log, one after the other, as they come; a line of over a million characters comes in parts."""

    @property
    def finished(self) -> bool:
        """Return whether the log was read to its end, and the last line was returned."""
        ...

    def __iter__(self) -> Iterator[str]:
        """Return itself."""
        ...

    def __next__(self) -> str:
        """Return the next line, waiting for it where the log is followed.

        Raises:
            ClusterError: The stream broke off (retryable); lines that came before are good.
        """
        ...

    def close(self) -> None:
        """Give the connection up; whoever waits for a line, in any thread, is released. May be called again."""
        ...


class Cluster(Protocol):
    """What may be read of a cluster. Implementations: KubernetesCluster, testing.FakeCluster."""

    def get(self, kind: Kind, namespace: str | None, name: str) -> Manifest | None:
        """Return an object, None if it is absent.

        Raises:
            ClusterError: No answer, no permission, or the cluster does not serve the kind.
        """
        ...

    def list(self, kind: Kind, namespace: str | None, selector: Mapping[str, str] | None = None) -> list[Manifest]:
        """Return the objects of a kind, by name.

        Args:
            kind: What to list.
            namespace: Where. None: in all namespaces.
            selector: Labels that an object must have. None: any.

        Raises:
            ClusterError: No answer, no permission, or the cluster does not serve the kind.
        """
        ...

    def serves(self, kind: Kind) -> bool:
        """Tell whether the cluster knows the kind.

        Raises:
            ClusterError: No answer, or no permission.
        """
        ...

    def identify(self) -> ClusterIdentity:
        """Return what tells this cluster from others.

        One request, whose answer is kept for a few seconds; without the permission to read the namespace
        `kube-system` the uid is None.

        Raises:
            ClusterError: No answer, or the credentials are not accepted.
        """
        ...

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
            namespace: Where the pod is.
            pod: Its name.
            container: None: the only one.
            follow: Go on until the container ends.
            previous: The container's run before its last restart.
            timestamps: Each line begins with the time at which it was written.
            tail_lines: Only so many lines of the end. None: all.
            since: Only lines from this time on, which must have a zone; the second is rounded down. None: all.
            limit_bytes: Stop after so many bytes, maybe inside a line. None: no limit.
            silence_s: Longest time without a line; a longer one ends the stream as one that broke off. None: 30 s,
                without limit where the log is followed.
            keep_ends: Lines keep their newline, by which a line that has none is told: the last one, and the parts of
                a line that stays unfinished while the log is followed.

        Raises:
            ClusterError: No answer, no permission, no such pod, or (retryable) a container that has not started.
        """
        ...


class ClusterActions(Protocol):
    """What may be done to a cluster, and asked of it as a whole. Implementations: as those of Cluster."""

    @property
    def api_server(self) -> str:
        """Address of the API server, read from the kubeconfig; nobody is asked."""
        ...

    @property
    def identity(self) -> str:
        """Digest of that address; no request is made. `identify` knows more."""
        ...

    @property
    def namespace(self) -> str:
        """Namespace of the context, or of the pod whose account is used; `default` where none is named."""
        ...

    def version(self) -> str:
        """Return the version of the API server, for example `v1.31.4`.

        Raises:
            ClusterError: No answer, or no permission.
        """
        ...

    def allowed(self, verb: str, kind: Kind, namespace: str | None, subresource: str | None = None) -> bool:
        """Tell whether these credentials may do something.

        Args:
            verb: Kubernetes' own word: `get`, `list`, `create`, `patch`, `delete`.
            kind: To what.
            namespace: Where. None: everywhere.
            subresource: A part of it, for example `log`. None: the object itself.

        Raises:
            ClusterError: No answer.
        """
        ...

    def create(self, kind: Kind, namespace: str | None, manifest: Manifest, *, dry_run: bool = False) -> Manifest:
        """Create an object and return it as the API server took it.

        Args:
            kind: What it is.
            namespace: Where. None: where the kind has no namespaces.
            manifest: The object.
            dry_run: Let the API server and its webhooks judge it; nothing is made.

        Raises:
            ClusterError: No answer, no permission, no such kind or namespace, or refused; `reason` is `AlreadyExists`
                where the name is taken.
        """
        ...

    def delete(self, kind: Kind, namespace: str | None, name: str, *, uid: str | None = None) -> bool:
        """Ask for an object to be deleted, after the objects that it owns.

        Args:
            kind: What it is.
            namespace: Where. None: where the kind has no namespaces.
            name: Its name.
            uid: Only if it is this very object. None: whichever has the name.

        Returns:
            Whether there was one. It may still be there for as long as its pods take to end.

        Raises:
            ClusterError: No answer, or no permission.
        """
        ...

    def abort(self, namespace: str, name: str, uid: str) -> None:
        """Ask Volcano to stop a job: its pods end, the object stays.

        Without the permission to make a Command, the status of the job is changed instead, to the same effect.

        Args:
            namespace: Where the job is.
            name: Its name.
            uid: Its uid; another job of that name is left alone.

        Raises:
            ClusterError: No answer, no permission, or no Volcano.
        """
        ...

    def resume(self, namespace: str, name: str, uid: str) -> None:
        """Ask Volcano to run an aborted job again; arguments and errors as `abort`."""
        ...


class LiveCluster(Cluster, ClusterActions, Protocol):
    """A cluster that is read and changed."""
