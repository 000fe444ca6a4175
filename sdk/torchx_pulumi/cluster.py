"""The seam to the API server: what this package reads of a cluster, and nothing that writes.

`Cluster` is the Protocol; `KubernetesCluster` the real thing and the only importer of `kubernetes`, which it loads when
it connects; `torchx_pulumi.testing.FakeCluster` passes the same contract suite.
"""

from __future__ import annotations

import codecs
import importlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol
from urllib.parse import quote

from torchx_pulumi.errors import ClusterError
from torchx_pulumi.kinds import Kind
from torchx_pulumi.kubeconfig import Access, find_access
from torchx_pulumi.options import Manifest

CONNECT_TIMEOUT_S = 5.0
"""Longest wait for a connection."""

READ_TIMEOUT_S = 30.0
"""Longest silence while an answer is read; following a log has no such limit."""

PAGE_SIZE = 500
"""Objects asked for at once."""


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
    ) -> Iterator[str]:
        """Return the lines of a container's log, without their ends.

        Args:
            namespace: Where the pod is.
            pod: Its name.
            container: None: the only one.
            follow: Go on until the container ends.
            previous: The container's run before its last restart.
            timestamps: Each line begins with the time at which it was written.
            tail_lines: Only so many lines of the end. None: all.

        Raises:
            ClusterError: No answer, no permission, no such pod, or (retryable) a container that has not started.
        """
        ...


class KubernetesCluster:
    """A cluster that a kubeconfig, or the pod this runs in, gives access to."""

    def __init__(self, api: Any, access: Access) -> None:
        self._api = api
        self._where = access.description

    @classmethod
    def connect(cls, kubeconfig: str | None = None, context: str | None = None) -> KubernetesCluster:
        """Prepare access to a cluster; nothing is asked of it yet.

        Args:
            kubeconfig: Path or contents of a kubeconfig. None: KUBECONFIG, `~/.kube/config`, or the pod's own account.
            context: Context in it. None: its current one.

        Raises:
            ClusterError: There is no kubeconfig, it cannot be read, or it has no such context.
        """
        access = find_access(kubeconfig, context)
        if access not in _CLIENTS:
            _CLIENTS[access] = _client(access)
        return cls(_CLIENTS[access], access)

    def get(self, kind: Kind, namespace: str | None, name: str) -> Manifest | None:
        """Return an object, None if it is absent."""
        answer = self._json(f"{_path(kind, namespace)}/{quote(name, safe='')}", kind)
        return answer if isinstance(answer, dict) else None

    def list(self, kind: Kind, namespace: str | None, selector: Mapping[str, str] | None = None) -> list[Manifest]:
        """Return the objects of a kind, by name."""
        query = [("limit", str(PAGE_SIZE))]
        if selector:
            query.append(("labelSelector", ",".join(f"{key}={value}" for key, value in selector.items())))
        found: list[Manifest] = []
        token: str | None = ""
        while token is not None:
            page = self._json(_path(kind, namespace), kind, [*query, *([("continue", token)] if token else [])]) or {}
            # Items of a list carry neither; every other object does.
            found += [{"apiVersion": kind.api_version, "kind": kind.kind, **item} for item in page.get("items") or []]
            token = (page.get("metadata") or {}).get("continue") or None
        return sorted(found, key=lambda item: (item["metadata"].get("namespace", ""), item["metadata"]["name"]))

    def serves(self, kind: Kind) -> bool:
        """Tell whether the cluster knows the kind."""
        path = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
        answer = self._json(path, None) or {}
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
    ) -> Iterator[str]:
        """Return the lines of a container's log, without their ends."""
        flags = {"follow": follow, "previous": previous, "timestamps": timestamps}
        query = [(name, "true") for name, wanted in flags.items() if wanted]
        query += [("container", container)] if container else []
        query += [("tailLines", str(tail_lines))] if tail_lines is not None else []
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(pod, safe='')}/log"
        response = self._ask(path, query, read_timeout_s=None if follow else READ_TIMEOUT_S, accept="*/*")
        if response is None:
            raise ClusterError(f"there is no pod {pod!r} in namespace {namespace!r} of {self._where}")
        return self._lines(response)

    def _lines(self, response: Any) -> Iterator[str]:
        """Cut a stream into lines; an interrupted one is an error, not an end."""
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        rest = ""
        try:
            for block in response.stream(amt=None, decode_content=False):
                *lines, rest = (rest + decode(block)).split("\n")
                yield from lines
        except (_urllib3().exceptions.HTTPError, OSError) as error:
            raise ClusterError(f"the log stream from {self._where} broke off: {error}", retryable=True) from error
        finally:
            response.close()
            response.release_conn()
        if rest:
            yield rest

    def _json(self, path: str, kind: Kind | None, query: Sequence[tuple[str, str]] = ()) -> Any:
        """Ask for JSON. None: the object is absent; a kind that is not served is an error."""
        response = self._ask(path, query, kind=kind)
        return None if response is None else json.loads(response.data)

    def _ask(
        self,
        path: str,
        query: Sequence[tuple[str, str]],
        *,
        kind: Kind | None = None,
        read_timeout_s: float | None = READ_TIMEOUT_S,
        accept: str = "application/json",
    ) -> Any:
        from kubernetes.client.exceptions import ApiException

        try:
            return self._api.call_api(
                path,
                "GET",
                query_params=[*query],
                header_params={"Accept": accept},
                auth_settings=["BearerToken"],
                _return_http_data_only=True,
                _preload_content=False,
                _request_timeout=(CONNECT_TIMEOUT_S, read_timeout_s),
            )
        except ApiException as error:
            refusal = _refusal(error, self._where, kind)
            if refusal is None:
                return None
            raise refusal from None
        except (_urllib3().exceptions.HTTPError, OSError) as error:
            raise _unreachable(error, self._where) from error


_CLIENTS: dict[Access, Any] = {}
"""One client, and so one pool of connections, for each access that was ever asked for."""


def _client(access: Access) -> Any:
    """Make the official client of an access."""
    try:
        from kubernetes import client, config
        from kubernetes.config import ConfigException
    except ImportError as error:
        raise ClusterError(
            f"reading {access.description} needs the Python package `kubernetes`, which is not installed; "
            "install `torchx-pulumi[kubernetes]`"
        ) from error
    configuration = client.Configuration()
    try:
        if access.config is None:
            config.load_incluster_config(client_configuration=configuration)
        else:
            config.load_kube_config_from_dict(
                json.loads(access.config),
                context=access.context,
                client_configuration=configuration,
                persist_config=False,
            )
    except (ConfigException, OSError, TypeError, ValueError, KeyError, AttributeError) as error:
        raise ClusterError(f"{access.description} cannot be used: {error}") from error
    configuration.retries = 0
    configuration.connection_pool_maxsize = 64
    return client.ApiClient(configuration)


def _urllib3() -> Any:
    """Load what the client talks through; it comes with it."""
    return importlib.import_module("urllib3")


def _path(kind: Kind, namespace: str | None) -> str:
    """Return the API path of the objects of a kind."""
    start = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    inside = f"/namespaces/{quote(namespace, safe='')}" if namespace and kind.namespaced else ""
    return f"{start}{inside}/{kind.plural}"


def _refusal(error: Any, where: str, kind: Kind | None) -> ClusterError | None:
    """Translate what the API server answered; None stands for an object that is absent."""
    try:
        answer = json.loads(error.body or "")
    except (ValueError, TypeError):
        answer = None
    status = answer if isinstance(answer, dict) else {}
    said = status.get("message") or str(error.body or error.reason or "").strip()
    if error.status == 404:
        if kind is None or (status.get("details") or {}).get("name"):
            return None
        absent = "Volcano is not installed there" if kind.group.endswith("volcano.sh") else "what defines it is absent"
        return ClusterError(
            f"{where} does not serve {kind.kind} ({kind.api_version}): {absent}; install it, or choose another cluster"
        )
    if error.status == 401:
        return ClusterError(f"{where} does not accept the credentials of this kubeconfig: {said}; log in anew")
    if error.status == 403:
        return ClusterError(f"{where} forbids it: {said}; ask its administrator for the permission")
    if error.status == 400 and "waiting to start" in said:
        return ClusterError(f"{said} (at {where})", retryable=True)
    retryable = error.status == 429 or error.status >= 500
    return ClusterError(f"{where} answered {error.status}: {said}", retryable=retryable)


def _unreachable(error: BaseException, where: str) -> ClusterError:
    """Translate a connection that failed."""
    cause = getattr(error, "reason", None) or error
    if isinstance(cause, _urllib3().exceptions.SSLError):
        return ClusterError(f"{where} shows a certificate that the kubeconfig does not trust: {cause}")
    text = str(cause).rpartition(">: ")[2] or type(cause).__name__
    return ClusterError(
        f"{where} cannot be reached: {text}; check that it runs and that the context is the right one", retryable=True
    )
