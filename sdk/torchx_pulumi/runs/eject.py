"""The files of a Pulumi project that takes over an app launched by `torchx run`. Pure.

For an app of ours, the program registers the component with the name, project and stack that `torchx run` used. The
engine then finds the job in its state, and `up` keeps it.
"""

from __future__ import annotations

import dataclasses
import json
import pprint
import shlex
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from torchx_pulumi.inputs.appfile import MOUNT_KEYS, RESOURCE_KEYS, ROLE_KEYS
from torchx_pulumi.inputs.json_values import KEY_ORDER, in_key_order, is_text_only, read_value
from torchx_pulumi.inputs.run_options import read_options
from torchx_pulumi.model.app_entry import RunEntry, StackRef
from torchx_pulumi.model.job_spec import EXTRAS_KEY, OVERLAY_KEY
from torchx_pulumi.model.options import chosen_arguments
from torchx_pulumi.model.redaction import MARK, is_redacted, without_password
from torchx_pulumi.runs.registration import read_digest_note
from torchx_pulumi.schedulers.registry import component_type

_MARKED = {"metadata", "pod_overlay"}
"""Keys of a role in an AppDef file that are read with the marks of `json_values`."""

PROGRAM = '''\
"""Goes on with the app {app_id}, which `torchx run` launched."""

from pathlib import Path

from torchx_pulumi.inputs.appfile import read_app_file
from torchx_pulumi_components import {component}, export_outputs

job = {component}.from_app(
    {name!r},
    read_app_file(Path(__file__).parent / "app.json"),
    app_id={job_name!r},
{arguments})

# What `torchx` and the fleet read.
export_outputs(job{digests})
'''


def project_files(entry: RunEntry) -> dict[str, str]:
    """Return the files of a project that takes over an app, by name.

    Raises:
        InvalidJobError: The run options of the app cannot be read.
    """
    # Run options that differ from their defaults are component arguments.
    queue = {} if entry.queue is None else {"queue": entry.queue}
    options: Any = read_options({**entry.options, **queue, "namespace": entry.namespace}, entry.scheduler)
    chosen = {name: _argument(value) for name, value in chosen_arguments(options).items()}
    given = {"namespace": entry.namespace, **chosen}
    settings = {name: getattr(entry, name) for name in ("kubeconfig", "kube_context", "log_archive")}
    for name, value in settings.items():
        if value is not None:
            given[name] = value
    digests = f", digests={_literal(found)}" if (found := _image_digests(entry, chosen)) else ""
    program = PROGRAM.format(
        app_id=entry.app_id,
        component=component_type(entry.scheduler).rpartition(":")[2],
        name=entry.name,
        job_name=entry.app_id.partition(":")[2],
        arguments="".join(f"    {option}={_literal(value)},\n" for option, value in given.items()),
        digests=digests,
    )
    return {
        "Pulumi.yaml": f"name: {json.dumps(entry.place.project)}\nruntime: python\n",
        "app.json": json.dumps(_app_file(entry), indent=2) + "\n",
        "__main__.py": program,
    }


def next_steps(place: StackRef, folder: str, passphrase_file: str | None = None) -> list[str]:
    """Return the commands to run in the new project, without credentials of the backend.

    Args:
        place: The stack.
        folder: Folder of the project.
        passphrase_file: File of the stack's passphrase. None: the CLI finds it, or needs none.
    """
    backend = without_password(place.backend)
    login = f"pulumi login {shlex.quote(backend)}"
    if backend != place.backend or is_redacted(backend):
        # `pulumi login` would write the password to a file.
        login = f"export PULUMI_BACKEND_URL={shlex.quote(backend)}  # with the credentials in the place of {MARK}"
    passphrase = [f"export PULUMI_CONFIG_PASSPHRASE_FILE={shlex.quote(passphrase_file)}"] if passphrase_file else []
    return [
        f"cd {shlex.quote(folder)}",
        login,
        *passphrase,
        f"pulumi stack select {place.cli_name}",
        "pulumi preview",
    ]


def _literal(value: object) -> str:
    return pprint.pformat(value, width=100, compact=True).replace("\n", "\n    ")


def _image_digests(entry: RunEntry, chosen: Mapping[str, Any]) -> dict[str, str]:
    """Return image of pods to digest for the images that were built or pushed for the app."""
    noted = read_digest_note(chosen.get("annotations") or {})
    found = {role["image"]: noted.get(role["name"]) for role in entry.declared.get("roles") or entry.app["roles"]}
    return {image: digest for image, digest in found.items() if isinstance(digest, str)}


def _argument(value: Any) -> Any:
    """Return an option as the value of a component argument."""
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {name: item for name, item in dataclasses.asdict(value).items() if item is not None}
    if isinstance(value, Mapping):
        return {name: _argument(item) for name, item in value.items()}
    return list(value) if isinstance(value, (list, tuple)) else value


def _app_file(entry: RunEntry) -> dict[str, Any]:
    """Return the AppDef in the format of AppDef files, with the images of the launch.

    The image of the launch contains the workspace. A local image has another name in its registry.
    """
    images = [role["image"] for role in entry.declared.get("roles") or ()]
    roles = [_role_of_file(role) for role in entry.app.get("roles") or ()]
    for role, image in zip(roles, images, strict=False):
        role["image"] = image
    return {"name": entry.app.get("name"), "metadata": entry.app.get("metadata") or {}, "roles": roles}


def _role_of_file(role: Mapping[str, Any]) -> dict[str, Any]:
    found = {key: role[key] for key in ROLE_KEYS if role.get(key) is not None}
    order = role.get(KEY_ORDER) or {}
    made = dict(found)
    for key in found.keys() - _MARKED:
        value = read_value(found[key])
        if isinstance(value, Mapping):
            value = {name: item for name, item in value.items() if item is not None}
        made[key] = in_key_order(value, order.get(key))
    if is_text_only((made.get("metadata") or {}).get(OVERLAY_KEY)):
        # This text is not an overlay. In a file it would be read as the path of one.
        made["metadata"] = {key: value for key, value in made["metadata"].items() if key != OVERLAY_KEY}
    if "secret_env" in order:
        extras = made["metadata"][EXTRAS_KEY]
        secrets = in_key_order(extras["secret_env"], order["secret_env"])
        made["metadata"] = {**made["metadata"], EXTRAS_KEY: {**extras, "secret_env": secrets}}
    for key, known in (("resource", RESOURCE_KEYS), ("mounts", MOUNT_KEYS)):
        if key in made:
            made[key] = _only(known, made[key])
    return made


def _only(known: Sequence[str], value: Any) -> Any:
    """Return values without the fields of a newer TorchX, which are not rendered."""
    if isinstance(value, list):
        return [_only(known, item) for item in value]
    return {key: item for key, item in value.items() if key in known and item is not None}
