"""A throwaway Pulumi project, driven by the command line as a user drives it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

PROGRAM = """\
import json
import pathlib

import pulumi
from torchx_pulumi_components import VolcanoTrainingJob

given = json.loads(pathlib.Path("job.json").read_text())
opts = pulumi.ResourceOptions(
    aliases=[pulumi.Alias(name=old) for old in given.get("aliases", [])],
    import_=given.get("import"),
    protect=given.get("protect"),
    ignore_changes=given.get("ignore_changes"),
)
job = VolcanoTrainingJob(given.get("name", "train"), given["args"], opts)
for output in (
    "app_id", "app_handle", "namespace", "job_name", "uid", "declared", "observed", "pod_names", "pod_groups",
    "service", "rank0_host", "images",
):
    pulumi.export(output, getattr(job, output))
"""

FAKE_NODE = {
    "node_selector": {"torchx-pulumi/node": "fake"},
    "tolerations": [{"key": "kwok.x-k8s.io/node", "value": "fake", "operator": "Equal", "effect": "NoSchedule"}],
}
"""On these nodes a pod runs until it is deleted, and costs nothing."""


def finite(exit_code: int = 0, run_for: str = "1s") -> dict[str, Any]:
    """Return an overlay that ends the pods of a fake node."""
    annotations = {"torchx-pulumi/fake-exit-code": str(exit_code), "torchx-pulumi/fake-run-for": run_for}
    return {"metadata": {"annotations": annotations}}


SIGNATURE = "4dabf18193072939515e22adb298388d"
"""Key of a secret in Pulumi's state."""

LONG_S = 240.0
"""Longest wait for what a controller does within a minute on an idle machine."""

STOP_S = 5.0
"""Longest time that a controller takes to stop, which gives its writes and copies 4 s."""

SESSIONS: set[int] = set()
"""Sessions of the commands that were started, by the number of their first process."""


def end_sessions() -> None:
    """Kill what killed commands left: the engine starts its hosts in process groups of their own."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            session = int((folder / "stat").read_text().rpartition(")")[2].split()[3])
            if session in SESSIONS:
                os.kill(int(folder.name), signal.SIGKILL)
        except (FileNotFoundError, ProcessLookupError):
            continue
    SESSIONS.clear()


class Project:
    """A Pulumi project in a folder, with a stack of its own on a file backend."""

    stack = "dev"

    def __init__(
        self, folder: Path, env: dict[str, str], namespace: str, program: str = PROGRAM, runtime: str | None = None
    ) -> None:
        self.folder = folder
        self.namespace = namespace
        self.env = env
        folder.mkdir(exist_ok=True)
        venv = {"name": "python", "options": {"virtualenv": sys.prefix}}
        (folder / "Pulumi.yaml").write_text(json.dumps({"name": folder.name, "runtime": runtime or venv}))
        if runtime is None:
            (folder / "__main__.py").write_text(program)
        self.run("stack", "init", "dev")

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start the CLI in a session of its own."""
        process = subprocess.Popen(
            ["pulumi", *words, "--non-interactive"],
            cwd=self.folder,
            env=self.env,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            # A shell may have started the tests with SIGINT ignored, which costs the language host 5 s a run.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        SESSIONS.add(process.pid)
        return process

    def run(self, *words: str, fails: bool = False) -> str:
        """Run the CLI to its end and return what it printed."""
        process = self.start(*words)
        try:
            text, _ = process.communicate(timeout=240)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        assert (process.returncode != 0) is fails, f"pulumi {' '.join(words)}: {process.returncode}\n{text}"
        # CLI 3.274 interrupts the program of a failed deployment, and the SDK prints where the program was.
        interrupted = fails and "KeyboardInterrupt" in text and "Program failed with an unhandled" not in text
        assert "Traceback" not in text or interrupted, text
        return text

    def job(self, role: dict[str, Any] | None = None, **args: Any) -> None:
        """Write the job that the program makes: two replicas on fake nodes, and what is said otherwise."""
        top = {key: args.pop(key) for key in ("name", "aliases", "import", "protect", "ignore_changes") if key in args}
        base = {"name": "trainer", "image": "app:1", "entrypoint": "sleep", "args": ["600"], "num_replicas": 2}
        whole = {
            "queue": "default",
            "namespace": self.namespace,
            "roles": [{**base, **FAKE_NODE, **(role or {})}],
            **args,
        }
        (self.folder / "job.json").write_text(json.dumps({"args": whole, **top}))

    def up(self, *words: str) -> str:
        return self.run("up", "--yes", "--skip-preview", *words)

    def preview(self, *, fails: bool = False) -> str:
        return self.run("preview", "--suppress-outputs", fails=fails)

    def refresh(self) -> str:
        return self.run("refresh", "--yes", "--skip-preview")

    def destroy(self) -> str:
        return self.run("destroy", "--yes", "--skip-preview")

    def checkpoint_is_whole(self) -> bool:
        """Return whether the state's file and the attributes that Pulumi writes next to it can be read now."""
        stack = self._state_file()
        try:
            return all(json.loads(path.read_text()) for path in (stack, stack.with_name("dev.json.attrs")))
        except (ValueError, FileNotFoundError):
            return False

    def output(self, name: str) -> Any:
        """Return an output as the stack's state has it, secrets as `[secret]`."""
        found = [item for item in self.resources() if item["type"] == "pulumi:pulumi:Stack"]
        return shown(((found[0].get("outputs") or {}) if found else {}).get(name))

    def resources(self) -> list[dict[str, Any]]:
        """Return the stack's resources as its state has them; no process of the CLI is needed for that."""
        latest = json.loads(self._state_file().read_text())["checkpoint"].get("latest") or {}
        return list(latest.get("resources") or [])

    def _state_file(self) -> Path:
        name = yaml.safe_load((self.folder / "Pulumi.yaml").read_text())["name"]
        backend = Path(self.env["PULUMI_BACKEND_URL"].removeprefix("file://"))
        return backend / ".pulumi/stacks" / name / f"{self.stack}.json"


def shown(value: Any) -> Any:
    """Return a value of the state as the CLI shows it."""
    if isinstance(value, dict):
        return "[secret]" if SIGNATURE in value else {key: shown(item) for key, item in value.items()}
    return [shown(item) for item in value] if isinstance(value, list) else value


def kill_between_writes(project: Project, process: subprocess.Popen[str]) -> None:
    """Kill the CLI and all that it started at a moment at which its checkpoint is whole.

    Pulumi writes the state and its attributes in more than one step; killed between them it leaves an empty file, which
    is not what is tested here.
    """
    while process.poll() is None:
        os.killpg(process.pid, signal.SIGSTOP)
        # A thread within a call of the system ends that call before it stops.
        time.sleep(0.05)
        if project.checkpoint_is_whole():
            break
        os.killpg(process.pid, signal.SIGCONT)
        time.sleep(0.01)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def changes(text: str) -> dict[str, int]:
    """Read the summary that the CLI prints: what happened to how many resources."""
    summary = text.rpartition("Resources:")[2]
    return {
        word: int(count) for count, word in re.findall(r"(\d+) (unchanged|created|updated|deleted|replaced)", summary)
    }


def eventually(claim: Callable[[], Any], timeout_s: float = LONG_S) -> Any:
    """Wait until a claim holds, and return its value."""
    end = time.monotonic() + timeout_s
    while not (value := claim()):
        assert time.monotonic() < end, f"not so within {timeout_s} s"
        time.sleep(0.2)
    return value
