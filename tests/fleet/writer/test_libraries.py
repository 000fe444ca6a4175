"""Libraries that the controller does without: its image has no resource classes, and need not have the others."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
for name in ('pulumi', 'pulumi_kubernetes', 'grpc', 'torchx', 'kubernetes'): sys.modules[name] = None
import torchx_pulumi_fleet.writer, torchx_pulumi_fleet.web, torchx_pulumi_stacks.console
from torchx_pulumi_stacks.console import _make_driver
_make_driver().close()
"""


def test_the_controller_needs_no_library_of_the_engine() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, env={"PYTHONPATH": ":".join(sys.path)})
