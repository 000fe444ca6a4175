"""A fleet of 200 stacks on a real S3 server is read without a process of the Pulumi CLI."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.stack_state.backend import open_store
from torchx_pulumi.stack_state.stacks import CliStacks, open_stacks
from torchx_pulumi_fleet import read_fleet

from tests.fleet.tracker.states import checkpoint, output
from tests.s3_server import S3Backend

pytestmark = pytest.mark.e2e

STACKS = 200
EXPORTED = 8
"""Stacks that are also exported by the CLI, to compare the time."""


def test_200_stacks_are_read_without_a_process(
    s3_backend: S3Backend,
    pulumi_tools: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, Any], None],
) -> None:
    for name, value in {**os.environ, **pulumi_tools, **s3_backend.env}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "p")
    folder = s3_backend.bucket / ".pulumi"
    (folder / "stacks/torchx").mkdir(parents=True)
    (folder / "meta.yaml").write_text("version: 1\n")
    for number in range(STACKS):
        whole = checkpoint(output(f"train-{number}"))
        whole["checkpoint"]["stack"] = f"organization/torchx/s{number}"
        (folder / f"stacks/torchx/s{number}.json").write_text(json.dumps(whole))
    started: list[Any] = []
    start = subprocess.Popen.__init__

    def count(self: Any, *args: Any, **options: Any) -> None:
        started.append(args[0] if args else options["args"])
        start(self, *args, **options)

    monkeypatch.setattr(subprocess.Popen, "__init__", count)
    begun = time.monotonic()
    fleet = read_fleet(s3_backend.url)
    direct_s = time.monotonic() - begun
    assert (len(fleet.rows), fleet.broken, fleet.warnings, started) == (STACKS, [], [], [])
    names = [row.stack for row in fleet.rows[:EXPORTED]]
    begun = time.monotonic()
    for name in names:
        CliStacks(s3_backend.url).read(name)
    export_s = (time.monotonic() - begun) / EXPORTED
    assert len(started) == EXPORTED
    record_property("seconds", {"200 stacks": round(direct_s, 2), "one export by the CLI": round(export_s, 2)})
    assert direct_s < export_s * STACKS / CliStacks.reads_at_once


def test_one_listing_tells_which_stacks_have_changed(
    s3_backend: S3Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_backend.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    store = open_store(s3_backend.url)
    assert store is not None
    for number in range(3):
        store.write(f".pulumi/stacks/torchx/s{number}.json", json.dumps(checkpoint(output(f"t{number}"))).encode())
    stacks = open_stacks(s3_backend.url)
    before = stacks.versions()
    assert [str(name) for name in before] == ["torchx/s0", "torchx/s1", "torchx/s2"]
    assert all(before.values())
    assert stacks.versions("torchx") == before
    ended = checkpoint(output("t1", observed={"state": "FAILED"}))
    store.write(".pulumi/stacks/torchx/s1.json", json.dumps(ended).encode())
    store.remove(".pulumi/stacks/torchx/s2.json")
    after = stacks.versions()
    changed = {str(name) for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert changed == {"torchx/s1", "torchx/s2"}
