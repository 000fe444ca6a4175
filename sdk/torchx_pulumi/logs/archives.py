"""Logs that outlive their pods: the URL of an archive, and what reads one.

The package `torchx-pulumi-fleet` writes and reads archives; it announces itself by the entry point `LOG_ARCHIVES`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn, Protocol
from urllib.parse import parse_qs, quote, unquote, urlsplit

from torchx_pulumi.logs.query import Attempt, ContainerRun
from torchx_pulumi.logs.sources import LogSource
from torchx_pulumi.model.errors import ClusterError, InvalidJobError, Problem
from torchx_pulumi.model.fleet_package import INSTALL_FLEET
from torchx_pulumi.model.object_schemes import SCHEMES
from torchx_pulumi.model.plugins import find_plugins, load_plugin, package_of, why_of
from torchx_pulumi.model.redaction import passwords_of, without_password
from torchx_pulumi.model.text import in_words
from torchx_pulumi.stack_state.backend import FILE_SCHEME, backend_folder

LOG_ARCHIVES = "torchx_pulumi.log_archives"
"""Group of the entry point whose object opens an archive by its URL, as `LogArchive`."""

ALLOWED = in_words(
    ["an absolute path", f"{FILE_SCHEME}/path", *(f"{name}://{row.place}/prefix" for name, row in SCHEMES.items())]
)
"""The forms of a URL, for messages."""


def escape(name: str, also: str = "") -> str:
    """Return a name as one part of a path: no separator, no leading dot, never empty; `also` is escaped as well.

    >>> escape("trainer-0"), escape("../a b"), escape(".."), escape("")
    ('trainer-0', '%2E.%2Fa%20b', '%2E.', '%')
    """
    text = quote(name, safe="", errors="surrogatepass")
    if also:
        text = text.replace(also, f"%{ord(also):02X}")
    return f"%2E{text[1:]}" if text.startswith(".") else text or "%"


class ArchivedAttempt(LogSource, Protocol):
    """The log of an attempt of a replica in an archive. `logs.reading.read_source` reads it."""

    pod: str
    """Name of the pod of the attempt."""
    on_open: Callable[[], None]
    """Called once, when the first log of the attempt is opened."""

    @property
    def attempts(self) -> Sequence[Attempt]:
        """Return the attempts of the replica in the archive, the oldest first."""

    @property
    def runs(self) -> Sequence[ContainerRun]:
        """Return the runs of the attempt's containers, init containers first."""

    @property
    def note(self) -> str:
        """Return one line about the archive, the attempt, the time of its copy, and what is missing."""


class LogArchive(Protocol):
    """An archive of logs. Opening one makes no request."""

    name: str
    """URL without credentials, for messages."""

    def find(self, app_id: str, uid: str, role: str, replica: int, attempt: int | None) -> ArchivedAttempt:
        """Return the log of an attempt of a replica (None: of the last one) in the run whose job object has a uid.

        Raises:
            ClusterError: There is none (`reason` is `NotFound`), or the archive cannot be read.
        """

    def find_run(self, app_id: str, run: str | None) -> str | None:
        """Return the uid of the last archived run of an app that begins with `run`. None: it has no run of the app.

        Raises:
            ClusterError: It has other runs of the app only (`reason` is `NotFound`), or cannot be read.
        """

    def replicas(self, app_id: str, uid: str) -> Sequence[tuple[str, int]]:
        """Return role and number of the replicas of a run whose logs are archived.

        Raises:
            ClusterError: The archive cannot be read.
        """


def open_log_archive(url: str) -> LogArchive:
    """Return the archive of a URL, as `check_archive_url` allows it.

    Reading from the returned one raises a ClusterError that says what is missing: a package that reads archives, or
    the one that the kind of this archive needs. Logs of pods are read without them.
    """
    plugins, problems = find_plugins(LOG_ARCHIVES)
    for plugin in plugins:
        try:
            opens: Callable[[str], LogArchive] = load_plugin(plugin)
            return opens(url)
        except KeyboardInterrupt:
            raise
        except InvalidJobError as error:
            return _UnreadArchive(without_password(url), "; ".join(each.message for each in error.problems))
        except BaseException as error:  # noqa: BLE001  # whatever another package does, logs of pods are read
            return _UnreadArchive(without_password(url), f"{package_of(plugin)} does not work: {why_of(error)}")
    return _UnreadArchive(without_password(url), "; ".join([f"archived logs need `{INSTALL_FLEET}`", *problems]))


class _UnreadArchive:
    """An archive that nothing installed here reads."""

    def __init__(self, name: str, why: str) -> None:
        self.name = name
        self.why = why

    def find(self, *_asked: object) -> NoReturn:
        """Refuse.

        Raises:
            ClusterError: Always.
        """
        raise ClusterError(f"the archive {self.name} is not read: {self.why}")

    find_run = replicas = find


def check_archive_url(text: str, path: str) -> list[Problem]:
    """Return the problems of the URL of a log archive. No file is read and no request is made.

    Args:
        text: The URL or the path.
        path: What messages call it, for example `log_archive`.
    """
    why = _refusal(text)
    return [] if why is None else [Problem(path, f"found {shown_url(text)}, {why}")]


def _refusal(text: str) -> str | None:
    """Return why the URL of an archive is not allowed. None: it is."""
    url = archive_url(text)
    if not text.isprintable() or (url.startswith(FILE_SCHEME) and not unquote(url).isprintable()):
        return "which has characters that cannot be printed; remove them"
    if "://" not in url:
        return f"allowed is {ALLOWED}; write the whole path of a folder"
    try:
        scheme, place = urlsplit(url)[:2]
    except ValueError as error:
        return f"which is not a URL: {error}; allowed is {ALLOWED}"
    if scheme == "file":
        relative = "which is not an absolute path; write file:///path, so every reader finds the same folder"
        return None if url.startswith(f"{FILE_SCHEME}/") else relative
    if scheme not in SCHEMES:
        return f"allowed is {ALLOWED}; use one of these"
    if passwords_of(url) or "@" in place or _has_user(url):
        return (
            "which contains credentials; leave them out: they are taken from the environment, as Pulumi takes them for "
            "its backends"
        )
    if not place:
        return f"which names no bucket or container; allowed is {ALLOWED}"
    return None


def archive_url(text: str) -> str:
    """Return an absolute path as a URL, and another text unchanged."""
    return f"{FILE_SCHEME}{quote(str(Path(text)))}" if text.startswith("/") else text


def archive_place(url: str) -> str:
    """Return the one form for all spellings of an archive's URL; the text itself if it is not allowed.

    >>> archive_place("/logs/") == archive_place("file:///logs"), archive_place("s3://logs/") == "s3://logs"
    (True, True)
    """
    place = archive_url(url)
    folder = backend_folder(place)
    return place.rstrip("/") if folder is None else str(folder)


def without_parameters(url: str) -> str:
    """Return the place of an archive without the parameters of its URL.

    >>> without_parameters("s3://logs/?region=eu") == without_parameters("s3://logs")
    True
    """
    return archive_place(url).partition("?")[0].rstrip("/")


def shown_url(text: str) -> str:
    """Return a text for messages without credentials, whether it is a URL or not."""
    if "://" not in text:
        _, at, rest = text.rpartition("@")
        return repr(f"***@{rest}" if at and not text.startswith("/") else text)
    start, mark, _ = text.partition("?")
    return repr(without_password(f"{start}{mark}***" if _has_user(text) else text))


def _has_user(url: str) -> bool:
    """Return whether the endpoint has a user, also without a scheme: `endpoint=user:password@host`."""
    return any("@" in endpoint for endpoint in parse_qs(url.partition("?")[2]).get("endpoint", ()))
