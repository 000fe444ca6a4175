"""The command `torchx-pulumi program`: writes a Pulumi project that continues an app, or imports a job of TorchX."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from torchx_pulumi.model.errors import Problem, invalid_job

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
        InvalidJobError: The app does not exist or cannot be described, or a file of the project exists.
        DeployError: The file of the passphrase cannot be made or read.
        ClusterError: The cluster of a job of TorchX's own scheduler cannot be read.
    """
    from torchx_pulumi.runs.eject import next_steps, project_files
    from torchx_pulumi.runs.handle import TORCHX_VOLCANO, read_handle
    from torchx_pulumi.runs.index import RunIndex
    from torchx_pulumi.stack_state.cli import default_passphrase_file

    handle = read_handle(arguments.handle, torchx=True)
    app_id, is_new = handle.app_id, arguments.handle.startswith(f"{TORCHX_VOLCANO}:")
    if is_new:
        place, files = _imported(app_id)
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
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise invalid_job(app_id, [Problem("--to", f"{folder} cannot be written: {error.strerror}")]) from error
    steps = next_steps(place, str(folder), default_passphrase_file(place, os.environ), is_new=is_new)
    sys.stdout.write("".join(f"{line}\n" for line in steps))
    return 0


def _imported(app_id: str) -> tuple[StackRef, dict[str, str]]:
    """Return the new stack, and the files, for a job of TorchX's own scheduler in the cluster in force."""
    from torchx_pulumi.inputs.rendering import plan_app
    from torchx_pulumi.kube import KubernetesCluster
    from torchx_pulumi.model import labels
    from torchx_pulumi.model.object_fields import text_at
    from torchx_pulumi.runs.eject import import_files
    from torchx_pulumi.schedulers.volcano.describe import describe_job
    from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB
    from torchx_pulumi.stack_state.backend import stack_name
    from torchx_pulumi.stack_state.cli import choose_place

    namespace, _, name = app_id.partition(":")
    cluster = KubernetesCluster.connect(None, None)
    job = cluster.get(VOLCANO_JOB, namespace, name)
    if job is None:
        raise invalid_job(app_id, [Problem("HANDLE", f"there is no Volcano Job {app_id} in {cluster.api_server}")])
    if text_at(job, "metadata", "labels", labels.LAUNCH) is not None:
        text = "is of a stack of torchx-pulumi already; a job of `torchx run` has a handle pulumi_volcano://..."
        raise invalid_job(app_id, [Problem("HANDLE", text)])
    app, options = describe_job(job)
    plan_app(app, "volcano", options, app_id=name)
    place = choose_place({}, stack_name(namespace, name, "volcano", cluster.identity))
    return place, import_files(place.project, app, options, app_id)
