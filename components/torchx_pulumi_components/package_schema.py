"""The schema of the Pulumi package: what Pulumi's analyzer infers from the components, and what it cannot know.

That is: facts of the package, default values, marks of secrets, and an example in every language.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields
from enum import Enum
from importlib.metadata import metadata
from pathlib import Path
from typing import Any

from torchx_pulumi.model.documentation import project_urls
from torchx_pulumi.model.image_options import ImageRequest
from torchx_pulumi.model.launch_options import ProgramOptions
from torchx_pulumi.model.options import is_table, rows_of
from torchx_pulumi.planning.typed_reader import camel_case
from torchx_pulumi.schedulers import find_backend

from torchx_pulumi_components.arg_values import SHAPES
from torchx_pulumi_components.patched_image import PatchedImage
from torchx_pulumi_components.training_job import component_schedulers

NAME = "torchx"
"""Package name in programs: resources are `torchx:index:<Component>`."""

SECRETS = frozenset(
    camel_case(row.name) for kind in (ProgramOptions, ImageRequest) for row in rows_of(kind) if row.secret
)
"""Inputs that hold credentials in every program: generated SDKs encrypt them. Which other inputs are secret only a
program knows; a component marks the outputs that depend on one, so the schema marks none."""

_CHECKED_IN = Path(__file__).resolve().parents[2] / "components" / "schema.json"
"""In a checkout."""

_EXAMPLES = Path(__file__).with_name("examples")
_PARTS = ("resources", "types", "dependencies")
"""Parts of a schema that are inferred. All others are facts of the package."""


def package_facts() -> dict[str, Any]:
    """Return the part of the schema about the package itself, its version among it.

    In a checkout, `make schema` wrote it; what is installed may be another version. A wheel has its own metadata.
    """
    if not _CHECKED_IN.exists():
        return installed_facts()
    written = json.loads(_CHECKED_IN.read_text(encoding="utf-8"))
    return {key: value for key, value in written.items() if key not in _PARTS}


def installed_facts() -> dict[str, Any]:
    """Return the facts of the installed package, from its metadata."""
    found = metadata("torchx-pulumi")
    urls = project_urls(found)
    repository = urls["Repository"]
    address = repository.removeprefix("https://")
    _, owner, _ = address.split("/")
    return {
        "name": NAME,
        "displayName": "TorchX",
        "version": found["Version"],
        "description": found["Summary"],
        # The last two are words of the Pulumi registry.
        "keywords": [*found["Keywords"].split(","), "kind/component", "category/infrastructure"],
        "homepage": urls["Homepage"],
        "license": found["License-Expression"],
        "repository": repository,
        "logoUrl": f"{repository}/raw/HEAD/docs/images/logo.png",
        # Where the engine takes the plugin from, at the tag of the version, if none is on PATH.
        "pluginDownloadURL": f"git://{address}/components",
        "publisher": owner,
        # SDKs have the version of the schema, and files that package managers take.
        "meta": {"supportPack": True},
        "language": {
            "nodejs": {"packageName": f"@{owner}/{NAME}"},
            "python": {"packageName": f"pulumi_{NAME}", "pyproject": {"enabled": True}},
            "go": {"importBasePath": f"{address}/sdk/go/{NAME}"},
        },
    }


def package_schema(inferred: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of the package.

    Args:
        inferred: What Pulumi's analyzer inferred. Its parts are changed.
        facts: The `package_facts`.
    """
    found = {**facts, **{part: inferred[part] for part in _PARTS}}
    languages = inferred["language"]
    found["language"] = {name: {**every, **facts["language"].get(name, {})} for name, every in languages.items()}
    specs = {token.rpartition(":")[2]: spec for part in ("types", "resources") for token, spec in found[part].items()}
    for name, spec in specs.items():
        _tidy(spec)
        for properties in _properties(spec):
            for item in properties.values():
                _tidy(item)
        if (example := _EXAMPLES / f"{name}.md").exists():
            spec["description"] += f"\n\n{example.read_text()}"
        for key in SECRETS & spec.get("inputProperties", {}).keys():
            spec["inputProperties"][key]["secret"] = True
    for name, kind, without in _sources():
        properties = specs[name].get("inputProperties") or specs[name]["properties"]
        for key, value in _defaults(kind, without).items():
            properties[key]["default"] = value
    return found


def _properties(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield spec.get("inputProperties", {})
    yield spec.get("properties", {})


def _tidy(spec: dict[str, Any]) -> None:
    """Remove the indentation of a description's lines; leave out those of items, which repeat that of their list."""
    if spec.get("description"):
        spec["description"] = inspect.cleandoc(spec["description"])
    for key in ("items", "additionalProperties"):
        if key in spec:
            _tidy(spec[key])
            spec[key].pop("description", None)


def _sources() -> Iterator[tuple[str, type, Collection[str]]]:
    """Yield a resource or type, a class that its values are read to, and the fields whose default is not sent.

    A generated SDK sends the default of the schema in place of an unset argument. So a property has one only if that is
    the same as unset: an unset argument gets the default of the field that it is read to. It is not the same for an
    option that is read from the cluster if it is unset. The schema has no defaults that are None, lists or mappings.
    """
    for scheduler in component_schedulers():
        backend = find_backend(scheduler)
        yield backend.component, backend.options, backend.discovered
        yield backend.component, ProgramOptions, ()
        for row in rows_of(backend.options):
            if is_table(row.kind):
                yield row.kind.ARGUMENT_TYPE, row.kind, ()
    yield PatchedImage.__name__, ImageRequest, ()
    for kind, shape in SHAPES.items():
        yield shape.__name__, kind, ()


def _defaults(kind: Any, without: Collection[str]) -> dict[str, Any]:
    defaults = {
        camel_case(item.name): item.default.value if isinstance(item.default, Enum) else item.default
        for item in fields(kind)
        if item.name not in without
    }
    return {name: value for name, value in defaults.items() if isinstance(value, (str, int, float))}
