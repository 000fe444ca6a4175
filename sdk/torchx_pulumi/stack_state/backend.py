"""Backends of Pulumi: which one is a folder, and the environment in which the engine finds one and its secrets."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import time
from pathlib import Path

from torchx_pulumi.model.app_entry import RunEntry, StackRef
from torchx_pulumi.model.errors import DeployError
from torchx_pulumi.stack_state.cli_environment import cli_environment
from torchx_pulumi.stack_state.files import make_folder, write_new
from torchx_pulumi.stack_state.places import FILE_SCHEME, absolute_backend, backend_url, is_service, state_folder
from torchx_pulumi.stack_state.presence import is_file

PASSPHRASE_VARIABLES = ("PULUMI_CONFIG_PASSPHRASE", "PULUMI_CONFIG_PASSPHRASE_FILE")

PLACE_VARIABLE = "TORCHX_PULUMI_PLACE"
"""In the environment of every process of the engine: which stack it works on. By it left-overs are found."""

INSTALL_PULUMI = "install Pulumi (https://www.pulumi.com/docs/install/, or `brew install pulumi`) and open a new shell"


def engine_url(backend: str) -> str:
    """Return the URL that the engine is given.

    In a folder it writes a small file of attributes beside each of its own, and not in one step: an engine that is
    killed just then leaves a stack that nobody can read any more. Nobody reads the attributes, so none are written.

    >>> engine_url("file:///var/lib/state"), engine_url("s3://bucket")
    ('file:///var/lib/state?metadata=skip', 's3://bucket')
    """
    backend = absolute_backend(backend)
    if not backend.startswith(FILE_SCHEME) or "metadata=" in backend:
        return backend
    return f"{backend}{'&' if '?' in backend else '?'}metadata=skip"


def wants_passphrase(place: StackRef) -> bool:
    """Say whether the secrets of a stack are kept by a passphrase."""
    if place.secrets_provider not in (None, "", "default", "passphrase"):
        return False
    return place.secrets_provider == "passphrase" or not is_service(place.backend)


def passphrase_file(folder: Path | None = None) -> Path:
    """Return the file with this user's passphrase; made with a random one where there is none.

    Losing it loses the secrets in the states of past runs, and nothing else.

    Args:
        folder: Where it lies. None: the user's state folder.

    Raises:
        DeployError: It cannot be made.
    """
    path = (folder or state_folder()) / "passphrase"
    try:
        if not is_file(path):
            make_folder(path.parent)
            # Of several processes the first one's passphrase stays.
            with contextlib.suppress(FileExistsError):
                write_new(path, secrets.token_urlsafe(32), mode=0o600)
        _wait_for_text(path)
    except OSError as error:
        raise DeployError(
            f"the passphrase file {path} cannot be made or read: {error.strerror or error}; free space, correct its "
            f"permissions, or set {PASSPHRASE_VARIABLES[1]} to a file of yours"
        ) from error
    return path


def _wait_for_text(path: Path) -> None:
    """Wait until a file has contents: without hard links another process may be writing it just now."""
    end = time.monotonic() + 1.0
    while path.stat().st_size == 0:
        if time.monotonic() > end:
            raise DeployError(
                f"the passphrase file {path} is empty: remove it, and a new passphrase is made; or write the old one "
                "back, without which the secrets in the states of past runs cannot be read"
            )
        time.sleep(0.01)


def place_environment(place: StackRef) -> dict[str, str]:
    """Return the environment in which the CLI finds a backend and its secrets: this process's, and what is added.

    Raises:
        DeployError: The passphrase file cannot be made, or the credentials of the backend are not known.
    """
    made = {
        **cli_environment(),
        "PULUMI_BACKEND_URL": engine_url(backend_url(place.backend)),
        "PULUMI_SKIP_UPDATE_CHECK": "true",
        # Without it no command but those of the Automation API takes --event-log.
        "PULUMI_DEBUG_COMMANDS": "true",
        # The state of one app is small and is not worked on; each backup is one more file to write.
        "PULUMI_DIY_BACKEND_DISABLE_CHECKPOINT_BACKUPS": "true",
    }
    if wants_passphrase(place) and PASSPHRASE_VARIABLES[0] not in made and not made.get(PASSPHRASE_VARIABLES[1]):
        made[PASSPHRASE_VARIABLES[1]] = str(passphrase_file())
    return made


def engine_environment(entry: RunEntry, key: str) -> dict[str, str]:
    """Return the environment of the engine: this process's, and what is added.

    Args:
        entry: The app.
        key: What tells its stack from all others.

    Raises:
        DeployError: The passphrase file cannot be made.
    """
    made = {**place_environment(entry.place), PLACE_VARIABLE: key}
    kubeconfig = entry.kubeconfig or entry.ambient_kubeconfig
    if kubeconfig is not None:
        made["KUBECONFIG"] = kubeconfig
    return made


def find_cli() -> str:
    """Return the path of the Pulumi CLI.

    Raises:
        DeployError: There is none.
    """
    found = shutil.which("pulumi")
    if found is None:
        raise DeployError(f"the command `pulumi` is not on PATH; {INSTALL_PULUMI}")
    # The engine runs in another folder.
    return str(Path(found).absolute())
