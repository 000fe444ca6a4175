"""A caller's `kubernetes.client.ApiClient` as a transport. Only this module imports the package `kubernetes`."""

from __future__ import annotations

from typing import Any

import urllib3
from kubernetes.client.exceptions import ApiException

from torchx_pulumi.kube.transport import CONNECT_TIMEOUT_S, READ_TIMEOUT_S, Query, Response, content_type


class OfficialTransport:
    """Transport that uses an `ApiClient`."""

    def __init__(self, api: Any) -> None:
        self._api = api

    def request(
        self,
        method: str,
        path: str,
        query: Query = (),
        *,
        body: Any = None,
        accept: str = "application/json",
        read_timeout_s: float | None = READ_TIMEOUT_S,
    ) -> Response:
        """Send a request; see `Transport`."""
        headers = {"Accept": accept} | ({"Content-Type": content_type(method)} if body is not None else {})
        timeout = (CONNECT_TIMEOUT_S, read_timeout_s)
        parts: dict[str, Any] = {
            "query_params": [*query],
            "header_params": headers,
            "body": body,
            "auth_settings": ["BearerToken"],
        }
        try:
            if hasattr(self._api, "param_serialize"):  # `kubernetes` 37 and later
                request = self._api.param_serialize(method, path, **parts)
                raw = self._api.call_api(*request, _request_timeout=timeout).response
            else:
                raw = self._api.call_api(
                    path,
                    method,
                    **parts,
                    _return_http_data_only=True,
                    _preload_content=False,
                    _request_timeout=timeout,
                )
        except ApiException as error:
            body = error.body or error.reason or ""
            data = body if isinstance(body, bytes) else str(body).encode()
            return Response(urllib3.HTTPResponse(data, status=int(error.status or 0)), None)
        return Response(raw, getattr(raw.connection, "sock", None))
