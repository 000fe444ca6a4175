"""Write what is made of tables in code: arguments of components, and options in docs.

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
from torchx_pulumi.model.image_options import ImageOptions, ImageRequest
from torchx_pulumi.model.launch_options import ProgramOptions
from torchx_pulumi.model.options import Option, is_table, rows_of
from torchx_pulumi.outputs import types as output_types
from torchx_pulumi.outputs.types import COMPONENT_OUTPUTS
from torchx_pulumi.schedulers import SchedulerBackend, find_backend, scheduler_names
from torchx_pulumi.torchx_adapter.run_opts import AdapterOptions, PatchingOptions
from torchx_pulumi_stacks.images import ImageConfig
from torchx_pulumi_stacks.settings import key_of
from typing_extensions import is_typeddict

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
    words = {word for _, kind, _ in COMPONENT_OUTPUTS for word in kind.split()}
    shapes = {word for word in words if is_typeddict(vars(output_types).get(word))}
    imported = {output_types.__name__: shapes}
    for row in (*rows, *(each for kind in nested for each in rows_of(kind))):
        if isinstance(row.kind, type) and issubclass(row.kind, Enum):
            imported.setdefault(row.kind.__module__, set()).add(row.kind.__name__)
    lines = [f"from {name} import {', '.join(sorted(names))}" for name, names in sorted(imported.items())]
    typing = "from typing_extensions import NotRequired, TypedDict"
    own = [
        "from torchx_pulumi_components.args import Role",
        "from torchx_pulumi_components.training_job import TrainingJob",
    ]
    # Imports of a module's own package stand apart.
    rest = [typing, "", *own] if module.startswith("torchx_pulumi_components.") else [*own, typing]
    return "\n".join([*_STANDARD, *lines, *rest])


_STANDARD = ("from collections.abc import Mapping, Sequence", "", "import pulumi")


def _typed_dict(name: str, text: str, fields: Sequence[str]) -> str:
    return f'class {name}(TypedDict):\n    """{text}"""\n\n' + "".join(fields)


def _fields(rows: Sequence[Option], discovered: Mapping[str, str]) -> list[str]:
    return [f"    {row.name}: {_type_of(row)}\n{_text(_help_of(row, discovered.get(row.name)))}" for row in rows]


def _type_of(row: Option) -> str:
    kind = _annotation(row.kind)
    if row.secret and row.kind is not str:
        # It may be secret as a whole.
        kind = f"pulumi.Input[{kind}]"
    if row.known:
        kind = kind.replace("pulumi.Input[str]", "str")
    return kind if row.required else f"NotRequired[{kind}]"


def _annotation(kind: Any) -> str:
    if kind is str or kind is Any:
        return "pulumi.Input[str]" if kind is str else "Any"
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


def image_module() -> str:
    """Return the text of the module with the arguments of a patched image."""
    rows = sorted(_own_first(ImageRequest), key=lambda row: not row.required)
    imports = "\n".join(
        (
            "from collections.abc import Mapping",
            "from typing import Any",
            *_STANDARD[1:],
            "from typing_extensions import NotRequired, TypedDict",
        )
    )
    arguments = _typed_dict("PatchedImageArgs", "Arguments of a patched image.", _fields(rows, {}))
    head = '"""Arguments of the component PatchedImage. Written by `python -m tools.components`."""'
    return f"{head}\n\n{imports}\n\n\n{arguments}"


def _own_first(kind: type) -> list[Option]:
    """Return the rows of a table of images: what only its surface has, then what all have."""
    every = {row.name for row in rows_of(ImageOptions)}
    return sorted(rows_of(kind), key=lambda row: row.name in every)


def with_image_options(page: str) -> str:
    """Return docs/images.md with the table of its options."""
    head = "| Option | Key of the stack program | Means |\n|---|---|---|\n"
    rows = [f"| `{row.name}` | `{key_of(row.name)}` | {_help_of(row, None)} |\n" for row in _own_first(ImageConfig)]
    before, _, after = page.partition(head)
    return before + head + "".join(rows) + after[after.index("\n\n") + 1 :]


def page() -> str:
    """Return docs/options.md."""
    parts = [
        "# Run options\n\nWhat each option means, and its default.\n\nFirst try this, which launches nothing:\n\n"
        "```sh first\ntorchx runopts pulumi_volcano\ntorchx run -s pulumi_volcano -cfg queue=default,layout=role "
        '--workspace "" --dryrun utils.echo --image busybox:1.36 --msg hello\n```\n\n'
        "A component argument has the name of the option. The stack program has launch options as keys in camelCase "
        "without the unit `_s`, and the options of the scheduler in its key `options`.\n"
    ]
    for backend in map(find_backend, OWN_SCHEDULERS):
        parts.append(f"## Options of `pulumi_{backend.name}`\n\n{_table(rows_of(backend.options), backend.discovered)}")
    parts.append(f"## Options of a launch\n\n{_table(rows_of(ProgramOptions), {})}")
    parts.append(f"## Options of `torchx` commands\n\n{_table(rows_of(AdapterOptions), {})}")
    parts.append(f"## Options of patched images\n\n{_table(_own_first(PatchingOptions), {})}")
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
    docs = Path(__file__).parents[1] / "docs"
    made = {path_of(backend): module_of(backend) for backend in map(find_backend, scheduler_names())}
    registry, images = docs / "_index.md", docs / "images.md"
    return {
        **made,
        path_of_module("torchx_pulumi_components.patched_image_args"): image_module(),
        images: with_image_options(images.read_text()),
        docs / "options.md": page(),
        registry: registry_page(registry.read_text()),
    }


def main() -> None:
    """Write the files."""
    for path, text in files().items():
        path.write_text(text)


def path_of(backend: SchedulerBackend[Any]) -> Path:
    """Return the file of the module of a scheduler's component."""
    return path_of_module(backend.component_module)


def path_of_module(module: str) -> Path:
    """Return the file of a module, which need not exist yet."""
    package, _, name = module.rpartition(".")
    (folder,) = import_module(package).__path__
    return Path(folder) / f"{name}.py"


if __name__ == "__main__":
    main()
