"""The Pulumi plugin `pulumi-resource-torchx`: the components for programs in YAML, TypeScript, Go and others."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pulumi
from pulumi.provider import ConstructResult
from pulumi.provider import main as serve
from pulumi.provider.experimental.analyzer import PropertyDefinition, PropertyType, TypeDefinition
from pulumi.provider.experimental.component import ComponentProvider
from pulumi.provider.server import ComponentInitError

from torchx_pulumi_components.input_resolution import in_fixed_order
from torchx_pulumi_components.package_schema import NAME, package_facts, package_schema
from torchx_pulumi_components.patched_image import PatchedImage
from torchx_pulumi_components.program_jobs import ProgramJobs, program_jobs
from torchx_pulumi_components.training_job import component_of, component_schedulers


class TorchxProvider(ComponentProvider):
    """Provider of the components. An error in the arguments is one message, without traceback or file line."""

    def map_input_properties(self, inputs: Any, properties: dict[str, PropertyDefinition], *rest: Any) -> Any:
        """Map names. Integers pass as numbers: Pulumi cannot check an Output, the components check them."""
        taken = {
            name: replace(item, type=PropertyType.NUMBER) if item.type is PropertyType.INTEGER else item
            for name, item in properties.items()
        }
        return super().map_input_properties(inputs, taken, *rest)

    def map_complex_output(self, instance_val: Any, type_def: TypeDefinition) -> Any:
        """Return a value with the names of the schema, in lists and mappings too. The state has those of Python."""
        if isinstance(instance_val, pulumi.Output):
            return instance_val.apply(lambda known: self.map_complex_output(known, type_def))
        return self._named(instance_val, PropertyDefinition(ref=f"{NAME}:index:{type_def.name}"))

    def _named(self, value: Any, kind: PropertyDefinition) -> Any:
        if isinstance(value, list) and kind.items:
            return [self._named(item, kind.items) for item in value]
        if isinstance(value, Mapping) and kind.additional_properties:
            return {key: self._named(item, kind.additional_properties) for key, item in value.items()}
        shape = self.get_type_definition(kind) if isinstance(value, Mapping) and kind.ref else None
        if shape is None:
            return value
        names = {python: name for name, python in shape.properties_mapping.items()}
        known = {names[key]: item for key, item in value.items() if key in names and item is not None}
        return {name: self._named(item, shape.properties[name]) for name, item in known.items()}

    def construct(
        self, name: str, resource_type: str, inputs: Any, options: pulumi.ResourceOptions | None = None
    ) -> Any:
        """Create a component, with its errors as ones that the engine prints without a traceback."""
        try:
            result = super().construct(name, resource_type, in_fixed_order(inputs), options)
        except ComponentInitError as error:
            if isinstance(error.inner, pulumi.RunError):
                raise pulumi.InputPropertiesError(str(error.inner), []) from error
            raise
        return ConstructResult(asyncio.ensure_future(_urn_of(result, program_jobs())), result.state)


async def _urn_of(result: ConstructResult, jobs: ProgramJobs) -> str:
    """Return the URN of a component once its job is registered. It is the first that the engine is sent of a result.

    Raises:
        pulumi.InputPropertiesError: The job was refused, or did not reach its goal.
    """
    await jobs.ended()
    if jobs.errors:
        raise pulumi.InputPropertiesError("\n".join(jobs.errors), [])
    return str(await pulumi.Output.from_input(result.urn).future())


def provider(facts: Mapping[str, Any] | None = None) -> TorchxProvider:
    """Return the provider, with the schema of the package.

    Args:
        facts: What the schema says of the package. None: its `package_facts`.
    """
    facts = package_facts() if facts is None else facts
    jobs = [component_of(name) for name in component_schedulers()]
    made = TorchxProvider([*jobs, PatchedImage], NAME, version=facts["version"])
    made.schema = json.dumps(package_schema(json.loads(made.schema or "{}"), facts))
    return made


def schema(facts: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the package's schema, with the facts of `provider`."""
    found: dict[str, Any] = json.loads(provider(facts).schema or "{}")
    return found


def main(args: Sequence[str] | None = None) -> None:
    """Serve the engine at the address in the first argument; with `--schema`, print the schema."""
    given = list(sys.argv[1:] if args is None else args)
    if "--schema" in given:
        sys.stdout.write(json.dumps(schema(), indent=2) + "\n")
        return
    serve(provider(), given)


if __name__ == "__main__":
    main()
