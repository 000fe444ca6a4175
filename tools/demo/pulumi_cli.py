"""Runs the Pulumi CLI in the demo's own project folder, and passes its lines on."""

from __future__ import annotations

import copy
import json
import os
import shlex
import signal
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from tools.demo.errors import DemoError
from tools.demo.telling import quote, say

ROOT: Final = Path(__file__).resolve().parents[2]
STACK: Final = "demo"
MCAD_STACK: Final = "demo-mcad"
SAID_BEFORE: Final = ("from $PATH at", "a stand-in for the official one")
"""Parts of lines about the provider, which the demo names once itself."""

STOP_WAIT_S: Final = 30
"""How long an interrupted command may take to end by itself."""


class PulumiCli:
    """The commands of one stack; project, state and passphrase of all the demo's stacks are in one folder."""

    def __init__(self, folder: Path, tools: Mapping[str, str], kubeconfig: Path | None, *, stack: str = STACK) -> None:
        self.folder = folder
        """Everything of the demo that is not in the cluster."""
        self.stack = stack
        """Stack that the commands are about."""
        backend = folder / "state"
        self.settings = {
            **tools,
            "PULUMI_BACKEND_URL": f"file://{backend}",
            "PULUMI_CONFIG_PASSPHRASE": "demo",
            "PULUMI_SKIP_UPDATE_CHECK": "true",
            **({"KUBECONFIG": str(kubeconfig)} if kubeconfig else {}),
        }
        """What the environment of a command has beside the caller's own."""

    @property
    def shell_settings(self) -> dict[str, str]:
        """What a shell needs for looking around: `torchx` and `torchx-pulumi` of this checkout are on its PATH."""
        path = os.pathsep.join([str(ROOT / ".venv" / "bin"), self.settings.get("PATH", os.environ.get("PATH", ""))])
        return {**self.settings, "PATH": path}

    @property
    def project(self) -> Path:
        """Folder of Pulumi.yaml."""
        return self.folder / "project"

    @property
    def exists(self) -> bool:
        """Tell whether an earlier demo left its state here."""
        return (self.folder / "state").exists()

    def of(self, stack: str) -> PulumiCli:
        """Return the commands of another stack of the demo."""
        other = copy.copy(self)
        other.stack = stack
        return other

    def stacks(self) -> list[PulumiCli]:
        """Return the commands of every stack that was made here.

        Raises:
            DemoError: They cannot be listed.
        """
        if not (self.project / "Pulumi.yaml").exists():
            return []
        return [self.of(found["name"].rpartition("/")[2]) for found in self._read("stack", "ls", "--json")]

    def create(self, config: Mapping[str, Any]) -> None:
        """Write the project, which runs this checkout's program, and make the stack."""
        for folder in (self.folder, self.folder / "state", self.project):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        project = yaml.safe_load((ROOT / "Pulumi.yaml").read_text("utf-8"))
        project["main"] = str(ROOT / "stacks")
        project["runtime"]["options"]["virtualenv"] = str(ROOT / ".venv")
        del project["stackConfigDir"]
        (self.project / "Pulumi.yaml").write_text(yaml.safe_dump(project, sort_keys=False), "utf-8")
        stack_file = self.project / f"Pulumi.{self.stack}.yaml"
        self.run("stack", "init", self.stack, quiet=True)
        content = (yaml.safe_load(stack_file.read_text("utf-8")) if stack_file.exists() else None) or {}
        content["config"] = {**content.get("config", {}), **{f"torchx:{key}": value for key, value in config.items()}}
        stack_file.write_text(yaml.safe_dump(content, sort_keys=False), "utf-8")
        lines = [f"export {name}={shlex.quote(value)}" for name, value in self.shell_settings.items()]
        (self.folder / "env.sh").write_text("\n".join([*lines, f"cd {shlex.quote(str(self.project))}"]) + "\n", "utf-8")

    def run(self, *words: str, quiet: bool = False) -> None:
        """Run a command and show what it prints.

        Raises:
            DemoError: It failed.
        """
        lines: list[str] = []
        command = ["pulumi", *words, "--stack", self.stack] if words[:2] != ("stack", "init") else ["pulumi", *words]
        if not quiet:
            say(f"$ {shlex.join(['pulumi', *words])}")

        def take(line: str) -> None:
            lines.append(line)
            if not quiet and line.strip() and not any(text in line for text in SAID_BEFORE):
                quote("pulumi", line)

        code = run_command([*command, "--non-interactive", "--color", "never"], self.project, self.settings, take)
        if code:
            if quiet:
                for line in lines:
                    quote("pulumi", line)
            raise DemoError(f"`{shlex.join(['pulumi', *words])}` exited with {code}; see above")

    def outputs(self) -> dict[str, Any]:
        """Return the stack's outputs.

        Raises:
            DemoError: They cannot be read.
        """
        found: dict[str, Any] = self._read("stack", "output", "--json", "--stack", self.stack)
        return found

    def _read(self, *words: str) -> Any:
        """Run a command that prints JSON, and return what it says."""
        lines: list[str] = []
        command = ["pulumi", *words, "--non-interactive"]
        code = run_command(command, self.project, self.settings, lines.append)
        # Warnings may stand before it.
        start = next((number for number, line in enumerate(lines) if line[:1] in ("{", "[")), None)
        if code or start is None:
            raise DemoError(f"`{shlex.join(['pulumi', *words])}` failed: " + " ".join(lines[-3:]))
        return json.loads("\n".join(lines[start:]))


def run_command(command: list[str], folder: Path, settings: Mapping[str, str], take: Callable[[str], None]) -> int:
    """Run a command in a process group of its own; when we are interrupted, so is it, and it is waited for."""
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, **settings},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    assert process.stdout is not None  # noqa: S101 - asked for above
    try:
        for line in process.stdout:
            take(line.rstrip("\n"))
        return process.wait()
    except BaseException:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(STOP_WAIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        raise
    finally:
        process.stdout.close()
