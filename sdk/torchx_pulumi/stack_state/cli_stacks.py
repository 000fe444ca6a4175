"""Stacks of any other backend: asked of the `pulumi` command, the only one that knows them all."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from torchx_pulumi.fleet.collect.row import StackName
from torchx_pulumi.model.errors import DeployError
from torchx_pulumi.stack_state.checkpoint import UnreadableStateError
from torchx_pulumi.stack_state.cli_environment import cli_environment
from torchx_pulumi.stack_state.organization import choose_organization
from torchx_pulumi.stack_state.places import backend_url, without_credentials

TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStacks:
    """Stacks of a backend, as `pulumi` tells them."""

    backend: str
    """URL of the backend, without credentials (`choose_backend`)."""
    organization: str | None = None
    """Organization of a Pulumi service whose stacks are read. None: all that this user may see."""
    program: str = "pulumi"
    """The command, by name or path."""

    def names(self, project: str | None) -> list[StackName]:
        """List the stacks of a project, of all projects without one.

        Raises:
            DeployError: `pulumi` is not there, or the backend cannot be reached.
        """
        words = ["stack", "ls", "--json", *(["--project", project] if project else ["--all"])]
        if self.organization is not None:
            words += ["--organization", self.organization]
        done = self._run(words)
        if done.returncode:
            raise DeployError(f"backend {self.backend}: pulumi {' '.join(words)} says: {_last_words(done.stderr)}")
        try:
            listed = json.loads(done.stdout or "[]")
        except ValueError as error:
            raise DeployError(
                f"backend {self.backend}: pulumi lists stacks in a way that is no JSON: {error}"
            ) from error
        return [_name(item.get("name", ""), project) for item in listed if isinstance(item, dict)]

    def read(self, name: StackName) -> str:
        """Export a stack; what is secret in it stays encrypted.

        Raises:
            UnreadableStateError: `pulumi` refuses.
        """
        done = self._run(["stack", "export", "--stack", self._full(name)])
        if done.returncode:
            raise UnreadableStateError(f"pulumi stack export says: {_last_words(done.stderr)}")
        return done.stdout

    def updating(self) -> frozenset[StackName]:
        """Return nothing: other backends do not tell it cheaply."""
        return frozenset()

    def _full(self, name: StackName) -> str:
        if not name.project:
            return name.stack
        owner, slash, stack = name.stack.rpartition("/")
        if not slash:
            owner = self.organization or choose_organization(self.backend)
        return f"{owner}/{name.project}/{stack}"

    def _run(self, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
        program = shutil.which(self.program)
        if program is None:
            raise DeployError(
                f"backend {self.backend} is read through the Pulumi CLI, and there is no {self.program!r} on PATH; "
                "install it as https://www.pulumi.com/docs/install says"
            )
        environment = {
            **cli_environment(),
            "PULUMI_BACKEND_URL": backend_url(self.backend),
            "PULUMI_SKIP_UPDATE_CHECK": "true",
        }
        try:
            return subprocess.run(
                [program, *words, "--non-interactive"],
                env=environment,
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise DeployError(
                f"backend {self.backend}: pulumi {words[0]} {words[1]} gave no answer in {TIMEOUT_S:g} s; "
                "see that the backend can be reached from here"
            ) from error


def _name(listed: str, project: str | None) -> StackName:
    """Split what `pulumi stack ls` calls a stack: `stack`, `project/stack`, or `organization/project/stack`."""
    parts = listed.split("/")
    if len(parts) == 1:
        return StackName(project=project or "", stack=listed)
    if len(parts) == 2:
        # With a project, what stands before the stack is its owner; or it is that project, in the default organization.
        owned = project is not None and parts[0] != project
        return StackName(project=project or parts[0], stack=listed if owned else parts[1])
    owner, found, stack = parts[0], parts[1], "/".join(parts[2:])
    return StackName(project=found, stack=stack if owner == "organization" else f"{owner}/{stack}")


def _last_words(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return without_credentials(" ".join(lines[-3:])) or "nothing"
