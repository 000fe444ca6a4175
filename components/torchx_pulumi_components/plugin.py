"""The components as a Pulumi plugin, for programs in YAML, TypeScript, Go and the rest: `pulumi-resource-torchx`.

Here: which components are hosted, and how their errors look from there. No component is written here.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import pulumi
from pulumi.provider import main as serve
from pulumi.provider.experimental.analyzer import PropertyDefinition, PropertyType
from pulumi.provider.experimental.component import ComponentProvider
from pulumi.provider.server import ComponentInitError
from torchx_pulumi.model.errors import TorchxPulumiError

from torchx_pulumi_components.input_resolution import in_fixed_order
from torchx_pulumi_components.mcad_training_job import MCADTrainingJob
from torchx_pulumi_components.volcano_training_job import VolcanoTrainingJob

NAME = "torchx"
"""Package name in programs: resources are `torchx:index:<Component>`."""

COMPONENTS: list[type[pulumi.ComponentResource]] = [VolcanoTrainingJob, MCADTrainingJob]


class TorchxProvider(ComponentProvider):
    """Hosts the components; a user's mistake is told as one message, without traceback or file line."""

    def map_input_properties(self, inputs: Any, properties: dict[str, PropertyDefinition], *rest: Any) -> Any:
        """Map names; whether a number is whole is for the components to say: of an Output Pulumi cannot tell."""
        taken = {
            name: replace(item, type=PropertyType.NUMBER) if item.type is PropertyType.INTEGER else item
            for name, item in properties.items()
        }
        return super().map_input_properties(inputs, taken, *rest)

    def construct(
        self, name: str, resource_type: str, inputs: Any, options: pulumi.ResourceOptions | None = None
    ) -> Any:
        """Make a component, with its errors turned into what the engine prints plainly."""
        try:
            return super().construct(name, resource_type, in_fixed_order(inputs), options)
        except ComponentInitError as error:
            if isinstance(error.inner, (pulumi.RunError, TorchxPulumiError)):
                raise pulumi.InputPropertiesError(str(error.inner), []) from error
            raise


def package_version() -> str:
    """Return the wheel's version, and that of a checkout where no wheel is installed."""
    try:
        return version("torchx-pulumi")
    except PackageNotFoundError:
        return "0.0.0"


def provider() -> TorchxProvider:
    """Make the provider; its schema is inferred from the components."""
    return TorchxProvider(COMPONENTS, NAME, version=package_version())


def schema() -> dict[str, Any]:
    """Return the package's schema, without the version: that is the wheel's."""
    found: dict[str, Any] = json.loads(provider().schema or "{}")
    return {key: value for key, value in found.items() if key != "version"}


def main(args: Sequence[str] | None = None) -> None:
    """Serve the engine whose address is the first argument; `--schema` prints the schema instead."""
    given = list(sys.argv[1:] if args is None else args)
    if "--schema" in given:
        sys.stdout.write(json.dumps(schema(), indent=2) + "\n")
        return
    serve(provider(), given)


if __name__ == "__main__":
    main()
