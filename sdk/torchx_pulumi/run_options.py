"""Run options by name -> VolcanoOptions: names in snake_case or camelCase, values of their own type or as text.

Whether a value makes sense is said by `option_checks`; here it only gets its type.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from torchx_pulumi.errors import Problem, invalid_job
from torchx_pulumi.options import Gang, NetworkTopology, VolcanoOptions
from torchx_pulumi.value_checks import found, shown

LAUNCH_ONLY = ("image_repo", "quiet", "validate_spec")
"""Options of TorchX's own schedulers that change how a job is launched, never its manifest. Taken and left alone."""


def read_options(options: Mapping[str, Any]) -> VolcanoOptions:
    """Read run options; None and an absent option are the same: the default.

    Raises:
        InvalidJobError: An option is unknown, of the wrong type, given twice or missing; all problems at once.
    """
    if isinstance(options, VolcanoOptions):
        return options
    problems: list[Problem] = []
    values: dict[str, Any] = {}
    if not isinstance(options, Mapping):
        raise invalid_job(
            "unnamed", [Problem("options", f"{found(options)}, must be a mapping of option names to values")]
        )
    for given, value in options.items():
        name = _snake_case(given) if isinstance(given, str) else ""
        if name in LAUNCH_ONLY:
            continue
        if name not in _READERS:
            known = ", ".join((*_READERS, *LAUNCH_ONLY))
            problems.append(Problem(f"options.{given}", f"is unknown; known are {known}"))
        elif name in values:
            problems.append(Problem(f"options.{given}", f"is given twice: {name} is the same option"))
        elif value is not None:
            try:
                values[name] = _READERS[name](value)
            except ValueError as error:
                problems.append(Problem(f"options.{given}", f"{found(value)}, {error}"))
    if values.get("namespace") == "":
        del values["namespace"]
    if "queue" not in values and not any(problem.path == "options.queue" for problem in problems):
        problems.append(Problem("options.queue", "is not set, must be the name of a Volcano queue", rule="required"))
    if problems:
        raise invalid_job("unnamed", problems)
    return VolcanoOptions(**values)


def _snake_case(name: str) -> str:
    """Write an option's name as Python does.

    >>> _snake_case("priorityClass"), _snake_case("ttl_seconds_after_finished")
    ('priority_class', 'ttl_seconds_after_finished')
    """
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("must be text")  # noqa: TRY004 - becomes a problem of the job
    return value


def _queue(value: Any) -> Any:
    return value


def _whole(value: Any) -> int:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and re.fullmatch(r"[+-]?[0-9]{1,18}", value.strip()):
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("must be a whole number")  # noqa: TRY004 - becomes a problem of the job
    return value


def _gang(value: Any) -> Gang:
    try:
        return Gang(value)
    except ValueError:
        raise ValueError("must be job or pods") from None


def _texts(value: Any) -> Any:
    """Read a mapping of texts; from text: JSON, or `key=value,key=value`."""
    if isinstance(value, str):
        return _json_or(value, dict, lambda: _pairs(value))
    return value


def _names(value: Any) -> Any:
    """Read a list of texts; from text: JSON, or texts with commas between them."""
    if isinstance(value, str):
        return _json_or(value, list, lambda: [word.strip() for word in value.split(",") if word.strip()])
    return tuple(value) if isinstance(value, list) else value


def _plugins(value: Any) -> Any:
    """Read plugins; from text: JSON."""
    return _json_or(value, dict, _refuse('must be JSON, for example {"svc": []}')) if isinstance(value, str) else value


def _network_topology(value: Any) -> Any:
    """Read a mapping with mode and highest_tier_allowed; from text: JSON, or the mode alone."""
    if isinstance(value, str):
        value = _json_or(value, dict, lambda: {"mode": value})
    if not isinstance(value, Mapping):
        return value
    read = {_snake_case(str(name)): part for name, part in value.items()}
    unknown = sorted(set(read) - {field.name for field in fields(NetworkTopology)})
    if unknown:
        raise ValueError(f"has the unknown key {shown(unknown[0])}; known are mode, highest_tier_allowed")
    if isinstance(read.get("highest_tier_allowed"), (str, float)):
        read["highest_tier_allowed"] = _whole(read["highest_tier_allowed"])
    return NetworkTopology(**read)


def _json_or(text: str, kind: type, otherwise: Callable[[], Any]) -> Any:
    if text.lstrip().startswith(("{", "[")):
        try:
            value = json.loads(text)
        except ValueError as error:
            raise ValueError(f"must be valid JSON: {error}") from None
        if not isinstance(value, kind):
            raise ValueError(f"must be a {'mapping' if kind is dict else 'list'}")
        return value
    return otherwise()


def _pairs(text: str) -> dict[str, str]:
    pairs = [pair.partition("=") for pair in text.split(",") if pair.strip()]
    if not all(sign for _, sign, _ in pairs):
        raise ValueError("must be key=value,key=value or JSON")
    return {key.strip(): value.strip() for key, _, value in pairs}


def _refuse(message: str) -> Callable[[], Any]:
    def refuse() -> Any:
        raise ValueError(message)

    return refuse


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "queue": _queue,
    "namespace": _text,
    "service_account": _text,
    "priority_class": _text,
    "reserved_millicpu": _whole,
    "reserved_memmb": _whole,
    "efa_device_count": _whole,
    "gang": _gang,
    "scheduler_name": _text,
    "ttl_seconds_after_finished": _whole,
    "network_topology": _network_topology,
    "plugins": _plugins,
    "labels": _texts,
    "annotations": _texts,
    "image_secrets": _names,
}
