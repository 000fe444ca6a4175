"""The Pulumi CLI: its environment, the passphrase, and the questions that only it can answer.

The engine runs the CLI for changes (torchx_pulumi_stacks.engine.process). `query` runs commands that only read, for
backends that this package cannot read itself. The CLI runs in a folder of its own, so relative paths in environment
variables are made absolute.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torchx_pulumi.model.app_entry import ORGANIZATION, RunEntry, StackRef
from torchx_pulumi.model.errors import DeployError, Problem, invalid_job
from torchx_pulumi.model.versions import PROVIDER_ADVICE, VERSIONS, provider_problem, provider_version, read_version
from torchx_pulumi.stack_state.backend import (
    DEFAULT_PROJECT,
    FILE_SCHEME,
    absolute_backend,
    backend_url,
    choose_backend,
    is_service,
    state_folder,
    without_credentials,
)
from torchx_pulumi.storage.files import is_file, replacing
from torchx_pulumi.storage.owners import locked

PASSPHRASE_VARIABLES = ("PULUMI_CONFIG_PASSPHRASE", "PULUMI_CONFIG_PASSPHRASE_FILE")

PLACE_VARIABLE = "TORCHX_PULUMI_PLACE"
"""Variable that names the stack in the environment of every engine process; it identifies processes of dead owners."""

INSTALL_PULUMI = "install Pulumi (https://www.pulumi.com/docs/install/, or `brew install pulumi`) and open a new shell"

CHECK_BACKEND = "check the backend (option pulumi_backend, PULUMI_BACKEND_URL) and its credentials"

QUERY_TIMEOUT_S = 60.0

NO_DEFAULT = "No Default Org Specified"
"""Output of `pulumi org get-default` if the user's own account is the default."""

NO_STACK = re.compile(r"no stack named|stack .* not found|failed to load checkpoint: .*\(code=NotFound\)")
"""Output of the CLI for a stack that does not exist, or that another user removed meanwhile."""

_ORGANIZATION_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")

_default_organizations: dict[tuple[str, str], str] = {}
"""Backend and PULUMI_DEFAULT_ORGANIZATION to the organization that the CLI named."""

DROPPED_START = "PULUMI_OPTION_"
"""Prefix of the variables that set flags: `PULUMI_OPTION_TARGET` limits every deletion to one resource."""

DROPPED = frozenset(
    {
        "PULUMI_RUN_PROGRAM",  # a deletion has no program to run
        "PULUMI_CONTINUE_ON_ERROR",  # a launch that fails is removed
        "PULUMI_SKIP_CHECKPOINTS",  # objects created before a kill would be unknown
        "PULUMI_DIY_BACKEND_ZSTD",  # only the CLI can read such states
        "PULUMI_SELF_MANAGED_STATE_ZSTD",
        "PULUMI_DIY_BACKEND_LEGACY_LAYOUT",  # a new backend would have no projects
        "PULUMI_SELF_MANAGED_STATE_LEGACY_LAYOUT",
        "PULUMI_K8S_DELETE_UNREACHABLE",  # only `--forget-unreachable` asks for that
        # These describe a Pulumi program in which this process runs, not the stacks that it creates.
        "PULUMI_CONFIG",
        "PULUMI_CONFIG_SECRET_KEYS",
        "PULUMI_DRY_RUN",
        "PULUMI_ENGINE",
        "PULUMI_MONITOR",
        "PULUMI_ORGANIZATION",
        "PULUMI_PROJECT",
        "PULUMI_STACK",
    }
)
"""Variables that change what a command does."""

_FILES = (
    "PULUMI_CONFIG_PASSPHRASE_FILE",
    "PULUMI_HOME",
    "PULUMI_CREDENTIALS_PATH",
    "AWS_CA_BUNDLE",
    "AWS_CONFIG_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "PGPASSFILE",
    "PGSERVICEFILE",
    "PGSSLCERT",
    "PGSSLKEY",
    "PGSSLROOTCERT",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
)
"""Variables that name a file or a folder."""

_LISTS = ("KUBECONFIG", "PATH")
"""Variables that name several files or folders."""


def cli_environment() -> dict[str, str]:
    """Return the environment of this process with absolute paths, without variables that change what a command does."""

    def absolute(path: str) -> str:
        # That of pathlib raises for `~` of an unknown user.
        return path and str(Path(os.path.expanduser(path)).absolute())  # noqa: PTH111

    kept = {name: text for name, text in os.environ.items() if name not in DROPPED}
    env = {name: text for name, text in kept.items() if not name.startswith(DROPPED_START)}
    env |= {name: absolute(env[name]) for name in _FILES if name in env}
    env |= {name: os.pathsep.join(map(absolute, env[name].split(os.pathsep))) for name in _LISTS if name in env}
    return env


def engine_url(backend: str) -> str:
    """Return the URL of a backend for the engine.

    In a folder, the engine writes a file of attributes next to each file, and not atomically: an engine killed at that
    moment leaves an unreadable stack. Nothing reads the attributes, so they are switched off.

    >>> engine_url("file:///var/lib/state"), engine_url("s3://bucket")
    ('file:///var/lib/state?metadata=skip', 's3://bucket')
    """
    backend = absolute_backend(backend)
    if not backend.startswith(FILE_SCHEME) or "metadata=" in backend:
        return backend
    return f"{backend}{'&' if '?' in backend else '?'}metadata=skip"


def wants_passphrase(ref: StackRef) -> bool:
    """Return whether a passphrase encrypts the secrets of a stack."""
    if ref.secrets_provider not in (None, "", "default", "passphrase"):
        return False
    return ref.secrets_provider == "passphrase" or not is_service(ref.backend)


def passphrase_file() -> Path:
    """Return the file with this user's passphrase; the first call writes a random one.

    Without the passphrase, the secrets in the states of past runs cannot be read; everything else works.

    Raises:
        DeployError: The file cannot be written or read.
    """
    path = state_folder() / "passphrase"
    try:
        if not is_file(path):
            with locked(path.parent):
                # Of several processes, the first one's passphrase stays.
                if not is_file(path):
                    with replacing(path, mode=0o600, sync=True) as file:
                        file.write(secrets.token_urlsafe(32).encode())
        if path.stat().st_size == 0:
            raise DeployError(
                f"the passphrase file {path} is empty: remove it, and a new passphrase is made; or restore its "
                "content, without which the secrets in the states of past runs cannot be read"
            )
    except OSError as error:
        raise DeployError(
            f"the passphrase file {path} cannot be made or read: {error.strerror or error}; free space, correct its "
            f"permissions, or set {PASSPHRASE_VARIABLES[1]} to a file of yours"
        ) from error
    return path


def default_passphrase_file(ref: StackRef, env: Mapping[str, str]) -> str | None:
    """Return the file with this user's passphrase, or None if the stack needs none or the environment has another one.

    Raises:
        DeployError: See `passphrase_file`.
    """
    if not wants_passphrase(ref) or PASSPHRASE_VARIABLES[0] in env or env.get(PASSPHRASE_VARIABLES[1]):
        return None
    return str(passphrase_file())


def engine_environment(entry: RunEntry, key: str) -> dict[str, str]:
    """Return the environment of an engine process.

    Args:
        entry: The app.
        key: Key of its stack (`engine.work_dir.place_key`).

    Raises:
        DeployError: The passphrase file cannot be written, or the credentials of the backend are unknown.
    """
    env = {
        **_query_environment(entry.place.backend),
        "PULUMI_BACKEND_URL": engine_url(backend_url(entry.place.backend)),
        # The state of one app is small and is not edited; each backup is one more file to write.
        "PULUMI_DIY_BACKEND_DISABLE_CHECKPOINT_BACKUPS": "true",
        PLACE_VARIABLE: key,
    }
    named = {
        PASSPHRASE_VARIABLES[1]: default_passphrase_file(entry.place, env),
        "KUBECONFIG": entry.access[0],
    }
    return env | {name: file for name, file in named.items() if file is not None}


def find_cli() -> str:
    """Return the absolute path of the Pulumi CLI.

    Raises:
        DeployError: `pulumi` is not on PATH.
    """
    found = shutil.which("pulumi")
    if found is None:
        raise DeployError(f"the Pulumi CLI `pulumi` is not on PATH; {INSTALL_PULUMI}")
    # The engine runs in another folder.
    return str(Path(found).absolute())


def check_provider(warn: Callable[[str], None]) -> None:
    """Check the version of the Kubernetes provider that a launch takes.

    Args:
        warn: Receives a warning about a version that is newer than the tested ones.

    Raises:
        DeployError: The version is older than the supported ones.
    """
    installed = read_version(provider_version())
    if installed is None:
        return
    if problem := provider_problem(installed):
        raise DeployError(f"{problem}; nothing was changed; {PROVIDER_ADVICE}")
    if warning := VERSIONS["kubernetes-provider"].warning(installed):
        warn(warning)


def query(backend: str, words: Sequence[str], *, project: str = "", advice: str = CHECK_BACKEND) -> str | None:
    """Return the output of a read-only command of the CLI, or None if it says that the stack does not exist.

    Args:
        backend: URL of the backend, without credentials (`choose_backend`).
        words: The command.
        project: Project that the command runs in. Empty: none, so that a project in the caller's folder has no effect.
        advice: What to do if the command fails.

    Raises:
        DeployError: The CLI is not on PATH, fails, or does not end within 60 s; or the credentials are unknown.
    """
    cli, env, command = find_cli(), _query_environment(backend), f"pulumi {' '.join(words)}"
    with tempfile.TemporaryDirectory(prefix="torchx-pulumi-") as folder:
        if project:
            (Path(folder) / "Pulumi.yaml").write_text(json.dumps({"name": project, "runtime": "python"}))
        whole = [cli, "--non-interactive", "--color", "never", *words]
        try:
            done = subprocess.run(
                whole, env=env, cwd=folder, capture_output=True, text=True, timeout=QUERY_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise DeployError(
                f"the Pulumi backend {backend}: {command} did not end within {QUERY_TIMEOUT_S:g} s; "
                "check that the backend can be reached from here"
            ) from error
    if done.returncode == 0:
        return done.stdout
    if NO_STACK.search(done.stderr):
        return None
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    said = without_credentials(" ".join(lines[-3:])) or "nothing"
    raise DeployError(f"the Pulumi backend {backend} cannot be read: {command} says: {said}; {advice}")


def _query_environment(backend: str) -> dict[str, str]:
    """Return the environment in which the CLI finds a backend."""
    return {**cli_environment(), "PULUMI_BACKEND_URL": backend_url(backend), "PULUMI_SKIP_UPDATE_CHECK": "true"}


def check_organization(backend: str, option: str | None, job: str = "unnamed") -> None:
    """Check a backend and the option pulumi_organization for it; messages have the name of the job.

    Raises:
        InvalidJobError: The backend is not a URL or has no organizations, or the name is not valid.
    """
    if problems := backend_problems(backend, option):
        raise invalid_job(job, problems)


def backend_problems(backend: str, option: str | None) -> list[Problem]:
    """Return the problems of a backend, and of the option pulumi_organization on it."""
    if "://" not in backend:
        # Pulumi takes it for a service, and asks for an access token.
        text = f"is {backend!r}, must be a URL: file:///folder, s3://bucket or https://service, for example"
        return [Problem("pulumi_backend", text)]
    if option is None or (option == ORGANIZATION and not is_service(backend)):
        return []
    text = f"is {option!r}, must be the name of an organization: letters, digits, `-`, `_` and `.`"
    if not is_service(backend):
        text = f"is {option!r}, and {backend} has no organizations: leave it out, or name a Pulumi service"
    elif _ORGANIZATION_NAME.fullmatch(option):
        return []
    return [Problem("pulumi_organization", text)]


def choose_place(options: Mapping[str, Any], stack: str) -> StackRef:
    """Return a stack in the place of run options: their backend, project, organization and secrets provider.

    Raises:
        InvalidJobError: As `choose_organization`.
        DeployError: As `choose_organization`.
    """
    backend = choose_backend(options.get("pulumi_backend"))
    return StackRef(
        backend=backend,
        project=options.get("pulumi_project") or DEFAULT_PROJECT,
        stack=stack,
        secrets_provider=options.get("secrets_provider"),
        organization=choose_organization(backend, options.get("pulumi_organization")),
    )


def choose_organization(backend: str, option: str | None = None) -> str:
    """Return the organization of stacks in a backend: the option, else this user's default organization.

    Without a default organization, it is the user's own account. The CLI is asked once in a process.

    Raises:
        InvalidJobError: As `check_organization`.
        DeployError: The CLI is not on PATH, or the service does not answer.
    """
    check_organization(backend, option)
    if option or not is_service(backend):
        return option or ORGANIZATION
    key = (backend, cli_environment().get("PULUMI_DEFAULT_ORGANIZATION", ""))
    if key not in _default_organizations:
        advice = f"log in with `pulumi login {backend}`, or name the organization by the option pulumi_organization"
        found = (query(backend, ["org", "get-default"], advice=advice) or "").strip()
        if found in ("", NO_DEFAULT):
            found = (query(backend, ["whoami"], advice=advice) or "").strip()
        if not _ORGANIZATION_NAME.fullmatch(found):
            raise DeployError(
                f"the Pulumi backend {backend}: the CLI names no default organization; name one by the option "
                "pulumi_organization, or run `pulumi org set-default NAME`"
            )
        _default_organizations[key] = found
    return _default_organizations[key]
