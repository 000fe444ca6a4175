"""Reduce observed objects to the fields that a status or a diagnosis reads, so that many fit into memory."""

from __future__ import annotations

from typing import Any, Final

from torchx_pulumi.model.object_fields import at
from torchx_pulumi.model.options import Manifest, Observed

CONTAINERS: Final = frozenset({"containers", "initContainers", "ephemeralContainers"})
"""Fields that list containers, in a pod and in any template of one."""

CONTAINER_FIELDS: Final = frozenset(
    {
        "args",
        "command",
        "lifecycle",
        "livenessProbe",
        "readinessProbe",
        "securityContext",
        "startupProbe",
        "terminationMessagePath",
        "terminationMessagePolicy",
        "volumeDevices",
        "volumeMounts",
        "workingDir",
    }
)
"""Fields of a container that are dropped."""

VOLUMES: Final = frozenset({"configMap", "downwardAPI", "emptyDir", "hostPath"})
"""Sources of volumes that are dropped: they have no secrets and no influence on where a pod can run."""

EVENT_FIELDS: Final = frozenset({"action", "firstTimestamp", "related", "reportingInstance", "series", "source"})
"""Fields of an event that are dropped."""

NOWHERE: Final = frozenset({"managedFields", "kubectl.kubernetes.io/last-applied-configuration"})
"""Fields and annotations that are dropped of any object."""

MOST_SHARED: Final = 20_000
"""Strings that are kept for sharing."""

SHARED_LENGTH: Final = 100
"""Characters of the longest string that is shared."""

_shared: dict[str, str] = {}
"""Strings by themselves: equal ones of different objects are stored once."""


def trim(found: Observed) -> Manifest:
    """Return an object with the fields that a status or a diagnosis reads; the argument is not changed.

    Commands, probes, mounts, variables and managed fields are dropped, in the object and in any template in it.
    References to Secrets stay: they decide whether a log may be read.
    """
    if len(_shared) > MOST_SHARED:
        # Names and times are shared too, and are not needed for ever.
        _shared.clear()
    if "involvedObject" in found:
        found = {key: value for key, value in found.items() if key not in EVENT_FIELDS}
    return _trim_mapping(found)


def _trim(value: object) -> Any:
    if isinstance(value, str):
        return _shared.setdefault(value, value) if len(value) <= SHARED_LENGTH else value
    if isinstance(value, dict):
        return _trim_mapping(value)
    if isinstance(value, list):
        return [_trim(item) for item in value]
    return value


def _trim_mapping(found: Observed) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for key, value in found.items():
        if key in NOWHERE:
            continue
        if key in CONTAINERS and isinstance(value, list):
            kept[key] = [_trim_container(item) if isinstance(item, dict) else item for item in value]
        elif key == "volumes" and isinstance(value, list):
            kept[key] = [_trim(item) for item in value if _is_needed(item)]
        else:
            kept[_trim(key)] = _trim(value)
    return kept


def _trim_container(container: Observed) -> dict[str, Any]:
    kept = _trim_mapping({key: value for key, value in container.items() if key not in CONTAINER_FIELDS})
    for key, secret in (("env", ("valueFrom", "secretKeyRef")), ("envFrom", ("secretRef",))):
        if isinstance(kept.get(key), list):
            kept[key] = [item for item in kept[key] if at(item, *secret) is not None]
            if not kept[key]:
                del kept[key]
    return kept


def _is_needed(volume: object) -> bool:
    """Return whether a volume may have secrets, or decides where a pod can run."""
    if isinstance(volume, dict) and not volume.keys().isdisjoint(VOLUMES):
        return False
    sources = at(volume, "projected", "sources")
    return not isinstance(sources, list) or any(isinstance(source, dict) and "secret" in source for source in sources)
