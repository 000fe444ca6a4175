"""Plain data -> YAML text that every YAML reader takes for the same data."""

from __future__ import annotations

import re
from typing import Any

import yaml

_Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class ManifestDumper(_Dumper):  # type: ignore[misc]  # the C dumper is chosen when yaml has one
    """Safe YAML without anchors, which not every reader of manifests knows."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        """Write what occurs twice twice."""
        return True


# kubectl's YAML reader takes these for numbers and booleans, PyYAML does not: so they must stand in quotes.
_FOREIGN_SCALARS = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|0[ob][0-7]+|[yYnN]|[-+]?[0-9_]+")
ManifestDumper.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(rf"^(?:{_FOREIGN_SCALARS.pattern})$"), list("-+.0123456789yYnN")
)


def to_yaml(data: Any) -> str:
    """Write data as YAML, keys in the order they have.

    >>> print(to_yaml({"b": "1e-4", "a": ["y", 1]}), end="")
    b: '1e-4'
    a:
    - 'y'
    - 1
    """
    text: str = yaml.dump(data, Dumper=ManifestDumper, sort_keys=False, width=120, allow_unicode=True)
    return text
