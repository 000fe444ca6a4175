"""Fakes of the seams, for tests without a cluster. Each passes the contract suite of the real thing."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence

from torchx_pulumi import kinds
from torchx_pulumi.errors import ClusterError
from torchx_pulumi.kinds import Kind
from torchx_pulumi.options import Manifest

KNOWN = tuple(kind for kind in vars(kinds).values() if isinstance(kind, Kind))


class FakeCluster:
    """A cluster in memory that holds objects and nothing moves.

    >>> cluster = FakeCluster([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}}])
    >>> cluster.get(kinds.NAMESPACE, None, "a")["metadata"]["name"]
    'a'
    """

    def __init__(
        self,
        objects: Iterable[Manifest] = (),
        *,
        served: Iterable[Kind] = KNOWN,
        logs: Mapping[tuple[str, str], Sequence[str]] | None = None,
        error: ClusterError | None = None,
    ) -> None:
        """Fill the cluster.

        Args:
            objects: What is in it.
            served: Kinds that it knows.
            logs: Namespace and pod to the lines of its log.
            error: Raised by every call. None: the cluster answers.
        """
        self._served = set(served)
        self._logs = {key: list(lines) for key, lines in (logs or {}).items()}
        self.error = error
        self._objects: dict[tuple[str, str, str, str], Manifest] = {}
        for manifest in objects:
            self.put(manifest)

    def put(self, manifest: Manifest) -> None:
        """Add an object, or put it in the place of the one that has its name."""
        meta = manifest["metadata"]
        key = (manifest["apiVersion"], manifest["kind"], meta.get("namespace") or "", meta["name"])
        self._objects[key] = copy.deepcopy(manifest)

    def remove(self, kind: Kind, namespace: str | None, name: str) -> None:
        """Remove an object; an absent one is left absent."""
        self._objects.pop((kind.api_version, kind.kind, namespace or "", name), None)

    def get(self, kind: Kind, namespace: str | None, name: str) -> Manifest | None:
        """Return an object, None if it is absent."""
        self._check(kind)
        found = self._objects.get((kind.api_version, kind.kind, namespace or "", name))
        return copy.deepcopy(found)

    def list(self, kind: Kind, namespace: str | None, selector: Mapping[str, str] | None = None) -> list[Manifest]:
        """Return the objects of a kind, by name."""
        self._check(kind)
        return [
            copy.deepcopy(manifest)
            for (version, name, where, _), manifest in sorted(self._objects.items(), key=lambda item: item[0][2:])
            if (version, name) == (kind.api_version, kind.kind)
            and (not namespace or where == namespace)
            and (selector or {}).items() <= (manifest["metadata"].get("labels") or {}).items()
        ]

    def serves(self, kind: Kind) -> bool:
        """Tell whether the cluster knows the kind."""
        self._answer()
        return kind in self._served

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
    ) -> Iterator[str]:
        """Return the lines of a pod's log; a fake pod has ended, has one container, and was never restarted."""
        self._answer()
        lines = self._logs.get((namespace, pod))
        if lines is None:
            raise ClusterError(f"there is no pod {pod!r} in namespace {namespace!r} of the fake cluster")
        if previous:
            raise ClusterError("the fake cluster answered 400: previous terminated container not found")
        shown = lines if tail_lines is None else lines[max(len(lines) - tail_lines, 0) :]
        return iter([f"2026-01-01T00:00:00.000000000Z {line}" if timestamps else line for line in shown])

    def _answer(self) -> None:
        if self.error:
            raise self.error

    def _check(self, kind: Kind) -> None:
        self._answer()
        if kind not in self._served:
            raise ClusterError(f"the fake cluster does not serve {kind.kind} ({kind.api_version})")
