"""Pulumi backends: their URLs and credentials, the state folder of this user, and the names of stacks.

Nothing here reads a backend or makes a request; only environment variables are read.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from torchx_pulumi.model.errors import DeployError
from torchx_pulumi.model.redaction import MARK, hide, is_redacted, passwords_of, without_password
from torchx_pulumi.planning.names import short_hash
from torchx_pulumi.storage.stores import REQUEST_TIMEOUT_S, FolderStore, Store, open_objects

MAX_STACK_NAME = 100
"""Maximum length of a stack name in Pulumi."""

DEFAULT_PROJECT = "torchx"
"""Pulumi project of apps that `torchx run` launches."""

FILE_SCHEME = "file://"
"""Prefix of the URL of a backend in a folder."""


def state_folder() -> Path:
    """Return the folder with all local state of this user: `torchx-pulumi` in XDG_STATE_HOME.

    The folder may be absent: the first write creates it with mode 0700.
    """
    home = os.environ.get("XDG_STATE_HOME", "")
    # The XDG specification says to ignore relative paths.
    root = Path(home) if home.startswith("/") else Path("~/.local/state").expanduser()
    return root / "torchx-pulumi"


_given: dict[str, str] = {}
"""Backend URL without credentials to the URL with them, as this process received it. Never written to a file."""


def choose_backend(option: str | None = None) -> str:
    """Return the URL of the Pulumi backend: the option, else PULUMI_BACKEND_URL, else this user's own folder.

    Credentials are replaced by `***`, so that the URL can be stored and shown; `backend_url` restores them.

    >>> choose_backend("s3://bucket"), choose_backend("postgres://me:secret@db/state")
    ('s3://bucket', 'postgres://me:***@db/state')
    """
    return know_backend(absolute_backend(option or os.environ.get("PULUMI_BACKEND_URL") or own_backend()))


def absolute_backend(url: str) -> str:
    """Return the URL of a backend with an absolute path, as Pulumi resolves it: `~` is this user's home folder.

    The engine runs in another working directory, so it cannot be given a relative path.

    >>> absolute_backend("file:///var/lib/state?metadata=skip"), absolute_backend("s3://bucket")
    ('file:///var/lib/state?metadata=skip', 's3://bucket')
    """
    if not url.startswith(FILE_SCHEME) or url.startswith(f"{FILE_SCHEME}/"):
        return url
    path, mark, query = url.removeprefix(FILE_SCHEME).partition("?")
    # What follows is quoted, and the two folders in front of it are not.
    home, _, rest = path.partition("/")
    known = os.path.expanduser(home)  # noqa: PTH111 - that of pathlib raises for an unknown user
    base = Path.cwd() if known == home else Path(known)
    rest = path if known == home else rest
    return f"{FILE_SCHEME}{os.path.normpath(f'{quote(str(base))}/{rest}')}{mark}{query}"


def backend_folder(url: str) -> Path | None:
    """Return the folder of a `file://` backend, or None for another backend.

    >>> str(backend_folder("file:///var/lib/my%20state?no_tmp_dir=true"))
    '/var/lib/my state'
    >>> backend_folder("s3://bucket") is None
    True
    """
    if not url.startswith(FILE_SCHEME):
        return None
    return Path(unquote(urlsplit(absolute_backend(url)).path) or "/")


def open_store(backend: str, timeout_s: float = REQUEST_TIMEOUT_S) -> Store | None:
    """Return the files of a backend, or None if only the engine can access them; see `stores.open_objects`."""
    folder = backend_folder(backend)
    return open_objects(backend, timeout_s) if folder is None else FolderStore(folder)


def is_service(backend: str) -> bool:
    """Return whether a backend is a Pulumi service, which has organizations and its own secrets provider."""
    return backend.startswith(("https://", "http://"))


def know_backend(url: str) -> str:
    """Return the URL of a backend without credentials, and keep them in the memory of this process."""
    known = without_password(url)
    if known != url:
        _given[known] = url
    return known


def backend_url(backend: str) -> str:
    """Return the URL of a backend with its credentials. Only the engine and the clients of stores receive it.

    Args:
        backend: The URL from `choose_backend`.

    Raises:
        DeployError: The credentials are unknown: neither the option nor PULUMI_BACKEND_URL names this backend.
    """
    if not is_redacted(backend):
        know_backend(backend)
        return backend
    in_force = absolute_backend(os.environ.get("PULUMI_BACKEND_URL", ""))
    if without_password(in_force) == backend:
        return in_force
    if backend in _given:
        return _given[backend]
    is_postgres = backend.startswith(("postgres://", "postgresql://"))
    # Where the PostgreSQL client finds a password.
    file = Path(os.environ.get("PGPASSFILE") or "~/.pgpass").expanduser()
    if is_postgres and (os.environ.get("PGPASSWORD") or file.is_file()):
        address, _, query = backend.replace(f":{MARK}@", "@").partition("?")
        kept = [pair for pair in query.split("&") if pair and not pair.endswith(f"={MARK}")]
        return f"{address}?{'&'.join(kept)}" if kept else address
    raise DeployError(
        f"the Pulumi backend {backend} is stored without its credentials: set PULUMI_BACKEND_URL, or the option "
        "pulumi_backend in .torchxconfig, to the whole URL; for PostgreSQL, PGPASSWORD or ~/.pgpass also work"
    )


def without_credentials(text: str) -> str:
    """Return a text, for example an engine message, without the credentials of backends."""
    urls = [*_given.values(), os.environ.get("PULUMI_BACKEND_URL", "")]
    return hide(without_password(text), (secret for url in urls for secret in passwords_of(url)))


def own_backend() -> str:
    """Return the URL of this user's own backend, a folder in the state folder."""
    return f"{FILE_SCHEME}{state_folder() / 'backend'}"


def stack_name(namespace: str, name: str, scheduler: str, cluster: str) -> str:
    """Return the stack name of an app: `<namespace>.<name>-<short hash of scheduler and cluster>`.

    A name that is too long for Pulumi is cut; the hash then also covers namespace and name.

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
