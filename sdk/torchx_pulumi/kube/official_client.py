"""A caller's `kubernetes.client.ApiClient` as a transport. Only this module imports the package `kubernetes`."""

from __future__ import annotations

from typing import Any

import urllib3
from kubernetes.client.exceptions import ApiException

from torchx_pulumi.kube.transport import CONNECT_TIMEOUT_S, ApiRequest, Response


class OfficialTransport:
    """Transport that uses an `ApiClient`."""

    def __init__(self, api: Any) -> None:
        self._api = api

    def request(self, request: ApiRequest) -> Response:
        """Send a request; see `Transport`."""
        timeout = (CONNECT_TIMEOUT_S, request.read_timeout_s)
        parts: dict[str, Any] = {
            "query_params": [*request.query],
            "header_params": request.headers,
            "body": request.body,
            "auth_settings": ["BearerToken"],
        }
        try:
            if hasattr(self._api, "param_serialize"):  # `kubernetes` 37 and later
                serialized = self._api.param_serialize(request.method, request.path, **parts)
                raw = self._api.call_api(*serialized, _request_timeout=timeout).response
            else:
                parts |= {"_return_http_data_only": True, "_preload_content": False}
                raw = self._api.call_api(request.path, request.method, **parts, _request_timeout=timeout)
        except ApiException as error:
            body = error.body or error.reason or ""
            data = body if isinstance(body, bytes) else str(body).encode()
            return Response(urllib3.HTTPResponse(data, status=int(error.status or 0)), None)
        return Response(raw, getattr(raw.connection, "sock", None))
