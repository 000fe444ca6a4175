"""The schedulers that TorchX loads: what they change in the process of a `torchx` command, and in no other."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROCESS = """
class Cycle:
    def __init__(self):
        self.itself = self

    def __del__(self):
        print("collected", flush=True)

from torchx_pulumi_stacks.entrypoints import create_volcano
create_volcano("test")
import gc
gc.disable()
Cycle()
"""


@pytest.mark.parametrize(
    ("process", "said"),
    [
        pytest.param("import torchx.cli.main", "", id="a command ends without a search for garbage"),
        pytest.param("import torchx.runner", "collected\n", id="a script collects garbage as ever"),
    ],
)
def test_only_a_command_saves_garbage_collections(process: str, said: str) -> None:
    done = subprocess.run([sys.executable, "-c", process + PROCESS], capture_output=True, text=True, check=True)
    assert done.stdout == said
