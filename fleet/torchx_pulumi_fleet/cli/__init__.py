"""The commands of `torchx-pulumi` for all apps; each module is an entry point."""
