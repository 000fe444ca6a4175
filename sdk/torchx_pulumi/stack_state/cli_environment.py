"""The environment of this process, as the Pulumi CLI is given it: it runs in a folder of its own, and for one purpose.

A relative path in a variable means a file in the caller's folder, and some variables change what a command does: these
are for commands that a user types.
"""

from __future__ import annotations

import os
from pathlib import Path

DROPPED_START = "PULUMI_OPTION_"
"""Each flag of each command has a variable: `PULUMI_OPTION_TARGET` limits every deletion to one resource."""

DROPPED = frozenset(
    {
        "PULUMI_RUN_PROGRAM",  # a deletion has no program to run
        "PULUMI_CONTINUE_ON_ERROR",  # a launch that fails is removed, and does not go on
        "PULUMI_SKIP_CHECKPOINTS",  # what was made before a kill would be unknown
        "PULUMI_DIY_BACKEND_ZSTD",  # states that can be read by the CLI only would count as absent
        "PULUMI_SELF_MANAGED_STATE_ZSTD",
        "PULUMI_DIY_BACKEND_LEGACY_LAYOUT",  # a new backend would not know projects
        "PULUMI_SELF_MANAGED_STATE_LEGACY_LAYOUT",
        "PULUMI_K8S_DELETE_UNREACHABLE",  # `--forget-unreachable` asks for that, and nothing else does
        # Of a program of Pulumi in which this process runs, and not of the stacks that it makes.
        "PULUMI_CONFIG",
        "PULUMI_CONFIG_SECRET_KEYS",
        "PULUMI_DRY_RUN",
        "PULUMI_ENGINE",
        "PULUMI_MONITOR",
        "PULUMI_ORGANIZATION",
        "PULUMI_PROJECT",
        "PULUMI_STACK",
    }
)
"""Variables that would change what is asked of the CLI."""

_FILES = (
    "PULUMI_CONFIG_PASSPHRASE_FILE",
    "PULUMI_HOME",
    "PULUMI_CREDENTIALS_PATH",
    "AWS_CA_BUNDLE",
    "AWS_CONFIG_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "PGPASSFILE",
    "PGSERVICEFILE",
    "PGSSLCERT",
    "PGSSLKEY",
    "PGSSLROOTCERT",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
)
"""Variables that name a file or a folder."""

_LISTS = ("KUBECONFIG", "PATH")
"""Variables that name several."""


def cli_environment() -> dict[str, str]:
    """Return the environment of this process without what would change a command, its relative paths made absolute."""
    made = {
        name: value for name, value in os.environ.items() if name not in DROPPED and not name.startswith(DROPPED_START)
    }
    for name in _FILES:
        if made.get(name):
            made[name] = absolute_path(made[name])
    for name in _LISTS:
        if made.get(name):
            made[name] = os.pathsep.join(part and absolute_path(part) for part in made[name].split(os.pathsep))
    return made


def absolute_path(path: str) -> str:
    """Return a path that means the same in every folder; `~` is a home folder.

    >>> absolute_path("/etc/kube/config")
    '/etc/kube/config'
    """
    try:
        return str(Path(path).expanduser().absolute())
    except RuntimeError:  # `~` of a user who is unknown here
        return str(Path(path).absolute())
