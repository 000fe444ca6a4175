"""The command `torchx-pulumi program`: writes a Pulumi project that continues an app of `torchx run`."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from pathlib import Path

from torchx_pulumi.cli.apps import ABOUT, read_app
from torchx_pulumi.model.errors import Problem, invalid_arguments, invalid_job


def add_program(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to a parser."""
    program = commands.add_parser(
        "program",
        help="write a Pulumi program that continues a launched app",
        description="Write a Pulumi project that continues an app that `torchx run` launched; its uid stays.",
    )
    program.add_argument("handle", metavar="HANDLE", help=ABOUT)
    program.add_argument("--to", required=True, metavar="FOLDER", help="folder to write; created if it is absent")
    program.set_defaults(command=program_command)


def program_command(arguments: argparse.Namespace) -> int:
    """Write the project and say what to do in it.

    Raises:
        InvalidJobError: The folder has no name, the app is not known here, or a file of the project exists.
        DeployError: The file of the passphrase cannot be made or read.
    """
    from torchx_pulumi.runs.eject import next_steps, project_files
    from torchx_pulumi.runs.index import RunIndex
    from torchx_pulumi.stack_state.cli import default_passphrase_file

    if not arguments.to.strip():
        raise invalid_arguments(Problem("--to", "is empty; name a folder, or `.` for the current one"))
    index = RunIndex()
    handle = read_app(arguments.handle, index.find)
    app_id = handle.app_id
    entry = index.find(app_id, handle.scheduler)
    if entry is None:
        text = f"{app_id} was not launched from this machine; `torchx-pulumi fleet` lists the apps of a backend"
        raise invalid_job(app_id, [Problem("HANDLE", text)])
    files = project_files(entry)
    folder = Path(arguments.to)
    taken = sorted(name for name in files if (folder / name).exists())
    if taken:
        raise invalid_job(app_id, [Problem("--to", f"{folder / name} exists already") for name in taken])
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as undo:
            for name, text in files.items():
                path = folder / name
                # Environment and arguments may have secrets.
                path.touch(mode=0o600, exist_ok=False)
                undo.callback(path.unlink)
                path.write_text(text, encoding="utf-8")
            # All files are written, and stay.
            undo.pop_all()
    except OSError as error:
        raise invalid_job(app_id, [Problem("--to", f"{folder} cannot be written: {error.strerror}")]) from error
    steps = next_steps(entry.place, str(folder), default_passphrase_file(entry.place, os.environ))
    sys.stdout.write("".join(f"{line}\n" for line in steps))
    return 0
