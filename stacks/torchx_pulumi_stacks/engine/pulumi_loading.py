"""Load Pulumi's SDK for a launch."""

from __future__ import annotations

import importlib
import os
import threading
from typing import Any


def load_inline() -> Any:
    """Import Pulumi; 0.5 s the first time."""
    # A fork with a gRPC that watches for forks hangs; without that, children that start programs are fine.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
    return importlib.import_module("torchx_pulumi_stacks.engine.inline_program")


def preload() -> None:
    """Load Pulumi in the background."""
    threading.Thread(target=load_inline, name="torchx-pulumi-preload").start()
