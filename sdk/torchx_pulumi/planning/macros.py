"""Substitution of TorchX's macros in arguments and environment."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from string import Template

RANK0_HOST_ENV = "TORCHX_RANK0_HOST"
"""Variable with the host of rank 0 in the pod of rank 0; its value is `localhost`."""

IMAGE_ENV = "TORCHX_IMAGE"
"""Variable with the image reference, in every pod."""

REPLICA_ID_ENV = "TORCHX_REPLICA_ID"
"""Variable with the index of a replica, in pods that share a task and use their index."""

REPLICA_ID_REFERENCE = f"$({REPLICA_ID_ENV})"
"""Reference that the kubelet replaces by the value of that variable."""

FIELD_PATH = "[FIELD_PATH]"
"""Start of an environment value that is read from a field of the pod."""


NEAR = 0.75
"""Likeness, as of `difflib`, from which a name counts as a misspelled macro."""


def macro_values(*, app_id: str, replica_id: str, rank0_env: str) -> dict[str, str]:
    """Return the macros of one replica and their values.

    Args:
        app_id: Name of the job object.
        replica_id: Index of the replica in its role, from 0, or a reference to it.
        rank0_env: Name of the variable that holds rank 0's host.
    """
    return {
        "img_root": "",
        "base_img_root": "DEPRECATED",
        "app_id": app_id,
        "replica_id": replica_id,
        "rank0_env": rank0_env,
    }


MACROS = tuple(macro_values(app_id="", replica_id="", rank0_env=""))


def misspelled_macros(text: str) -> Iterator[tuple[str, str]]:
    """Yield each `${name}` of a text that looks like a misspelled macro, with that macro.

    >>> list(misspelled_macros("${app_idd} ${app_id} $${app_idd} ${HOME} $replica_ids"))
    [('app_idd', 'app_id')]
    """
    if "${" in text:
        for found in Template.pattern.finditer(text):
            name = found["braced"] or ""
            near = [] if name in MACROS else difflib.get_close_matches(name, MACROS, 1, NEAR)
            yield from ((name, macro) for macro in near)


def substitute(text: str, values: Mapping[str, str]) -> str:
    """Return a text with its macros substituted as TorchX does: `$$` is one dollar sign, an unknown `${x}` stays.

    >>> substitute("--id=${app_id} $$HOME ${other} $", {"app_id": "a-1"})
    '--id=a-1 $HOME ${other} $'
    """
    return Template(text).safe_substitute(values) if "$" in text else text
