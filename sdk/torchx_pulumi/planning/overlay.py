"""Pod overlays by the rules of TorchX nightly (`torchx.specs.overlays`): merge, append, PUT, JOIN, DEL.

The name of a replica's main container ends in a number. A JOIN of containers on `name` reaches the main container of
every replica by `<role>-${replica_id}`, a name that no container can have. Overlay files are read in `inputs`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from torchx_pulumi.model.options import Manifest
from torchx_pulumi.planning.names import is_dns_label

FORMAT_KEY = "__torchx_overlays__"
"""Marks metadata that holds one overlay per kind."""

EVERY_NUMBER = "${replica_id}"
"""End of the name by which an overlay reaches the main container of every replica, in place of its number."""

_PUT = "__put__:"
_JOIN = "__join__:"
_DEL = "__del__:"

_NOTHING = object()

_TEXT_MAPS = ("labels", "annotations", "nodeSelector", "limits", "requests")
"""Maps whose values must be text in Kubernetes; YAML may have read them as numbers or booleans."""


class OverlayError(ValueError):
    """An overlay does not fit the pod; the message has the field and the allowed values."""


def select_overlay(namespace_value: object, kind: str) -> dict[str, Any]:
    """Return the overlay of one kind in `metadata[<scheduler>]`, as TorchX's `get_overlay` does.

    >>> select_overlay({"V1Pod": {"spec": {}}}, "V1Pod")
    {'spec': {}}
    >>> select_overlay({"spec": {"hostNetwork": True}}, "V1Pod")
    {'spec': {'hostNetwork': True}}
    >>> select_overlay({"__torchx_overlays__": True, "Other": {}}, "V1Pod")
    {}
    """
    if not isinstance(namespace_value, dict):
        return {}
    if isinstance(namespace_value.get(kind), dict):
        return dict(namespace_value[kind])
    if namespace_value.get(FORMAT_KEY):
        return {}
    # Several kinds without this one are the nested form without its marker.
    several_kinds = len(namespace_value) > 1 and all(isinstance(value, dict) for value in namespace_value.values())
    return {} if several_kinds else dict(namespace_value)


def given_overlay(value: dict[str, Any]) -> dict[str, Any] | None:
    """Return a role's `pod_overlay`, given directly or under the pod's kind, or None if it is empty.

    >>> given_overlay({"spec": {}, "metadata": {}})
    {'spec': {}, 'metadata': {}}
    >>> given_overlay({"V1Pod": {"spec": {}}})
    {'spec': {}}
    """
    inner = value.get("V1Pod") if set(value) <= {"V1Pod", FORMAT_KEY} else value
    return (dict(inner) if isinstance(inner, dict) else inner) or None


def overlay_pod(template: Manifest, overlay: Mapping[str, Any]) -> Manifest:
    """Merge an overlay into a pod template and return metadata and spec. The template is changed.

    Raises:
        OverlayError: A field of the overlay does not fit.
    """
    main = template["spec"]["containers"][0]["name"]
    merge(template, _for_container(overlay, main))
    result: Manifest = {}
    for part in ("metadata", "spec"):
        found = template.get(part)
        if not isinstance(found, dict):
            raise OverlayError(f"leaves no {part}, which must be a mapping; remove the DEL or PUT of {part}")
        result[part] = _without_none(found)
    _check_pod(result)
    return result


def container_problems(spec: Manifest, main: str) -> Iterator[str]:
    """Yield why the API server refuses the containers of a pod: one lacks an image, or a name of its own.

    No message has a value of the overlay.

    Args:
        spec: The pod's spec with the overlay.
        main: Name of the pod's main container.
    """
    advice = f"JOIN of containers on name reaches the main container of every replica by {_in_every_replica(main)!r}"
    names: list[object] = []
    for field in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(field, ())):
            where, name, image = f"spec.{field}[{index}]", container.get("name"), container.get("image")
            if not isinstance(name, str) or not is_dns_label(name):
                yield f"leaves {where}.name without the name of a container: a-z, 0-9 and '-'; {advice}"
            elif name in names:
                yield f"leaves {where}.name with the name of another container; rename it"
            if not isinstance(image, str) or not image:
                yield f"leaves {where} without an image; {advice}"
            names.append(name)


def joins_main_container(key: str, value: object) -> Iterator[Mapping[str, Any]]:
    """Yield what an entry of an overlay's `spec` joins to the main container of every replica."""
    if joins_on(key, "containers") == "name" and isinstance(value, (list, tuple)):
        for item in value:
            if isinstance(item, Mapping) and str(item.get("name")).endswith(f"-{EVERY_NUMBER}"):
                yield item


def _in_every_replica(container: str) -> str:
    """Return the name by which an overlay reaches the main container of every replica.

    >>> _in_every_replica("trainer-12")
    'trainer-${replica_id}'
    """
    return re.sub(r"\d+$", lambda _: EVERY_NUMBER, container)


def _for_container(overlay: Mapping[str, Any], main: str) -> Mapping[str, Any]:
    """Return an overlay in which the main container of every replica has the name that it has in one of them."""
    spec = overlay.get("spec")
    if not isinstance(spec, Mapping):
        return overlay
    named = dict(spec)
    for key, value in spec.items():
        found = [item for item in joins_main_container(key, value) if item["name"] == _in_every_replica(main)]
        if found:
            named[key] = [{**item, "name": main} if item in found else item for item in value]
    return {**overlay, "spec": named}


def _check_pod(pod: Manifest) -> None:
    """Refuse a pod whose parts have other types than in every pod, as PUT and new fields can cause."""
    if not pod["spec"].get("containers"):
        raise OverlayError("leaves no spec.containers, which must be a list with at least one container")
    for field in ("labels", "annotations"):
        _check_form(pod["metadata"], field, dict, f"metadata.{field}")
    for field in ("containers", "initContainers"):
        _check_form(pod["spec"], field, list, f"spec.{field}")
        for index, container in enumerate(pod["spec"].get(field, ())):
            where = f"spec.{field}[{index}]"
            _check_form({where: container}, where, dict, where)
            for part in ("env", "ports", "volumeMounts"):
                _check_form(container, part, list, f"{where}.{part}", of_mappings=True)
            for part in ("resources", "securityContext"):
                _check_form(container, part, dict, f"{where}.{part}")
            for part in ("limits", "requests"):
                _check_form(container.get("resources", {}), part, dict, f"{where}.resources.{part}")


def _check_form(owner: Mapping[str, Any], field: str, form: type, where: str, *, of_mappings: bool = False) -> None:
    value = owner.get(field, form())
    mappings = not of_mappings or (isinstance(value, list) and all(isinstance(item, dict) for item in value))
    if not isinstance(value, form) or not mappings:
        wanted = "a list of mappings" if of_mappings else _kind(form())
        raise OverlayError(f"makes {where} {_kind(value)}, must be {wanted}")


def merge(base: dict[str, Any], overlay: Mapping[str, Any]) -> None:
    """Merge an overlay into a mapping, in place.

    >>> base = {"spec": {"a": 1}, "tags": ["x"], "gone": 1, "list": [1]}
    >>> merge(base, {"spec": {"b": 2}, "tags": ["y"], "__del__:gone": None, "list": (2,)})
    >>> base
    {'spec': {'a': 1, 'b': 2}, 'tags': ['x', 'y'], 'list': [2]}
    >>> base = {"containers": [{"name": "main", "image": "v1"}]}
    >>> merge(base, {"__join__:containers:name": [{"name": "main", "tty": True}, {"name": "side"}]})
    >>> base
    {'containers': [{'name': 'main', 'image': 'v1', 'tty': True}, {'name': 'side'}]}
    """
    for key, value in overlay.items():
        field = _field_of(key)
        if key.startswith(_DEL):
            _remove(base, field)
        elif key.startswith(_PUT):
            _remove(base, field)
            base[field] = _fresh(value)
        elif key.startswith(_JOIN):
            _join(base, key, value, field)
        else:
            _merge_value(base, key, value)


def joins_on(key: str, field: str) -> str | None:
    """Return the field on which a key of an overlay joins the items of a list, or None if it does not join that list.

    >>> joins_on("__join__:containers:image", "containers"), joins_on("containers", "containers")
    ('image', None)
    """
    return key[len(_JOIN) :].partition(":")[2] if key.startswith(_JOIN) and _field_of(key) == field else None


def _field_of(key: str) -> str:
    if key.startswith(_PUT):
        return key[len(_PUT) :]
    if key.startswith(_DEL):
        return key[len(_DEL) :]
    if key.startswith(_JOIN):
        return key[len(_JOIN) :].split(":", 1)[0]
    return key


def _remove(base: dict[str, Any], field: str) -> None:
    for key in [key for key in base if _field_of(key) == field]:
        del base[key]


def _merge_value(base: dict[str, Any], key: str, value: object) -> None:
    if key not in base:
        base[key] = _fresh(value)
        return
    old = base[key]
    if isinstance(old, dict) and isinstance(value, Mapping):
        merge(old, value)
    elif isinstance(old, list) and isinstance(value, tuple):
        base[key] = _fresh(value)
    elif isinstance(old, list) and isinstance(value, list):
        old.extend(_fresh(value))
    elif isinstance(old, (dict, list)) or isinstance(value, (dict, list)):
        raise OverlayError(f"{key} is {_kind(value)}, must be {_kind(old)}, as in the pod; use PUT to replace it")
    else:
        base[key] = value


def _join(base: dict[str, Any], key: str, value: object, field: str) -> None:
    on = joins_on(key, field)
    if not on:
        raise OverlayError(f"{key!r} names no field to join on; write JOIN(field, on=name)")
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise OverlayError(f"JOIN of {field} must be a list of mappings, is {_kind(value)}")
    old = base.setdefault(field, [])
    if not isinstance(old, list) or not all(isinstance(item, dict) for item in old):
        raise OverlayError(f"JOIN needs {field} of the pod to be a list of mappings, it is {_kind(old)}")
    before = list(old)
    for item in value:
        # As in TorchX, the last one of several items of the same name is merged.
        target = next((found for found in reversed(before) if on in item and found.get(on, _NOTHING) == item[on]), None)
        if target is None:
            old.append(_fresh(item))
        else:
            target.update({name: _fresh(part) for name, part in item.items() if name != on})


def _fresh(value: object) -> Any:
    """Return a copy of a value that the pod does not have yet; operators inside it work on the value itself."""
    if isinstance(value, dict):
        made: dict[str, Any] = {}
        merge(made, value)
        return made
    if isinstance(value, (list, tuple)):
        return [_fresh(item) for item in value]
    return value


def _kind(value: object) -> str:
    names = {dict: "a mapping", list: "a list", tuple: "a list", str: "text", bool: "a boolean", type(None): "null"}
    return names.get(type(value), type(value).__name__)


def _without_none(value: object, *, text: bool = False) -> Any:
    """Return a value without nulls, as the API server does, and with text in maps that require it."""
    if isinstance(value, dict):
        return {
            key: _without_none(item, text=key in _TEXT_MAPS) if not text else _as_text(item)
            for key, item in value.items()
            if item is not None
        }
    if isinstance(value, (list, tuple)):
        return [_without_none(item) for item in value if item is not None]
    return value


def _as_text(value: object) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, (int, float)) else value
