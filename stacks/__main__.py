"""The program of the root's Pulumi.yaml."""

from pathlib import Path

import pulumi
from torchx_pulumi.model.errors import TorchxPulumiError
from torchx_pulumi_stacks.config import read_config
from torchx_pulumi_stacks.program import deploy

ROOT = Path(__file__).resolve().parent.parent

try:
    deploy(read_config(pulumi.Config(), ROOT))
except TorchxPulumiError as error:
    # RunError is printed without a traceback.
    raise pulumi.RunError(str(error)) from None
