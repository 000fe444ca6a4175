"""Rule 6: values are parsed once, at the boundary. What a reader returns has the types of its fields, for any input."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
import torchx_pulumi_components
from hypothesis import given
from hypothesis import strategies as st
from torchx_pulumi.inputs.appdef import AppReader
from torchx_pulumi.inputs.appfile import MappingReader
from torchx_pulumi.inputs.run_options import OptionsReader
from torchx_pulumi.model.job_spec import JobSpec, MountSpec, ResourceSpec, RoleSpec, SecretRef
from torchx_pulumi.planning.typed_reader import TypedReader
from torchx_pulumi.schedulers.appwrapper.options import MCADOptions
from torchx_pulumi.schedulers.volcano.options import VolcanoOptions
from torchx_pulumi_components.read_args import read_args

from tests.unit.inputs.test_rendering import ANY, APPS

KINDS = (JobSpec, RoleSpec, ResourceSpec, MountSpec, SecretRef)
NAMES = sorted({name for kind in KINDS for name in kind.__dataclass_fields__} | {"memMB", "src_path", "torchx_pulumi"})
NESTED = st.recursive(
    ANY | st.just("2") | st.just(2.0) | st.just(["x"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=5),
    max_leaves=12,
)
ROLES = st.lists(st.dictionaries(st.sampled_from(list(RoleSpec.__dataclass_fields__)), NESTED, max_size=6), max_size=2)
JOBS = st.fixed_dictionaries({"name": NESTED, "roles": ROLES | NESTED})
OPTION_NAMES = sorted({*VolcanoOptions.__dataclass_fields__, *MCADOptions.__dataclass_fields__, "x"})
OPTIONS = st.dictionaries(st.sampled_from(OPTION_NAMES), NESTED, max_size=6) | ANY


def wrong_values(hint: Any, value: Any, path: str = "") -> list[str]:
    """Return the paths of all values that do not have the type of their field."""
    origin, parameters = get_origin(hint), get_args(hint)
    if hint is Any:
        return []
    if origin in (Union, types.UnionType):
        return [] if any(not wrong_values(choice, value, path) for choice in parameters) else [path]
    if is_dataclass(hint):
        hints = get_type_hints(hint)
        names = [item.name for item in fields(hint)]
        if type(value) is not hint:
            return [path]
        return [wrong for name in names for wrong in wrong_values(hints[name], getattr(value, name), f"{path}.{name}")]
    if origin is None:
        is_right = isinstance(value, (int, float) if hint is float else hint)
        return [] if is_right and not (isinstance(value, bool) and hint in (int, float)) else [path]
    if issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            return [path]
        pairs = value.items() if parameters[1] is not Any else ()
        return [
            wrong
            for key, item in pairs
            for wrong in [*wrong_values(str, key, path), *wrong_values(parameters[1], item, f"{path}[{key!r}]")]
        ]
    if not isinstance(value, (list, tuple)):
        return [path]
    return [
        wrong for index, item in enumerate(value) for wrong in wrong_values(parameters[0], item, f"{path}[{index}]")
    ]


@given(JOBS | APPS | NESTED)
def test_a_job_has_typed_values_whatever_it_is_read_from(app: Any) -> None:
    for reader in (TypedReader(), AppReader(), MappingReader()):
        assert wrong_values(JobSpec, reader.read(JobSpec, app, "")) == []


@pytest.mark.parametrize(("scheduler", "kind"), [("volcano", VolcanoOptions), ("mcad", MCADOptions)])
@given(OPTIONS)
def test_options_have_typed_values_whatever_they_are_read_from(scheduler: str, kind: Any, options: Any) -> None:
    assert wrong_values(kind, OptionsReader(scheduler).options(options)) == []


@pytest.mark.parametrize("scheduler", ["volcano", "mcad"])
@given(OPTIONS, ROLES)
def test_arguments_have_typed_values_or_are_refused(scheduler: str, options: Any, roles: Any) -> None:
    given = {**options, "roles": roles} if isinstance(options, dict) else options
    try:
        read = read_args("train", given, scheduler)
    except ValueError:
        return
    assert wrong_values(JobSpec, read.spec) == []
    assert wrong_values(type(read.options), read.options) == []


def test_the_walk_finds_a_wrong_value() -> None:
    role: Any = RoleSpec(name="a", image="i", entrypoint="m", num_replicas="3", env={"A": 1})  # type: ignore[arg-type, dict-item]
    assert wrong_values(JobSpec, JobSpec(name="a", roles=[role])) == [".roles[0].env['A']", ".roles[0].num_replicas"]


def test_stand_ins_of_unknown_values_are_made_in_one_module() -> None:
    folder = Path(torchx_pulumi_components.__file__).parent
    assert [path.name for path in folder.glob("*.py") if "unknown-leaf-" in path.read_text()] == ["arg_values.py"]
    assert [path.name for path in folder.glob("*.py") if "STAND_IN" in path.read_text()] == ["arg_values.py"]
