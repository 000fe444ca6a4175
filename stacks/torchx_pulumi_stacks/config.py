"""The configuration of the stack program: Pulumi's keys to one frozen StackConfig, or all that is wrong with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import pulumi
from torchx_pulumi.inputs.run_options import read_options
from torchx_pulumi.logs.archives import check_archive_url
from torchx_pulumi.model.errors import InvalidJobError, Problem, invalid_job
from torchx_pulumi.model.launch_options import ProgramOptions
from torchx_pulumi.model.options import Options, rows_of
from torchx_pulumi.outputs.ui_url import check_ui_url
from torchx_pulumi.schedulers import find_backend
from torchx_pulumi_components.training_job import component_schedulers

from torchx_pulumi_stacks.app import load_app_file, load_component
from torchx_pulumi_stacks.images import IMAGE_KEYS, ImageConfig, read_image_config
from torchx_pulumi_stacks.settings import Settings, key_of


@dataclass(frozen=True, slots=True, kw_only=True)
class StackConfig(ProgramOptions):
    """The stack's configuration. A key is the name of a field or of an option of a launch, in camelCase."""

    app: Any
    """Not a key: the AppDef of `component` and `arguments`, or of `appFile`."""
    options: Options
    """Mapping of the scheduler's run options, in snake_case or camelCase: `queue` (required by Volcano), `gang`..."""
    component: str | None = None
    """TorchX component: `dist.torchrun`, or `path/to/file.py:function` from the project's folder. Or `appFile`."""
    arguments: tuple[str, ...] = ()
    """List: the component's arguments, as on the command line of `torchx run`."""
    app_file: str | None = None
    """AppDef file, YAML or JSON, from the project's folder. Either this or `component`."""
    name: str | None = None
    """Name of the job in the stack; its object is `<name>-<hash>`. Unset: the app's own name."""
    scheduler: str = "volcano"
    """`volcano` or `mcad`."""
    create_namespace: bool = False
    """true: the job's namespace is made, and destroyed, with the stack. Unset: it is there."""
    kubeconfig: pulumi.Output[str] | None = field(default=None, repr=False)  # type: ignore[assignment]
    """Path or contents of a kubeconfig (`--secret`). Unset: KUBECONFIG or `~/.kube/config`."""
    images: ImageConfig = field(default_factory=ImageConfig)
    """Not a key: the values of `workspace`, `imageRepo` and the other keys of `ImageConfig`."""


NO_KEYS = ("app", "images")
"""Fields of several keys."""
KEYS = tuple(key_of(each.name) for each in fields(StackConfig) if each.name not in NO_KEYS)
"""All keys of the program."""


def read_config(config: pulumi.Config, root: Path) -> StackConfig:
    """Read the stack's configuration.

    Args:
        config: Of the project.
        root: The project's folder, where relative paths start.

    Raises:
        InvalidJobError: All that is wrong, of the keys, the options and the app.
    """
    settings = Settings(config)
    scheduler = settings.word("scheduler", component_schedulers())
    settings.check_keys((*KEYS, *IMAGE_KEYS), [row.name for row in rows_of(find_backend(scheduler).options)])
    values = settings.values_of(StackConfig, without=(*NO_KEYS, "options", "scheduler", "kubeconfig"))
    app = _read_app(settings, values, root)
    given = settings.mapping(Any, "{}" if (text := settings.data("options")) is None else text, "options")
    options = _collect(settings, "options", lambda: read_options(given, scheduler))
    settings.problems.extend(check_ui_url(values["ui_url"], settings.path("uiUrl")) if "ui_url" in values else ())
    settings.problems.extend(
        check_archive_url(values["log_archive"], settings.path("logArchive")) if "log_archive" in values else ()
    )
    images = read_image_config(settings, root)
    if settings.problems:
        raise invalid_job(pulumi.get_stack(), list(dict.fromkeys(settings.problems)))
    kubeconfig = settings.secret("kubeconfig")
    return StackConfig(app=app, options=options, scheduler=scheduler, kubeconfig=kubeconfig, images=images, **values)


def _read_app(settings: Settings, values: Mapping[str, Any], root: Path) -> Any:
    """Load the app from its component or its file."""
    component, app_file, arguments = values.get("component"), values.get("app_file"), values.get("arguments", ())
    if bool(component) == bool(app_file):
        found = "both are set" if component else "neither is set"
        settings.refuse("component", f"{found}; set either component (a TorchX component) or appFile (an AppDef file)")
        return None
    if component:
        return _collect(settings, "", lambda: load_component(component, list(arguments), root))
    if arguments:
        settings.refuse("arguments", "are a component's; an appFile takes none")
    return _collect(settings, "appFile", lambda: load_app_file(app_file or "", root))


def _collect(settings: Settings, key: str, read: Callable[[], Any]) -> Any:
    """Read, and note the problems under the key that they come from."""
    try:
        return read()
    except InvalidJobError as error:
        for problem in error.problems:
            path = problem.path if not key or problem.path.startswith(key) else f"{key}: {problem.path}"
            settings.problems.append(Problem(settings.path(path), problem.message, problem.rule))
        return None
