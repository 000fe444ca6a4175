"""Refusal of a wrong call of a component's constructor, in one message: Python's own error has a traceback."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pulumi
from typing_extensions import Self


class CheckedCall(pulumi.ComponentResource):
    """A component whose arguments are one mapping."""

    def __new__(cls, name: Any = None, args: Any = None, opts: Any = None, *more: Any, **unknown: Any) -> Self:
        """Check the call.

        Raises:
            pulumi.RunError: The arguments are not a mapping, or there are others than `name`, `args` and `opts`.
        """
        if not cls.__init__.__module__.startswith(__package__):
            # A subclass of the user's, whose constructor has other parameters.
            return super().__new__(cls)
        problems = []
        if not isinstance(name, str):
            problems.append(f"name: must be a text, found {type(name).__name__}")
        elif not name:
            problems.append("name: is empty")
        if unknown:
            problems.append(f"{', '.join(unknown)}: not keyword arguments of the constructor")
        if more:
            problems.append(f"{3 + len(more)} positional arguments; name, args and opts are allowed")
        if args is None:
            problems.append("args: is missing")
        elif not isinstance(args, (Mapping, pulumi.Output)):
            problems.append(f"args: must be a mapping, found {type(args).__name__}")
        if not isinstance(opts, (pulumi.ResourceOptions, type(None))):
            problems.append(f"opts: must be pulumi.ResourceOptions, found {type(opts).__name__}")
        if problems:
            example = f'give all fields in one mapping: {cls.__name__}("NAME", {{"FIELD": VALUE}})'
            if hasattr(cls, "from_app"):
                example += f', or a TorchX AppDef: {cls.__name__}.from_app("NAME", app, FIELD=VALUE)'
            raise pulumi.RunError(f"{cls.__name__} {name!r}: {'; '.join(problems)}; {example}")
        return super().__new__(cls)
