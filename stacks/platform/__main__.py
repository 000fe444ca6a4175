"""The program of the platform project."""

import pulumi
from torchx_pulumi.model.errors import TorchxPulumiError
from torchx_pulumi_stacks.platform import deploy, read_config

try:
    deploy(read_config(pulumi.Config()))
except TorchxPulumiError as error:
    # RunError is printed without a traceback.
    raise pulumi.RunError(str(error)) from None
