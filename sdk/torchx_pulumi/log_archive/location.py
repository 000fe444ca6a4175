"""URLs of log archives: their check, and the archive that one names."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

from torchx_pulumi.log_archive.archive import Archive
from torchx_pulumi.model.errors import Problem, invalid_job
from torchx_pulumi.model.redaction import passwords_of, without_password
from torchx_pulumi.stack_state.backend import FILE_SCHEME, backend_folder, open_store
from torchx_pulumi.storage.stores import Store

ALLOWED = "an absolute path, file:///path, s3://bucket/prefix, gs://bucket/prefix or azblob://container/prefix"
"""The forms of a URL, for messages."""

PACKAGES = {"s3": "s3fs", "gs": "gcsfs", "azblob": "adlfs"}
"""Scheme of an object store to the package that reads and writes it."""

REQUEST_TIMEOUT_S = 30.0
"""Timeout of one request to an object store."""


def check_archive_url(text: str, path: str) -> list[Problem]:
    """Return what is wrong with the URL of a log archive. No file is read and no request is made.

    Args:
        text: The URL or the path.
        path: What messages call it, for example `log_archive`.
    """
    why = _refusal(text)
    return [] if why is None else [Problem(path, f"found {_shown(text)}, {why}")]


def _refusal(text: str) -> str | None:
    """Return why the URL of an archive is not allowed. None: it is."""
    url = _as_url(text)
    if not text.isprintable():
        return "which has characters that cannot be printed; remove them"
    if "://" not in url:
        return f"allowed is {ALLOWED}; write the whole path of a folder"
    try:
        scheme, place = urlsplit(url)[:2]
    except ValueError as error:
        return f"which is not a URL: {error}; allowed is {ALLOWED}"
    if scheme == "file":
        relative = "which is not an absolute path; write file:///path, so that every reader finds one folder"
        return None if url.startswith(f"{FILE_SCHEME}/") else relative
    if scheme not in PACKAGES:
        return f"allowed is {ALLOWED}; use one of these"
    if passwords_of(url) or "@" in place or _has_user(url):
        return (
            "which contains credentials; leave them out: they are taken from the environment, as Pulumi takes them for "
            "its backends"
        )
    if not place:
        return f"which names no bucket or container; allowed is {ALLOWED}"
    if find_spec(PACKAGES[scheme]) is None:
        extra = "torchx-pulumi[s3]" if scheme == "s3" else PACKAGES[scheme]
        return f"which needs the package {PACKAGES[scheme]}; install `{extra}`"
    return None


def open_archive(url: str) -> Archive:
    """Return the archive of a URL. Nothing is read, written or requested.

    Args:
        url: The URL or the path, as `check_archive_url` allows it.

    Raises:
        InvalidJobError: The URL is not allowed, or the package that its kind needs is not installed.
    """
    problems = check_archive_url(url, "log_archive")
    if problems:
        raise invalid_job("log archive", problems)
    place = _as_url(url)

    def open_files() -> Store:
        store = open_store(place, REQUEST_TIMEOUT_S)
        if store is None:
            raise OSError(f"objects at {place.partition('?')[0]} cannot be accessed: no client is installed")
        return store

    return Archive(open_files, without_password(url))


def archive_place(url: str) -> str:
    """Return what is equal for all forms of an archive's URL; the text itself if it is not allowed.

    >>> archive_place("/logs/") == archive_place("file:///logs"), archive_place("s3://logs/") == "s3://logs"
    (True, True)
    """
    place = _as_url(url)
    folder = backend_folder(place)
    return place.rstrip("/") if folder is None else str(folder)


def _as_url(text: str) -> str:
    """Return an absolute path as a URL, and another text unchanged."""
    return f"{FILE_SCHEME}{quote(str(Path(text)))}" if text.startswith("/") else text


def _has_user(url: str) -> bool:
    """Return whether the endpoint has a user, also without a scheme: `endpoint=user:password@host`."""
    return any("@" in endpoint for endpoint in parse_qs(url.partition("?")[2]).get("endpoint", ()))


def _shown(text: str) -> str:
    """Return a text for messages: without credentials, also where it is no URL."""
    if "://" not in text:
        _, at, rest = text.rpartition("@")
        return repr(f"***@{rest}" if at and not text.startswith("/") else text)
    start, mark, _ = text.partition("?")
    return repr(without_password(f"{start}{mark}***" if _has_user(text) else text))
