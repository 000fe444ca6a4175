"""The controller: one process that watches clusters, keeps stack outputs current and archives logs."""

from torchx_pulumi.controller.controller import Controller
from torchx_pulumi.controller.settings import ControllerSettings
from torchx_pulumi.controller.shared import ControllerParts

__all__ = ["Controller", "ControllerParts", "ControllerSettings"]
