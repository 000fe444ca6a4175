"""Texts that a program made of an Output before its value was known: `f"{output}"`, `${output}`, `fmt.Sprint(output)`.

Every language takes them for a text. Python and Node only warn, Go and Java say nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from torchx_pulumi.model.errors import Problem

from torchx_pulumi_components.input_resolution import ValuePath, path_of

_MADE_OF_OUTPUT = re.compile(
    # Python, TypeScript and .NET, of an Output.
    r"Calling \S+ on an \[?Output[\[<]T[\]>]\]? is not supported"
    # Python, of Outputs in a list.
    r"|<pulumi\.[\w.]+ object at 0x"
    # Go: `%v` and `%s`.
    r"|\{0xc[0-9a-f]{9}\}|\*internal\.OutputState"
    # Java.
    r"|com\.pulumi\.core\.internal\.OutputInternal@"
)

ADVICE = (
    "is the text of an Output, not its value; join texts with pulumi.Output.concat or "
    "pulumi.Output.format (TypeScript: pulumi.interpolate, Go: pulumi.Sprintf), and give an Output as it is"
)


def texts_of_outputs(value: Any, place: ValuePath = ()) -> Iterator[Problem]:
    """Yield a problem for every text in nested arguments, and every key, that was made of an Output."""
    if is_dataclass(value) and not isinstance(value, type):
        value = {item.name: getattr(value, item.name) for item in fields(value)}
    if isinstance(value, Mapping):
        for key, item in value.items():
            if _MADE_OF_OUTPUT.search(str(key)):
                yield Problem(path_of(place), f"has a key that {ADVICE}")
            else:
                yield from texts_of_outputs(item, (*place, key))
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from texts_of_outputs(item, (*place, index))
    elif isinstance(value, str) and _MADE_OF_OUTPUT.search(value):
        yield Problem(path_of(place), ADVICE)
