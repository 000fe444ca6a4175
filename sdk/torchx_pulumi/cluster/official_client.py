"""The official client as a wire: for credentials of plugins, proxies and pods, and for a client of the caller's own."""

from __future__ import annotations

import json
from typing import Any

from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from kubernetes.config import ConfigException

from torchx_pulumi.cluster.impersonation import impersonating_pools, impersonation
from torchx_pulumi.cluster.wire import CONNECT_TIMEOUT_S, CONNECTIONS, READ_TIMEOUT_S, Query
from torchx_pulumi.errors import ClusterError
from torchx_pulumi.kubeconfig import Access, cluster_and_user


class Refused:
    """What the API server said when it refused, in the shape of a response."""

    def __init__(self, error: ApiException) -> None:
        body = error.body or error.reason or ""
        self.status = int(error.status or 0)
        self.data = body if isinstance(body, bytes) else str(body).encode()


class OfficialWire:
    """Asks through an `ApiClient`."""

    def __init__(self, api: Any) -> None:
        self._api = api

    def ask(
        self,
        method: str,
        path: str,
        query: Query = (),
        *,
        body: Any = None,
        accept: str = "application/json",
        read_timeout_s: float | None = READ_TIMEOUT_S,
    ) -> Any:
        """Send a request; see `Wire`."""
        headers = {"Accept": accept} | ({"Content-Type": "application/json"} if body is not None else {})
        try:
            return self._api.call_api(
                path,
                method,
                query_params=[*query],
                header_params=headers,
                body=body,
                auth_settings=["BearerToken"],
                _return_http_data_only=True,
                _preload_content=False,
                _request_timeout=(CONNECT_TIMEOUT_S, read_timeout_s),
            )
        except ApiException as error:
            return Refused(error)


def client_of(access: Access) -> Any:
    """Make the official client of an access.

    Raises:
        ClusterError: The kubeconfig cannot be used.
    """
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
    configuration.connection_pool_maxsize = CONNECTIONS
    api = client.ApiClient(configuration)
    if access.config is not None:
        user = cluster_and_user(json.loads(access.config), access.context)[1]
        headers = impersonation(user, access.description)
        if headers:
            # The official client knows no impersonation, and its headers are a mapping.
            api.rest_client.pool_manager.pool_classes_by_scheme = impersonating_pools(headers)
    return api
