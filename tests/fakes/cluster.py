"""All of a cluster, in memory: what components read (`torchx_pulumi.testing`), and writes, watches and permissions."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any
from uuid import uuid4

from torchx_pulumi import testing
from torchx_pulumi.kube import kinds
from torchx_pulumi.kube.kinds import Kind
from torchx_pulumi.kube.kubeconfig import identity_of
from torchx_pulumi.kube.protocol import Selector
from torchx_pulumi.model.cluster_identity import ClusterIdentity, authority_digest
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.model.versions import VERSIONS
from torchx_pulumi.schedulers.manifest_objects import all_kinds
from torchx_pulumi.testing import STAMP, FakeLog, Manifests, ObjectKey

from tests.fakes import volcano
from tests.fakes.watches import FakeHistory, FakeWatch

KNOWN = tuple(all_kinds())
"""Kinds that a fake cluster serves by default."""
HISTORY = 10_000
"""Changes of objects that a fake cluster keeps for watches by default."""


class FakeCluster(testing.FakeCluster):
    """A cluster in memory. Its objects change only through its methods, which threads may call at the same time."""

    def __init__(
        self,
        objects: Iterable[Manifest] = (),
        *,
        denied: Iterable[tuple[str, Kind] | tuple[str, Kind, str]] = (),
        uid: str | None = None,
        authority: str | None = "an authority",
        namespace: str = "default",
        readable: Iterable[str] | None = None,
        history: int = HISTORY,
        **options: Any,
    ) -> None:
        """Create a cluster with objects.

        Args:
            objects: The objects.
            denied: Denied verbs of a kind or a subresource (`("get", POD, "log")`): `allowed` returns False, and the
                calls raise. Without `get` of namespaces, the uid of the cluster is unknown.
            uid: Uid of the namespace `kube-system`. None: derived from the address. Empty: unknown.
            authority: Certificate authority. None: the access has none.
            namespace: Namespace of the context.
            readable: Namespaces whose objects may be listed separately. None: all namespaces, also together.
            history: Changes that are kept. A watch from an earlier version is refused: it is `Expired`.
            options: Those of `testing.FakeCluster`.
        """
        self._history = FakeHistory(history)
        self.denied = set(denied)
        self._readable = None if readable is None else set(readable)
        self.uid = uid
        self.authority = authority
        self.namespace = namespace
        super().__init__(objects, **options)

    @property
    def identity(self) -> str:
        return identity_of(self.api_server)

    def identify(self) -> ClusterIdentity:
        found = super().identify()
        uid = found.uid if self.uid is None else self.uid
        return replace(
            found,
            uid=None if ("get", kinds.NAMESPACE) in self.denied else uid or None,
            ca=authority_digest(self.authority.encode() if self.authority else None),
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
        self._check_allowed("get", kind)
        return super().get(kind, namespace, name)

    def list(self, kind: Kind, namespace: str | None, selector: Selector | None = None) -> Manifests:
        self._check_readable("list", kind, namespace)
        return super().list(kind, namespace, selector)

    def logs(self, *given: Any, **options: Any) -> FakeLog:
        self._check_allowed("get", kinds.POD, "log")
        return super().logs(*given, **options)

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

    def version(self) -> str:
        self._answer()
        return f"v{VERSIONS['kubernetes'].tested}"

    def allowed(self, verb: str, kind: Kind, namespace: str | None, subresource: str | None = None) -> bool:
        """Return whether a verb is allowed: all are, except the denied ones."""
        self._answer()
        return not self._is_denied(verb, kind, subresource)

    def create(self, kind: Kind, namespace: str | None, manifest: Manifest, *, dry_run: bool = False) -> Manifest:
        """Create an object and return it with a uid. Its namespace need not exist."""
        self._check_allowed("create", kind)
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
            volcano.simulate(self, kind, copy.deepcopy(made))
        return copy.deepcopy(made)

    def replace(self, kind: Kind, namespace: str | None, manifest: Manifest) -> Manifest:
        self._check_allowed("update", kind)
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

    def delete(self, kind: Kind, namespace: str | None, name: str, *, uid: str | None = None) -> bool:
        """Delete an object and the objects that it owns, at once."""
        self._check_allowed("delete", kind)
        found = self._objects.get((kind.api_version, kind.kind, namespace or "", name))
        if found is None:
            return False
        meta = found["metadata"]
        if uid is not None and meta.get("uid") != uid:
            return False
        self.remove(kind, namespace, name)
        mine = found["metadata"].get("uid")
        with self._history.changed:
            others = [*self._objects.items()]
        for key, manifest in others:
            owners = manifest["metadata"].get("ownerReferences") or []
            if mine and any(owner.get("uid") == mine for owner in owners):
                self._store(key, None)
        return True

    def write_status(self, kind: Kind, namespace: str | None, manifest: Manifest, *, whole: bool = False) -> None:
        """Write the status of an object; conflicts do not occur."""
        self._check_allowed("update" if whole else "patch", kind, "status")
        found = self.find(kind, namespace, manifest["metadata"]["name"])
        if found is not None:
            written = {**found, "status": copy.deepcopy(manifest["status"])}
            self.put(written)
            volcano.simulate(self, kind, copy.deepcopy(written))

    def find(self, kind: Kind, namespace: str | None, name: str) -> Manifest | None:
        """Return an object whatever the credentials may do. None: it is absent."""
        return copy.deepcopy(self._objects.get((kind.api_version, kind.kind, namespace or "", name)))

    def find_all(self, kind: Kind, namespace: str | None, selector: Selector | None = None) -> Sequence[Manifest]:
        """Return the objects of a kind by name, whatever the credentials may do."""
        return self._find_all(kind, namespace, selector)

    def _store(self, key: ObjectKey, manifest: Manifest | None) -> None:
        with self._history.changed:
            before = self._objects.get(key)
            if manifest is None and before is None:
                return
            version = self._history.next_version()
            if manifest is not None:
                manifest["metadata"]["resourceVersion"] = str(version)
            super()._store(key, manifest)
            self._history.add(before, manifest)

    def _find_all(self, kind: Kind, namespace: str | None, selector: Selector | None) -> Manifests:
        with self._history.changed:
            return super()._find_all(kind, namespace, selector)

    def _is_denied(self, verb: str, kind: Kind, part: str | None) -> bool:
        return ((verb, kind) if part is None else (verb, kind, part)) in self.denied

    def _check_readable(self, verb: str, kind: Kind, namespace: str | None) -> None:
        self._check_allowed(verb, kind)
        if self._readable is not None and kind.namespaced and namespace not in self._readable:
            where = f"in namespace {namespace}" if namespace else "at the cluster scope"
            raise ClusterError(f"the fake cluster forbids it: cannot {verb} {kind.plural} {where}", reason="Forbidden")

    def _check_allowed(self, verb: str, kind: Kind, part: str | None = None) -> None:
        self._check(kind)
        if self._is_denied(verb, kind, part):
            what = f"{kind.plural}/{part}" if part else kind.plural
            raise ClusterError(f"the fake cluster forbids it: cannot {verb} {what}", reason="Forbidden")
