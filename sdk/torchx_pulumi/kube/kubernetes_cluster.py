"""`Cluster` for a real cluster: requests to an API server."""

from __future__ import annotations

import json
import os
import random
import re
import time
from collections.abc import Callable, Collection, Iterator
from datetime import datetime
from functools import partial
from typing import Any
from urllib.parse import quote

from torchx_pulumi.kube.kinds import ACCESS_REVIEW, EVENT, NAMESPACE, POD, Kind
from torchx_pulumi.kube.kubeconfig import (
    Access,
    Fields,
    authority_of,
    cluster_and_user,
    find_access,
    identity_of,
    namespace_of,
)
from torchx_pulumi.kube.pod_list import TABLE, PodList, PodRow, read_rows
from torchx_pulumi.kube.protocol import Manifests, Selector, key_of
from torchx_pulumi.kube.streams import GROW_S, LogStream, WatchStream
from torchx_pulumi.kube.transport import (
    READ_TIMEOUT_S,
    ApiRequest,
    Query,
    Response,
    Transport,
    connection_error,
    response_error,
    urllib3,
)
from torchx_pulumi.kube.trimming import trim
from torchx_pulumi.model.cluster_identity import HOME_NAMESPACE, ClusterIdentity
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.object_fields import at, items_at, text_at
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.model.timestamps import format_time

PAGE_SIZE = 500
"""Objects of one page of a list."""

ROWS = 2000
"""Rows of one page of a table."""

WITHOUT_NORMAL = ("involvedObject.kind!=Pod", "involvedObject.kind=Pod,type=Warning")
"""Field selectors of all events but the normal ones of pods."""

WATCH_S = (240, 480)
"""Seconds after which the API server ends a watch: a random number of this range."""

SILENCE_S = 150.0
"""Seconds without an event after which a watch is interrupted. API servers send a bookmark every minute."""

IDENTITY_S = 5.0
"""Seconds for which an identity is kept. A tunnel may lead to another cluster later."""


_transports: dict[tuple[Access, int], Transport] = {}
"""One transport, and so one pool of connections, for each access and process."""


def transport_of(access: Access) -> Transport:
    """Return the shared transport of an access. It is created at the first use.

    Raises:
        ClusterError: The kubeconfig cannot be used.
    """
    # Processes must not share a connection after a fork.
    key = (access, os.getpid())
    if key not in _transports:
        from torchx_pulumi.kube.http_client import HttpClient  # it imports urllib3

        # Threads may create several transports at once, which make no connection. All use the same one.
        _transports.setdefault(key, HttpClient(access))
    return _transports[key]


class KubernetesCluster:
    """A cluster that is accessed with a kubeconfig, the service account of a pod, or a caller's own client."""

    def __init__(
        self, transport: Callable[[], Transport], where: str, cluster: Fields, namespace: str = "default"
    ) -> None:
        self.api_server = str(cluster["server"])
        self.namespace = namespace
        self._transport = transport
        self._where = where
        self._cluster = cluster
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
        cluster, _ = cluster_and_user(access)
        return cls(partial(transport_of, access), access.description, cluster, namespace_of(access))

    @classmethod
    def of_client(cls, api_client: Any) -> KubernetesCluster:
        """Return a cluster that uses a caller's `kubernetes.client.ApiClient` with its credentials and settings."""
        from torchx_pulumi.kube.official_client import OfficialTransport

        transport = OfficialTransport(api_client)
        configuration = api_client.configuration
        authority = getattr(configuration, "ssl_ca_cert", None)
        cluster = {"server": configuration.host, "certificate-authority": authority}
        return cls(lambda: transport, f"the cluster at {configuration.host}", cluster)

    @property
    def identity(self) -> str:
        return identity_of(self.api_server)

    def identify(self) -> ClusterIdentity:
        now = time.monotonic()
        if self._identified is not None and now - self._identified[0] < IDENTITY_S:
            return self._identified[1]
        try:
            home = self.get(NAMESPACE, None, HOME_NAMESPACE) or {}
        except ClusterError as error:
            if error.reason != "Forbidden":
                raise
            home = {}
        address = re.sub(r"//[^/]*@", "//", self.api_server)
        identity = ClusterIdentity(
            uid=text_at(home, "metadata", "uid"),
            ca=authority_of(self._cluster),
            address=self.identity,
            name=self._where if address in self._where else f"{self._where} at {address}",
        )
        self._identified = (now, identity)
        return identity

    def get(self, kind: Kind, namespace: str | None, name: str) -> Manifest | None:
        return self._json("GET", path_of(kind, namespace, name), kind)

    def list(self, kind: Kind, namespace: str | None, selector: Selector | None = None) -> list[Manifest]:
        return self.list_versioned(kind, namespace, selector)[0]

    def list_versioned(
        self,
        kind: Kind,
        namespace: str | None,
        selector: Selector | None = None,
        *,
        keep: Callable[[Manifest], Manifest | None] = lambda found: found,
    ) -> tuple[Manifests, str]:
        kept: Manifests = []
        version = ""
        for page in self._pages(kind, namespace, [("limit", str(PAGE_SIZE)), *selected(selector)]):
            kept += filter(None, map(keep, items_of(page, kind)))
            version = version or text_at(page, "metadata", "resourceVersion") or ""
        kept.sort(key=key_of)
        return kept, version

    def list_pods(
        self, namespace: str, selector: Selector, *, whole: int | None = None, phase: str | None = None
    ) -> PodList:
        query = [*selected(selector), *([("fieldSelector", f"status.phase={phase}")] if phase else [])]
        pods: Manifests = []
        version: str | None = None
        if whole != 0:
            # One more: a page of labelled objects may name a next one that is empty.
            size = PAGE_SIZE if whole is None else whole + 1
            for page in self._pages(POD, namespace, [("limit", str(size)), *query]):
                pods += map(trim, items_of(page, POD))
                version = version or text_at(page, "metadata", "resourceVersion")
                if whole is not None and len(pods) > whole:
                    break
            else:
                return PodList(pods=sorted(pods, key=key_of), version=version)
        rows: list[PodRow] = []
        short = [("limit", str(ROWS)), ("includeObject", "None"), *query]
        for page in self._pages(POD, namespace, short, accept=f"{TABLE},application/json"):
            rows += read_rows(page, phase)
        return PodList(pods=sorted(pods, key=key_of)[:whole], rows=sorted(rows, key=lambda row: row.name))

    def _pages(self, kind: Kind, namespace: str | None, query: Query, **options: Any) -> Iterator[dict[str, Any]]:
        """Yield the pages of a list."""
        more: Query = ()
        while True:
            page = self._json("GET", path_of(kind, namespace), kind, [*query, *more], **options) or {}
            yield page
            token = text_at(page, "metadata", "continue")
            if token is None:
                return
            more = [("continue", token)]

    def watch(
        self, kind: Kind, namespace: str | None, selector: Selector | None = None, *, version: str
    ) -> WatchStream:
        query = [
            ("watch", "1"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", version),
            ("timeoutSeconds", str(random.randrange(*WATCH_S))),  # noqa: S311 - spreads the load on the API server
            *selected(selector),
        ]
        response = self._request("GET", path_of(kind, namespace), kind, query)
        if response is None:
            raise ClusterError(f"{self._where} does not watch {kind.plural}", reason="NotServed")
        return WatchStream(response, self._where, kind, silence_s=SILENCE_S)

    def events(self, namespace: str, names: Collection[str | None]) -> Manifests:
        limit = ("limit", str(PAGE_SIZE))
        first = next(self._pages(EVENT, namespace, [limit]))
        queries = [[limit, ("fieldSelector", words)] for words in WITHOUT_NORMAL]
        more = (page for query in queries for page in self._pages(EVENT, namespace, query))
        # What is normal of thousands of pods explains nothing.
        pages = more if text_at(first, "metadata", "continue") else [first]
        listed = (one for page in pages for one in items_of(page, EVENT))
        return sorted((one for one in listed if text_at(one, "involvedObject", "name") in names), key=key_of)

    def serves(self, kind: Kind) -> bool:
        served = items_at(self._json("GET", version_path(kind), None), "resources")
        return any((one.get("kind"), one.get("name")) == (kind.kind, kind.plural) for one in served)

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
        wanted = {
            "follow": "true" if follow else None,
            "previous": "true" if previous else None,
            "timestamps": "true" if timestamps else None,
            "container": container,
            "tailLines": tail_lines,
            "limitBytes": limit_bytes,
            "sinceTime": None if since is None else format_time(since),
        }
        query = [(name, str(value)) for name, value in wanted.items() if value is not None]
        path = path_of(POD, namespace, pod, "log")
        silence_s = silence_s or (None if follow else READ_TIMEOUT_S)
        response = self._request("GET", path, None, query, accept="*/*", read_timeout_s=silence_s)
        if response is None:
            raise ClusterError(
                f"there is no pod {pod!r} in namespace {namespace!r} of {self._where}", reason="NotFound"
            )
        grow_s = GROW_S if follow and keep_ends else None
        return LogStream(response, self._where, keep_ends=keep_ends, grow_s=grow_s, stamped=timestamps)

    def version(self) -> str:
        return text_at(self._json("GET", "/version", None), "gitVersion") or "unknown"

    def allowed(self, verb: str, kind: Kind, namespace: str | None, subresource: str | None = None) -> bool:
        asked = {"verb": verb, "group": kind.group, "resource": kind.plural, "subresource": subresource}
        asked["namespace"] = namespace if kind.namespaced else None
        review = {
            "apiVersion": ACCESS_REVIEW.api_version,
            "kind": ACCESS_REVIEW.kind,
            "spec": {"resourceAttributes": {name: value for name, value in asked.items() if value}},
        }
        answer = self._json("POST", path_of(ACCESS_REVIEW, None), ACCESS_REVIEW, body=review)
        return bool(at(answer, "status", "allowed"))

    def create(self, kind: Kind, namespace: str | None, manifest: Manifest, *, dry_run: bool = False) -> Manifest:
        query = [("dryRun", "All")] if dry_run else []
        return self._json("POST", path_of(kind, namespace), kind, query, body=manifest) or {}

    def replace(self, kind: Kind, namespace: str | None, manifest: Manifest) -> Manifest:
        path = path_of(kind, namespace, manifest["metadata"]["name"])
        return self._json("PUT", path, kind, body=manifest) or {}

    def delete(self, kind: Kind, namespace: str | None, name: str, *, uid: str | None = None) -> bool:
        options: Manifest = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Foreground"}
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        try:
            return self._json("DELETE", path_of(kind, namespace, name), kind, body=options) is not None
        except ClusterError as error:
            if uid is not None and error.reason == "Conflict":
                # Another object has the name now.
                return False
            raise

    def write_status(self, kind: Kind, namespace: str | None, manifest: Manifest, *, whole: bool = False) -> None:
        known = {key: manifest["metadata"][key] for key in ("uid", "resourceVersion")}
        body = manifest if whole else {"metadata": known, "status": manifest["status"]}
        path = path_of(kind, namespace, manifest["metadata"]["name"], "status")
        self._json("PUT" if whole else "PATCH", path, kind, body=body)

    def _json(self, method: str, path: str, kind: Kind | None, query: Query = (), **options: Any) -> Manifest | None:
        """Return the JSON of a response, or None if the object does not exist. An unserved kind is an error."""
        response = self._request(method, path, kind, query, **options)
        if response is None:
            return None
        try:
            answer = json.loads(response.data)
        except (urllib3().exceptions.HTTPError, OSError) as error:
            raise connection_error(error, self._where) from error
        except ValueError as error:
            raise self._foreign("a response that is not JSON") from error
        if not isinstance(answer, dict):
            raise self._foreign("JSON that is not an object")
        return answer

    def _foreign(self, what: str) -> ClusterError:
        """Return the error of an answer of a proxy or a login portal."""
        return ClusterError(f"{self._where} sent {what}; check that {self.api_server} is an API server")

    def _request(self, method: str, path: str, kind: Kind | None, query: Query = (), **options: Any) -> Response | None:
        """Return a response, or None if the object does not exist; options as of `ApiRequest`."""
        try:
            response = self._transport().request(ApiRequest(method, path, query, **options))
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


def items_of(page: Manifest, kind: Kind) -> Iterator[Manifest]:
    """Yield the objects of a page of a list."""
    # The items of a list have neither field; every other object has them.
    return ({"apiVersion": kind.api_version, "kind": kind.kind, **item} for item in page.get("items") or [])


def selected(selector: Selector | None) -> list[tuple[str, str]]:
    """Return the parameter of a selector; empty without a selector."""
    wanted = (key if value is None else f"{key}={value}" for key, value in (selector or {}).items())
    return [("labelSelector", ",".join(wanted))] if selector else []


def version_path(kind: Kind) -> str:
    """Return the API path of a group and version."""
    return f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"


def path_of(kind: Kind, namespace: str | None, *names: str) -> str:
    """Return the API path of the objects of a kind, or of one of them with its subresource."""
    parts = ["namespaces", namespace, kind.plural] if namespace and kind.namespaced else [kind.plural]
    return "/".join([version_path(kind), *(quote(part, safe="") for part in (*parts, *names))])
