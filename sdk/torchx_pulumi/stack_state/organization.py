"""Which organization of a Pulumi service keeps a stack. Other backends have one, which is called `organization`."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Sequence

from torchx_pulumi.model.app_entry import ORGANIZATION
from torchx_pulumi.model.errors import DeployError, Problem, invalid_job
from torchx_pulumi.stack_state.cli_environment import cli_environment
from torchx_pulumi.stack_state.places import backend_url, is_service, without_credentials

TIMEOUT_S = 60.0

NO_DEFAULT = "No Default Org Specified"
"""What the CLI prints where the user's own account is the default."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")

_asked: dict[tuple[str, str], str] = {}
"""Backend, and what the environment says of the default, to the organization that the CLI named."""


def check_organization(backend: str, option: str | None, job: str = "unnamed") -> None:
    """Refuse an organization that a backend cannot have.

    Args:
        backend: URL of the backend.
        option: The option pulumi_organization.
        job: What messages call the job.

    Raises:
        InvalidJobError: The backend has no organizations, or the name is none.
    """
    if option is None or (option == ORGANIZATION and not is_service(backend)):
        return
    if not is_service(backend):
        text = f"is {option!r}, and {backend} has no organizations: leave it out, or name a Pulumi service"
        raise invalid_job(job, [Problem("pulumi_organization", text)])
    if not _NAME.fullmatch(option):
        text = f"is {option!r}, must be the name of an organization: letters, digits, `-`, `_` and `.`"
        raise invalid_job(job, [Problem("pulumi_organization", text)])


def choose_organization(backend: str, option: str | None = None) -> str:
    """Return the organization of stacks in a backend: the option, else the user's default one, which the CLI is asked.

    Raises:
        InvalidJobError: The backend has no organizations, or the name is none.
        DeployError: The CLI is not there, or the service does not answer.
    """
    check_organization(backend, option)
    if not is_service(backend):
        return ORGANIZATION
    return option or default_organization(backend)


def default_organization(backend: str) -> str:
    """Return this user's default organization, else the user's own account; the CLI is asked once in a process.

    Raises:
        DeployError: The CLI is not there, or the service does not answer.
    """
    key = (backend, cli_environment().get("PULUMI_DEFAULT_ORGANIZATION", ""))
    if key not in _asked:
        found = _ask(backend, ["org", "get-default"]).strip()
        if not found or found == NO_DEFAULT:
            found = _user(_ask(backend, ["whoami", "--json"]))
        if not _NAME.fullmatch(found):
            raise DeployError(
                f"the Pulumi backend {backend}: the CLI names no default organization; name one by the option "
                "pulumi_organization, or run `pulumi org set-default NAME`"
            )
        _asked[key] = found
    return _asked[key]


def _user(text: str) -> str:
    """Return the user that `pulumi whoami --json` names. Empty: none."""
    try:
        return str(json.loads(text).get("user") or "")
    except (ValueError, AttributeError):
        return ""


def _ask(backend: str, words: Sequence[str]) -> str:
    program = shutil.which("pulumi")
    if program is None:
        raise DeployError(
            f"the Pulumi backend {backend} is read through the Pulumi CLI, and there is no `pulumi` on PATH; install "
            "it as https://www.pulumi.com/docs/install says"
        )
    environment = {
        **cli_environment(),
        "PULUMI_BACKEND_URL": backend_url(backend),
        "PULUMI_SKIP_UPDATE_CHECK": "true",
    }
    try:
        # A project in the folder of the caller may name another backend.
        done = subprocess.run(
            [program, "--non-interactive", "--color", "never", *words],
            env=environment,
            cwd="/",
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise DeployError(
            f"the Pulumi backend {backend}: pulumi {' '.join(words)} gave no answer in {TIMEOUT_S:g} s; see that it "
            "can be reached from here, or name the organization by the option pulumi_organization"
        ) from error
    if done.returncode:
        said = without_credentials(" ".join(done.stderr.split())[-400:]) or "nothing"
        raise DeployError(
            f"the Pulumi backend {backend}: pulumi {' '.join(words)} says: {said}; log in with `pulumi login "
            f"{backend}`, or name the organization by the option pulumi_organization"
        )
    return done.stdout
