"""The controller: one process that watches clusters, keeps stack outputs current and archives logs."""

from torchx_pulumi.controller.controller import Controller
from torchx_pulumi.controller.settings import ControllerSettings

__all__ = ["Controller", "ControllerSettings"]
