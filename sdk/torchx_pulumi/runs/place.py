"""Where the records of launched apps lie on this machine, and what stacks are called. Reads the environment only."""

from __future__ import annotations

import os
import re
from pathlib import Path

from torchx_pulumi.errors import DeployError
from torchx_pulumi.names import short_hash
from torchx_pulumi.redaction import MARK, hide, is_redacted, passwords_of, without_password

MAX_STACK_NAME = 100
"""Characters that Pulumi allows in the name of a stack."""

DEFAULT_PROJECT = "torchx"
"""Pulumi project of apps that `torchx run` launched."""


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
    return know_backend(option or os.environ.get("PULUMI_BACKEND_URL") or own_backend())


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
    know_backend(os.environ.get("PULUMI_BACKEND_URL") or own_backend())
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
