"""Entry points of installed packages. Whatever one of them does, the others work: what is wrong with it is a text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.metadata import Distribution, EntryPoint


def find_plugins(group: str) -> tuple[list[EntryPoint], list[str]]:
    """Return the entry points of a group, and a text for each package whose entry points cannot be read."""
    from importlib.metadata import distributions, entry_points

    try:
        return [*entry_points(group=group)], []
    except Exception:  # noqa: BLE001, S110  # one file that is no list of entry points hides those of all packages
        pass
    found: list[EntryPoint] = []
    problems = []
    for package in distributions():
        try:
            found += package.entry_points.select(group=group)
        except Exception as error:  # noqa: BLE001  # what reads the file has no errors of its own
            name = _name(package) or "without a name"
            problems.append(f"the entry points of the package {name} cannot be read; install it again: {why_of(error)}")
    return found, problems


def load_plugin(plugin: EntryPoint) -> Any:
    """Return the object of an entry point.

    Raises:
        ValueError: It does not name an object.
        BaseException: Whatever the import of its module raises.
    """
    if plugin.pattern.match(plugin.value) is None:
        raise ValueError(f"its entry point {plugin.name} is {plugin.value!r}, must be MODULE:NAME")
    return plugin.load()


def package_of(plugin: EntryPoint) -> str:
    """Return the name of the package that an entry point is of; without metadata, what the entry point names."""
    return (plugin.dist and _name(plugin.dist)) or plugin.value


def _name(package: Distribution) -> str | None:
    """Return the name of a package. None: it has no metadata, as after an installation that was interrupted."""
    try:
        return next(iter(package.metadata.get_all("Name", [])), None)
    except FileNotFoundError:  # since Python 3.15, and with newer `importlib_metadata`
        return None


def why_of(error: BaseException) -> str:
    r"""Return an error of another package as one line.

    >>> why_of(ValueError("two\n  lines")), why_of(KeyError()), why_of(SystemExit(3))
    ('two lines', 'KeyError', 'SystemExit: 3')
    """
    text, kind = " ".join(str(error).split()), type(error).__name__
    return (text if isinstance(error, Exception) else f"{kind}: {text}") if text else kind
