"""The controller: one process that watches clusters, keeps stack outputs current and archives logs."""

from torchx_pulumi_fleet.writer.controller import Controller
from torchx_pulumi_fleet.writer.settings import ControllerSettings
from torchx_pulumi_fleet.writer.shared import ControllerParts

__all__ = ["Controller", "ControllerParts", "ControllerSettings"]
