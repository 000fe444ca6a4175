"""Whole commands, from start to exit: `torchx run`, `status` and `list` with TorchX's own scheduler and with ours."""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from bench._cluster import delete_job

COMMANDS = ("run", "status", "list")
SCHEDULERS = {"torchx": "kubernetes", "ours": "pulumi_volcano"}
BIN = Path(sys.prefix) / "bin"


def measure_commands(env: Mapping[str, str], folder: Path, namespace: str, queue: str, rounds: int) -> dict[str, float]:
    """Return for each command the median of our time in relation to TorchX's; print both."""
    env = {**env, "XDG_STATE_HOME": str(folder / "state"), "CI": "true"}
    for name in ("PULUMI_BACKEND_URL", "PULUMI_CONFIG_PASSPHRASE", "PULUMI_CONFIG_PASSPHRASE_FILE"):
        env.pop(name, None)
    folder.mkdir()
    taken: dict[str, dict[str, list[float]]] = {way: {name: [] for name in COMMANDS} for way in SCHEDULERS}
    for _ in range(rounds):
        for way, scheduler in SCHEDULERS.items():
            one_round(taken[way], scheduler, env, folder, namespace, queue)
    medians = {way: {name: statistics.median(times) for name, times in found.items()} for way, found in taken.items()}
    ratios = {name: medians["ours"][name] / medians["torchx"][name] for name in COMMANDS}
    for name in COMMANDS:
        print(
            f"command torchx {name}: TorchX {medians['torchx'][name]:.2f} s, ours {medians['ours'][name]:.2f} s: "
            f"{ratios[name]:.2f}"
        )
    return ratios


def one_round(
    taken: dict[str, list[float]], scheduler: str, env: Mapping[str, str], folder: Path, namespace: str, queue: str
) -> None:
    """Run each command once and delete the app."""

    def timed(name: str, *words: str) -> str:
        began = time.perf_counter()
        text = run(BIN / "torchx", name, *words)
        taken[name].append(time.perf_counter() - began)
        return text

    def run(*words: str | os.PathLike[str]) -> str:
        done = subprocess.run(words, env=env, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(map(str, words))}: {done.stderr}")
        return done.stdout

    options = f"namespace={namespace},queue={queue}"
    words = ("utils.sh", "--image", "app:1", "--num_replicas", "2", "sleep", "600")
    text = timed("run", "-s", scheduler, "-cfg", options, "--workspace", "", *words)
    found = re.search(rf"{scheduler}://\S+:\S+", text)
    if found is None:
        raise RuntimeError(f"torchx run printed no handle: {text}")
    handle, name = found[0], found[0].rpartition(":")[2]
    timed("status", handle)
    if name not in timed("list", "-s", scheduler):
        raise RuntimeError(f"torchx list -s {scheduler} has not {name}")
    if scheduler == SCHEDULERS["ours"]:
        run(BIN / "torchx-pulumi", "delete", handle)
    else:
        delete_job(Path(env["KUBECONFIG"]), namespace, name)
