"""A PULUMI_HOME for engines without Pulumi's automatic log; all else in it is the user's own.

Pulumi writes what an engine does to a compressed and encrypted log in PULUMI_HOME/logs. At 1,000 replicas that is a
third of the engine's CPU time, and no option turns it off. It is off where `logs` cannot be a folder.
docs/decisions/0023 has the measurement.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pwd
from collections.abc import Mapping
from pathlib import Path

from torchx_pulumi.model.errors import DeployError
from torchx_pulumi.stack_state.backend import is_service
from torchx_pulumi.storage.files import make_folder

VARIABLE = "TORCHX_PULUMI_ENGINE_LOG"
"""Variable that keeps Pulumi's automatic log if it is `1`."""

HOME = "PULUMI_HOME"
CREDENTIALS = "PULUMI_CREDENTIALS_PATH"
"""Variable that names the folder of `credentials.json` and `config.json`. Unset: PULUMI_HOME."""

_LOGS = "logs"
_NOT_LINKED = frozenset({_LOGS, "credentials.json", "config.json"})
"""Entries of the user's home without a link: CREDENTIALS has the place of the files, which a login replaces."""


def without_log(env: Mapping[str, str], root: Path) -> dict[str, str]:
    """Return the environment of an engine that writes no automatic log.

    The environment is returned as it is if TORCHX_PULUMI_ENGINE_LOG is `1`, if the files cannot be written, or if the
    credentials of a Pulumi service are not where this module looks for them.

    Args:
        env: Environment of the engine, with absolute paths.
        root: Work folder of the engine. Its folder `home` has a home for each home of the user.
    """
    if env.get(VARIABLE) == "1":
        return dict(env)
    theirs = Path(env.get(HOME) or _default_home())
    ours = root / "home" / hashlib.sha256(os.fsencode(theirs)).hexdigest()[:24]
    try:
        if not _has_credentials(env, theirs):
            return dict(env)
        make_folder(ours)
        # Pulumi creates the folder `logs`, and goes on without a log if that fails.
        (ours / _LOGS).touch(mode=0o600)
        _link(ours, theirs)
    except (OSError, DeployError):
        return dict(env)
    return {**env, HOME: str(ours), CREDENTIALS: env.get(CREDENTIALS) or str(theirs)}


def _link(ours: Path, theirs: Path) -> None:
    """Link all entries of the user's home, and the folder of plugins: an engine may install one.

    Links to entries that were removed are removed: Pulumi cannot make a folder where such a link is.
    """
    with contextlib.suppress(OSError):
        # In a home that cannot be written, plugins are installed in ours.
        (theirs / "plugins").mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        names = {entry.name for entry in theirs.iterdir()}
    except FileNotFoundError:
        names = set()
    for link in ours.iterdir():
        if link.is_symlink() and not link.exists():
            link.unlink(missing_ok=True)
    for name in names - _NOT_LINKED:
        # The link may be there, and another process may create it at this moment.
        with contextlib.suppress(FileExistsError):
            (ours / name).symlink_to(theirs / name)


def _has_credentials(env: Mapping[str, str], theirs: Path) -> bool:
    """Return whether an engine has its credentials in the environment that this module makes.

    Pulumi looks in other places for those of a service, but only if no variable names a home.
    """
    if not is_service(env.get("PULUMI_BACKEND_URL", "")):
        return True
    return (Path(env.get(CREDENTIALS) or theirs) / "credentials.json").exists()


def _default_home() -> Path:
    """Return the home that Pulumi has without a variable. Like Go, it asks for the user's entry before `$HOME`."""
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir) / ".pulumi"
    except KeyError:
        return Path.home() / ".pulumi"
