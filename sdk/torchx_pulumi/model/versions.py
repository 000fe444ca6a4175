"""Versions of the Pulumi CLI, of its SDK and of its Kubernetes provider that the project supports."""

from __future__ import annotations

import re
from typing import Final

OLDEST_PULUMI: Final = (3, 259)
TESTED_SDK: Final = ((3, 259), (3, 272))
"""Oldest and newest minor version of the Python package `pulumi`, as in pyproject.toml. docs/decisions/0022 has why."""
SDK_ADVICE: Final = (
    f"run `pip install 'pulumi>={TESTED_SDK[0][0]}.{TESTED_SDK[0][1]},<{TESTED_SDK[1][0]}.{TESTED_SDK[1][1] + 1}'`, or "
    "install a newer torchx-pulumi"
)
"""Advice about another version of it."""
OLDEST_PROVIDER: Final = (4, 29)
NEWEST_TESTED_PROVIDER: Final = (4, 34)
"""Of the newest Kubernetes SDK in `requirements`. Providers of the same 4.x are expected to work, and get a warning."""


def provider_problem(version: tuple[int, ...]) -> str | None:
    """Return why a Kubernetes provider is refused, or None if it is supported.

    >>> provider_problem((4, 33))
    >>> provider_problem((4, 28))[:52]
    'Kubernetes provider 4.28 is too old: before 4.29 it '
    """
    if version >= OLDEST_PROVIDER:
        return None
    wanted = version_text(OLDEST_PROVIDER)
    return (
        f"Kubernetes provider {version_text(version)} is too old: before {wanted} it takes over an object of somebody"
        " else that has the name of a new one"
    )


def provider_warning(version: tuple[int, ...]) -> str | None:
    """Return a warning if a Kubernetes provider is newer than the tested ones, else None.

    >>> provider_warning((4, 34)), provider_warning((4, 35))
    (None, 'Kubernetes provider 4.35 is newer than 4.34, the newest one that was tested')
    """
    if version <= NEWEST_TESTED_PROVIDER:
        return None
    newest = version_text(NEWEST_TESTED_PROVIDER)
    return f"Kubernetes provider {version_text(version)} is newer than {newest}, the newest one that was tested"


def sdk_problem(version: str) -> str | None:
    """Return why a version of the Python package `pulumi` is refused, or None if it was tested.

    >>> sdk_problem("3.272.1")
    >>> sdk_problem("3.300.0")[:79]
    'the Python package pulumi 3.300.0 was not tested with torchx-pulumi, only 3.259'
    """
    (oldest, newest), found = TESTED_SDK, read_version(version)
    if found is not None and oldest <= found <= newest:
        return None
    return (
        f"the Python package pulumi {version} was not tested with torchx-pulumi, only {version_text(oldest)} to "
        f"{version_text(newest)}, and jobs in a program need parts of it that may change"
    )


def read_version(text: str) -> tuple[int, ...] | None:
    """Return the first two numbers of a version, or None if the text has no version.

    >>> read_version("v3.259.0"), read_version("4.34.2+stand-in"), read_version("x")
    ((3, 259), (4, 34), None)
    """
    found = re.search(r"(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else None


def version_text(version: tuple[int, ...]) -> str:
    """Return a version as text.

    >>> version_text((3, 259))
    '3.259'
    """
    return ".".join(map(str, version))
