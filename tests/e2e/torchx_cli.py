"""`torchx` and `torchx-pulumi` as a user runs them, with a home, a backend and a working folder of the test's own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from torchx.runner import Runner, get_runner
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.kube.kinds import POD

from tests.e2e.project import eventually

BIN = Path(sys.prefix) / "bin"
HANDLE = re.compile(r"pulumi_\w+://\S*?/[\w.-]+:[\w.-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a command printed, and how it ended."""

    out: str
    err: str
    code: int

    @property
    def text(self) -> str:
        return self.out + self.err

    @property
    def handle(self) -> str:
        found = HANDLE.search(self.text)
        assert found, self.text
        return found.group()


class TorchxCli:
    """The commands, in one environment."""

    def __init__(self, env: Mapping[str, str], folder: Path, kubeconfig: Path) -> None:
        self.folder = folder
        state = folder / "state"
        mine = {"XDG_STATE_HOME": str(state), "HOME": str(folder), "KUBECONFIG": str(kubeconfig), "CI": "true"}
        theirs = ("PULUMI_BACKEND_URL", "PULUMI_CONFIG_PASSPHRASE", "PULUMI_CONFIG_PASSPHRASE_FILE")
        # The caches of built parts are the user's, whatever home the test gives.
        cache = {"XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")}
        self.env = {**{name: value for name, value in env.items() if name not in theirs}, **cache, **mine}

    def torchx(self, *words: str, code: int | None = 0, timeout_s: float = 240) -> Said:
        return self._run("torchx", *words, code=code, timeout_s=timeout_s)

    def ours(self, *words: str, code: int | None = 0, timeout_s: float = 240) -> Said:
        return self._run("torchx-pulumi", *words, code=code, timeout_s=timeout_s)

    def _run(self, program: str, *words: str, code: int | None, timeout_s: float) -> Said:
        try:
            done = subprocess.run(
                [BIN / program, *words],
                cwd=self.folder,
                env=self.env,
                text=True,
                capture_output=True,
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired as late:
            # What it printed until then is in bytes, and not in the message.
            printed = b"".join(part for part in (late.stdout, late.stderr) if isinstance(part, bytes))
            raise AssertionError(f"{program} {' '.join(words)}: {late}\n{printed.decode(errors='replace')}") from late
        said = Said(out=done.stdout, err=done.stderr, code=done.returncode)
        assert code is None or said.code == code, f"{program} {' '.join(words)}: {said.code}\n{said.text}"
        assert code != 0 or "Traceback" not in said.text, said.text
        return said


STATES = {"RUNNING": {"Running"}, "SUCCEEDED": {"Succeeded"}, "CANCELLED": {"Succeeded", "Failed"}}
"""State of an app to the phases that its pods then have."""


def wait_for_pods(look: KubernetesCluster, handle: str, state: str) -> None:
    """Wait until the pods of an app are as in a state. A look at them costs less than a command that says the state."""
    namespace, name = handle.rpartition("/")[2].split(":")

    def is_so() -> bool:
        pods = [pod for pod in look.list(POD, namespace) if pod["metadata"]["name"].startswith(f"{name}-")]
        found = {(pod.get("status") or {}).get("phase") for pod in pods}
        # Those of an app that was cancelled are gone, or end.
        return found <= STATES[state] and bool(found or state == "CANCELLED")

    eventually(is_so)


@contextmanager
def runner_of(cli: TorchxCli, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runner]:
    """TorchX's runner in this process, with the environment and the folder of the commands."""
    for name in ("PULUMI_BACKEND_URL", "PULUMI_CONFIG_PASSPHRASE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in cli.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(cli.folder)
    with get_runner() as found:
        yield found
