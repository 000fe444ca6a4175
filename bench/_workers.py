"""Processes of benchmarks: one that answers requests, and the memory and CPU time that each process has used."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

SAMPLE_S = 0.1


class Worker:
    """A Python process that answers requests, for use in a `with` block, which ends it and its processes."""

    def __init__(self, module: str, *words: str, env: Mapping[str, str]) -> None:
        """Start `python -m MODULE WORDS`, which calls `serve`."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *words],
            env=dict(env), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1],
        )  # fmt: skip
        self.memory = Usage(self._process.pid)

    def ask(self, what: str, **how: Any) -> dict[str, Any]:
        """Send a request and return the answer."""
        if self._process.stdin is None or self._process.stdout is None:
            raise AssertionError("unreachable: both were asked for")
        self._process.stdin.write(json.dumps({"what": what, **how}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        self.memory.sample()
        if not line:
            raise RuntimeError(f"the process that was asked to {what} ended with {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.memory.stop()
        end(self._process)


def worker_env(env: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return the environment of a process with a backend of its own."""
    (folder / "backend").mkdir(parents=True, exist_ok=True)
    own = {
        "XDG_STATE_HOME": str(folder / "state"),
        "PULUMI_BACKEND_URL": f"file://{folder}/backend",
        "PULUMI_CONFIG_PASSPHRASE": "correct horse battery staple",
    }
    return {**env, **own}


def serve(answers: Mapping[str, Callable[..., Mapping[str, Any]]]) -> int:
    """Answer the requests of standard input until it ends."""
    # What a library prints is no answer.
    with os.fdopen(os.dup(1), "w") as out:
        os.dup2(2, 1)
        for line in sys.stdin:
            request = json.loads(line)
            print(json.dumps(answers[request.pop("what")](**request)), file=out, flush=True)
    return 0


def end(process: subprocess.Popen[str]) -> None:
    """End a process that reads its input, or else interrupt it; kill what is left of it and of its descendants."""
    import psutil

    with contextlib.suppress(psutil.NoSuchProcess):
        left = psutil.Process(process.pid).children(recursive=True)
        try:
            if process.stdin is not None:
                process.stdin.close()
            else:
                process.send_signal(signal.SIGINT)
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            left += [psutil.Process(process.pid)]
        finally:
            for other in left:
                with contextlib.suppress(psutil.NoSuchProcess):
                    other.kill()
    process.wait()


class Usage:
    """What a process and its descendants have used, by program: the most memory, in MB (10^6), and CPU time."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._stopped = threading.Event()
        self.most_mb: dict[str, float] = {}
        self._cpu_s: dict[tuple[str, int], float] = {}
        """Name and id of each process to its CPU seconds."""
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while not self._stopped.wait(SAMPLE_S):
            self.sample()

    def sample(self) -> None:
        """Look once. The kernel keeps the most of each process, so that a peak between two looks is seen."""
        for pid in (self._pid, *descendants(self._pid)):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError, StopIteration):
                lines = Path(f"/proc/{pid}/status").read_text().splitlines()
                most = next(int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith("VmHWM:"))
                program = program_of(Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"))
                self.most_mb[program] = max(most, self.most_mb.get(program, 0.0))
                # After the name, which may have spaces.
                ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
                self._cpu_s[program, pid] = sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")

    def cpu_s(self) -> dict[str, float]:
        """Return the CPU seconds of each program, those after the last look left out."""
        found = dict.fromkeys((program for program, _ in self._cpu_s), 0.0)
        for (program, _), seconds in self._cpu_s.items():
            found[program] += seconds
        return found

    def stop(self) -> None:
        """Look no more."""
        self._stopped.set()


def program_of(words: list[bytes]) -> str:
    """Return the name of a program as the table has it."""
    name = Path(words[0].decode()).name
    for start, shown in (("pulumi-resource", "provider"), ("pulumi-language", "language host"), ("pulumi", "CLI")):
        if name.startswith(start):
            return shown
    return "Python" if name.startswith("python") else name


def descendants(pid: int) -> Iterator[int]:
    """Yield the children of a process, their children and so on."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for path in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in path.read_text().split():
                yield int(child)
                yield from descendants(int(child))
