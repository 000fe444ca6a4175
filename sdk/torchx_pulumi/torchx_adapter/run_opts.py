"""The run options of both schedulers, and a `runopts` that refuses by name what it does not know, in every TorchX."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import itertools
import logging
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Dict, List  # noqa: UP035 - TorchX 0.7.0 tells options of lists by these very types

from torchx import specs
from torchx.specs import InvalidRunConfigException
from torchx.util.types import to_dict

from torchx_pulumi.inputs.run_options import read_pairs
from torchx_pulumi.model.redaction import MARK, without_password
from torchx_pulumi.schedulers import find_backend
from torchx_pulumi.stack_state.backend import DEFAULT_PROJECT
from torchx_pulumi.torchx_adapter import compat

logger = logging.getLogger(__name__)

TEXTS = List[str]  # noqa: UP006
PAIRS = Dict[str, str]  # noqa: UP006

_KINDS: Mapping[str, Any] = {
    "int": int,
    "int | None": int,
    "bool": bool,
    "Sequence[str]": TEXTS,
    "Mapping[str, str]": PAIRS,
}
"""Annotation of an option's field to its type on the command line; all others are text."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOption:
    """An option of a launch that no manifest shows."""

    name: str
    kind: Any
    text: str
    default: Any = None


LAUNCH_OPTIONS = (
    LaunchOption(name="validate_spec", kind=bool, default=True, text=(
        "Have the cluster judge the job in the dry run, without creating it; a cluster that cannot be reached is a "
        "warning")),
    LaunchOption(name="pulumi_backend", kind=str, text=(
        "URL of the Pulumi backend that keeps the app's stack. Unset: PULUMI_BACKEND_URL, else a folder of your own")),
    LaunchOption(name="pulumi_project", kind=str, default=DEFAULT_PROJECT, text="Pulumi project of the app's stack"),
    LaunchOption(name="pulumi_organization", kind=str, text=(
        "Organization of the Pulumi service that keeps the app's stack. Unset: the user's default one. "
        "Other backends have none")),
    LaunchOption(name="secrets_provider", kind=str, text=(
        "Pulumi secrets provider of the app's stack. Unset: a passphrase, on backends of your own")),
    LaunchOption(name="kubeconfig", kind=str, text=(
        "Path of the kubeconfig. Unset: KUBECONFIG, ~/.kube/config, or the pod's own account")),
    LaunchOption(name="kube_context", kind=str, text="Context in the kubeconfig. Unset: its current one"),
    LaunchOption(name="wait_for", kind=str, default="created", text=(
        "How far a launch is waited for: `created`, `admitted`, `running` or `completed`")),
    LaunchOption(name="wait_timeout_s", kind=int, text="Seconds that wait_for waits at most. Unset: no limit"),
    LaunchOption(name="on_running_change", kind=str, default="fail", text=(
        "When the same request was launched before: `fail`, `replace` that run, or `ignore` the new one")),
    LaunchOption(name="ui_url", kind=str, text=(
        "Link to the app in a dashboard, with {namespace}, {name}, {scheduler}, {queue}. Unset: none")),
    LaunchOption(name="list_session", kind=str, text="Session whose apps `torchx list` lists. Unset: all sessions'"),
    LaunchOption(name="list_states", kind=TEXTS, text="States that `torchx list` lists, as RUNNING;PENDING"),
    LaunchOption(name="list_all", kind=bool, default=False, text=(
        "`torchx list` also lists jobs that others than torchx-pulumi made")),
    LaunchOption(name="log_containers", kind=TEXTS, text="Containers whose logs are read. Unset: as TorchX"),
    LaunchOption(name="log_previous", kind=bool, default=False, text=(
        "Read the logs of the run before a container's last restart")),
    LaunchOption(name="log_timestamps", kind=bool, default=True, text="Begin each line with the time of its writing"),
)  # fmt: skip
"""Options of a launch, for both schedulers."""

WORKSPACE_OPTIONS = (
    LaunchOption(name="image_repo", kind=str, text=(
        "(remote jobs) the image repository to use when pushing patched images, must have push access. "
        "Ex: example.com/your/container")),
    LaunchOption(name="quiet", kind=bool, default=False, text=(
        "whether to suppress verbose output for image building. Defaults to ``False``.")),
    LaunchOption(name="dockerfile", kind=str, text=(
        "Dockerfile of patched images, relative to the workspace. Unset: Dockerfile.torchx where there is one")),
    LaunchOption(name="build_args", kind=PAIRS, text="Build arguments of patched images: NAME:value,NAME:value"),
    LaunchOption(name="platform", kind=str, text="Platform of patched images, as linux/amd64. Unset: this machine's"),
    LaunchOption(name="ignore_rules", kind=str, default="docker", text=(
        "How .dockerignore is read: as `docker` does, or as `torchx` does")),
    LaunchOption(name="shared_daemon", kind=bool, default=False, text=(
        "The cluster's nodes use this machine's Docker daemon: patched images are not pushed, image_repo is no need")),
)  # fmt: skip
"""Options of patched images: the `workspace_opts` of both schedulers."""

CHOICES: Mapping[str, tuple[str, ...]] = {
    "wait_for": ("created", "admitted", "running", "completed"),
    "on_running_change": ("fail", "replace", "ignore"),
    "ignore_rules": ("docker", "torchx"),
}
"""Options of a launch with few values."""

STRUCTURED = frozenset({"plugins", "network_topology"})
"""Options that are JSON on the command line, and may be a mapping in a program."""

LAUNCH_NAMES = frozenset(option.name for option in (*LAUNCH_OPTIONS, *WORKSPACE_OPTIONS))

LEFT_OPEN: Mapping[str, str] = {"pod_group_api": "Unset: the one that the cluster serves"}
"""Options without a default, which are read from the cluster where they are not set, and what their help says of that.
A default would count as given, and what was given is never replaced."""


class MissingRunOptionError(InvalidRunConfigException, TypeError):  # type: ignore[misc]
    """A required option is absent or of another type; TorchX's own schedulers raise TypeError then."""


class GivenOptions(dict[str, Any]):
    """Options of the command line, to which TorchX 0.7.0 adds those of `.torchxconfig` in whatever spelling they have.

    What was given first wins over another spelling of it, as in TorchX nightly.
    """

    def __init__(self, options: CheckedOptions, given: Mapping[str, Any]) -> None:
        """Begin with what was given."""
        super().__init__(given)
        self._options = options

    def __setitem__(self, name: str, value: Any) -> None:
        """Add an option of a file."""
        key = self._options.canonical_key(name)
        if key is None and value is None:
            return
        if key is None or key not in self:
            super().__setitem__(key or name, value)
        elif self[key] != value:
            logger.warning(
                "`%s` of .torchxconfig is left out: `%s` is the same run option and is set already", name, key
            )

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle as a plain dict."""
        return dict, (dict(self),)


class CheckedOptions(specs.runopts):  # type: ignore[misc]
    """TorchX's table of run options, which knows camelCase and refuses by name what is unknown or ill-typed."""

    def canonical_key(self, name: str) -> str | None:
        """Return the option that a name means, in snake_case or camelCase. None: there is none."""
        snake = _snake_case(name)
        return next((key for key in (name, snake) if key in self._opts), None)

    def get(self, name: str) -> Any:
        """Return an option. None: there is none of that name."""
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
            elif not _fits(value, option.opt_type) and not (key in STRUCTURED and isinstance(value, Mapping)):
                wanted = _type_name(option.opt_type)
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
            # What stands there may be a secret.
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
    opts.update(workspace_options())
    return opts


def scheduler_options(scheduler: str) -> CheckedOptions:
    """Return the run options of a scheduler without those of patched images."""
    opts = CheckedOptions()
    for name, kind, text, default, required in _manifest_options(scheduler):
        opts.add(name, type_=kind, help=text, default=default, required=required)
    _add(opts, LAUNCH_OPTIONS)
    return opts


def workspace_options() -> CheckedOptions:
    """Return the run options of patched images."""
    opts = CheckedOptions()
    _add(opts, WORKSPACE_OPTIONS)
    return opts


def _add(opts: CheckedOptions, options: Iterable[LaunchOption]) -> None:
    for option in options:
        opts.add(option.name, type_=option.kind, help=option.text, default=option.default)


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
        words = {
            "true": True,
            "1": True,
            "yes": True,
            "on": True,
            "false": False,
            "0": False,
            "no": False,
            "off": False,
        }
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
        return isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value)
    if kind == PAIRS:
        pairs = value.items() if isinstance(value, Mapping) else [(None, None)]
        return all(isinstance(key, str) and isinstance(item, str) for key, item in pairs)
    return isinstance(value, kind)


def _type_name(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind)


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()


def _manifest_options(scheduler: str) -> Iterator[tuple[str, Any, str, Any, bool]]:
    kind: Any = find_backend(scheduler).options
    helps = _field_helps(kind)
    for item in dataclasses.fields(kind):
        default = None if item.default is dataclasses.MISSING else item.default
        required = item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING
        if isinstance(default, (tuple, dict)) or item.name in LEFT_OPEN:
            default = None
        text = ". ".join(filter(None, (helps[item.name], LEFT_OPEN.get(item.name))))
        yield item.name, _KINDS.get(str(item.type), str), text, getattr(default, "value", default), required


@functools.lru_cache
def _field_helps(kind: type) -> Mapping[str, str]:
    """Return the text under each field of a class of options."""
    tree = ast.parse(inspect.getsource(sys.modules[kind.__module__]))
    (body,) = (found.body for found in tree.body if isinstance(found, ast.ClassDef) and found.name == kind.__name__)
    return {
        field.target.id: inspect.cleandoc(str(below.value.value))
        for field, below in itertools.pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
    }
