"""Load the app of a stack: a TorchX component with its arguments, or an AppDef file."""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torchx_pulumi.inputs.appdef import DEFAULT_LOGLEVEL, LOGLEVEL, read_app
from torchx_pulumi.inputs.appfile import read_app_file
from torchx_pulumi.model.errors import InvalidJobError, Problem
from torchx_pulumi.model.job_spec import JobSpec


def load_app_file(path: str, root: Path) -> JobSpec:
    """Read an AppDef file; a relative path starts at the project's folder.

    Raises:
        InvalidJobError: The file cannot be read, or is not an AppDef.
    """
    return read_app_file(root / Path(path).expanduser())


def load_component(name: str, arguments: Sequence[str], root: Path) -> JobSpec:
    """Run a TorchX component in the project's folder and read its AppDef, which is the same on every machine.

    Args:
        name: As `torchx run` takes it: `dist.torchrun`, or `path/to/file.py:function` from the project's folder.
        arguments: As on the command line of `torchx run`.
        root: The project's folder.

    Raises:
        InvalidJobError: TorchX is not installed, or refuses the component or its arguments, or its AppDef cannot be
            read.
    """
    with _same_everywhere(root):
        spec = read_app(_materialize(name, arguments, root))
    _refuse_home(spec, name, arguments)
    chosen = {path for path, word in _CHOSEN_BY.items() if any(word in argument for argument in arguments)}
    open_values = {path: value for path, value in spec.machine_values.items() if path not in chosen}
    return replace(spec, machine_values=open_values)


_CHOSEN_BY = {f"env[{LOGLEVEL}]": LOGLEVEL, "image": "--image"}
"""Path in a role of each value that TorchX takes from the machine, and what an argument that chooses it contains."""


@contextlib.contextmanager
def _same_everywhere(root: Path) -> Iterator[None]:
    """Give a component the project's folder as working folder, and TorchX's default in place of LOGLEVEL."""
    folder, level = Path.cwd(), os.environ.get(LOGLEVEL)
    os.chdir(root)
    os.environ[LOGLEVEL] = DEFAULT_LOGLEVEL
    try:
        yield
    finally:
        os.chdir(folder)
        os.environ.pop(LOGLEVEL)
        os.environ.update({} if level is None else {LOGLEVEL: level})


def _refuse_home(spec: JobSpec, component: str, arguments: Sequence[str]) -> None:
    """Refuse a mount of `~`, which TorchX replaces by the home of the user who runs the program."""
    sources = {mount.src for role in spec.roles for mount in role.mounts}
    homes = {home: str(Path(home).expanduser()) for text in arguments for home in re.findall(r"src=(~[^,]*)", text)}
    problems = [
        Problem(
            "arguments",
            f"mount of {home!r} is one of {path!r} here, and of another folder for another user; "
            f"write the path that the node has, for example src={path}",
        )
        for home, path in homes.items()
        if path in sources
    ]
    if problems:
        raise InvalidJobError(component, problems)


def _materialize(name: str, arguments: Sequence[str], root: Path) -> Any:
    """Run a component and return its AppDef; arguments as of `load_component`."""
    try:
        from torchx.specs.builders import materialize_appdef
        from torchx.specs.finder import ComponentNotFoundException, ComponentValidationException, get_component
    except ImportError as error:
        raise _refused(
            name,
            "component",
            f"{name!r} needs TorchX, which cannot be imported ({error}); install `torchx-pulumi[torchx]`, "
            "or describe the job in an appFile",
        ) from error
    path, colon, function = name.rpartition(":")
    try:
        # A file is named relative to the project.
        is_file = colon and path.endswith(".py")
        component = get_component(f"{root / path}:{function}" if is_file else name)
    except (ComponentNotFoundException, ComponentValidationException, OSError, ValueError, SyntaxError) as error:
        raise _refused(
            name, "component", f"{name!r}: {_first_line(error)}; `torchx builtins` lists components"
        ) from error
    except (Exception, SystemExit) as error:  # importing runs the user's code
        text = f"{name!r} cannot be imported: {type(error).__name__}: {_first_line(error)}; fix the file, or install "
        text += "what it imports"
        raise _refused(name, "component", text) from error
    output = io.StringIO()
    try:
        # TorchX parses with argparse, which prints and exits.
        with contextlib.redirect_stderr(output), contextlib.redirect_stdout(output):
            return materialize_appdef(component.fn, list(arguments))
    except SystemExit as error:
        raise _refused(name, "arguments", f"{_argparse_error(output.getvalue())}; component {name}") from error
    except Exception as error:  # a component is the user's code and may raise anything
        text = f"component {name} raised {type(error).__name__}: {error}"
        raise _refused(name, "arguments", text) from error


def _refused(job: str, key: str, message: str) -> InvalidJobError:
    return InvalidJobError(job, [Problem(key, message)])


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:3]).rstrip(".") or type(error).__name__


def _argparse_error(printed: str) -> str:
    r"""Return the error that argparse printed after its usage.

    >>> _argparse_error("usage: x\nddp: error: unrecognized arguments: --frob\n")
    'unrecognized arguments: --frob'
    """
    lines = [line for line in printed.splitlines() if line.strip()]
    if not lines or "error: " not in lines[-1]:
        return "ask for the component's help, which makes no job; remove --help"
    return lines[-1].partition("error: ")[2]
