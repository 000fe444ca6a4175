"""Ends that are written into a stack while the real CLI works on it: nothing of either is ever lost."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.apps.answer import StackChange
from torchx_pulumi.model.app_entry import StackRef
from torchx_pulumi.runs.driver import Recorded
from torchx_pulumi.stack_state import stack_locks
from torchx_pulumi.stack_state.backend import open_store
from torchx_pulumi.stack_state.stack_locks import OwnedLocks
from torchx_pulumi.storage.stores import FolderStore, ObjectStore, Store
from torchx_pulumi_stacks.engine import status_writer

from tests.e2e.project import eventually

pytestmark = pytest.mark.e2e

WRITES = int(os.environ.get("TORCHX_PULUMI_STATUS_WRITES", "15"))
"""Writes that must have succeeded; 500 are run by hand."""

PROGRAM = """\
import json
import pathlib
import time

import pulumi


def read(stack):
    # The engine writes the checkpoint in place: a program that reads it then finds a part, as the components do.
    for attempt in range(50):
        try:
            answer = pulumi.runtime.invoke("pulumi:pulumi:readStackResourceOutputs", {"stackName": stack})
            return answer.value or {}
        except Exception as error:
            if not any(word in str(error) for word in ("EOF", "checksum")) or attempt == 49:
                raise
            time.sleep(0.05)


plan = json.loads(pathlib.Path("plan.json").read_text())
uid = f"u-{plan['generation']}"
stack = f"{pulumi.get_organization()}/{pulumi.get_project()}/{pulumi.get_stack()}"
found = read(stack)
known = [
    one["outputs"]
    for urn, one in (found.get("outputs") or {}).items()
    if urn.endswith("torchx:index:VolcanoTrainingJob::train") and (one.get("outputs") or {}).get("uid") == uid
]
observed = {"state": "SUBMITTED", "reason": "Submitted", "attempt": 1, "observed_at": "2026-01-01T00:00:00Z"}
observed = known[0]["observed"] if known else observed


class Job(pulumi.ComponentResource):
    def __init__(self):
        super().__init__("torchx:index:VolcanoTrainingJob", "train", {})
        pulumi.Stash("train-app", input={"version": 1}, opts=pulumi.ResourceOptions(parent=self))
        self.register_outputs({"uid": uid, "app_id": "default:train-1", "observed": observed})


Job()
for number in range(plan["extra"]):
    pulumi.Stash(f"extra-{number}", input={"number": number, "generation": plan["generation"]})
torchx = {"schema_version": 1, "app": {"id": "default:train-1"}, "observed": observed}
for name, value in {"torchx": torchx, "state": observed["state"], "reason": observed["reason"]}.items():
    pulumi.export(name, value)
"""


class Cli:
    """A project with a program of stashes, which needs no cluster; operations are repeated where they meet a lock."""

    def __init__(self, folder: Path, tools: dict[str, str], url: str | None = None) -> None:
        self.folder = folder
        self.backend = folder / "state"
        self.backend.mkdir(parents=True)
        self.url = url or f"file://{self.backend}"
        self.met_locks = 0
        self.env = {
            **os.environ,
            **tools,
            "PULUMI_BACKEND_URL": self.url,
            "PULUMI_CONFIG_PASSPHRASE": "p",
            "PULUMI_SKIP_UPDATE_CHECK": "true",
        }
        runtime = {"name": "python", "options": {"virtualenv": sys.prefix}}
        (folder / "Pulumi.yaml").write_text(json.dumps({"name": "torchx", "runtime": runtime}))
        (folder / "__main__.py").write_text(PROGRAM)
        self.run("stack", "init", "dev")

    @property
    def place(self) -> StackRef:
        return StackRef(backend=self.url, project="torchx", stack="dev")

    @property
    def state(self) -> Path:
        return self.backend / ".pulumi/stacks/torchx/dev.json"

    def plan(self, generation: int, extra: int) -> None:
        (self.folder / "plan.json").write_text(json.dumps({"generation": generation, "extra": extra}))

    def run(self, *words: str) -> str:
        while True:
            done = subprocess.run(
                ["pulumi", *words, "--non-interactive"],
                cwd=self.folder,
                env=self.env,
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                check=False,
            )
            if done.returncode == 0:
                return done.stdout
            assert "is currently locked by" in done.stdout, done.stdout
            self.met_locks += 1

    def resources(self) -> dict[str, Any]:
        latest = json.loads(self.state.read_text())["checkpoint"]["latest"] or {}
        return {item["urn"].rpartition("::")[2]: item for item in latest.get("resources") or []}


def write(store: Store, cli: Cli, observed: Mapping[str, Any], locks: OwnedLocks) -> Recorded:
    """Write an observation that was made earlier."""
    change = StackChange(uid=observed["uid"], observed=observed)
    return status_writer.write_status(store, cli.place, change, locks).outcome


def attempt_in(resources: dict[str, Any]) -> int:
    outputs = resources["torchx-dev"]["outputs"]
    observed = resources["train"]["outputs"]["observed"]
    assert outputs["torchx"]["observed"] == observed
    assert (outputs["state"], outputs["reason"]) == (observed["state"], observed["reason"])
    return int(observed["attempt"])


class Writer:
    """Writes one observation after the other, each of a higher attempt, as fast as it may."""

    def __init__(self, cli: Cli, tmp_path: Path) -> None:
        self.cli = cli
        self.generation = 0
        self.attempt = 1
        self.written = 0
        """Highest attempt that the stack was said to have."""
        self.outcomes: Counter[Recorded] = Counter()
        self.held_s: list[float] = []
        self.guard = threading.Lock()
        self.over = threading.Event()
        self.store = HoldTimes(FolderStore(cli.backend), self.held_s)
        self.locks = OwnedLocks(tmp_path / "engine")

    def write_on(self) -> None:
        while not self.over.is_set():
            with self.guard:
                self.attempt += 1
                uid = f"u-{self.generation}"
                seen = {"state": "FAILED", "reason": "ExitCode", "attempt": self.attempt, "uid": uid}
                store: Any = self.store
                outcome = write(store, self.cli, {**seen, "observed_at": "2026-01-02T00:00:00Z"}, self.locks)
                if outcome is Recorded.WRITTEN:
                    self.written = self.attempt
                self.outcomes[outcome] += 1
            time.sleep(random.uniform(0.0, 0.2))


class HoldTimes:
    """A store that notes how long its locks were held."""

    def __init__(self, store: Any, held_s: list[float]) -> None:
        self._store, self._held_s, self._since = store, held_s, 0.0

    def lock(self, path: str, data: bytes) -> None:
        begun = time.monotonic()
        self._store.lock(path, data)
        # As the writer reckons it: the lock is there from some time within the request on.
        self._since = (begun + time.monotonic()) / 2

    def remove(self, path: str) -> None:
        self._store.remove(path)
        self._held_s.append(time.monotonic() - self._since)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


@pytest.fixture
def cli(tmp_path: Path, pulumi_tools: dict[str, str]) -> Cli:
    return Cli(tmp_path / "project", pulumi_tools)


@pytest.mark.counted
def test_writes_beside_up_refresh_and_destroy_lose_nothing(cli: Cli, tmp_path: Path, capsys: Any) -> None:
    cli.plan(0, 1)
    cli.run("up", "--yes", "--skip-preview")
    writer = Writer(cli, tmp_path)
    thread = threading.Thread(target=writer.write_on)
    thread.start()
    generation, extra, operations = 0, 1, Counter[str]()
    try:
        while writer.outcomes[Recorded.WRITTEN] < WRITES:
            assert thread.is_alive()
            with writer.guard:
                written = writer.written
            operation = random.choice(["up", "up", "refresh", "destroy"])
            operations[operation] += 1
            if operation == "destroy":
                cli.run("destroy", "--yes", "--skip-preview")
                assert set(cli.resources()) == set()
                generation, extra = generation + 1, 0
                with writer.guard:
                    writer.generation, writer.written = generation, 0
                operation, written = "up", 0
            if operation == "up":
                extra += 1
                cli.plan(generation, extra)
                cli.run("up", "--yes", "--skip-preview")
            else:
                cli.run("refresh", "--yes", "--skip-preview")
            resources = cli.resources()
            assert {f"extra-{number}" for number in range(extra)} < resources.keys()
            assert {"torchx-dev", "train", "train-app"} < resources.keys()
            assert resources["train"]["outputs"]["uid"] == f"u-{generation}"
            assert attempt_in(resources) >= written
    finally:
        writer.over.set()
        thread.join()
    resources = cli.resources()
    assert attempt_in(resources) == max(writer.written, 1)
    assert {f"extra-{number}" for number in range(extra)} < resources.keys()
    assert max(writer.held_s) < stack_locks.HOLD_S
    assert list((cli.backend / ".pulumi/locks").rglob("*.json")) == []
    assert list(cli.backend.rglob("*.tmp")) == []
    cli.run("preview", "--expect-no-changes")
    median_s = sorted(writer.held_s)[len(writer.held_s) // 2]
    with capsys.disabled():
        sys.stdout.write(
            f"\n{dict(operations)} met {cli.met_locks} locks; writes {dict(writer.outcomes)}; "
            f"lock held for at most {max(writer.held_s):.3f} s, median {median_s:.4f} s\n"
        )


def test_a_killed_writer_leaves_a_lock_that_the_next_call_removes(cli: Cli, tmp_path: Path) -> None:
    seen = {"state": "FAILED", "reason": "ExitCode", "attempt": 1, "uid": "u-0", "observed_at": "2026-01-02T00:00:00Z"}
    cli.plan(0, 1)
    cli.run("up", "--yes", "--skip-preview")
    text = f"""
import os
from pathlib import Path
from torchx_pulumi.apps.answer import StackChange
from torchx_pulumi.model.app_entry import StackRef
from torchx_pulumi.stack_state.stack_locks import OwnedLocks
from torchx_pulumi.stack_state.backend import open_store
from torchx_pulumi.storage.stores import FolderStore, ObjectStore
from torchx_pulumi_stacks.engine.status_writer import write_status
class Killed(FolderStore):
    def lock(self, path, data):
        super().lock(path, data)
        os.kill(os.getpid(), 9)
place = StackRef(backend="{cli.place.backend}", project="torchx", stack="dev")
change = StackChange(uid="u-0", observed={seen!r})
write_status(Killed(Path("{cli.backend}")), place, change, OwnedLocks(Path("{tmp_path}/engine")))
"""
    killed = subprocess.run([sys.executable, "-c", text], check=False)
    assert killed.returncode == -9
    done = subprocess.run(
        ["pulumi", "refresh", "--yes", "--skip-preview", "--non-interactive"],
        cwd=cli.folder,
        env=cli.env,
        text=True,
        capture_output=True,
        check=False,
    )
    # Pulumi reads our lock as one of its own.
    assert "is currently locked by 1 lock(s)" in done.stderr
    locks = OwnedLocks(tmp_path / "engine")
    store = FolderStore(cli.backend)
    # It is put off while the disk is too slow for the time for which a lock may be held.
    eventually(lambda: write(store, cli, seen, locks) is Recorded.WRITTEN)
    cli.run("refresh", "--yes", "--skip-preview")
    assert cli.met_locks == 0
    assert cli.resources()["train"]["outputs"]["observed"] == seen


def test_an_end_reaches_a_stack_on_s3_and_is_no_change(
    s3_backend: Any, tmp_path: Path, pulumi_tools: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_backend.env.items():
        monkeypatch.setenv(name, value)
    cli = Cli(tmp_path / "project", {**pulumi_tools, **s3_backend.env}, s3_backend.url)
    cli.plan(0, 1)
    cli.run("up", "--yes", "--skip-preview")
    held_s: list[float] = []
    found = open_store(cli.url)
    assert isinstance(found, ObjectStore)
    store: Any = HoldTimes(found, held_s)
    owned = OwnedLocks(tmp_path / "engine")
    seen = {"state": "FAILED", "reason": "ExitCode", "attempt": 1, "uid": "u-0", "observed_at": "2026-01-02T00:00:00Z"}
    # It is put off while the server is too slow for the time for which a lock may be held.
    eventually(lambda: write(store, cli, seen, owned) is Recorded.WRITTEN)
    assert write(store, cli, seen, owned) is Recorded.KNOWN
    assert max(held_s) < stack_locks.HOLD_S
    assert store.paths(stack_locks.lock_folder(cli.place)) == []
    for step in (("preview", "--expect-no-changes"), ("refresh", "--yes", "--skip-preview"), ("up", "--yes")):
        cli.run(*step)
    path = ".pulumi/stacks/torchx/dev.json"
    stored = found.read(path)
    assert stored is not None
    latest = json.loads(stored.data)["checkpoint"]["latest"]
    (run,) = [item for item in latest["resources"] if item["type"] == "torchx:index:VolcanoTrainingJob"]
    assert run["outputs"]["observed"] == seen
    # A lock of the CLI is respected, and a version that somebody has replaced is not overwritten.
    found.lock(f"{stack_locks.lock_folder(cli.place)}/of-somebody.json", b"{}")
    later = {**seen, "attempt": 2}
    assert write(store, cli, later, owned) is Recorded.DEFERRED
    found.write(path, stored.data + b"\n")
    with pytest.raises(OSError, match=r"pre-?condition"):
        found.write(path, b"{}", replaces=stored)
    # Without the right to write it is left.
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    refused = open_store(cli.url)
    assert refused is not None
    assert write(refused, cli, later, owned) is Recorded.LEFT
