"""`LiveCluster` for a real cluster: requests to an API server."""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Callable, Collection
from datetime import datetime
from functools import partial
from typing import Any
from urllib.parse import quote

from torchx_pulumi.kube.api_errors import connection_error, response_error
from torchx_pulumi.kube.kinds import ACCESS_REVIEW, EVENT, NAMESPACE, Kind
from torchx_pulumi.kube.kubeconfig import (
    api_server,
    authority_in_file,
    authority_of,
    find_access,
    identity_of,
    namespace_of,
)
from torchx_pulumi.kube.log_stream import GROW_S, LogStream
from torchx_pulumi.kube.protocol import Selector
from torchx_pulumi.kube.transport import READ_TIMEOUT_S, Query, Transport, transport_of, urllib3
from torchx_pulumi.kube.watch_stream import WatchStream
from torchx_pulumi.model.cluster_identity import HOME_NAMESPACE, ClusterIdentity
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.object_fields import text_at
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.model.timestamps import format_time

PAGE_SIZE = 500
"""Objects of one page of a list."""

WATCH_S = (240, 480)
"""Seconds after which the API server ends a watch: a random number of this range."""

SILENCE_S = 150.0
"""Seconds without an event after which a watch is interrupted. API servers send a bookmark every minute."""

IDENTITY_S = 5.0
"""Seconds for which an identity is kept. A tunnel may lead to another cluster later."""

Manifests = list[Manifest]
"""The class has a method `list`."""


class KubernetesCluster:
    """A cluster that is accessed with a kubeconfig, the service account of a pod, or a caller's own client."""

    def __init__(
        self,
        transport: Callable[[], Transport],
        where: str,
        address: str,
        authority: Callable[[], str | None],
        namespace: str = "default",
    ) -> None:
        self._transport = transport
        self._where = where
        self._address = address
        self._authority = authority
        self._namespace = namespace
        self._identified: tuple[float, ClusterIdentity] | None = None

    @classmethod
    def connect(cls, kubeconfig: str | None = None, context: str | None = None) -> KubernetesCluster:
        """Prepare access to a cluster. No request is made.

        Args:
            kubeconfig: Path or contents of a kubeconfig. None: KUBECONFIG, `~/.kube/config`, or the pod's account.
            context: Context of the kubeconfig. None: the current one.

        Raises:
            ClusterError: There is no kubeconfig, it cannot be read, or it has no such context or no address.
        """
        access = find_access(kubeconfig, context)
        return cls(
            partial(transport_of, access),
            access.description,
            api_server(access),
            lambda: authority_of(access),
            namespace_of(access),
        )

    @classmethod
    def of_client(cls, api_client: Any) -> KubernetesCluster:
        """Return a cluster that uses a caller's `kubernetes.client.ApiClient` with its credentials and settings."""
        from torchx_pulumi.kube.official_client import OfficialTransport

        transport = OfficialTransport(api_client)
        address = str(api_client.configuration.host)
        authority = getattr(api_client.configuration, "ssl_ca_cert", None)
        return cls(lambda: transport, f"the cluster at {address}", address, lambda: authority_in_file(authority))

    @property
    def api_server(self) -> str:
        """Address of the API server. No request is made."""
        return self._address

    @property
    def identity(self) -> str:
        """Digest of that address. No request is made."""
        return identity_of(self._address)

    @property
    def namespace(self) -> str:
        """Namespace of the context or of the pod. The default is `default`."""
        return self._namespace

    def identify(self) -> ClusterIdentity:
        """Return the identity of the cluster."""
        now = time.monotonic()
        if self._identified is not None and now - self._identified[0] < IDENTITY_S:
            return self._identified[1]
        try:
            home = self.get(NAMESPACE, None, HOME_NAMESPACE) or {}
        except ClusterError as error:
            if error.reason != "Forbidden":
                raise
            home = {}
        address = re.sub(r"//[^/]*@", "//", self._address)
        identity = ClusterIdentity(
            uid=(home.get("metadata") or {}).get("uid"),
            ca=self._authority(),
            address=self.identity,
            name=self._where if address in self._where else f"{self._where} at {address}",
        )
        self._identified = (now, identity)
        return identity

    def get(self, kind: Kind, namespace: str | None, name: str) -> Manifest | None:
        """Return an object. None: it does not exist."""
        found: Manifest | None = self._json("GET", f"{_path(kind, namespace)}/{quote(name, safe='')}", kind)
        return found

    def list(self, kind: Kind, namespace: str | None, selector: Selector | None = None) -> list[Manifest]:
        """Return the objects of a kind, sorted by namespace and name."""
        return self.list_versioned(kind, namespace, selector)[0]

    def list_versioned(
        self,
        kind: Kind,
        namespace: str | None,
        selector: Selector | None = None,
        *,
        keep: Callable[[Manifest], Manifest | None] = lambda found: found,
    ) -> tuple[Manifests, str]:
        """Return the objects of a kind, sorted by namespace and name, and the version from which a watch continues."""
        query = [("limit", str(PAGE_SIZE)), *_selected(selector)]
        kept: Manifests = []
        token: str | None = ""
        version = ""
        while token is not None:
            more = [("continue", token)] if token else []
            page = self._json("GET", _path(kind, namespace), kind, [*query, *more]) or {}
            for item in page.get("items") or []:
                # The items of a list have neither field; every other object has them.
                found = keep({"apiVersion": kind.api_version, "kind": kind.kind, **item})
                if found is not None:
                    kept.append(found)
            head = page.get("metadata") or {}
            version = version or str(head.get("resourceVersion") or "")
            token = head.get("continue") or None
        kept.sort(key=lambda item: (item["metadata"].get("namespace", ""), item["metadata"]["name"]))
        return kept, version

    def watch(
        self, kind: Kind, namespace: str | None, selector: Selector | None = None, *, version: str
    ) -> WatchStream:
        """Return the changes of objects since a version, and further ones as they happen."""
        query = [
            ("watch", "1"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", version),
            ("timeoutSeconds", str(random.randrange(*WATCH_S))),  # noqa: S311 - spreads the load on the API server
            *_selected(selector),
        ]
        response = self._request("GET", _path(kind, namespace), kind, query)
        if response is None:
            raise ClusterError(f"{self._where} does not watch {kind.plural}", reason="NotServed")
        return WatchStream(response, self._where, kind, silence_s=SILENCE_S)

    def events(self, namespace: str, names: Collection[str | None]) -> Manifests:
        """Return the events that involve objects of some names, sorted by name."""
        return [event for event in self.list(EVENT, namespace) if text_at(event, "involvedObject", "name") in names]

    def serves(self, kind: Kind) -> bool:
        """Return whether the cluster serves the kind."""
        answer = self._json("GET", _version_path(kind), None) or {}
        return any(
            resource.get("kind") == kind.kind and resource.get("name") == kind.plural
            for resource in answer.get("resources") or []
        )

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
    ) -> LogStream:
        """Return the lines of a container's log."""
        flags = {"follow": follow, "previous": previous, "timestamps": timestamps}
        query = [(name, "true") for name, wanted in flags.items() if wanted]
        query += [("container", container)] if container else []
        query += [("tailLines", str(tail_lines))] if tail_lines is not None else []
        query += [("limitBytes", str(limit_bytes))] if limit_bytes is not None else []
        if since is not None:
            query.append(("sinceTime", format_time(since)))
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(pod, safe='')}/log"
        silence_s = silence_s or (None if follow else READ_TIMEOUT_S)
        response = self._request("GET", path, None, query, accept="*/*", read_timeout_s=silence_s)
        if response is None:
            raise ClusterError(
                f"there is no pod {pod!r} in namespace {namespace!r} of {self._where}", reason="NotFound"
            )
        grow_s = GROW_S if follow and keep_ends else None
        return LogStream(response, self._where, keep_ends=keep_ends, grow_s=grow_s, stamped=timestamps)

    def version(self) -> str:
        """Return the version of the API server."""
        return str((self._json("GET", "/version", None) or {}).get("gitVersion") or "unknown")

    def allowed(self, verb: str, kind: Kind, namespace: str | None, subresource: str | None = None) -> bool:
        """Return whether these credentials allow a verb."""
        asked = {
            "verb": verb,
            "group": kind.group,
            "resource": kind.plural,
            "subresource": subresource,
            "namespace": namespace if kind.namespaced else None,
        }
        review = {
            "apiVersion": ACCESS_REVIEW.api_version,
            "kind": ACCESS_REVIEW.kind,
            "spec": {"resourceAttributes": {name: value for name, value in asked.items() if value}},
        }
        answer = self._json("POST", _path(ACCESS_REVIEW, None), ACCESS_REVIEW, body=review) or {}
        return bool((answer.get("status") or {}).get("allowed"))

    def create(self, kind: Kind, namespace: str | None, manifest: Manifest, *, dry_run: bool = False) -> Manifest:
        """Create an object and return it as the API server stored it."""
        query = [("dryRun", "All")] if dry_run else []
        made: Manifest = self._json("POST", _path(kind, namespace), kind, query, body=manifest)
        return made

    def replace(self, kind: Kind, namespace: str | None, manifest: Manifest) -> Manifest:
        """Replace an object as a whole, unless it was changed since it was read; return it as it was stored."""
        path = f"{_path(kind, namespace)}/{quote(manifest['metadata']['name'], safe='')}"
        stored: Manifest = self._json("PUT", path, kind, body=manifest)
        return stored

    def delete(
        self, kind: Kind, namespace: str | None, name: str, *, uid: str | None = None, version: str | None = None
    ) -> bool:
        """Delete an object after the objects that it owns."""
        options: Manifest = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Foreground"}
        wanted = {"uid": uid, "resourceVersion": version}
        conditions = {field: value for field, value in wanted.items() if value is not None}
        if conditions:
            options["preconditions"] = conditions
        try:
            path = f"{_path(kind, namespace)}/{quote(name, safe='')}"
            return self._json("DELETE", path, kind, body=options) is not None
        except ClusterError as error:
            if version is None and uid is not None and error.reason == "Conflict":
                # Another object has the name now.
                return False
            raise

    def write_status(self, kind: Kind, namespace: str | None, manifest: Manifest, *, whole: bool = False) -> None:
        """Write the status of an object, unless the object was changed since it was read."""
        known = {key: manifest["metadata"][key] for key in ("uid", "resourceVersion")}
        body = manifest if whole else {"metadata": known, "status": manifest["status"]}
        path = f"{_path(kind, namespace)}/{quote(manifest['metadata']['name'], safe='')}/status"
        self._json("PUT" if whole else "PATCH", path, kind, body=body)

    def _json(self, method: str, path: str, kind: Kind | None, query: Query = (), *, body: Any = None) -> Any:
        """Return the JSON of a response. None: the object does not exist. A kind that is not served is an error."""
        response = self._request(method, path, kind, query, body=body)
        if response is None:
            return None
        try:
            answer = json.loads(response.data)
        except (urllib3().exceptions.HTTPError, OSError) as error:
            raise connection_error(error, self._where) from error
        except ValueError as error:
            raise ClusterError(
                f"{self._where} sent a response that is not JSON; check that {self._address} is an API server"
            ) from error
        if not isinstance(answer, dict):
            # A proxy or a login portal answered.
            raise ClusterError(
                f"{self._where} sent JSON that is not an object; check that {self._address} is an API server"
            )
        return answer

    def _request(
        self,
        method: str,
        path: str,
        kind: Kind | None,
        query: Query = (),
        *,
        body: Any = None,
        accept: str = "application/json",
        read_timeout_s: float | None = READ_TIMEOUT_S,
    ) -> Any:
        try:
            response = self._transport().request(
                method, path, query, body=body, accept=accept, read_timeout_s=read_timeout_s
            )
            if 200 <= response.status < 300:
                return response
            refused = response_error(
                response.status, response.data, self._where, kind, absence_is_fine=method in ("GET", "DELETE")
            )
        except (urllib3().exceptions.HTTPError, OSError) as error:
            raise connection_error(error, self._where) from error
        if refused is None:
            return None
        raise refused


def _selected(selector: Selector | None) -> list[tuple[str, str]]:
    """Return the parameter of a selector. Empty: there is no selector."""
    wanted = (key if value is None else f"{key}={value}" for key, value in (selector or {}).items())
    return [("labelSelector", ",".join(wanted))] if selector else []


def _version_path(kind: Kind) -> str:
    return f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"


def _path(kind: Kind, namespace: str | None) -> str:
    """Return the API path of the objects of a kind."""
    start = _version_path(kind)
    inside = f"/namespaces/{quote(namespace, safe='')}" if namespace and kind.namespaced else ""
    return f"{start}{inside}/{kind.plural}"
