"""The program of the platform project."""

from torchx_pulumi_stacks.platform import main

main()
