"""All apps of a Pulumi backend, read from its stacks alone; from the clusters too where that is asked for."""

from torchx_pulumi.fleet.collect.reading import read_fleet
from torchx_pulumi.fleet.collect.row import BrokenStack, Fleet, FleetRow, StackName
from torchx_pulumi.fleet.collect.selection import Selection

__all__ = ["BrokenStack", "Fleet", "FleetRow", "Selection", "StackName", "read_fleet"]
