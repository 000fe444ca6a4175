"""All apps of a Pulumi backend, read from its stacks alone; from the clusters too where that is asked for."""

from torchx_pulumi.fleet_reading.reading import read_fleet
from torchx_pulumi.fleet_reading.row import BrokenStack, Fleet, FleetRow, StackName
from torchx_pulumi.fleet_reading.selection import Selection

__all__ = ["BrokenStack", "Fleet", "FleetRow", "Selection", "StackName", "read_fleet"]
