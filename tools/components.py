"""Write what is made of the option tables: the module of each scheduler's component, and docs/options.md.

The first page of the package in the Pulumi registry, docs/_index.md, gets the example of its schema.

A test compares the files with what would be written.

Pulumi's analyzer reads the text under a field from the source of its class, and type checkers need the class as well.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any, get_args, get_origin

import torchx_pulumi_components
from torchx_pulumi.model.launch_options import ProgramOptions
from torchx_pulumi.model.options import Option, is_table, rows_of
from torchx_pulumi.outputs.types import COMPONENT_OUTPUTS
from torchx_pulumi.schedulers import SchedulerBackend, find_backend, scheduler_names
from torchx_pulumi.torchx_adapter.run_opts import AdapterOptions, WorkspaceOptions

OWN_SCHEDULERS = ("volcano", "mcad")
"""Schedulers of this project, which the page shows."""

WIDTH = 110
"""Longest text of a field. It is one line, which is its description in the schema."""


def module_of(backend: SchedulerBackend[Any]) -> str:
    """Return the text of the module of a scheduler's component."""
    rows = [*rows_of(backend.options), *(row for row in rows_of(ProgramOptions) if row.component)]
    rows.sort(key=lambda row: not row.required)
    name = backend.component
    nested = [row.kind for row in rows if is_table(row.kind)]
    head = f'"""Component {name} and its arguments. Written by `python -m tools.components`."""\n\n'
    parts = [
        *(_typed_dict(kind.ARGUMENT_TYPE, str(kind.__doc__), _fields(rows_of(kind), {})) for kind in nested),
        _typed_dict(f"{name}Args", f"Arguments of {name}.", [*_ROLES, *_fields(rows, backend.discovered)]),
        f'class {name}(TrainingJob):\n    """{backend.component_text}"""\n\n    _scheduler = "{backend.name}"\n\n'
        + "".join(f"    {output}: pulumi.Output[{kind}]\n{_text(text)}" for output, kind, text in COMPONENT_OUTPUTS)
        + _CONSTRUCTOR.format(args=f"{name}Args"),
    ]
    return (
        head
        + "\n\n\n".join(part.strip("\n") for part in [_imports(rows, nested, backend.component_module), *parts])
        + "\n"
    )


_ROLES = ('    roles: Sequence[Role]\n    """The groups of replicas, in the order of ranks. At least one."""\n',)

_CONSTRUCTOR = '''
    def __init__(self, name: str, args: {args}, opts: pulumi.ResourceOptions | None = None) -> None:
        """Launch the job, keep it, or launch it again: docs/decisions/0005 says when.

        The job is decided after the constructor has returned. The program fails at its end if the arguments are wrong
        (all problems in one message), the cluster cannot take the job, or a change would end a run that has not
        finished; nothing of the job is registered then.

        Args:
            name: Name of the component; the job object is called `<name>-<hash>`.
            args: What to run and how.
            opts: Provider, parent, aliases, protect, depends_on, ignore_changes, custom_timeouts and import are
                passed on to the objects that the component registers.

        Raises:
            pulumi.RunError: The state of the stack cannot be read.
        """
        self._construct(name, args, None, opts)
'''


def _imports(rows: Sequence[Option], nested: Sequence[Any], module: str) -> str:
    enums: dict[str, set[str]] = {}
    for row in (*rows, *(each for kind in nested for each in rows_of(kind))):
        if isinstance(row.kind, type) and issubclass(row.kind, Enum):
            enums.setdefault(row.kind.__module__, set()).add(row.kind.__name__)
    lines = [f"from {name} import {', '.join(sorted(names))}" for name, names in sorted(enums.items())]
    typing = "from typing_extensions import NotRequired, TypedDict"
    own = [
        "from torchx_pulumi_components.args import Role",
        "from torchx_pulumi_components.training_job import TrainingJob",
    ]
    # Imports of a module's own package stand apart.
    rest = [typing, "", *own] if module.startswith("torchx_pulumi_components.") else [*own, typing]
    return "\n".join([*_STANDARD, *lines, *rest])


_STANDARD = ("from collections.abc import Mapping, Sequence", "from typing import Any", "", "import pulumi")


def _typed_dict(name: str, text: str, fields: Sequence[str]) -> str:
    return f'class {name}(TypedDict):\n    """{text}"""\n\n' + "".join(fields)


def _fields(rows: Sequence[Option], discovered: Mapping[str, str]) -> list[str]:
    return [f"    {row.name}: {_type_of(row)}\n{_text(_help_of(row, discovered.get(row.name)))}" for row in rows]


def _type_of(row: Option) -> str:
    kind = "str" if row.kind is str and row.known else _annotation(row.kind)
    return kind if row.required else f"NotRequired[{kind}]"


def _annotation(kind: Any) -> str:
    if kind is str:
        return "pulumi.Input[str]"
    if is_table(kind):
        return str(kind.ARGUMENT_TYPE)
    parameters, origin = get_args(kind), get_origin(kind)
    if origin is None:
        return str(kind.__name__)
    if not issubclass(origin, Mapping):
        return f"Sequence[{_annotation(parameters[0])}]"
    item = parameters[1]
    return f"Mapping[str, {_annotation(item) if item is str else 'Sequence[str]'}]"


def _help_of(row: Option, discovered: str | None) -> str:
    if discovered:
        return f"{row.help}. {discovered}."
    default = row.default.value if isinstance(row.default, Enum) else row.default
    says = "nset" in row.help or row.required or default is False or default in (None, {}, ())
    return f"{row.help}." if says else f"{row.help}. Unset: `{default}`."


def _text(text: str) -> str:
    if len(text) > WIDTH:
        raise ValueError(f"{text!r} has {len(text)} characters; a text has at most {WIDTH}")
    return f'    """{text}"""\n'


def page() -> str:
    """Return docs/options.md."""
    parts = [
        "# Run options\n\nWritten by `python -m tools.components` from the option tables. `torchx runopts` shows the "
        "same help. A component argument has the name of the option. The stack program has launch options as keys in "
        "camelCase without the unit `_s`, and the options of the scheduler in its key `options`.\n"
    ]
    for backend in map(find_backend, OWN_SCHEDULERS):
        parts.append(f"## Options of `pulumi_{backend.name}`\n\n{_table(rows_of(backend.options), backend.discovered)}")
    parts.append(f"## Options of a launch\n\n{_table(rows_of(ProgramOptions), {})}")
    parts.append(f"## Options of `torchx` commands\n\n{_table(rows_of(AdapterOptions), {})}")
    parts.append(f"## Options of patched images\n\n{_table(rows_of(WorkspaceOptions), {})}")
    return "\n".join(parts)


def _table(rows: Sequence[Option], discovered: Mapping[str, str]) -> str:
    lines = ["| Option | Meaning |", "| --- | --- |"]
    for row in rows:
        other = f" (`torchx`: `{row.torchx}`)" if row.torchx else ""
        required = "Required. " if row.required else ""
        lines.append(f"| `{row.name}`{other} | {required}{_help_of(row, discovered.get(row.name))} |")
    return "\n".join(lines) + "\n"


def registry_page(text: str) -> str:
    """Return a page of the Pulumi registry with the example of a component in the chooser at its end."""
    component = find_backend(OWN_SCHEDULERS[0]).component
    example = (Path(torchx_pulumi_components.__file__).parent / "examples" / f"{component}.md").read_text()
    choices = "".join(
        f"{{{{% choosable language {language} %}}}}\n\n{block}\n\n{{{{% /choosable %}}}}\n"
        for block, language in re.findall(r"(?ms)^(```(\w+)\n.*?^```)$", example)
    )
    head, start, rest = text.partition("{{< chooser")
    return f"{head}{start}{rest.partition('>}}')[0]}>}}}}\n\n{choices}\n{{{{< /chooser >}}}}\n"


def files() -> dict[Path, str]:
    """Return the files and their texts."""
    made = {path_of(backend): module_of(backend) for backend in map(find_backend, scheduler_names())}
    docs = Path(__file__).parents[1] / "docs"
    return {**made, docs / "options.md": page(), docs / "_index.md": registry_page((docs / "_index.md").read_text())}


def main() -> None:
    """Write the files."""
    for path, text in files().items():
        path.write_text(text)


def path_of(backend: SchedulerBackend[Any]) -> Path:
    """Return the file of the module of a scheduler's component."""
    package, _, name = backend.component_module.rpartition(".")
    (folder,) = import_module(package).__path__
    return Path(folder) / f"{name}.py"


if __name__ == "__main__":
    main()
