"""All apps of a Pulumi backend, read from its stacks, and on request from the clusters."""

from torchx_pulumi.fleet.collect.reading import read_fleet
from torchx_pulumi.fleet.collect.row import BrokenStack, Fleet, FleetRow
from torchx_pulumi.fleet.collect.selection import Selection
from torchx_pulumi.stack_state.stacks import StackName

__all__ = ["BrokenStack", "Fleet", "FleetRow", "Selection", "StackName", "read_fleet"]
