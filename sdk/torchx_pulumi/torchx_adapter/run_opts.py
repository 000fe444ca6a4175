"""Run options of all schedulers as TorchX's `runopts`, which names unknown options in every version of TorchX."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import itertools
import re
import sys
from collections.abc import KeysView, Mapping
from dataclasses import dataclass
from types import MappingProxyType, UnionType
from typing import Any, Dict, List, Union, get_args, get_origin  # noqa: UP035 - TorchX 0.7.0 tells options of lists by these very types

from torchx import specs
from torchx.specs import InvalidRunConfigException
from torchx.util.types import to_dict

from torchx_pulumi.inputs.run_options import read_pairs
from torchx_pulumi.model.redaction import MARK, without_password
from torchx_pulumi.model.text import is_text_list
from torchx_pulumi.planning.typed_reader import field_types, snake_case
from torchx_pulumi.schedulers import find_backend
from torchx_pulumi.stack_state.backend import DEFAULT_PROJECT
from torchx_pulumi.torchx_adapter import compat

TEXTS = List[str]  # noqa: UP006
PAIRS = Dict[str, str]  # noqa: UP006


@dataclass(frozen=True, kw_only=True)
class LaunchOptions:
    """Options of a launch that no manifest shows, for all schedulers. The text under a field is the option's help."""

    validate_spec: bool = True
    """Have the cluster judge the job in the dry run, without creating it; a cluster that cannot be reached is a
    warning"""
    pulumi_backend: str | None = None
    """URL of the Pulumi backend that keeps the app's stack. Unset: PULUMI_BACKEND_URL, else a folder of your own"""
    pulumi_project: str = DEFAULT_PROJECT
    """Pulumi project of the app's stack"""
    pulumi_organization: str | None = None
    """Organization of the Pulumi service that keeps the app's stack. Unset: the user's default one. Other backends
    have none"""
    secrets_provider: str | None = None
    """Pulumi secrets provider of the app's stack. Unset: a passphrase, on backends of your own"""
    kubeconfig: str | None = None
    """Path of the kubeconfig. Unset: KUBECONFIG, ~/.kube/config, or the pod's own account"""
    kube_context: str | None = None
    """Context in the kubeconfig. Unset: its current one"""
    wait_for: str = "created"
    """How far a launch is waited for: `created`, `admitted`, `running` or `completed`"""
    wait_timeout_s: int | None = None
    """Seconds that wait_for waits at most. Unset: no limit"""
    on_running_change: str = "fail"
    """When the same request was launched before: `fail`, `replace` that run, or `ignore` the new one"""
    ui_url: str | None = None
    """Link to the app in a dashboard, with {namespace}, {name}, {scheduler}, {queue}. Unset: none"""
    list_session: str | None = None
    """Session whose apps `torchx list` lists. Unset: all sessions'"""
    list_states: list[str] | None = None
    """States that `torchx list` lists, as RUNNING;PENDING"""
    list_all: bool = False
    """`torchx list` also lists jobs that others than torchx-pulumi made"""
    log_containers: list[str] | None = None
    """Containers whose logs are read. Unset: as TorchX"""
    log_previous: bool = False
    """Read the logs of the run before a container's last restart"""
    log_timestamps: bool = True
    """Begin each line with the time of its writing"""
    log_archive: str | None = None
    """Archive that keeps the containers' logs when their pods are deleted: the path of a folder, or an s3://, gs:// or
    azblob:// URL. Unset: none"""


@dataclass(frozen=True, kw_only=True)
class WorkspaceOptions:
    """Options of patched images: the `workspace_opts` of all schedulers."""

    image_repo: str | None = None
    """(remote jobs) the image repository to use when pushing patched images, must have push access. Ex:
    example.com/your/container"""
    quiet: bool = False
    """whether to suppress verbose output for image building. Defaults to ``False``."""
    dockerfile: str | None = None
    """Dockerfile of patched images, relative to the workspace. Unset: Dockerfile.torchx where there is one"""
    build_args: dict[str, str] | None = None
    """Build arguments of patched images: NAME:value,NAME:value"""
    platform: str | None = None
    """Platform of patched images, as linux/amd64. Unset: this machine's"""
    ignore_rules: str = "docker"
    """How .dockerignore is read: as `docker` does, or as `torchx` does"""
    builder: str = "auto"
    """What builds patched images: `registry` without a Docker daemon, `docker`, or `auto`: the daemon only if needed"""
    shared_daemon: bool = False
    """The cluster's nodes use this machine's Docker daemon: patched images are not pushed, image_repo is no need"""


CHOICES: Mapping[str, tuple[str, ...]] = {
    "wait_for": ("created", "admitted", "running", "completed"),
    "on_running_change": ("fail", "replace", "ignore"),
    "ignore_rules": ("docker", "torchx"),
    "builder": ("auto", "registry", "docker"),
}
"""Options of a launch with few values."""

LAUNCH_NAMES = frozenset(name for kind in (LaunchOptions, WorkspaceOptions) for name, _, _ in field_types(kind))


class MissingRunOptionError(InvalidRunConfigException, TypeError):  # type: ignore[misc]
    """A required option is absent or of another type; TorchX's own schedulers raise TypeError then."""


class GivenOptions(dict[str, Any]):
    """Options of the command line, to which TorchX 0.7.0 adds those of `.torchxconfig` in any spelling.

    TorchX reads from the file what is not in `keys()`. An option that was given is there in all its spellings, so that
    it wins over the file, as in TorchX nightly.
    """

    def __init__(self, options: CheckedOptions, given: Mapping[str, Any]) -> None:
        """Begin with what was given."""
        super().__init__(given)
        self._options = options

    def __setitem__(self, name: str, value: Any) -> None:
        """Set an option; one that is unknown and unset, as a file may have it, is left out."""
        key = self._options.canonical_key(name)
        if key is not None or value is not None:
            super().__setitem__(key or name, value)

    def keys(self) -> KeysView[str]:  # type: ignore[override]  # dict's own type of view cannot be made
        """Return the names of the options; other spellings of them are in it."""
        return _Spellings(self, self._options)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle as a plain dict."""
        return dict, (dict(self),)


class _Spellings(KeysView[str]):
    def __init__(self, given: GivenOptions, options: CheckedOptions) -> None:
        super().__init__(given)
        self._options = options

    def __contains__(self, name: object) -> bool:
        return super().__contains__(self._options.canonical_key(str(name)) or name)


class CheckedOptions(specs.runopts):  # type: ignore[misc]
    """TorchX's table of run options, with camelCase names and all problems of unknown and ill-typed options at once."""

    def __init__(self) -> None:
        super().__init__()
        self._structured: set[str] = set()
        """Options that are JSON on the command line, and may be a mapping in a program."""

    def add_fields(self, kind: type, discovered: Mapping[str, str] = MappingProxyType({})) -> None:
        """Add the options that are the fields of a dataclass.

        Args:
            kind: The dataclass.
            discovered: Options that are read from the cluster where they are not set, with the text about it in their
                help. They have no default: it would count as given, and a given value is never replaced.
        """
        helps, fields = _field_helps(kind), {item.name: item for item in dataclasses.fields(kind)}
        for name, hint, required in field_types(kind):
            default = fields[name].default
            if default is dataclasses.MISSING or isinstance(default, (tuple, dict)) or name in discovered:
                default = None
            text = ". ".join(filter(None, (helps[name], discovered.get(name))))
            type_, is_structured = _command_line_type(hint)
            if is_structured:
                self._structured.add(name)
            self.add(name, type_=type_, help=text, default=getattr(default, "value", default), required=required)

    def canonical_key(self, name: str) -> str | None:
        """Return the option that a name means, in snake_case or camelCase. None: no option has this name."""
        snake = snake_case(name)
        return next((key for key in (name, snake) if key in self._opts), None)

    def get(self, name: str) -> Any:
        """Return an option. None: no option has this name."""
        key = self.canonical_key(name)
        return None if key is None else self._opts[key]

    def resolve(self, cfg: Mapping[str, Any], *, ignore_unknown: bool = False) -> dict[str, Any]:
        """Check options, and add the defaults of those that are not set.

        Raises:
            InvalidRunConfigException: An option is unknown, ill-typed, given twice or missing; all at once.
        """
        problems: dict[str, str] = {}
        resolved: dict[str, Any] = {}
        for given, value in cfg.items():
            key = self.canonical_key(given)
            if key is None:
                if ignore_unknown:
                    resolved[given] = value
                elif value is not None or not compat.FILES_HOLD_UNKNOWN_OPTIONS:
                    problems[given] = f"unknown run option `{given}`; known are {', '.join(sorted(self._opts))}"
            elif key in resolved and resolved[key] != value:
                problems[given] = f"`{given}` is the same run option as `{key}`, with another value; give it once"
            else:
                resolved[key] = value
        for key, option in self._opts.items():
            value = resolved.get(key)
            if value is None and option.is_required:
                problems[key] = f"Required run option: {key}, must be provided and not `None`"
            elif value is None:
                resolved[key] = option.default
            elif not _fits(value, option.opt_type) and not (key in self._structured and isinstance(value, Mapping)):
                wanted = getattr(option.opt_type, "__name__", str(option.opt_type))
                problems[key] = (
                    f"Run option: {key}, must be of type: {wanted}, but was: {self._shown(key, value)} "
                    f"({type(value).__name__})"
                )
            elif value not in CHOICES.get(key, (value,)):
                problems[key] = f"run option `{key}` is {value!r}, must be one of {', '.join(CHOICES[key])}"
        if problems:
            required = any(name in problems for name, option in self._opts.items() if option.is_required)
            kind = MissingRunOptionError if required else InvalidRunConfigException
            raise kind("; ".join(problems.values()), next(iter(problems)), self._all_shown(cfg))
        return resolved

    def cfg_from_str(self, cfg_str: str | None) -> dict[str, Any]:
        """Read options from a command line, `key=value,key=value`.

        Raises:
            InvalidRunConfigException: An option is unknown, given twice, or its value is not of its type.
        """
        read: dict[str, Any] = {}
        problems: dict[str, str] = {}
        try:
            words = to_dict(self._with_colons(cfg_str or ""))
        except ValueError:
            # The text may have a secret.
            text = "the run options cannot be read; write name=value,name=value, lists as a;b, mappings as a:1;b:2"
            raise InvalidRunConfigException(text, "cfg", {}) from None
        for given, text in words.items():
            key = self.canonical_key(given)
            if key is None:
                problems[given] = f"unknown run option `{given}`; known are {', '.join(sorted(self._opts))}"
                continue
            try:
                value = cast(text, self._opts[key].opt_type)
            except ValueError as error:
                problems[given] = f"run option `{given}`: {error}"
                continue
            if key in read and read[key] != value:
                problems[given] = f"`{given}` is the same run option as `{key}`, with another value; give it once"
            read[key] = value
        if problems:
            raise InvalidRunConfigException("; ".join(problems.values()), next(iter(problems)), self._all_shown(words))
        return GivenOptions(self, read)

    def _all_shown(self, cfg: Mapping[str, Any]) -> dict[str, Any]:
        """Return options as a message may repeat them."""
        return {name: self._shown(self.canonical_key(name), value) for name, value in cfg.items()}

    def _shown(self, key: str | None, value: Any) -> Any:
        """Return a value without what may be a secret: credentials in URLs, and the values of mappings."""
        if isinstance(value, Mapping):
            return dict.fromkeys(value, MARK)
        if key is not None and self._opts[key].opt_type == PAIRS:
            return MARK
        return without_password(value) if isinstance(value, str) else value

    def _with_colons(self, text: str) -> str:
        """Write `labels=a=1;b=2` as `labels=a:1;b:2`, which is what TorchX can part into options."""
        mappings = {name for name, option in self._opts.items() if option.opt_type == PAIRS}
        parts = re.split("([,;])", text)
        inside = False
        for index in range(0, len(parts), 2):
            name, sign, value = parts[index].partition("=")
            key = self.canonical_key(name.strip())
            if key in mappings:
                inside = True
                pair = re.sub("^([^:=]*)=", r"\1:", value)
                parts[index] = f"{name}{sign}{pair}"
            elif key is None and inside and parts[index - 1] == ";":
                parts[index] = re.sub("^([^:=]*)=", r"\1:", parts[index])
            else:
                inside = False
        return "".join(parts)


def run_options(scheduler: str) -> CheckedOptions:
    """Return all run options of a scheduler: the manifest's, then those of the launch, then those of images."""
    opts = scheduler_options(scheduler)
    opts.add_fields(WorkspaceOptions)
    return opts


def scheduler_options(scheduler: str) -> CheckedOptions:
    """Return the run options of a scheduler without those of patched images."""
    opts, backend = CheckedOptions(), find_backend(scheduler)
    opts.add_fields(backend.options, backend.discovered)
    opts.add_fields(LaunchOptions)
    return opts


def workspace_options() -> CheckedOptions:
    """Return the run options of patched images."""
    opts = CheckedOptions()
    opts.add_fields(WorkspaceOptions)
    return opts


def split_options(config: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Part resolved options into those of the manifest and those of the launch."""
    manifest = {name: value for name, value in config.items() if name not in LAUNCH_NAMES}
    return manifest, {name: value for name, value in config.items() if name in LAUNCH_NAMES}


def cast(text: str, kind: Any) -> Any:
    """Read the text of an option as its type.

    Raises:
        ValueError: It is not of this type.

    >>> cast("yes", bool), cast("a;b", TEXTS), cast("a:1,b=2", PAIRS)
    (True, ['a', 'b'], {'a': '1', 'b': '2'})
    """
    if kind is bool:
        words = dict.fromkeys(("true", "1", "yes", "on"), True) | dict.fromkeys(("false", "0", "no", "off"), False)
        if text.lower() not in words:
            raise ValueError(f"{text!r} is neither true nor false")
        return words[text.lower()]
    if kind is int:
        if not re.fullmatch(r"[+-]?[0-9]+", text.strip()):
            raise ValueError(f"{text!r} is no whole number")
        return int(text)
    parts = [part for part in text.replace(";", ",").split(",") if part]
    if kind == TEXTS:
        return parts
    if kind == PAIRS:
        return read_pairs(parts)
    return text


def _fits(value: Any, kind: Any) -> bool:
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if kind == TEXTS:
        return is_text_list(value)
    if kind == PAIRS:
        pairs = value.items() if isinstance(value, Mapping) else [(None, None)]
        return all(isinstance(key, str) and isinstance(item, str) for key, item in pairs)
    return isinstance(value, kind)


def _command_line_type(hint: Any) -> tuple[Any, bool]:
    """Return the type of an option on the command line, and whether its text is JSON there."""
    parameters = [part for part in get_args(hint) if part is not type(None)]
    if get_origin(hint) in (Union, UnionType):
        return _command_line_type(parameters[0])
    if hint in (int, bool):
        return hint, False
    origin = get_origin(hint)
    if origin is None:
        return str, dataclasses.is_dataclass(hint)
    # TorchX 0.7.0 asks whether this is the very `List[str]` of its own call. Python keeps 128 such types at most, so
    # that one from the import of this module may be another object by then.
    if not issubclass(origin, Mapping):
        return List[str], False  # noqa: UP006
    return (Dict[str, str], False) if parameters[1] is str else (str, True)  # noqa: UP006


@functools.lru_cache
def _field_helps(kind: type) -> Mapping[str, str]:
    """Return the text under each field of a class of options."""
    tree = ast.parse(inspect.getsource(sys.modules[kind.__module__]))
    (body,) = (found.body for found in tree.body if isinstance(found, ast.ClassDef) and found.name == kind.__name__)
    return {
        field.target.id: " ".join(str(below.value.value).split())
        for field, below in itertools.pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
    }
