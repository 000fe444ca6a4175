"""The console command `torchx-pulumi`, with the real engine under it."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from torchx_pulumi.cli import main as run_command

from torchx_pulumi_stacks.entrypoints import make_driver


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; return its exit code."""
    return run_command(argv, make_driver=make_driver)


if __name__ == "__main__":
    sys.exit(main())
