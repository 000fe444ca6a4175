"""TorchX's macros in arguments and environment. Text substitution only."""

from __future__ import annotations

from collections.abc import Mapping
from string import Template

RANK0_HOST_ENV = "TORCHX_RANK0_HOST"
"""Rank 0 itself reads its own host here; its value is `localhost`."""

IMAGE_ENV = "TORCHX_IMAGE"
"""Every replica reads its image reference here."""


def macro_values(*, app_id: str, replica: int, rank0_env: str) -> dict[str, str]:
    """List the macros of one replica.

    Args:
        app_id: What the job is called.
        replica: Replica in the role, from 0.
        rank0_env: Name of the variable that holds rank 0's host.
    """
    return {
        "img_root": "",
        "base_img_root": "DEPRECATED",
        "app_id": app_id,
        "replica_id": str(replica),
        "rank0_env": rank0_env,
    }


def substitute(text: str, values: Mapping[str, str]) -> str:
    """Fill in macros as TorchX does: `$$` is one dollar sign, an unknown `${x}` stays as it is.

    >>> substitute("--id=${app_id} $$HOME ${other} $", {"app_id": "a-1"})
    '--id=a-1 $HOME ${other} $'
    """
    return Template(text).safe_substitute(values) if "$" in text else text
