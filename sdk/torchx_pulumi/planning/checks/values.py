"""Rules of single values (labels, names, texts), and how messages show values. Rules yield problems and never raise."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeGuard

from torchx_pulumi.model.errors import Problem
from torchx_pulumi.model.options import unknown_name
from torchx_pulumi.planning import names

MAX_INT32 = 2**31 - 1

_UNSET_TEXTS = ("", "<MISSING>", "<NONE>", "<UNKNOWN>", "<NOT_SET>")
"""Texts that TorchX and its users write for an unset text."""


def check_labels(path: str, found_labels: Mapping[str, str]) -> Iterator[Problem]:
    """Check that labels have valid keys and values."""
    yield from check_keys(path, found_labels)
    for key, value in found_labels.items():
        yield from check_label_value(f"{path}[{shown(key)}]", value)


def check_keys(path: str, mapping: Iterable[str]) -> Iterator[Problem]:
    """Check that keys of labels or annotations are qualified names."""
    for key in mapping:
        if not names.is_qualified_name(key):
            yield Problem(
                f"{path}[{shown(key)}]", "must be [prefix/]name, with a name of letters, digits, '-', '_' and '.'"
            )


def check_label_value(path: str, value: object) -> Iterator[Problem]:
    """Check that a value can be the value of a label."""
    if not is_text(value) or not names.is_label_value(value):
        yield Problem(
            path, f"{found(value)}, must be at most 63 letters, digits, '-', '_' and '.', no sign first or last"
        )


def check_object_name(path: str, value: str) -> Iterator[Problem]:
    """Check that the name of an object is a DNS subdomain."""
    if not names.is_dns_subdomain(value):
        yield Problem(path, f"{found(value)}, must be a name of a-z, 0-9, '-' and '.', at most 253 characters")


def check_text(path: str, value: str) -> Iterator[Problem]:
    """Check that a text is set."""
    if value in _UNSET_TEXTS or not value.strip():
        yield Problem(path, f"is not set (found {value!r}); give a value")


def unknown_keys(path: str, mapping: Mapping[Any, Any], known: Iterable[str]) -> Iterator[Problem]:
    """Yield a problem for every unknown key."""
    allowed = tuple(known)
    for key in mapping:
        if key not in allowed:
            yield Problem(f"{path}.{key}" if path else str(key), unknown_name(str(key), allowed))


def is_text(value: object) -> TypeGuard[str]:
    """Return whether a value is text that can be written as UTF-8."""
    return isinstance(value, str) and (value.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in value))


def is_int(value: object) -> TypeGuard[int]:
    """Return whether a value is a whole number. True and False are not."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is a finite number."""
    return is_int(value) or (isinstance(value, float) and math.isfinite(value))


def is_list(value: object) -> TypeGuard[Sequence[Any]]:
    """Return whether a value is a list or tuple."""
    return isinstance(value, (list, tuple))


def found(value: object) -> str:
    """Return the found value for a message.

    >>> found("x"), found(None)
    ("is 'x'", 'is not set')
    """
    return "is not set" if value is None else f"is {shown(value)}"


def shown(value: object) -> str:
    """Return a text, a number or a truth value for a message, at most 80 characters; of anything else its type.

    The items of a mapping or a list may be secrets and are not repeated.

    >>> shown("x"), shown({"password": "x"}), shown(["x"])
    ("'x'", 'of type dict', 'of type list')
    """
    if type(value) not in (str, int, float, bool):
        return f"of type {type(value).__name__}"
    try:
        text = repr(value).encode("utf-8", "backslashreplace").decode()
    except ValueError:
        # Python does not write integers of thousands of digits.
        return "a number of thousands of digits"
    return text if len(text) <= 80 else f"{text[:77]}..."


def amount(value: object) -> str:
    """Return the value found in place of a number, for a message. A text is not shown, because it may be a secret.

    >>> amount(-1), amount("hunter22")
    ('is -1', 'is of type str')
    """
    return found(value) if isinstance(value, (int, float)) else typed(value)


def typed(value: object) -> str:
    """Return the type of a value that may be a secret, for a message.

    >>> typed("hunter22"), typed(None)
    ('is of type str', 'is not set')
    """
    return "is not set" if value is None else f"is of type {type(value).__name__}"
