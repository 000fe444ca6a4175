"""Kubernetes objects in a request: mappings that also have the attributes of the official client's models, and back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from typing import Any

from yaml.representer import Representer, SafeRepresenter

_OTHERWISE: Mapping[str, str] = {
    "_exec": "exec",
    "client_ip": "clientIP",
    "cluster_ip": "clusterIP",
    "cluster_ips": "clusterIPs",
    "container_id": "containerID",
    "dataset_uuid": "datasetUUID",
    "disk_uri": "diskURI",
    "downward_api": "downwardAPI",
    "external_ips": "externalIPs",
    "host_ip": "hostIP",
    "host_ipc": "hostIPC",
    "host_ips": "hostIPs",
    "host_pid": "hostPID",
    "image_id": "imageID",
    "load_balancer_ip": "loadBalancerIP",
    "pd_id": "pdID",
    "pod_ip": "podIP",
    "pod_ips": "podIPs",
    "resource_id": "resourceID",
    "scale_io": "scaleIO",
    "set_hostname_as_fqdn": "setHostnameAsFQDN",
    "storage_policy_id": "storagePolicyID",
    "target_ww_ns": "targetWWNs",
    "target_wwns": "targetWWNs",
    "volume_id": "volumeID",
}
"""Attributes whose field in the API is not their name in camelCase."""


class ApiObject(dict[str, Any]):
    """A Kubernetes object: `pod["spec"]["nodeSelector"]` and, as in the official client, `pod.spec.node_selector`.

    An attribute that is not set is None. Fields that are called as a method of `dict` is (`items`, `keys`, `values`)
    are reached by their key.
    """

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        """Return a field."""
        if name.startswith("_") and name not in _OTHERWISE:
            raise AttributeError(name)
        value = self.get(field_name(name))
        # Values that were added later may be plain mappings. A list stays the same object: a caller may keep it.
        if isinstance(value, list):
            value[:] = [attributed(item) for item in value]
        elif isinstance(value, dict):
            value = self[field_name(name)] = attributed(value)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        """Set a field; None removes it, as the official client leaves it out."""
        if value is None:
            self.pop(field_name(name), None)
        else:
            self[field_name(name)] = attributed(value)


def field_name(attribute: str) -> str:
    """Return the field of the API that an attribute of the official client's models is.

    >>> field_name("node_selector"), field_name("host_ip"), field_name("nodeSelector")
    ('nodeSelector', 'hostIP', 'nodeSelector')
    """
    return _OTHERWISE.get(attribute) or re.sub(r"_([a-z0-9])", lambda found: found[1].upper(), attribute)


def attributed(value: Any) -> Any:
    """Return a value whose mappings have attributes; what has them already, and models, stay as they are."""
    if isinstance(value, ApiObject):
        return value
    if isinstance(value, dict):
        return ApiObject({key: attributed(item) for key, item in value.items()})
    return [attributed(item) for item in value] if isinstance(value, list) else value


_PLAIN = frozenset({str, int, float, bool, type(None)})


def plain(value: Any) -> Any:
    """Return a value without attributes and models of the official client: as JSON and YAML have it."""
    if type(value) in _PLAIN:
        # Most values of a manifest are; the checks below take twice as long as the rest of a large one.
        return value
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, date):
        return value.isoformat()
    if hasattr(value, "attribute_map") and hasattr(value, "openapi_types"):
        found = {field: getattr(value, attribute) for attribute, field in value.attribute_map.items()}
        return {field: plain(item) for field, item in found.items() if item is not None}
    return value


# PyYAML writes a class that it does not know as an object of Python, or refuses it.
for _representer in (SafeRepresenter, Representer):
    _representer.add_representer(ApiObject, SafeRepresenter.represent_dict)
