"""Fakes for tests without a cluster. Each passes the contract suite of the real implementation."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from uuid import uuid4

from torchx_pulumi.kube import kinds
from torchx_pulumi.kube.kinds import Kind
from torchx_pulumi.kube.kubeconfig import identity_of
from torchx_pulumi.model.cluster_identity import HOME_NAMESPACE, ClusterIdentity, authority_digest
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.model.timestamps import parse_nanoseconds, to_nanoseconds
from torchx_pulumi.schedulers import find_backend, scheduler_names
from torchx_pulumi.schedulers.manifest_objects import all_kinds

KNOWN = tuple(all_kinds())
"""Kinds that a fake cluster serves by default: all kinds that this package reads or writes."""
STAMP = "2026-01-01T00:00:00.000000000Z"
"""Time of every line of a fake log."""


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
    """A cluster in memory. Its objects change only through its methods.

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
        denied: Iterable[tuple[str, Kind] | tuple[str, Kind, str]] = (),
        api_server: str = "https://fake.example.com",
        uid: str | None = None,
        authority: str | None = "an authority",
        namespace: str = "default",
        readable: Iterable[str] | None = None,
    ) -> None:
        """Create a cluster with objects.

        Args:
            objects: The objects.
            served: Kinds that the cluster serves.
            logs: Namespace and pod to the lines of its log.
            error: Raised by every call. None: the cluster answers.
            denied: Denied verbs of a kind or a subresource (`("get", POD, "log")`): `allowed` returns False, and the
                calls raise. Without `get` of namespaces, the uid of the cluster is unknown.
            api_server: Address of the API server.
            uid: Uid of the namespace `kube-system`. None: derived from the address. Empty: unknown.
            authority: Certificate authority. None: the access has none.
            namespace: Namespace of the context.
            readable: Namespaces whose objects may be listed separately. None: all namespaces, also together.
        """
        self._served = set(served)
        self._logs = {key: list(lines) for key, lines in (logs or {}).items()}
        self._denied = set(denied)
        self._readable = None if readable is None else set(readable)
        self.api_server = api_server
        self.uid = uid
        self.authority = authority
        self.namespace = namespace
        self.error = error
        self._objects: dict[tuple[str, str, str, str], Manifest] = {}
        for manifest in objects:
            self.put(manifest)

    @property
    def identity(self) -> str:
        """Digest of the address."""
        return identity_of(self.api_server)

    def identify(self) -> ClusterIdentity:
        """Return the identity of the cluster."""
        self._answer()
        authority = self.authority.encode() if self.authority else None
        uid = f"uid of {self.api_server}" if self.uid is None else self.uid
        return ClusterIdentity(
            uid=None if ("get", kinds.NAMESPACE) in self._denied else uid or None,
            ca=authority_digest(authority),
            address=self.identity,
            name=f"the cluster at {self.api_server}",
        )

    def put(self, manifest: Manifest) -> None:
        """Add an object, or replace the one of its name."""
        meta = manifest["metadata"]
        key = (manifest["apiVersion"], manifest["kind"], meta.get("namespace") or "", meta["name"])
        self._objects[key] = copy.deepcopy(manifest)

    def remove(self, kind: Kind, namespace: str | None, name: str) -> None:
        """Remove an object, if it exists."""
        self._objects.pop((kind.api_version, kind.kind, namespace or "", name), None)

    def get(self, kind: Kind, namespace: str | None, name: str) -> Manifest | None:
        """Return an object. None: it does not exist."""
        self._check("get", kind)
        if (kind, name) == (kinds.NAMESPACE, HOME_NAMESPACE):
            meta = {"name": name, "uid": self.identify().uid}
            return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta}
        return self.find(kind, namespace, name)

    def list(self, kind: Kind, namespace: str | None, selector: Mapping[str, str] | None = None) -> list[Manifest]:
        """Return the objects of a kind, sorted by namespace and name."""
        self._check("list", kind)
        if self._readable is not None and kind.namespaced and namespace not in self._readable:
            where = f"in namespace {namespace}" if namespace else "at the cluster scope"
            raise ClusterError(f"the fake cluster forbids it: cannot list {kind.plural} {where}", reason="Forbidden")
        return [*self.find_all(kind, namespace, selector)]

    def serves(self, kind: Kind) -> bool:
        """Return whether the cluster serves the kind."""
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
        since: datetime | None = None,
        limit_bytes: int | None = None,
        silence_s: float | None = None,  # noqa: ARG002 - a fake pod is never silent
        keep_ends: bool = False,
    ) -> FakeLog:
        """Return the lines of a pod's log. A fake pod has ended, has one container, and was never restarted."""
        self._check("get", kinds.POD, "log")
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

    def version(self) -> str:
        """Return the version of the API server."""
        self._answer()
        return "v1.0.0-fake"

    def allowed(self, verb: str, kind: Kind, namespace: str | None, subresource: str | None = None) -> bool:  # noqa: ARG002 - the same everywhere
        """Return whether a verb is allowed: all are, except the denied ones."""
        self._answer()
        return not self._is_denied(verb, kind, subresource)

    def create(self, kind: Kind, namespace: str | None, manifest: Manifest, *, dry_run: bool = False) -> Manifest:
        """Create an object and return it with a uid. Its namespace need not exist."""
        self._check("create", kind)
        made = copy.deepcopy(manifest)
        meta = made.setdefault("metadata", {})
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = meta["generateName"] + uuid4().hex[:5]
        if kind.namespaced and namespace:
            meta["namespace"] = namespace
        if (kind.api_version, kind.kind, namespace or "", meta["name"]) in self._objects:
            raise ClusterError(
                f'the fake cluster answered 409: {kind.plural} "{meta["name"]}" already exists', reason="AlreadyExists"
            )
        meta.update(uid=str(uuid4()), creationTimestamp=STAMP.partition(".")[0] + "Z", resourceVersion="1")
        if not dry_run:
            self.put({**made, "apiVersion": kind.api_version, "kind": kind.kind})
            self._simulate(kind, made)
        return copy.deepcopy(made)

    def delete(self, kind: Kind, namespace: str | None, name: str, *, uid: str | None = None) -> bool:
        """Delete an object and the objects that it owns, at once."""
        self._check("delete", kind)
        found = self._objects.get((kind.api_version, kind.kind, namespace or "", name))
        if found is None or (uid is not None and found["metadata"].get("uid") != uid):
            return False
        self.remove(kind, namespace, name)
        mine = found["metadata"].get("uid")
        for key, manifest in [*self._objects.items()]:
            owners = manifest["metadata"].get("ownerReferences") or []
            if mine and any(owner.get("uid") == mine for owner in owners):
                self._objects.pop(key, None)
        return True

    def write_status(self, kind: Kind, namespace: str | None, manifest: Manifest, *, whole: bool = False) -> None:
        """Write the status of an object; conflicts do not occur."""
        self._check("update" if whole else "patch", kind, "status")
        found = self.find(kind, namespace, manifest["metadata"]["name"])
        if found is not None:
            written = {**found, "status": copy.deepcopy(manifest["status"])}
            self.put(written)
            self._simulate(kind, written)

    def find(self, kind: Kind, namespace: str | None, name: str) -> Manifest | None:
        """Return an object whatever the credentials may do. None: it is absent."""
        return copy.deepcopy(self._objects.get((kind.api_version, kind.kind, namespace or "", name)))

    def find_all(
        self, kind: Kind, namespace: str | None, selector: Mapping[str, str] | None = None
    ) -> Sequence[Manifest]:
        """Return the objects of a kind by name, whatever the credentials may do."""
        return [
            copy.deepcopy(manifest)
            for (version, name, where, _), manifest in sorted(self._objects.items(), key=lambda item: item[0][2:])
            if (version, name) == (kind.api_version, kind.kind)
            and (not namespace or where == namespace)
            and (selector or {}).items() <= (manifest["metadata"].get("labels") or {}).items()
        ]

    def _simulate(self, kind: Kind, written: Manifest) -> None:
        """Let the controllers of all schedulers act on an object."""
        for scheduler in scheduler_names():
            find_backend(scheduler).simulate(self, kind, copy.deepcopy(written))

    def _answer(self) -> None:
        if self.error:
            raise self.error

    def _is_denied(self, verb: str, kind: Kind, part: str | None) -> bool:
        return ((verb, kind) if part is None else (verb, kind, part)) in self._denied

    def _check(self, verb: str, kind: Kind, part: str | None = None) -> None:
        self._answer()
        if kind not in self._served:
            raise ClusterError(f"the fake cluster does not serve {kind.kind} ({kind.api_version})", reason="NotServed")
        if self._is_denied(verb, kind, part):
            what = f"{kind.plural}/{part}" if part else kind.plural
            raise ClusterError(f"the fake cluster forbids it: cannot {verb} {what}", reason="Forbidden")
