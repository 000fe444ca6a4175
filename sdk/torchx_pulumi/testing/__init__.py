"""Fakes for tests without a cluster. Each passes the contract suite of the real implementation."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from uuid import uuid4

from torchx_pulumi.kube import kinds
from torchx_pulumi.kube.cached_objects import matches
from torchx_pulumi.kube.kinds import Kind
from torchx_pulumi.kube.kubeconfig import identity_of
from torchx_pulumi.kube.pod_list import PodList, row_of
from torchx_pulumi.kube.protocol import Selector
from torchx_pulumi.kube.trimming import trim
from torchx_pulumi.model.cluster_identity import HOME_NAMESPACE, ClusterIdentity, authority_digest
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.object_fields import text_at
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.model.timestamps import parse_nanoseconds, to_nanoseconds
from torchx_pulumi.model.versions import VERSIONS
from torchx_pulumi.schedulers import find_backend, scheduler_names
from torchx_pulumi.schedulers.manifest_objects import all_kinds
from torchx_pulumi.testing.fake_watches import FakeHistory, FakeWatch

__all__ = ["FakeCluster", "FakeLog"]

KNOWN = tuple(all_kinds())
"""Kinds that a fake cluster serves by default: all kinds that this package reads or writes."""
STAMP = "2026-01-01T00:00:00.000000000Z"
"""Time of every line of a fake log."""
HISTORY = 10_000
"""Changes of objects that a fake cluster keeps for watches by default."""

Manifests = list[Manifest]
"""The class has a method `list`."""


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
    """A cluster in memory. Its objects change only through its methods, which threads may call at the same time.

    Examples:
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
        history: int = HISTORY,
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
            history: Changes that are kept. A watch from an earlier version is refused: it is `Expired`.
        """
        self.served = set(served)
        self._logs = {key: list(lines) for key, lines in (logs or {}).items()}
        self.denied = set(denied)
        self._readable = None if readable is None else set(readable)
        self.api_server = api_server
        self.uid = uid
        self.authority = authority
        self.namespace = namespace
        self._history = FakeHistory(history)
        self.error = error
        self._objects: dict[tuple[str, str, str, str], Manifest] = {}
        for manifest in objects:
            self.put(manifest)

    @property
    def identity(self) -> str:
        return identity_of(self.api_server)

    def identify(self) -> ClusterIdentity:
        self._answer()
        authority = self.authority.encode() if self.authority else None
        uid = f"uid of {self.api_server}" if self.uid is None else self.uid
        return ClusterIdentity(
            uid=None if ("get", kinds.NAMESPACE) in self.denied else uid or None,
            ca=authority_digest(authority),
            address=self.identity,
            name=f"the cluster at {self.api_server}",
        )

    @property
    def error(self) -> ClusterError | None:
        """Raised by every call, and interrupts the watches. None: the cluster answers."""
        return self._history.error

    @error.setter
    def error(self, error: ClusterError | None) -> None:
        with self._history.changed:
            self._history.error = error
            self._history.changed.notify_all()

    def put(self, manifest: Manifest) -> None:
        """Add an object, or replace the one of its name."""
        meta = manifest["metadata"]
        key = (manifest["apiVersion"], manifest["kind"], meta.get("namespace") or "", meta["name"])
        stored = copy.deepcopy(manifest)
        with self._history.changed:
            stored["metadata"]["resourceVersion"] = str(self._history.next_version())
            before = self._objects.get(key)
            self._objects[key] = stored
            self._history.add(before, stored)

    def remove(self, kind: Kind, namespace: str | None, name: str) -> None:
        """Remove an object, if it exists."""
        self._drop((kind.api_version, kind.kind, namespace or "", name))

    def _drop(self, key: tuple[str, str, str, str]) -> None:
        with self._history.changed:
            before = self._objects.pop(key, None)
            if before is not None:
                self._history.next_version()
                self._history.add(before, None)

    def end_watches(self) -> None:
        """End all watches, as an API server does after some minutes."""
        with self._history.changed:
            self._history.ended += 1
            self._history.changed.notify_all()

    def send_bookmarks(self) -> None:
        """Send a bookmark to all watches."""
        with self._history.changed:
            self._history.bookmarks += 1
            self._history.changed.notify_all()

    def forget_history(self) -> None:
        """Forget all changes: a watch from an earlier version is `Expired`. Open watches have received them."""
        self._history.forget()

    def get(self, kind: Kind, namespace: str | None, name: str) -> Manifest | None:
        self._check("get", kind)
        if (kind, name) == (kinds.NAMESPACE, HOME_NAMESPACE):
            meta = {"name": name, "uid": self.identify().uid}
            return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta}
        return self.find(kind, namespace, name)

    def list(self, kind: Kind, namespace: str | None, selector: Selector | None = None) -> Manifests:
        self._check_readable("list", kind, namespace)
        return [*self.find_all(kind, namespace, selector)]

    def list_pods(
        self, namespace: str, selector: Selector, *, whole: int | None = None, phase: str | None = None
    ) -> PodList:
        found = [
            trim(pod)
            for pod in self.list(kinds.POD, namespace, selector)
            if phase in (None, text_at(pod, "status", "phase"))
        ]
        many = whole is not None and (len(found) > whole or not whole)
        return PodList(pods=found[:whole], rows=[row_of(pod, phase) for pod in found] if many else None)

    def list_versioned(
        self,
        kind: Kind,
        namespace: str | None,
        selector: Selector | None = None,
        *,
        keep: Callable[[Manifest], Manifest | None] = lambda found: found,
    ) -> tuple[Manifests, str]:
        self._check_readable("list", kind, namespace)
        with self._history.changed:
            found, version = self.find_all(kind, namespace, selector), str(self._history.version)
        kept = (keep(one) for one in found)
        return [one for one in kept if one is not None], version

    def watch(self, kind: Kind, namespace: str | None, selector: Selector | None = None, *, version: str) -> FakeWatch:
        self._check_readable("watch", kind, namespace)
        with self._history.changed:
            self._history.check(int(version))
        return FakeWatch(self._history, kind, namespace if kind.namespaced else None, selector, int(version))

    def events(self, namespace: str, names: Collection[str | None]) -> Manifests:
        listed = self.list(kinds.EVENT, namespace)
        return [event for event in listed if text_at(event, "involvedObject", "name") in names]

    def serves(self, kind: Kind) -> bool:
        self._answer()
        return kind in self.served

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
        self._answer()
        return f"v{VERSIONS['kubernetes'].tested}"

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
        meta.update(uid=str(uuid4()), creationTimestamp=STAMP.partition(".")[0] + "Z", resourceVersion="0")
        if not dry_run:
            self.put({**made, "apiVersion": kind.api_version, "kind": kind.kind})
            meta["resourceVersion"] = str(self._history.version)
            self._simulate(kind, made)
        return copy.deepcopy(made)

    def replace(self, kind: Kind, namespace: str | None, manifest: Manifest) -> Manifest:
        self._check("update", kind)
        meta = manifest["metadata"]
        with self._history.changed:
            found = self.find(kind, namespace, meta["name"])
            if found is None or meta["resourceVersion"] != found["metadata"]["resourceVersion"]:
                raise ClusterError(f"{kind.kind} {meta['name']} was changed since it was read", reason="Conflict")
            kept = {name: found["metadata"][name] for name in ("uid", "namespace") if name in found["metadata"]}
            stored = {"apiVersion": kind.api_version, "kind": kind.kind, **copy.deepcopy(manifest)}
            stored["metadata"].update(kept)
            self.put(stored)
            stored["metadata"]["resourceVersion"] = str(self._history.version)
        return stored

    def delete(
        self, kind: Kind, namespace: str | None, name: str, *, uid: str | None = None, version: str | None = None
    ) -> bool:
        """Delete an object and the objects that it owns, at once."""
        self._check("delete", kind)
        found = self._objects.get((kind.api_version, kind.kind, namespace or "", name))
        if found is None:
            return False
        meta = found["metadata"]
        if version is not None and (meta.get("resourceVersion"), meta.get("uid")) != (version, uid):
            raise ClusterError(f"{kind.kind} {name} was changed since it was read", reason="Conflict")
        if uid is not None and meta.get("uid") != uid:
            return False
        self.remove(kind, namespace, name)
        mine = found["metadata"].get("uid")
        with self._history.changed:
            others = [*self._objects.items()]
        for key, manifest in others:
            owners = manifest["metadata"].get("ownerReferences") or []
            if mine and any(owner.get("uid") == mine for owner in owners):
                self._drop(key)
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

    def find_all(self, kind: Kind, namespace: str | None, selector: Selector | None = None) -> Sequence[Manifest]:
        """Return the objects of a kind by name, whatever the credentials may do."""
        with self._history.changed:
            return [
                copy.deepcopy(manifest)
                for (version, name, where, _), manifest in sorted(self._objects.items(), key=lambda item: item[0][2:])
                if (version, name) == (kind.api_version, kind.kind)
                and (not namespace or where == namespace)
                and matches(manifest, selector)
            ]

    def _simulate(self, kind: Kind, written: Manifest) -> None:
        """Let the controllers of all schedulers act on an object."""
        for scheduler in scheduler_names():
            find_backend(scheduler).simulate(self, kind, copy.deepcopy(written))

    def _answer(self) -> None:
        if self.error:
            raise self.error

    def _is_denied(self, verb: str, kind: Kind, part: str | None) -> bool:
        return ((verb, kind) if part is None else (verb, kind, part)) in self.denied

    def _check_readable(self, verb: str, kind: Kind, namespace: str | None) -> None:
        self._check(verb, kind)
        if self._readable is not None and kind.namespaced and namespace not in self._readable:
            where = f"in namespace {namespace}" if namespace else "at the cluster scope"
            raise ClusterError(f"the fake cluster forbids it: cannot {verb} {kind.plural} {where}", reason="Forbidden")

    def _check(self, verb: str, kind: Kind, part: str | None = None) -> None:
        self._answer()
        if kind not in self.served:
            raise ClusterError(f"the fake cluster does not serve {kind.kind} ({kind.api_version})", reason="NotServed")
        if self._is_denied(verb, kind, part):
            what = f"{kind.plural}/{part}" if part else kind.plural
            raise ClusterError(f"the fake cluster forbids it: cannot {verb} {what}", reason="Forbidden")
