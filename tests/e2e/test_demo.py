"""The demo as a user runs it: real PyTorch on two replicas, and nothing left, however it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.local_cluster import Cluster

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def state() -> Iterator[Path]:
    """A state folder of this test's own, with a short path: sockets are in it."""
    with tempfile.TemporaryDirectory(prefix="txp-") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", folder)
        yield Path(folder)
        assert Cluster.find("demo") is None
        assert not (Path(folder) / "torchx-pulumi" / "demo").exists()


def start(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tools.demo", *words],
        cwd=ROOT,
        env=dict(os.environ),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


@pytest.mark.usefixtures("state")
def test_two_replicas_find_each_other_train_and_leave_nothing() -> None:
    process = start()
    text, _ = process.communicate(timeout=1800)
    if "can run no containers" in text:
        assert process.returncode == 1
        pytest.skip("this machine can run no containers")
    assert process.returncode == 0, text
    for rank in range(4):
        # Once on Volcano, once on MCAD.
        assert text.count(f"rank {rank}: world size 4") == 2
        assert text.count(f"rank {rank}: all_reduce of {rank + 1} with the others: 10 (expected 10)") == 2
        assert text.count(f"rank {rank}: after training all 4 ranks on 2 hosts hold the same weights: True") == 2
    assert "+  torchx:index:VolcanoTrainingJob my-train create" in text
    assert "+  torchx:index:MCADTrainingJob my-train create" in text
    assert text.count("my-train-1: SUCCEEDED, exit code 0") == 2
    assert text.index("status: SUCCEEDED") < text.index("local cluster: MCAD")
    assert "kwok" not in text
    assert text.rstrip().endswith("passed: volcano SUCCEEDED, mcad SUCCEEDED; nothing is left running")
    assert (text.count("Outputs:"), text.count("\n{\n")) == (0, 1)
    assert text.count("stand-in for the official one") <= 1
    shown = text[text.index("\n{\n") : text.index("\n}\n") + 2]
    outputs = json.loads(shown)
    assert (outputs["state"], outputs["torchx"]["observed"]["state"]) == ("SUCCEEDED", "SUCCEEDED")
    rank0 = outputs["torchx"]["observed"]["roles"][0]["replicas"][0]["pod"]
    assert f"rank 3: world size 4, on {rank0.replace('-0-0', '-1-0')}; rank 0 is on {rank0}" in text


@pytest.mark.extended
@pytest.mark.usefixtures("state")
def test_an_interrupted_demo_says_where_it_was_and_leaves_nothing() -> None:
    process = start()
    assert process.stdout is not None
    seen = []
    for line in process.stdout:
        seen.append(line)
        if "PENDING (" in line or "RUNNING (" in line:
            break
        if "can run no containers" in line:
            process.wait()
            pytest.skip("this machine can run no containers")
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=900)
    assert process.returncode == 1, "".join(seen) + rest
    assert "status: " in rest, rest
    assert "interrupted: cleaning up" in rest, rest
    assert "Traceback" not in rest, rest
