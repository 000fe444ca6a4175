"""Where the records of launched apps lie on this machine, and what stacks are called. Reads the environment only."""

from __future__ import annotations

import os
import re
from pathlib import Path

from torchx_pulumi.names import short_hash

MAX_STACK_NAME = 100
"""Characters that Pulumi allows in the name of a stack."""

DEFAULT_PROJECT = "torchx"
"""Pulumi project of apps that `torchx run` launched."""


def state_folder() -> Path:
    """Return the folder of everything that is kept on this machine: `torchx-pulumi` in XDG_STATE_HOME.

    It need not be there; whoever writes makes it, readable by its owner only.
    """
    home = os.environ.get("XDG_STATE_HOME", "")
    # The XDG specification has relative paths ignored.
    root = Path(home) if home.startswith("/") else Path("~/.local/state").expanduser()
    return root / "torchx-pulumi"


def choose_backend(option: str | None = None) -> str:
    """Return the URL of the Pulumi backend: the option, else PULUMI_BACKEND_URL, else a folder of this user's.

    >>> choose_backend("s3://bucket")
    's3://bucket'
    """
    return option or os.environ.get("PULUMI_BACKEND_URL") or own_backend()


def own_backend() -> str:
    """Return the URL of this user's own backend, which nobody else has stacks in."""
    return f"file://{state_folder() / 'backend'}"


def stack_name(namespace: str, name: str, scheduler: str, cluster: str) -> str:
    """Name the stack of an app: `<namespace>.<name>-<short hash of scheduler and cluster>`.

    A name that would be too long for Pulumi is cut, and the hash is then of all of it.

    >>> stack_name("default", "train-x1", "volcano", "c0ffee")[:-8]
    'default.train-x1-'
    >>> len(stack_name("n" * 63, "t" * 63, "volcano", "c0ffee"))
    100
    """
    stem = re.sub(r"[^A-Za-z0-9_.-]", "-", f"{namespace}.{name}")
    room = MAX_STACK_NAME - 9
    if len(stem) <= room:
        return f"{stem}-{short_hash(scheduler, cluster)}"
    return f"{stem[:room]}-{short_hash(scheduler, cluster, namespace, name)}"
