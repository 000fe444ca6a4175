"""Platforms of images, in one notation for the names that Docker, Python and registries have for them. Pure."""

from __future__ import annotations

import platform as machine
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from torchx_pulumi.model.errors import ImageError

_PLATFORM: Final = re.compile(r"[A-Za-z0-9]+/[A-Za-z0-9_]+(/[A-Za-z0-9_.]+)?")
_PROCESSORS: Final = {"x86_64": "amd64", "aarch64": "arm64"}
"""Other names of processors."""
_FIRST_VARIANTS: Final = {("arm64", "v8"), ("amd64", "v1")}
"""Variants that mean the same as none."""


class Platform(NamedTuple):
    """Operating system, processor and its variant.

    >>> str(Platform.parse("linux/aarch64")), str(Platform.parse("linux/arm64/v8")), str(Platform.parse("linux/arm"))
    ('linux/arm64', 'linux/arm64', 'linux/arm/v7')
    """

    os: str
    architecture: str
    variant: str

    @classmethod
    def parse(cls, text: str) -> Platform:
        """Read a platform as users write it.

        Raises:
            ImageError: The text is not `OS/ARCHITECTURE` or `OS/ARCHITECTURE/VARIANT`.
        """
        if not _PLATFORM.fullmatch(text):
            raise ImageError(f"platform is {text!a}, must be OS/ARCHITECTURE, for example linux/arm64")
        os, architecture, variant = [*text.lower().split("/"), ""][:3]
        return cls.of({"os": os, "architecture": architecture, "variant": variant})

    @classmethod
    def of(cls, written: Mapping[str, Any]) -> Platform:
        """Read the platform of an index or a configuration. Parts that are not given are empty."""
        os, architecture, variant = (str(written.get(key) or "") for key in ("os", "architecture", "variant"))
        architecture = _PROCESSORS.get(architecture, architecture)
        if architecture == "arm":
            return cls(os, architecture, variant or "v7")
        return cls(os, architecture, "" if (architecture, variant) in _FIRST_VARIANTS else variant)

    @classmethod
    def own(cls) -> Platform:
        """Return the platform of this machine."""
        return cls.of({"os": "linux", "architecture": machine.machine().lower()})

    def __str__(self) -> str:
        """Return it as Docker writes it, without unknown parts."""
        return "/".join(part for part in self if part)

    def runs(self, other: Platform) -> bool:
        """Return whether it runs programs of another one, which may be of an earlier variant of its processor."""
        is_same = other[:2] == self[:2]
        return other == self or (is_same and self.architecture in ("arm", "amd64") and other.variant < self.variant)
