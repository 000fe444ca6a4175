"""The run options of a scheduler as TorchX puts them together."""

from __future__ import annotations

from torchx_pulumi.torchx_adapter.run_opts import CheckedOptions, PatchingOptions, scheduler_options


def run_options(scheduler: str) -> CheckedOptions:
    opts = scheduler_options(scheduler)
    opts.add_fields(PatchingOptions)
    return opts
