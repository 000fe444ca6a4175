"""Where the records of launched apps lie on this machine, and what stacks are called. Reads the environment only."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from torchx_pulumi.model.errors import DeployError
from torchx_pulumi.model.redaction import MARK, hide, is_redacted, passwords_of, without_password
from torchx_pulumi.planning.names import short_hash

MAX_STACK_NAME = 100
"""Characters that Pulumi allows in the name of a stack."""

DEFAULT_PROJECT = "torchx"
"""Pulumi project of apps that `torchx run` launched."""

FILE_SCHEME = "file://"
"""Start of the URL of a backend that is a folder."""


def state_folder() -> Path:
    """Return the folder of everything that is kept on this machine: `torchx-pulumi` in XDG_STATE_HOME.

    It need not be there; whoever writes makes it, readable by its owner only.
    """
    home = os.environ.get("XDG_STATE_HOME", "")
    # The XDG specification has relative paths ignored.
    root = Path(home) if home.startswith("/") else Path("~/.local/state").expanduser()
    return root / "torchx-pulumi"


_given: dict[str, str] = {}
"""URLs without their credentials, to the same with them: what this process was given. Never written."""


def choose_backend(option: str | None = None) -> str:
    """Return the URL of the Pulumi backend: the option, else PULUMI_BACKEND_URL, else a folder of this user's.

    Credentials in it are replaced by `***`, so that the URL can be stored and shown; `backend_url` gives them back.

    >>> choose_backend("s3://bucket"), choose_backend("postgres://me:secret@db/state")
    ('s3://bucket', 'postgres://me:***@db/state')
    """
    return know_backend(absolute_backend(option or os.environ.get("PULUMI_BACKEND_URL") or own_backend()))


def absolute_backend(url: str) -> str:
    """Return the URL of a backend with its folder made absolute, as Pulumi does: `~` is this user's home folder.

    The engine runs in a folder of its own, where a relative path means another one. An absolute URL stays as it is.

    >>> absolute_backend("file:///var/lib/state?metadata=skip"), absolute_backend("s3://bucket")
    ('file:///var/lib/state?metadata=skip', 's3://bucket')
    """
    if not url.startswith(FILE_SCHEME) or url.startswith(f"{FILE_SCHEME}/"):
        return url
    path, mark, query = url.removeprefix(FILE_SCHEME).partition("?")
    home, slash, rest = path.partition("/")
    base = _home(home) if home.startswith("~") else None
    if base is None:
        base, rest = str(Path.cwd()), f"{home}{slash}{rest}"
    return f"{FILE_SCHEME}{os.path.normpath(f'{quote(base)}/{rest}')}{mark}{query}"


def _home(part: str) -> str | None:
    """Return the home folder that `~` or `~user` means. None: there is no such user."""
    try:
        return str(Path(part).expanduser())
    except RuntimeError:
        return None


def backend_folder(url: str) -> Path | None:
    """Return the folder of a `file://` backend. None: the backend is of another kind.

    >>> str(backend_folder("file:///var/lib/my%20state?no_tmp_dir=true"))
    '/var/lib/my state'
    >>> backend_folder("s3://bucket") is None
    True
    """
    if not url.startswith(FILE_SCHEME):
        return None
    return Path(unquote(urlsplit(absolute_backend(url)).path) or "/")


def is_service(backend: str) -> bool:
    """Return whether a backend is a Pulumi service, which keeps secrets by itself and has organizations."""
    return backend.startswith(("https://", "http://"))


def know_backend(url: str) -> str:
    """Return the URL of a backend without its credentials, which this process keeps in memory."""
    known = without_password(url)
    if known != url:
        _given[known] = url
    return known


def backend_url(backend: str) -> str:
    """Return the URL of a backend with its credentials, for the engine and nothing else.

    Args:
        backend: As `choose_backend` returned it, or as a release before 0.2 stored it.

    Raises:
        DeployError: The credentials are not known: neither the option nor PULUMI_BACKEND_URL names this backend.
    """
    if not is_redacted(backend):
        know_backend(backend)
        return backend
    choose_backend()
    if backend in _given:
        return _given[backend]
    if backend.startswith(("postgres://", "postgresql://")) and _has_password_of_its_own():
        address, _, query = backend.replace(f":{MARK}@", "@").partition("?")
        kept = [pair for pair in query.split("&") if pair and not pair.endswith(f"={MARK}")]
        return f"{address}?{'&'.join(kept)}" if kept else address
    raise DeployError(
        f"the Pulumi backend {backend} is stored without its credentials: set PULUMI_BACKEND_URL, or the option "
        "pulumi_backend in .torchxconfig, to the whole URL; for PostgreSQL, PGPASSWORD or ~/.pgpass will do"
    )


def without_credentials(text: str) -> str:
    """Return a text of others, a message of the engine for example, without the credentials of backends."""
    urls = [*_given.values(), os.environ.get("PULUMI_BACKEND_URL", "")]
    return hide(without_password(text), (secret for url in urls for secret in passwords_of(url)))


def _has_password_of_its_own() -> bool:
    """Return whether PostgreSQL's client finds a password where the URL has none."""
    if os.environ.get("PGPASSWORD"):
        return True
    return Path(os.environ.get("PGPASSFILE") or "~/.pgpass").expanduser().is_file()


def own_backend() -> str:
    """Return the URL of this user's own backend, which nobody else has stacks in."""
    return f"file://{state_folder() / 'backend'}"


def stack_name(namespace: str, name: str, scheduler: str, cluster: str) -> str:
    """Name the stack of an app: `<namespace>.<name>-<short hash of scheduler and cluster>`.

    A name that would be too long for Pulumi is cut, and the hash is then of all of it.

    >>> stack_name("default", "train-x1", "volcano", "c0ffee")[:-8]
    'default.train-x1-'
    >>> len(stack_name("n" * 63, "t" * 63, "volcano", "c0ffee"))
    100
    """
    stem = re.sub(r"[^A-Za-z0-9_.-]", "-", f"{namespace}.{name}")
    room = MAX_STACK_NAME - 9
    if len(stem) <= room:
        return f"{stem}-{short_hash(scheduler, cluster)}"
    return f"{stem[:room]}-{short_hash(scheduler, cluster, namespace, name)}"
