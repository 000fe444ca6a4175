"""Backends of Pulumi: which one is a folder, and the environment in which the engine finds one and its secrets."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from torchx_pulumi.errors import DeployError
from torchx_pulumi.runs.entry import Place, RunEntry
from torchx_pulumi.runs.files import make_folder
from torchx_pulumi.runs.place import backend_url, state_folder

PASSPHRASE_VARIABLES = ("PULUMI_CONFIG_PASSPHRASE", "PULUMI_CONFIG_PASSPHRASE_FILE")

PLACE_VARIABLE = "TORCHX_PULUMI_PLACE"
"""In the environment of every process of the engine: which stack it works on. By it left-overs are found."""

INSTALL_PULUMI = "install Pulumi (https://www.pulumi.com/docs/install/, or `brew install pulumi`) and open a new shell"


def file_root(backend: str) -> Path | None:
    """Return the folder of a backend. None: it is no folder.

    >>> file_root("file:///var/lib/state"), file_root("s3://bucket")
    (PosixPath('/var/lib/state'), None)
    """
    if not backend.startswith("file://"):
        return None
    path = unquote(urlsplit(backend.replace("\\", "/")).path) if backend.startswith("file:///") else backend[7:]
    path = path.partition("?")[0]
    return Path(path).expanduser() if path.startswith(("/", "~")) else Path.cwd() / path


def engine_url(backend: str) -> str:
    """Return the URL that the engine is given.

    In a folder it writes a small file of attributes beside each of its own, and not in one step: an engine that is
    killed just then leaves a stack that nobody can read any more. Nobody reads the attributes, so none are written.

    >>> engine_url("file:///var/lib/state"), engine_url("s3://bucket")
    ('file:///var/lib/state?metadata=skip', 's3://bucket')
    """
    if not backend.startswith("file://") or "metadata=" in backend:
        return backend
    return f"{backend}{'&' if '?' in backend else '?'}metadata=skip"


def is_service(backend: str) -> bool:
    """Say whether a backend is a Pulumi service, which keeps secrets by itself."""
    return backend.startswith(("https://", "http://"))


def wants_passphrase(place: Place) -> bool:
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
    if path.is_file():
        return path
    make_folder(path.parent)
    try:
        with tempfile.NamedTemporaryFile("w", prefix=".passphrase-", dir=path.parent) as file:  # made 0600
            file.write(secrets.token_urlsafe(32))
            file.flush()
            os.fsync(file.fileno())
            # Linked, not renamed: of several processes the first one's passphrase stays.
            os.link(file.name, path)
    except FileExistsError:
        return path
    except OSError as error:
        raise DeployError(
            f"the passphrase file {path} cannot be made: {error.strerror or error}; free space or mend permissions, "
            f"or set {PASSPHRASE_VARIABLES[1]} to a file of yours"
        ) from error
    return path


def place_environment(place: Place) -> dict[str, str]:
    """Return what the CLI needs, beside the environment of this process, to find a backend and its secrets.

    Raises:
        DeployError: The passphrase file cannot be made, or the credentials of the backend are not known.
    """
    made = {
        "PULUMI_BACKEND_URL": engine_url(backend_url(place.backend)),
        "PULUMI_SKIP_UPDATE_CHECK": "true",
        # Without it no command but those of the Automation API takes --event-log.
        "PULUMI_DEBUG_COMMANDS": "true",
        # The state of one app is small and is not worked on; each backup is one more file to write.
        "PULUMI_DIY_BACKEND_DISABLE_CHECKPOINT_BACKUPS": "true",
    }
    if wants_passphrase(place) and not any(name in os.environ for name in PASSPHRASE_VARIABLES):
        made[PASSPHRASE_VARIABLES[1]] = str(passphrase_file())
    return made


def engine_environment(entry: RunEntry, key: str) -> Mapping[str, str]:
    """Return what the engine needs beside the environment of this process.

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
    return found
