"""The command `torchx-pulumi program`: writes a Pulumi project that continues an app, or imports a job of TorchX."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from torchx_pulumi.model.errors import Problem, invalid_arguments, invalid_job

if TYPE_CHECKING:
    from torchx_pulumi.model.app_entry import StackRef


def add_program(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to a parser."""
    program = commands.add_parser(
        "program",
        help="write a Pulumi program that continues a launched app",
        description="Write a Pulumi project that continues an app that `torchx run` launched, with one of our "
        "schedulers or with TorchX's own `kubernetes`; its uid stays.",
    )
    program.add_argument("handle", metavar="HANDLE", help="app handle, as `torchx run` printed it")
    program.add_argument("--to", required=True, metavar="FOLDER", help="folder to write; created if it is absent")
    program.set_defaults(command=program_command)


def program_command(arguments: argparse.Namespace) -> int:
    """Write the project and say what to do in it.

    Raises:
        InvalidJobError: The folder has no name, the app does not exist or cannot be described, or a file of the project
            exists.
        DeployError: The file of the passphrase cannot be made or read.
        ClusterError: The cluster of a job of TorchX's own scheduler cannot be read.
    """
    from torchx_pulumi.runs.eject import next_steps, project_files
    from torchx_pulumi.runs.handle import read_handle
    from torchx_pulumi.runs.index import RunIndex
    from torchx_pulumi.schedulers.registry import find_backend
    from torchx_pulumi.stack_state.cli import default_passphrase_file

    if not arguments.to.strip():
        raise invalid_arguments(Problem("--to", "is empty; name a folder, or `.` for the current one"))
    handle = read_handle(arguments.handle, torchx=True)
    app_id = handle.app_id
    is_new = arguments.handle.partition(":")[0] == find_backend(handle.scheduler).torchx_scheduler
    if is_new:
        place, files = _imported(app_id, handle.scheduler)
    else:
        entry = RunIndex().find(app_id, handle.scheduler)
        if entry is None:
            text = f"{app_id} was not launched from this machine; `torchx-pulumi fleet` lists the apps of a backend"
            raise invalid_job(app_id, [Problem("HANDLE", text)])
        place, files = entry.place, project_files(entry)
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
    steps = next_steps(place, str(folder), default_passphrase_file(place, os.environ), is_new=is_new)
    sys.stdout.write("".join(f"{line}\n" for line in steps))
    return 0


def _imported(app_id: str, scheduler: str) -> tuple[StackRef, dict[str, str]]:
    """Return the new stack, and the files, for a job of TorchX's own scheduler in the cluster in force."""
    from torchx_pulumi.inputs.rendering import plan_app
    from torchx_pulumi.kube import KubernetesCluster
    from torchx_pulumi.model import labels
    from torchx_pulumi.model.object_fields import text_at
    from torchx_pulumi.runs.eject import import_files
    from torchx_pulumi.schedulers.registry import find_backend
    from torchx_pulumi.stack_state.backend import stack_name
    from torchx_pulumi.stack_state.cli import choose_place

    namespace, _, name = app_id.partition(":")
    backend, cluster = find_backend(scheduler), KubernetesCluster.connect(None, None)
    kind = next(iter(backend.variants.values())).job_object
    job = cluster.get(kind, namespace, name)
    if job is None:
        text = f"there is no {kind.kind} {app_id} ({kind.api_version}) in {cluster.api_server}"
        raise invalid_job(app_id, [Problem("HANDLE", text)])
    if text_at(job, "metadata", "labels", labels.LAUNCH) is not None:
        text = f"is of a stack of torchx-pulumi already; a job of `torchx run` has a handle pulumi_{scheduler}://..."
        raise invalid_job(app_id, [Problem("HANDLE", text)])
    app, options = backend.describe_job(job)
    plan_app(app, scheduler, options, app_id=name)
    place = choose_place({}, stack_name(namespace, name, scheduler, cluster.identity))
    return place, import_files(place.project, scheduler, app, options, app_id)
