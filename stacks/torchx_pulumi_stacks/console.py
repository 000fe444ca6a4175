"""The console command `torchx-pulumi`, with the real engine."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from torchx_pulumi.cli.main import main as run_command

if TYPE_CHECKING:
    from torchx_pulumi.runs.driver import Driver


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; return its exit code."""
    return run_command(argv, make_driver=_make_driver)


def _make_driver() -> Driver:
    # Its imports do not exist on Windows; the command has its own message there.
    from torchx_pulumi_stacks.entrypoints import make_driver

    return make_driver()


if __name__ == "__main__":
    sys.exit(main())
