"""Run options by name -> a scheduler's options: names in snake_case or camelCase, values of their own type or as text.

Whether a value makes sense is said by `option_checks`; here it only gets its type.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, Literal, overload

from torchx_pulumi.model.errors import Problem, invalid_job
from torchx_pulumi.model.options import (
    AppWrapperApi,
    Gang,
    MCADOptions,
    NetworkTopology,
    Options,
    PodGroupApi,
    VolcanoOptions,
)
from torchx_pulumi.planning.checks.values import found, shown, typed

_MANY = ("labels", "annotations", "plugins", "image_secrets", "network_topology")
"""Options of several values, which messages do not repeat: one of them may be a secret."""

LAUNCH_ONLY = ("image_repo", "quiet", "validate_spec")
"""Options of TorchX's own schedulers that change how a job is launched, never its manifest. Taken and left alone."""


@overload
def read_options(options: Mapping[str, Any], scheduler: Literal["volcano"] = "volcano") -> VolcanoOptions: ...
@overload
def read_options(options: Mapping[str, Any], scheduler: Literal["mcad"]) -> MCADOptions: ...
@overload
def read_options(options: Mapping[str, Any], scheduler: str) -> Options: ...
def read_options(options: Mapping[str, Any], scheduler: str = "volcano") -> Options:
    """Read run options; None and an absent option are the same: the default.

    Raises:
        InvalidJobError: An option is unknown, of the wrong type, given twice or missing; all problems at once.
    """
    form = _FORMS[scheduler]
    if isinstance(options, form.kind):
        return options
    if not isinstance(options, Mapping):
        raise invalid_job(
            "unnamed", [Problem("options", f"{found(options)}, must be a mapping of option names to values")]
        )
    problems: list[Problem] = []
    values: dict[str, Any] = {}
    for given, value in options.items():
        name = _snake_case(given) if isinstance(given, str) else ""
        name = form.aliases.get(name, name)
        if name in LAUNCH_ONLY:
            continue
        if name not in form.readers:
            known = ", ".join((*form.readers, *LAUNCH_ONLY))
            problems.append(Problem(f"options.{given}", form.elsewhere.get(name, f"is unknown; known are {known}")))
        elif name in values:
            problems.append(Problem(f"options.{given}", f"is given twice: {name} is the same option"))
        elif value is not None:
            try:
                values[name] = form.readers[name](value)
            except ValueError as error:
                what = typed(value) if name in _MANY else found(value)
                problems.append(Problem(f"options.{given}", f"{what}, {error}"))
    for name in form.unset_by_nothing:
        if values.get(name) == "":
            del values[name]
    for name, wanted in form.required.items():
        if name not in values and not any(problem.path == f"options.{name}" for problem in problems):
            problems.append(Problem(f"options.{name}", f"is not set, must be {wanted}", rule="required"))
    if problems:
        raise invalid_job("unnamed", problems)
    return form.kind(**values)


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


def _one_of(choices: type[Enum]) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        try:
            return choices(value)
        except ValueError:
            raise ValueError(f"must be {' or '.join(choice.value for choice in choices)}") from None

    return read


def _yes_or_no(value: Any) -> Any:
    words = {"true": True, "false": False}
    return words.get(value.strip().lower(), value) if isinstance(value, str) else value


def _texts(value: Any) -> Any:
    """Read a mapping of texts; from text: JSON, `key=value,key=value` or `key:value,key:value`."""
    if isinstance(value, str):
        return _json_or(value, dict, lambda: read_pairs(word for word in value.split(",") if word.strip()))
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
    unknown = sorted(set(read) - {item.name for item in fields(NetworkTopology)})
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


def read_pairs(words: Iterable[str]) -> dict[str, str]:
    """Read `name=value` or, as TorchX writes it, `name:value`; the first of the two signs ends the name.

    Raises:
        ValueError: A word has none of the two.

    >>> read_pairs(["team=a", "tier:b", "page=https://a.example"])
    {'team': 'a', 'tier': 'b', 'page': 'https://a.example'}
    """
    pairs = [re.fullmatch(r"([^:=]*)[:=](.*)", word, re.DOTALL) for word in words]
    if not all(pairs):
        raise ValueError("must be name:value,name:value or name=value,name=value")
    return {pair[1].strip(): pair[2].strip() for pair in pairs if pair}


def _refuse(message: str) -> Callable[[], Any]:
    def refuse() -> Any:
        raise ValueError(message)

    return refuse


_SHARED: Mapping[str, Callable[[Any], Any]] = {
    "namespace": _text,
    "service_account": _text,
    "reserved_millicpu": _whole,
    "reserved_memmb": _whole,
    "efa_device_count": _whole,
    "labels": _texts,
    "annotations": _texts,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """How the options of one scheduler are read."""

    kind: type[VolcanoOptions] | type[MCADOptions]
    readers: Mapping[str, Callable[[Any], Any]]
    """Every option, and what gives its value a type."""
    required: Mapping[str, str] = field(default_factory=dict)
    """Options that must be there, and what they must be."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Other names of options."""
    unset_by_nothing: frozenset[str]
    """Options for which an empty text is the same as unset, as it is for Kubernetes."""
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    """Options of other schedulers, and what to do instead."""


_FORMS: Mapping[str, _Form] = {
    "volcano": _Form(
        kind=VolcanoOptions,
        readers={
            "queue": _queue,
            **_SHARED,
            "priority_class": _text,
            "gang": _one_of(Gang),
            "scheduler_name": _text,
            "ttl_seconds_after_finished": _whole,
            "network_topology": _network_topology,
            "plugins": _plugins,
            "image_secrets": _names,
        },
        required={"queue": "the name of a Volcano queue"},
        unset_by_nothing=frozenset({"namespace", "service_account", "priority_class"}),
    ),
    "mcad": _Form(
        kind=MCADOptions,
        readers={
            **_SHARED,
            "priority": _whole,
            "priority_class_name": _text,
            "image_secret": _text,
            "coscheduler_name": _text,
            "network": _text,
            "pod_group_api": _one_of(PodGroupApi),
            "api_version": _one_of(AppWrapperApi),
            "local_queue": _text,
            "suspend": _yes_or_no,
            "requeuing_time_s": _whole,
            "requeuing_max_time_s": _whole,
            "requeuing_growth": _text,
        },
        aliases={"priority_class": "priority_class_name"},
        unset_by_nothing=frozenset({"namespace", "service_account", "priority_class_name"}),
        elsewhere={
            "queue": "is an option of Volcano, MCAD has one queue; use priority, or local_queue with Kueue",
            "gang": "is an option of Volcano, MCAD makes the pods itself; use coscheduler_name for gangs",
            "network_topology": "is an option of Volcano, MCAD places pods one by one; remove it",
            "plugins": "is an option of Volcano, MCAD has no plugins; remove it",
            "ttl_seconds_after_finished": "is an option of Volcano, MCAD keeps what has finished; remove it",
            "scheduler_name": "is an option of Volcano; use coscheduler_name",
            "image_secrets": "is an option of Volcano; use image_secret, which is one name",
        },
    ),
}

ELSEWHERE: Mapping[str, Mapping[str, str]] = {name: form.elsewhere for name, form in _FORMS.items()}
"""Scheduler to the options of others, and what to do instead."""

SCHEDULERS = tuple(_FORMS)
"""Names of the schedulers whose options can be read."""
