"""Run options of all schedulers as TorchX's `runopts`, which names unknown options in every version of TorchX."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import KeysView, Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Dict, List, get_args, get_origin  # noqa: UP035 - TorchX 0.7.0 tells options of lists by these very types

from torchx import specs
from torchx.specs import InvalidRunConfigException

from torchx_pulumi.inputs.run_options import read_text
from torchx_pulumi.model.image_options import WorkspaceOptions
from torchx_pulumi.model.launch_options import LaunchOptions
from torchx_pulumi.model.options import Options, option, option_table, other_word, rows_of, unknown_name
from torchx_pulumi.model.redaction import MARK, without_password
from torchx_pulumi.model.text import is_text_list
from torchx_pulumi.planning.typed_reader import snake_case
from torchx_pulumi.schedulers import find_backend
from torchx_pulumi.stack_state.backend import DEFAULT_PROJECT
from torchx_pulumi.torchx_adapter import compat

TEXTS = List[str]  # noqa: UP006
PAIRS = Dict[str, str]  # noqa: UP006


@option_table
class AdapterOptions:
    """Options of `torchx` commands that no program has."""

    validate_spec: bool = option(
        "Have the cluster judge the job in the dry run. A cluster that cannot be reached is a warning",
        default=True,
    )
    pulumi_backend: str | None = option(
        "URL of the Pulumi backend that keeps the app's stack. Unset: PULUMI_BACKEND_URL, else a folder of your own",
        default=None,
    )
    pulumi_project: str = option("Pulumi project of the app's stack", default=DEFAULT_PROJECT)
    pulumi_organization: str | None = option(
        "Organization of the Pulumi service. Unset: the user's default one. Other backends have none",
        default=None,
    )
    secrets_provider: str | None = option(
        "Pulumi secrets provider of the app's stack. Unset: a passphrase, on backends of your own", default=None
    )
    list_session: str | None = option("Session whose apps `torchx list` lists. Unset: all sessions'", default=None)
    list_states: list[str] | None = option("States that `torchx list` lists, as RUNNING;PENDING", default=None)
    list_all: bool = option("`torchx list` also lists jobs that others than torchx-pulumi made", default=False)
    log_containers: list[str] | None = option("Containers whose logs are read. Unset: as TorchX", default=None)
    log_previous: bool = option("Read the logs of the run before a container's last restart", default=False)
    log_timestamps: bool = option("Begin each line with the time of its writing", default=True)


@option_table
class PatchingOptions(WorkspaceOptions):
    """Options of patched images: the `workspace_opts` of all schedulers."""

    quiet: bool = option("whether to suppress verbose output for image building. Defaults to ``False``.", default=False)


LAUNCH_NAMES = frozenset(
    row.torchx_name for kind in (LaunchOptions, AdapterOptions, PatchingOptions) for row in rows_of(kind)
)
"""Options that are not the scheduler's own."""


_QUOTED = re.compile(r"""(['"])(?:\\.|(?!\1).)*?\1""")
"""Text in quotes, which is never parted."""
_OPTION = re.compile(r"(?:^|(?P<sign>[,;]))\s*(?P<name>[\w.-]+)\s*=")
"""Where an option begins on the command line."""
_INNER_NAME = re.compile(r",\s*([\w-]+)\s*(?=$|[,;])|\s([\w-]+)\s*=")
"""What may be the name of another option inside of a value: `,NAME`, or ` NAME=`."""


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
        """Return the names of the options, in all spellings."""
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
        self._allowed: dict[str, tuple[str, ...]] = {}
        """Values of options with few values."""

    def add_fields(self, kind: type, discovered: Mapping[str, str] = MappingProxyType({})) -> None:
        """Add the options of a table.

        Args:
            kind: The table.
            discovered: Options that are read from the cluster if they are not set, with the text about it in their
                help. They have no default: it would count as given, and a given value is never replaced.
        """
        for row in rows_of(kind):
            name, default = row.torchx_name, row.default
            if row.required or isinstance(default, (tuple, dict)) or name in discovered:
                default = None
            text = ". ".join(filter(None, (row.help, discovered.get(name))))
            type_, is_structured = _command_line_type(row.kind)
            if is_structured:
                self._structured.add(name)
            if row.allowed and not issubclass(kind, Options):
                # Those of a scheduler are checked with the job, so that all problems are in one message.
                self._allowed[name] = row.allowed
            self.add(name, type_=type_, help=text, default=getattr(default, "value", default), required=row.required)

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
        kept = {name for name in cfg if self.canonical_key(name) is None} if ignore_unknown else set()
        resolved = {name: cfg[name] for name in kept}
        resolved |= self._by_key({name: value for name, value in cfg.items() if name not in kept}, problems)
        for key, known in self._opts.items():
            value = resolved.get(key)
            if value is None and known.is_required:
                problems[key] = f"Required run option: {key}, must be provided and not `None`"
            elif value is None:
                resolved[key] = known.default
            elif not _fits(value, known.opt_type) and not (key in self._structured and isinstance(value, Mapping)):
                wanted = getattr(known.opt_type, "__name__", str(known.opt_type))
                problems[key] = (
                    f"Run option: {key}, must be of type: {wanted}, but was: {self._shown(key, value)} "
                    f"({type(value).__name__})"
                )
            elif value not in self._allowed.get(key, (value,)):
                problems[key] = f"run option `{key}` {other_word(value, self._allowed[key])}"
        self._refuse(problems, cfg)
        return resolved

    def cfg_from_str(self, cfg_str: str | None) -> dict[str, Any]:
        """Read options from a command line, `key=value,key=value`.

        A value ends before the next `,name=` or `;name=`, and may have any other `=`. In quotes it may have these too.

        Raises:
            InvalidRunConfigException: An option is unknown, given twice, or its value is not of its type or empty.
        """
        problems: dict[str, str] = {}
        words = self._part(cfg_str or "", problems)
        values: dict[str, Any] = {}
        for given, text in words.items():
            kind = str if (known := self.get(given)) is None else known.opt_type
            try:
                values[given] = read_text(text, get_origin(kind) or kind)
            except ValueError as error:
                problems.setdefault(given, f"run option `{given}`: {error}")
        read = self._by_key(values, problems)
        for before, name in pairwise(words):
            if self.canonical_key(name) is None and not set("=?{[").isdisjoint(words[before]):
                problems[name] += f"; if it belongs to the value of `{before}`, put that value in quotes"
        self._refuse(problems, words)
        return GivenOptions(self, read)

    def _part(self, text: str, problems: dict[str, str]) -> dict[str, str]:
        """Part a command line into options and the texts of their values."""
        # TorchX splits at every `=`, and makes an empty option a part of the value before it.
        masked = _QUOTED.sub(lambda quoted: "\0" * len(quoted.group()), text)
        starts: list[tuple[str, int, int]] = []
        for found in _OPTION.finditer(masked):
            key, last = self.canonical_key(found["name"]), self.canonical_key(starts[-1][0]) if starts else None
            if key is not None or found["sign"] != ";" or last is None or self._opts[last].opt_type != PAIRS:
                starts.append((found["name"], found.start(), found.end()))
        if masked[: starts[0][1] if starts else None].strip():
            # The text may have a secret.
            form = "the run options cannot be read; write name=value,name=value, lists as a;b, mappings as a:1;b:2"
            raise InvalidRunConfigException(form, "cfg", {})
        words: dict[str, str] = {}
        for index, (name, _, begin) in enumerate(starts):
            end = starts[index + 1][1] if index + 1 < len(starts) else len(text)
            end = begin + len(masked[begin:end].rstrip(", "))
            self._check_end(name, masked[begin:end].strip(), problems)
            words[name] = self._value(name, text[begin:end].strip())
        return words

    def _check_end(self, name: str, masked: str, problems: dict[str, str]) -> None:
        """Refuse a value that is empty, or in which another option begins."""
        words = [found[1] or found[2] for found in _INNER_NAME.finditer(masked)]
        others = [word for word in words if self.canonical_key(word) is not None]
        if not masked:
            problems[name] = f'run option `{name}` has no value; leave it out, or write {name}=""'
        elif others:
            listed = ", ".join(f"`{other}`" for other in others)
            problems[name] = (
                f"the value of run option `{name}` has the name of another one, {listed}: write it as "
                f"{others[0]}=VALUE after a comma or leave it out; if it belongs to the value, put the value in quotes"
            )

    def _value(self, name: str, text: str) -> str:
        """Return the text of a value without its quotes; pairs are written with colons."""
        if _QUOTED.fullmatch(text):
            text = text[1:-1]
        key = self.canonical_key(name)
        if key is None or self._opts[key].opt_type != PAIRS:
            return text
        return ";".join(re.sub("^([^:=]*)=", r"\1:", pair) for pair in text.split(";"))

    def _by_key(self, cfg: Mapping[str, Any], problems: dict[str, str]) -> dict[str, Any]:
        """Return options by their names; those that are unknown or given twice become problems."""
        found: dict[str, Any] = {}
        for given, value in cfg.items():
            key = self.canonical_key(given)
            if key is None:
                if value is not None or not compat.FILES_HOLD_UNKNOWN_OPTIONS:
                    problems[given] = unknown_name(given, self._opts, f"unknown run option `{given}`")
            elif found.setdefault(key, value) != value:
                problems[given] = f"`{given}` is the same run option as `{key}`, with another value; give it once"
        return found

    def _refuse(self, problems: Mapping[str, str], cfg: Mapping[str, Any]) -> None:
        if problems:
            required = any(name in problems for name, each in self._opts.items() if each.is_required)
            kind = MissingRunOptionError if required else InvalidRunConfigException
            shown = {name: self._shown(self.canonical_key(name), value) for name, value in cfg.items()}
            raise kind("; ".join(problems.values()), next(iter(problems)), shown)

    def _shown(self, key: str | None, value: Any) -> Any:
        """Return a value without what may be a secret: credentials in URLs, and the values of mappings."""
        if isinstance(value, Mapping):
            return dict.fromkeys(value, MARK)
        if key is not None and self._opts[key].opt_type == PAIRS:
            return MARK
        return without_password(value) if isinstance(value, str) else value


def scheduler_options(scheduler: str) -> CheckedOptions:
    """Return the run options of a scheduler without those of patched images."""
    opts, backend = CheckedOptions(), find_backend(scheduler)
    opts.add_fields(backend.options, backend.discovered)
    opts.add_fields(LaunchOptions)
    opts.add_fields(AdapterOptions)
    return opts


def workspace_options() -> CheckedOptions:
    """Return the run options of patched images."""
    opts = CheckedOptions()
    opts.add_fields(PatchingOptions)
    return opts


def split_options(config: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Part resolved options into those of the manifest and those of the launch."""
    manifest = {name: value for name, value in config.items() if name not in LAUNCH_NAMES}
    return manifest, {name: value for name, value in config.items() if name in LAUNCH_NAMES}


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
    if hint in (int, bool):
        return hint, False
    origin = get_origin(hint)
    if origin is None:
        return str, dataclasses.is_dataclass(hint)
    # TorchX 0.7.0 asks whether this is the very `List[str]` of its own call. Python keeps 128 such types at most, so
    # that one from the import of this module may be another object by then.
    if not issubclass(origin, Mapping):
        return List[str], False  # noqa: UP006
    return (Dict[str, str], False) if get_args(hint)[1] is str else (str, True)  # noqa: UP006
