"""From a launched app to a Pulumi program that goes on with it: the files of a project, as text. Pure.

The program registers the component under the name, in the project and the stack that `torchx run` used, so that the
engine finds the job in its own state and `up` leaves it alone.
"""

from __future__ import annotations

import json
import pprint
import shlex
from collections.abc import Mapping
from typing import Any

from torchx_pulumi.redaction import MARK, is_redacted, without_password
from torchx_pulumi.runs.entry import RunEntry

COMPONENTS: Mapping[str, str] = {"volcano": "VolcanoTrainingJob", "mcad": "MCADTrainingJob"}
"""Scheduler to the component that runs its jobs."""

ARGUMENTS: Mapping[str, str] = {"priority_class_name": "priority_class"}
"""Run options that a component calls otherwise."""

PROGRAM = '''\
"""Goes on with the app {app_id}, which `torchx run` launched."""

from pathlib import Path

import pulumi
from torchx_pulumi.doors.appfile import read_app_file
from torchx_pulumi_components import {component}, export_outputs

job = {component}.from_app(
    {name!r},
    read_app_file(Path(__file__).parent / "app.json"),
    app_id={job_name!r},
{arguments})

# What `torchx` and the fleet read.
export_outputs(job)
pulumi.export("uid", job.uid)
'''


def project_files(entry: RunEntry) -> dict[str, str]:
    """Return the files of a project that goes on with an app, by name.

    Args:
        entry: The app, as the index or its stack has it.
    """
    given = {"namespace": entry.namespace, **({"queue": entry.queue} if entry.queue is not None else {})}
    given |= {ARGUMENTS.get(name, name): value for name, value in entry.options.items() if name not in given}
    for name, value in (("kubeconfig", entry.kubeconfig), ("kube_context", entry.kube_context)):
        if value is not None:
            given[name] = value
    arguments = "".join(f"    {name}={_literal(value)},\n" for name, value in given.items())
    program = PROGRAM.format(
        app_id=entry.app_id,
        component=COMPONENTS[entry.scheduler],
        name=entry.name,
        job_name=entry.job_name,
        arguments=arguments,
    )
    return {
        "Pulumi.yaml": f"name: {entry.place.project}\nruntime: python\n",
        "app.json": json.dumps(_plain(entry.app), indent=2) + "\n",
        "__main__.py": program,
    }


def next_steps(entry: RunEntry, folder: str) -> list[str]:
    """Return the commands that are run in the new project; credentials of the backend are not in them."""
    backend = without_password(entry.place.backend)
    login = f"pulumi login {shlex.quote(backend)}"
    if backend != entry.place.backend or is_redacted(backend):
        # `pulumi login` would write the password to a file of its own.
        login = f"export PULUMI_BACKEND_URL={shlex.quote(backend)}  # with the credentials in the place of {MARK}"
    return [
        f"cd {folder}",
        login,
        f"pulumi stack select {entry.place.stack}",
        "pulumi preview",
    ]


def _literal(value: Any) -> str:
    return pprint.pformat(value, width=100, compact=True).replace("\n", "\n    ")


def _plain(value: Any) -> Any:
    """Leave out what an AppDef file has no key for: values of Python alone, and fields that are not set."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items() if item is not None}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value
