"""The parts that the project works with: the version that tests run with, and the range that is supported.

This table is the only place with these versions. `doctor`, refusals, the tools that build parts for tests and
docs/tested-versions.md read it; tests compare pyproject.toml, `requirements` and the go.mod files with it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version as installed_version
from types import MappingProxyType
from typing import Final

Version = tuple[int, ...]
"""Major and minor number."""


def read_version(text: str) -> Version | None:
    """Return the first two numbers of a version, or None if the text has no version.

    >>> read_version("v3.259.0"), read_version("4.34.2+stand-in"), read_version("x")
    ((3, 259), (4, 34), None)
    """
    found = re.search(r"(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else None


def version_text(version: Version) -> str:
    """Return a version as text.

    >>> version_text((3, 259))
    '3.259'
    """
    return ".".join(map(str, version))


@dataclass(frozen=True, slots=True, kw_only=True)
class PartVersions:
    """Versions of one part."""

    title: str
    """Name in messages and in the documentation."""
    tested: str
    """Newest version that tests run with."""
    oldest: Version = ()
    """Oldest supported version. Empty: only tests use the part."""
    package: str = ""
    """Name of the Python package whose range pyproject.toml has. Empty: none."""

    @property
    def newest(self) -> Version:
        """Newest tested version. Newer ones are expected to work, and get a warning."""
        return read_version(self.tested) or ()

    @property
    def supported(self) -> str:
        """Supported range as text; empty if only tests use the part.

        >>> VERSIONS["kubernetes-provider"].supported
        '4.29 to 4.34'
        """
        oldest, newest = version_text(self.oldest), version_text(self.newest)
        return oldest if oldest == newest else f"{oldest} to {newest}" if oldest else ""

    def warning(self, version: Version) -> str | None:
        """Return a warning about a version outside the supported range, else None.

        >>> VERSIONS["kubernetes-provider"].warning((4, 34))
        >>> VERSIONS["kubernetes-provider"].warning((4, 35))
        'Kubernetes provider 4.35 is newer than 4.34, the newest one that was tested'
        """
        found = f"{self.title} {version_text(version)}"
        if version < self.oldest:
            return f"{found} is older than {version_text(self.oldest)}, the oldest one that is supported"
        if version > self.newest:
            return f"{found} is newer than {version_text(self.newest)}, the newest one that was tested"
        return None


VERSIONS: Final[Mapping[str, PartVersions]] = MappingProxyType(
    {
        "python": PartVersions(title="Python", tested="3.14.10", oldest=(3, 10)),
        "torchx": PartVersions(title="TorchX", tested="0.7.0", oldest=(0, 7), package="torchx"),
        "torchx-nightly": PartVersions(title="TorchX nightly", tested="2026.10.26", oldest=(2026, 10)),
        "pulumi": PartVersions(title="Pulumi CLI", tested="3.274.1", oldest=(3, 259)),
        # docs/decisions/0022 has what happens with a newer Python package.
        "pulumi-sdk": PartVersions(title="Python package pulumi", tested="3.272.0", oldest=(3, 259), package="pulumi"),
        # Pulumi installs the provider whose version is that of the Python package.
        "kubernetes-provider": PartVersions(
            title="Kubernetes provider", tested="4.34.2", oldest=(4, 29), package="pulumi-kubernetes"
        ),
        "kubernetes-client": PartVersions(
            title="Python package kubernetes", tested="37.0.1", oldest=(28, 0), package="kubernetes"
        ),
        "urllib3": PartVersions(title="Python package urllib3", tested="2.8.0", oldest=(1, 26), package="urllib3"),
        "kubernetes": PartVersions(title="Kubernetes", tested="1.35.3", oldest=(1, 25)),
        "volcano": PartVersions(title="Volcano", tested="1.15.1", oldest=(1, 14)),
        "mcad": PartVersions(title="MCAD", tested="1.40.0", oldest=(1, 40)),
        "appwrapper": PartVersions(title="AppWrapper operator", tested="1.2.2", oldest=(1, 2)),
        "kueue": PartVersions(title="Kueue", tested="0.19.2", oldest=(0, 19)),
        "scheduler-plugins": PartVersions(title="Scheduler plugins (coscheduling)", tested="0.34.7", oldest=(0, 34)),
        # What only tests and the demo use.
        "pulumi-language-python": PartVersions(title="Language host for Python", tested="3.79.0"),
        "pulumi-language-yaml": PartVersions(title="Language host for YAML", tested="1.30.0"),
        "pulumi-language-nodejs": PartVersions(title="Language host for Node.js", tested="3.66.0"),
        "pulumi-language-go": PartVersions(title="Language host for Go", tested="3.66.0"),
        "sdkgen": PartVersions(title="Generator of SDKs (Pulumi's codegen)", tested="3.259.0"),
        "kwok": PartVersions(title="KWOK", tested="0.8.0"),
        "coredns": PartVersions(title="CoreDNS", tested="1.13.1"),
        "crane": PartVersions(title="crane", tested="0.22.1"),
        "distribution": PartVersions(title="Distribution", tested="3.1.2"),
        "versitygw": PartVersions(title="Versity S3 Gateway", tested="1.8.0"),
        "actionlint": PartVersions(title="actionlint", tested="1.7.12"),
        "patternmatcher": PartVersions(title="moby patternmatcher", tested="0.6.1"),
    }
)
"""Every part by its name, those of `tools.bootstrap` under the name that they have there."""

_SDK: Final = VERSIONS["pulumi-sdk"]
SDK_TESTED: Final = f"pulumi>={version_text(_SDK.oldest)},<{_SDK.newest[0]}.{_SDK.newest[1] + 1}"
"""Requirement that only tested versions of the Python package `pulumi` meet."""
SDK_ADVICE: Final = f"run `pip install '{SDK_TESTED}'`, or install a newer torchx-pulumi"
"""Advice about a version of the Python package `pulumi` that is not supported, or changed something."""


PROVIDER_ADVICE: Final = "run `pip install --upgrade pulumi-kubernetes`"
"""Advice about a version of the Python package `pulumi-kubernetes` that is too old."""


@functools.cache
def provider_version() -> str:
    """Return the version of the installed Kubernetes SDK, for which Pulumi takes the same version of its provider."""
    return installed_version("pulumi-kubernetes")


def provider_problem(version: Version) -> str | None:
    """Return why a Kubernetes provider is refused, or None if it is supported.

    >>> provider_problem((4, 33))
    >>> provider_problem((4, 28))[:52]
    'Kubernetes provider 4.28 is too old: before 4.29 it '
    """
    oldest = VERSIONS["kubernetes-provider"].oldest
    if version >= oldest:
        return None
    return (
        f"Kubernetes provider {version_text(version)} is too old: before {version_text(oldest)} it takes over an object"
        " of somebody else that has the name of a new one"
    )


def sdk_problem(version: str) -> str | None:
    """Return why a version of the Python package `pulumi` is refused whatever is in it, or None.

    >>> sdk_problem("3.300.0")
    >>> sdk_problem("4.0.0")
    'the Python package pulumi 4.0.0 is not supported, only 3.259 or newer below 4'
    """
    found, oldest = read_version(version), _SDK.oldest
    if found is not None and oldest <= found < (oldest[0] + 1,):
        return None
    return (
        f"the Python package pulumi {version} is not supported, only {version_text(oldest)} or newer below "
        f"{oldest[0] + 1}"
    )
