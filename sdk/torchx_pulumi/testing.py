"""A cluster in memory for unit tests of Pulumi programs; docs/testing.md has an example.

`FakeCluster` passes those tests of the real cluster's contract that read.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime

from torchx_pulumi.kube import kinds
from torchx_pulumi.kube.given_cluster import GIVEN
from torchx_pulumi.kube.kinds import Kind
from torchx_pulumi.kube.kubeconfig import identity_of
from torchx_pulumi.kube.pod_list import PodList, row_of
from torchx_pulumi.kube.protocol import PodReader, Selector, matches
from torchx_pulumi.kube.trimming import trim
from torchx_pulumi.model.cluster_identity import HOME_NAMESPACE, ClusterIdentity, authority_digest
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.object_fields import text_at
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.model.timestamps import parse_nanoseconds, to_nanoseconds
from torchx_pulumi.schedulers.manifest_objects import all_kinds

__all__ = ["FakeCluster", "cluster_for_tests"]

STAMP = "2026-01-01T00:00:00.000000000Z"
"""Time of every line of a fake log."""

PLACES = ("apiVersion", "kind", "metadata.name")
"""What names an object."""

ObjectKey = tuple[str, str, str, str]
"""API version, kind, namespace (empty for kinds without one) and name of an object."""

Manifests = list[Manifest]
"""The class has a method `list`."""


@contextmanager
def cluster_for_tests(cluster: PodReader) -> Iterator[None]:
    """Let components that are created inside read a cluster, usually a `FakeCluster`, also with Pulumi's mocks.

    Without it, components on Pulumi's mocks read no cluster: queue, namespace and the last run are not looked at.
    """
    token = GIVEN.set(cluster)
    try:
        yield
    finally:
        GIVEN.reset(token)


class FakeLog:
    """`LogLines` of given texts."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = deque(lines)
        self.finished = False

    def __iter__(self) -> Iterator[str]:
        """Return the iterator itself."""
        return self

    def __next__(self) -> str:
        """Return the next line."""
        if not self._lines:
            raise StopIteration
        line = self._lines.popleft()
        self.finished = not self._lines
        return line

    def close(self) -> None:
        """Drop the remaining lines."""
        self._lines.clear()


class FakeCluster:
    """A cluster in memory, which components read. Its objects change only by `put` and `remove`.

    Examples:
        >>> cluster = FakeCluster([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}}])
        >>> cluster.get(kinds.NAMESPACE, None, "a")["metadata"]["name"]
        'a'
    """

    def __init__(
        self,
        objects: Iterable[Manifest] = (),
        *,
        served: Iterable[Kind] | None = None,
        logs: Mapping[tuple[str, str], Sequence[str]] | None = None,
        error: ClusterError | None = None,
        api_server: str = "https://fake.example.com",
    ) -> None:
        """Create a cluster with objects.

        Args:
            objects: The objects.
            served: Kinds that the cluster serves. None: all kinds that this package reads or writes.
            logs: Namespace and pod to the lines of its log.
            error: Raised by every read. None: the cluster answers.
            api_server: Address of the API server; another one is another cluster.
        """
        self.served = set(all_kinds() if served is None else served)
        self.error = error
        self.api_server = api_server
        self._logs = {key: list(lines) for key, lines in (logs or {}).items()}
        self._objects: dict[ObjectKey, Manifest] = {}
        for manifest in objects:
            self.put(manifest)

    def put(self, manifest: Manifest) -> None:
        """Add an object, or replace the one of its name.

        Raises:
            ValueError: It has no `apiVersion`, `kind` or `metadata.name`.
        """
        missing = [place for place in PLACES if text_at(manifest, *place.split(".")) is None]
        if missing:
            found = f"the fields {', '.join(manifest)}" if isinstance(manifest, Mapping) else repr(manifest)
            raise ValueError(f"an object of a FakeCluster needs a text at {' and '.join(missing)}; found {found}")
        meta = manifest["metadata"]
        key = (manifest["apiVersion"], manifest["kind"], meta.get("namespace") or "", meta["name"])
        self._store(key, copy.deepcopy(manifest))

    def remove(self, kind: Kind, namespace: str | None, name: str) -> None:
        """Remove an object, if it exists."""
        self._store((kind.api_version, kind.kind, namespace or "", name), None)

    def get(self, kind: Kind, namespace: str | None, name: str) -> Manifest | None:
        """Return an object, or None if it does not exist. The namespace `kube-system` always exists."""
        self._check(kind)
        if (kind, name) == (kinds.NAMESPACE, HOME_NAMESPACE):
            meta = {"name": name, "uid": self.identify().uid}
            return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta}
        return copy.deepcopy(self._objects.get((kind.api_version, kind.kind, namespace or "", name)))

    def list(self, kind: Kind, namespace: str | None, selector: Selector | None = None) -> Manifests:
        """Return the objects of a kind, sorted by namespace and name."""
        self._check(kind)
        return self._find_all(kind, namespace, selector)

    def list_pods(
        self, namespace: str, selector: Selector, *, whole: int | None = None, phase: str | None = None
    ) -> PodList:
        """Return the pods that match a selector, as `kube.Reader.list_pods` describes."""
        found = [
            trim(pod)
            for pod in self.list(kinds.POD, namespace, selector)
            if phase in (None, text_at(pod, "status", "phase"))
        ]
        many = whole is not None and (len(found) > whole or not whole)
        return PodList(pods=found[:whole], rows=[row_of(pod, phase) for pod in found] if many else None)

    def events(self, namespace: str, names: Collection[str | None]) -> Manifests:
        """Return the events that involve objects of some names."""
        listed = self.list(kinds.EVENT, namespace)
        return [event for event in listed if text_at(event, "involvedObject", "name") in names]

    def serves(self, kind: Kind) -> bool:
        """Return whether the cluster serves the kind."""
        self._answer()
        return kind in self.served

    def identify(self) -> ClusterIdentity:
        """Return the identity of the cluster, which is made of its address."""
        self._answer()
        return ClusterIdentity(
            uid=f"uid of {self.api_server}",
            ca=authority_digest(b"an authority"),
            address=identity_of(self.api_server),
            name=f"the cluster at {self.api_server}",
        )

    def logs(
        self,
        namespace: str,
        pod: str,
        container: str | None = None,  # noqa: ARG002 - a fake pod has one
        *,
        follow: bool = False,  # noqa: ARG002 - a fake pod has ended
        previous: bool = False,
        timestamps: bool = False,
        tail_lines: int | None = None,
        since: datetime | None = None,
        limit_bytes: int | None = None,
        silence_s: float | None = None,  # noqa: ARG002 - a fake pod is never silent
        keep_ends: bool = False,
    ) -> FakeLog:
        """Return the lines of a pod's log. A fake pod has ended, has one container, and was never restarted."""
        self._check(kinds.POD)
        lines = self._logs.get((namespace, pod))
        if lines is None:
            raise ClusterError(
                f"there is no pod {pod!r} in namespace {namespace!r} of the fake cluster", reason="NotFound"
            )
        if previous:
            raise ClusterError("the fake cluster answered 400: previous terminated container not found")
        if since is not None and to_nanoseconds(since) > (parse_nanoseconds(STAMP) or 0):
            lines = []
        shown = lines if tail_lines is None else lines[max(len(lines) - tail_lines, 0) :]
        text = "".join(f"{STAMP} {line}\n" if timestamps else f"{line}\n" for line in shown)
        cut = text if limit_bytes is None else text.encode()[:limit_bytes].decode("utf-8", "replace")
        return FakeLog(line if keep_ends else line.rstrip("\n") for line in cut.splitlines(keepends=True))

    def _store(self, key: ObjectKey, manifest: Manifest | None) -> None:
        """Keep an object, or for None drop the one of its name."""
        if manifest is None:
            self._objects.pop(key, None)
        else:
            self._objects[key] = manifest

    def _find_all(self, kind: Kind, namespace: str | None, selector: Selector | None) -> Manifests:
        return [
            copy.deepcopy(manifest)
            for (version, name, where, _), manifest in sorted(self._objects.items(), key=lambda item: item[0][2:])
            if (version, name) == (kind.api_version, kind.kind)
            and (not namespace or where == namespace)
            and matches(manifest, selector)
        ]

    def _answer(self) -> None:
        if self.error:
            raise self.error

    def _check(self, kind: Kind) -> None:
        self._answer()
        if kind not in self.served:
            raise ClusterError(f"the fake cluster does not serve {kind.kind} ({kind.api_version})", reason="NotServed")
