"""What training jobs of a team need. Every key is described at `PlatformConfig` of `torchx_pulumi_stacks.platform`."""

from torchx_pulumi_stacks.platform import main

main()
