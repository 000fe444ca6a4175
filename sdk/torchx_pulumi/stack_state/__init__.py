"""Pulumi stacks as data: checkpoints, locks, folder layout, other backends."""
