"""Ends written into checkpoints: in a folder and in an object store, with locks as Pulumi takes them."""

from __future__ import annotations

import copy
import getpass
import gzip
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from socket import gethostname
from typing import Any

import fsspec
import pytest
from torchx_pulumi.apps.answer import StackChange
from torchx_pulumi.apps.look import Look
from torchx_pulumi.apps.variants import find_variant
from torchx_pulumi.model.app_entry import StackRef
from torchx_pulumi.model.codec import to_json
from torchx_pulumi.model.requested import Requested, RequestedAction
from torchx_pulumi.runs.driver import Recorded
from torchx_pulumi.schedulers.diagnosis.evidence import ObservedObjects
from torchx_pulumi.stack_state.backend import open_store
from torchx_pulumi.stack_state.checkpoint import encode_checkpoint, parse_checkpoint
from torchx_pulumi.stack_state.stack_locks import OwnedLocks, lock_folder
from torchx_pulumi.storage.owners import holding, local_process, this_process
from torchx_pulumi.storage.stores import FolderStore, ObjectStore, Store, Stored
from torchx_pulumi_stacks.engine import AutomationDriver, status_writer
from torchx_pulumi_stacks.engine.status_writer import SECRET, write_status

PLACE = StackRef(backend="", project="torchx", stack="default.train-1")
PATH = ".pulumi/stacks/torchx/default.train-1.json"
SUBMITTED = {"state": "SUBMITTED", "reason": "Submitted", "attempt": 1, "observed_at": "2026-01-01T00:00:00Z"}
END = {
    "state": "SUCCEEDED",
    "reason": "Completed",
    "message": "all replicas exited with code 0",
    "attempt": 1,
    "observed_at": "2026-01-01T01:00:00Z",
    "uid": "u-1",
    "phase": None,
}
WRITTEN = {key: value for key, value in END.items() if value is not None}


def checkpoint(**latest: Any) -> Any:
    torchx = {"schema_version": 1, "app": {"id": "default:train-1"}, "observed": dict(SUBMITTED)}
    return {
        "version": 3,
        "checkpoint": {
            "stack": "organization/torchx/default.train-1",
            "latest": {
                "manifest": {"time": "2026-01-01T00:00:00.123456789Z", "magic": "abc", "version": "v3.259.0"},
                "resources": [
                    {
                        "urn": "urn:pulumi:s::torchx::pulumi:pulumi:Stack::torchx-s",
                        "type": "pulumi:pulumi:Stack",
                        "outputs": {"torchx": torchx, "state": "SUBMITTED", "reason": "Submitted", "mine": 12.50},
                    },
                    {
                        "urn": "urn:pulumi:s::torchx::torchx:index:VolcanoTrainingJob::train",
                        "type": "torchx:index:VolcanoTrainingJob",
                        "outputs": {"uid": "u-1", "app_id": "default:train-1", "observed": dict(SUBMITTED)},
                    },
                    {"urn": "urn:pulumi:s::torchx::pulumi:index:Stash::train-app", "type": "pulumi:index:Stash"},
                ],
                **latest,
            },
        },
    }


def outputs(data: bytes, place: int = 0) -> Any:
    return json.loads(data)["checkpoint"]["latest"]["resources"][place]["outputs"]


@pytest.fixture(params=["folder", "objects"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "folder":
        (tmp_path / "backend/.pulumi/stacks/torchx").mkdir(parents=True)
        yield FolderStore(tmp_path / "backend")
        return
    files = fsspec.filesystem("memory", skip_instance_cache=True)
    yield ObjectStore(files, "/bucket/team")
    files.rm("/bucket", recursive=True)


@pytest.fixture
def locks(tmp_path: Path) -> OwnedLocks:
    return OwnedLocks(tmp_path / "engine/work/k")


def write(store: Store, observed: Any, locks: OwnedLocks, **options: Any) -> Recorded:
    change = StackChange(uid=observed["uid"], observed=observed)
    return write_status(store, PLACE, change, locks, **options).outcome


def put(store: Store, value: Any) -> bytes:
    data = json.dumps(value).encode()
    store.write(PATH, data)
    return data


def test_an_end_is_written_and_nothing_else_changes(store: Store, locks: OwnedLocks, tmp_path: Path) -> None:
    before = put(store, checkpoint())
    assert write(store, END, locks) is Recorded.WRITTEN
    stored = store.read(PATH)
    assert stored is not None
    assert (outputs(stored.data)["torchx"]["observed"], outputs(stored.data, 1)["observed"]) == (WRITTEN, WRITTEN)
    assert (outputs(stored.data)["state"], outputs(stored.data)["reason"]) == ("SUCCEEDED", "Completed")
    wanted = json.loads(before)
    first, second = wanted["checkpoint"]["latest"]["resources"][:2]
    first["outputs"] |= {"state": "SUCCEEDED", "reason": "Completed"}
    first["outputs"]["torchx"]["observed"] = second["outputs"]["observed"] = WRITTEN
    assert json.loads(stored.data) == wanted
    # As Pulumi keeps it in a folder: what was there before the last write.
    assert store.read(f"{PATH}.bak") == (Stored(data=before) if store.keeps_backups else None)
    assert store.paths(lock_folder(PLACE)) == []
    assert store.paths(".pulumi/locks/organization/torchx") == []
    assert list((tmp_path / "engine").rglob("*.json")) == []
    assert write(store, END, locks) is Recorded.KNOWN


def test_a_compressed_checkpoint_stays_compressed(store: Store, locks: OwnedLocks) -> None:
    store.write(f"{PATH}.gz", gzip.compress(json.dumps(checkpoint()).encode()))
    assert write(store, END, locks) is Recorded.WRITTEN
    stored = store.read(f"{PATH}.gz")
    assert stored is not None
    assert outputs(gzip.decompress(stored.data))["state"] == "SUCCEEDED"
    assert store.read(PATH) is None


def test_a_stack_that_is_locked_is_left_alone_until_it_is_not(store: Store, locks: OwnedLocks) -> None:
    before = put(store, checkpoint())
    store.lock(f"{lock_folder(PLACE)}/of-somebody.json", b"{}")
    assert write(store, END, locks) is Recorded.DEFERRED
    assert store.read(PATH) == Stored(data=before)
    assert store.paths(lock_folder(PLACE)) == ["of-somebody.json"]
    store.remove(f"{lock_folder(PLACE)}/of-somebody.json")
    assert write(store, END, locks) is Recorded.WRITTEN


def test_what_a_killed_engine_left_of_a_lock_does_not_lock_the_stack(locks: OwnedLocks, tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    folder = tmp_path / lock_folder(PLACE)
    for each in (folder, (tmp_path / PATH).parent):
        each.mkdir(parents=True)
    put(store, checkpoint())
    # Pulumi writes both before the lock itself.
    (folder / "a.json.attrs").write_text("{}")
    unfinished = folder / "a.json.18eac572269854bc.tmp"
    unfinished.write_text("{")
    assert write(store, END, locks) is Recorded.DEFERRED
    os.utime(unfinished, (time.time() - 60,) * 2)
    assert write(store, END, locks) is Recorded.WRITTEN
    assert store.paths(lock_folder(PLACE)) == ["a.json.attrs"]


class Racing:
    """A store in which somebody else takes the lock at the same moment."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def lock(self, path: str, data: bytes) -> None:
        self._store.lock(path, data)
        self._store.lock(f"{lock_folder(PLACE)}/of-somebody.json", b"{}")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def test_of_two_that_come_at_once_this_one_stands_back(store: Store, locks: OwnedLocks) -> None:
    before = put(store, checkpoint())
    racing: Any = Racing(store)
    assert write(racing, END, locks) is Recorded.DEFERRED
    assert store.read(PATH) == Stored(data=before)
    assert store.paths(lock_folder(PLACE)) == ["of-somebody.json"]


def changed(**changes: Any) -> Any:
    whole = checkpoint()
    for path, value in changes.items():
        at: Any = whole["checkpoint"]["latest"]["resources"]
        *way, last = [int(step) if step.isdigit() else step for step in path.lstrip("_").split("__")]
        for step in way:
            at = at[step]
        at[last] = value
    return whole


CASES = {
    "pending operations": (checkpoint(pending_operations=[{"type": "creating"}]), Recorded.DEFERRED),
    "an empty stack": ({"version": 3, "checkpoint": {"latest": None}}, Recorded.DEFERRED),
    "a program's own stack": (changed(_2={"type": "pulumi:index:Stash", "urn": "x-record"}), Recorded.LEFT),
    "a secret output": (changed(_0__outputs__x={SECRET: "1b47061264138c4ac30d75fd1eb44270"}), Recorded.LEFT),
    "a secret in the component": (changed(_1__outputs__x={SECRET: "1b47"}), Recorded.LEFT),
    "another run": (changed(_1__outputs__uid="u-2"), Recorded.KNOWN),
    "a run without a uid": (changed(_1__outputs__uid=""), Recorded.KNOWN),
    "a run that the next update deletes": (changed(_1__delete=True), Recorded.KNOWN),
    "a version that is not known": ({**checkpoint(), "version": 5}, Recorded.LEFT),
    "the end of a later attempt": (
        changed(
            _0__outputs__torchx__observed={**WRITTEN, "attempt": 2}, _1__outputs__observed={**WRITTEN, "attempt": 2}
        ),
        Recorded.KNOWN,
    ),
    "a later schema": (changed(_0__outputs__torchx__schema_version=2), Recorded.LEFT),
    "a later schema of another export": (
        changed(_0__outputs__mine={"schema_version": 2, "app": {"id": "default:train-1"}}),
        Recorded.LEFT,
    ),
}


@pytest.mark.parametrize(("whole", "outcome"), CASES.values(), ids=CASES)
def test_a_state_that_allows_no_write_is_left_alone(
    whole: Any, outcome: Recorded, store: Store, locks: OwnedLocks
) -> None:
    before = put(store, whole)

    def others() -> list[StackChange]:
        raise AssertionError("the other runs of the stack are looked at in vain")

    assert write(store, END, locks, also=others) is outcome
    assert store.read(PATH) == Stored(data=before)
    assert store.paths(lock_folder(PLACE)) == []


def test_no_stack_and_one_that_is_no_checkpoint(store: Store, locks: OwnedLocks) -> None:
    assert write(store, END, locks) is Recorded.LEFT
    store.write(PATH, b'{"version": 3, "checkpo')
    assert write(store, END, locks) is Recorded.DEFERRED


def test_a_program_that_exports_something_else_keeps_that() -> None:
    whole = checkpoint()
    whole["checkpoint"]["latest"]["resources"][0]["outputs"] = {"state": "mine"}
    parsed = parse_checkpoint(json.dumps(whole))
    status_writer.changed(parsed, StackChange(uid="u-1", observed=END), program_stacks=False)
    text = encode_checkpoint(parsed, PATH)
    wanted = copy.deepcopy(whole)
    wanted["checkpoint"]["latest"]["resources"][1]["outputs"]["observed"] = WRITTEN
    assert json.loads(text) == wanted


def test_many_writers_at_once_lose_nothing(store: Store, locks: OwnedLocks) -> None:
    put(store, checkpoint())
    start = threading.Barrier(8)

    def add(number: int) -> None:
        start.wait()
        seen = {**END, "attempt": number + 1}
        while write(store, seen, locks) is Recorded.DEFERRED:
            pass

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(8)))
    stored = store.read(PATH)
    assert stored is not None
    assert outputs(stored.data)["torchx"]["observed"]["attempt"] == 8
    assert store.paths(lock_folder(PLACE)) == []


def test_a_reader_who_may_not_write_is_no_error(locks: OwnedLocks, tmp_path: Path) -> None:
    class ReadOnly(FolderStore):
        def lock(self, path: str, data: bytes) -> None:
            raise PermissionError(path)

    (tmp_path / "backend/.pulumi/stacks/torchx").mkdir(parents=True, exist_ok=True)
    put(FolderStore(tmp_path / "backend"), checkpoint())
    assert write(ReadOnly(tmp_path / "backend"), END, locks) is Recorded.LEFT


def test_what_the_folder_keeps_of_the_file(locks: OwnedLocks, tmp_path: Path) -> None:
    (tmp_path / "backend/.pulumi/stacks/torchx").mkdir(parents=True)
    store = FolderStore(tmp_path / "backend")
    put(store, checkpoint())
    (tmp_path / "backend" / PATH).chmod(0o664)
    assert write(store, END, locks) is Recorded.WRITTEN
    assert (tmp_path / "backend" / PATH).stat().st_mode & 0o777 == 0o664


def lock_of(store: Store, owner: Any, user: str) -> None:
    content = {"pid": owner["pid"], "username": user, "hostname": gethostname(), "owner": owner}
    content["timestamp"] = datetime.now().astimezone().isoformat()
    store.lock(f"{lock_folder(PLACE)}/ours.json", json.dumps(content).encode())


@pytest.mark.parametrize(
    ("changes", "user", "outcome"),
    [
        ({}, "", Recorded.WRITTEN),
        ({}, "somebody-else", Recorded.DEFERRED),
        ({"boot_id": "another"}, "", Recorded.DEFERRED),
        ({"pid_namespace": 1}, "", Recorded.DEFERRED),
        ({"pid": "x"}, "", Recorded.DEFERRED),
    ],
)
def test_only_a_lock_of_ours_whose_process_was_killed_here_is_removed_by_the_next_call(
    store: Store, locks: OwnedLocks, changes: dict[str, Any], user: str, outcome: Recorded
) -> None:
    put(store, checkpoint())
    # As a process that is killed between the lock and its removal.
    killed = "import json; from torchx_pulumi.model.codec import to_json; from torchx_pulumi.storage import owners\n"
    killed += "print(json.dumps(to_json(owners.this_process())))"
    owner = json.loads(subprocess.run([sys.executable, "-c", killed], check=True, capture_output=True).stdout)
    lock_of(store, {**owner, **changes}, user or getpass.getuser())
    assert write(store, END, locks) is outcome
    assert store.paths(lock_folder(PLACE)) == ([] if outcome is Recorded.WRITTEN else ["ours.json"])


def test_a_lock_of_a_living_process_of_ours_is_respected(store: Store, locks: OwnedLocks) -> None:
    put(store, checkpoint())
    owner = this_process()
    lock_of(store, to_json(owner), getpass.getuser())
    with holding(owner):
        assert write(store, END, locks) is Recorded.DEFERRED
    lock_of(store, to_json(local_process(os.getppid())), getpass.getuser())
    assert write(store, END, locks) is Recorded.DEFERRED


class Failing:
    """A store that does not answer when a lock is removed."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def remove(self, path: str) -> None:
        raise OSError(f"{path}: no answer")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def test_a_lock_that_could_not_be_removed_is_removed_by_the_next_call_of_the_process(
    store: Store, locks: OwnedLocks
) -> None:
    put(store, checkpoint())
    failing: Any = Failing(store)
    assert write(failing, END, locks) is Recorded.DEFERRED
    assert len(store.paths(lock_folder(PLACE))) == 1
    again = {**END, "attempt": 2}
    assert write(store, again, locks) is not Recorded.DEFERRED
    assert store.paths(lock_folder(PLACE)) == []


def test_a_lock_in_a_folder_that_was_unmounted_meanwhile_is_removed_when_it_is_back(
    locks: OwnedLocks, tmp_path: Path
) -> None:
    class Unmounted(FolderStore):
        def write(self, path: str, data: bytes, *, replaces: Stored | None = None) -> None:
            (tmp_path / "backend").rename(tmp_path / "away")
            super().write(path, data, replaces=replaces)

    (tmp_path / "backend" / PATH).parent.mkdir(parents=True)
    store = FolderStore(tmp_path / "backend")
    put(store, checkpoint())
    assert write(Unmounted(tmp_path / "backend"), END, locks) is Recorded.DEFERRED
    (tmp_path / "away").rename(tmp_path / "backend")
    assert len(store.paths(lock_folder(PLACE))) == 1
    assert write(store, END, locks) is Recorded.WRITTEN
    assert store.paths(lock_folder(PLACE)) == []


@pytest.mark.parametrize("forked", ["before", "while it is held"])
def test_a_forked_process_leaves_the_lock_of_its_parent_alone(locks: OwnedLocks, tmp_path: Path, forked: str) -> None:
    (tmp_path / ".pulumi").mkdir()
    # Not in this process: pytest has threads.
    script = f"""
import os
from pathlib import Path
from torchx_pulumi.model.app_entry import StackRef
from torchx_pulumi.stack_state.stack_locks import OwnedLocks
from torchx_pulumi.storage.stores import FolderStore
from torchx_pulumi.stack_state.stack_locks import lock_folder, stack_lock

store, owned = FolderStore(Path({str(tmp_path)!r})), OwnedLocks(Path({str(tmp_path / "work")!r}))
place = StackRef(backend="", project="torchx", stack="default.train-1")
locked = os.pipe()

def child():
    os.read(locked[0], 1)
    with stack_lock(store, place, owned) as hold:
        pass
    os._exit(0 if hold is None else 3)

pid = None
if {forked == "before"!r}:
    pid = os.fork() or child()
with stack_lock(store, place, owned):
    own = store.paths(lock_folder(place))
    pid = pid or os.fork()
    if pid:
        os.write(locked[1], b"x")
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), store.paths(lock_folder(place)) == own)
if not pid:
    # It has left the block of its parent.
    child()
print(store.paths(lock_folder(place)))
"""
    ended = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60)
    assert ended.stdout.splitlines() == ["0 True", "[]"]


@pytest.mark.parametrize(
    ("backend", "root"),
    [
        ("s3://bucket?region=eu-central-1", "bucket"),
        ("s3://bucket/a/b?endpoint=127.0.0.1:1&s3ForcePathStyle=true&disableSSL=true&region=x", "bucket/a/b"),
        ("s3://bucket?prefix=a/b/&endpoint=http://127.0.0.1:1", "bucket/a/b"),
    ],
)
def test_an_s3_address_is_read_as_pulumi_reads_it(
    backend: str, root: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_PROFILE", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    store: Any = open_store(backend)
    assert store._root == root
    files = store._files
    assert files.endpoint_url == (None if "endpoint" not in backend else "http://127.0.0.1:1")
    path_style = "s3ForcePathStyle" in backend
    assert files.config_kwargs.get("s3") == ({"addressing_style": "path"} if path_style else None)


def test_backends_of_other_kinds_are_not_opened(make_order: Callable[..., Any]) -> None:
    for backend in ("https://api.pulumi.com", "postgres://me@db/state", "mem://"):
        assert open_store(backend) is None
        entry = make_order(place=StackRef(backend=backend, project="torchx", stack="s")).entry
        assert AutomationDriver().record(entry, StackChange(uid=END["uid"], observed=END)).outcome is Recorded.LEFT


class SlowFiles:
    """An object store that names versions; each request takes the same time, by a clock of the test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, request_s: float) -> None:
        self._files = fsspec.filesystem("memory", skip_instance_cache=True)
        self._request_s = request_s
        self._now = 0.0
        self.requests: list[str] = []
        monkeypatch.setattr(time, "monotonic", lambda: self._now)

    def info(self, key: str, *, refresh: bool) -> dict[str, Any]:
        found = self._files.info(key, refresh=refresh)
        return {**found, "ETag": str(hash(self._files.cat_file(key)))}

    def pipe_file(self, key: str, data: bytes, **condition: str) -> None:
        assert condition in ({}, {"IfMatch": self.info(key, refresh=True)["ETag"]} if condition else {})
        self._files.pipe_file(key, data)

    def __getattribute__(self, name: str) -> Any:
        if name in ("info", "cat_file", "pipe_file", "ls", "rm_file"):
            self._now += self._request_s
            self.requests.append(name)
        own = name in ("info", "pipe_file") or name.startswith("_") or name == "requests"
        return object.__getattribute__(self, name) if own else getattr(self._files, name)


@pytest.mark.parametrize(("request_s", "outcome"), [(0.1, "WRITTEN"), (0.2, "WRITTEN"), (0.3, "DEFERRED")])
def test_a_slow_store_is_written_with_few_requests_under_the_lock(
    request_s: float, outcome: str, locks: OwnedLocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = SlowFiles(monkeypatch, 0.0)
    store = ObjectStore(files, "/bucket/slow")
    try:
        put(store, checkpoint())
        files._request_s = request_s
        files.requests.clear()
        assert write(store, END, locks) is Recorded[outcome]
        under_lock = files.requests[files.requests.index("pipe_file") :]
        # The lock itself and its removal count half each.
        assert (len(under_lock) - 1) * request_s <= 1.0
        assert under_lock[-1] == "rm_file"
        assert store.paths(lock_folder(PLACE)) == []
    finally:
        files._files.rm("/bucket", recursive=True)


def test_a_checkpoint_that_changes_before_the_lock_is_judged_again(store: Store, locks: OwnedLocks) -> None:
    put(store, checkpoint())

    class Changing(Racing):
        changes = 1

        def lock(self, path: str, data: bytes) -> None:
            self._store.lock(path, data)
            if self.changes:
                self.changes -= 1
                put(self._store, changed(_0__outputs__mine=13 + self.changes))

    changing: Any = Changing(store)
    assert write(changing, END, locks) is Recorded.WRITTEN
    stored = store.read(PATH)
    assert stored is not None
    assert (outputs(stored.data)["mine"], outputs(stored.data)["state"]) == (13, "SUCCEEDED")
    changing.changes = 9
    assert write(changing, {**END, "attempt": 2}, locks) is Recorded.DEFERRED
    assert store.paths(lock_folder(PLACE)) == []


class NoCredentialsError(Exception):
    """As botocore has it: no OSError."""


class HttpError(Exception):
    """As gcsfs has it: no OSError."""

    def __init__(self, code: int) -> None:
        super().__init__("refused")
        self.code = code


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (NoCredentialsError("Unable to locate credentials"), Recorded.LEFT),
        (HttpError(403), Recorded.LEFT),
        (HttpError(500), Recorded.DEFERRED),
        (RuntimeError("Could not connect"), Recorded.DEFERRED),
    ],
)
def test_what_the_client_of_a_store_raises_is_no_error_of_the_reader(
    error: Exception, outcome: Recorded, locks: OwnedLocks
) -> None:
    class Failing:
        def __getattr__(self, name: str) -> Any:
            raise error

    assert write(ObjectStore(Failing(), "bucket"), END, locks) is outcome


def test_a_backend_that_cannot_be_opened_is_no_error_of_the_reader(
    make_order: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_CONFIG_FILE"):
        monkeypatch.delenv(name, raising=False)
    server = "region=x&endpoint=127.0.0.1:1&disableSSL=true"
    for backend, outcome in (
        ("s3://[bucket", Recorded.DEFERRED),
        (f"s3://bucket?{server}&profile=absent", Recorded.LEFT),
        (f"s3://bucket?{server}", Recorded.LEFT),
    ):
        entry = make_order(place=StackRef(backend=backend, project="torchx", stack="s")).entry
        assert (
            AutomationDriver(tmp_path / "engine").record(entry, StackChange(uid=END["uid"], observed=END)).outcome
            is outcome
        )


def test_a_lone_surrogate_in_a_message_is_written_as_a_question_mark(store: Store, locks: OwnedLocks) -> None:
    put(store, checkpoint())
    assert write(store, {**END, "message": "a\ud800"}, locks) is Recorded.WRITTEN
    stored = store.read(PATH)
    assert stored is not None
    assert outputs(stored.data, 1)["observed"]["message"] == "a?"


def of_a_program(**exports: Any) -> Any:
    whole = checkpoint()
    resources = whole["checkpoint"]["latest"]["resources"]
    resources.pop()
    resources[0]["outputs"] |= exports
    return whole


def test_the_stack_of_a_program_is_written_on_request(store: Store, locks: OwnedLocks) -> None:
    secret, other = {SECRET: "1b47"}, {"app": {"id": "default:other"}, "observed": dict(SUBMITTED)}
    mine = {"schema_version": 1, "app": {"id": "default:train-1"}, "observed": dict(SUBMITTED)}
    put(store, of_a_program(password=secret, mine=mine, other=other, hidden={**mine, "x": secret}))
    assert write(store, END, locks) is Recorded.LEFT
    assert write(store, END, locks, program_stacks=True) is Recorded.WRITTEN
    stored = store.read(PATH)
    assert stored is not None
    found = outputs(stored.data)
    assert (found["torchx"]["observed"], found["mine"]["observed"], found["state"]) == (WRITTEN, WRITTEN, "SUCCEEDED")
    assert (found["other"], found["password"], found["hidden"]["observed"]) == (other, secret, SUBMITTED)
    assert outputs(stored.data, 1)["observed"] == WRITTEN


def test_a_run_whose_explanations_may_quote_a_secret_gets_its_state_without_them(
    store: Store, locks: OwnedLocks
) -> None:
    whole = checkpoint()
    whole["checkpoint"]["latest"]["resources"][1]["outputs"]["record"] = {"quotes_secrets": True}
    put(store, whole)
    diagnosis = {"reason": "Failed", "summary": "no file hunter22"}
    conditions = [{"type": "Failed", "message": "hunter22"}]
    roles = [{"name": "trainer", "replicas": [{"name": "a", "message": "hunter22"}]}]
    told = {"message": "no file hunter22", "diagnoses": [diagnosis], "conditions": conditions, "roles": roles}
    assert write(store, {**END, **told}, locks) is Recorded.WRITTEN
    stored = store.read(PATH)
    assert stored is not None
    found = outputs(stored.data)
    assert b"hunter22" not in stored.data
    assert (found["state"], "they may quote a secret" in found["torchx"]["observed"]["message"]) == (
        "SUCCEEDED",
        True,
    )
    assert write(store, {**END, **told}, locks) is Recorded.KNOWN


CANCEL = Requested(action=RequestedAction.CANCEL, at="2026-01-01T00:30:00Z", by="ada", uid="u-1")


def gone(**values: Any) -> Look:
    at = datetime(2026, 1, 1, 1, tzinfo=timezone.utc)
    objects = ObservedObjects(pods=())
    return Look(**{"variant": find_variant("volcano", "job"), "at": at, "uid": "u-1", "objects": objects, **values})


def test_a_request_is_written_next_to_the_observation_and_no_observation_takes_it_away(
    store: Store, locks: OwnedLocks
) -> None:
    before = put(store, checkpoint())
    written = write_status(store, PLACE, StackChange(uid="u-1", request=CANCEL), locks)
    assert (written.outcome, written.answer and written.answer.requested) == (Recorded.WRITTEN, CANCEL)
    stored = store.read(PATH)
    assert stored is not None
    wanted = json.loads(before)
    first, second = wanted["checkpoint"]["latest"]["resources"][:2]
    requested = {"action": "cancel", "at": CANCEL.at, "by": "ada", "counter": 1, "uid": "u-1", "attempt": 1}
    first["outputs"]["torchx"]["requested"] = second["outputs"]["requested"] = requested
    assert json.loads(stored.data) == wanted
    # Who looks does not know of the request.
    written = write_status(store, PLACE, StackChange(uid="u-1", look=gone()), locks)
    assert (written.outcome, written.answer and written.answer.requested) == (Recorded.WRITTEN, CANCEL)
    stored = store.read(PATH)
    assert stored is not None
    found = outputs(stored.data)
    assert (found["torchx"]["requested"], outputs(stored.data, 1)["requested"]) == (requested, requested)
    assert (found["state"], found["reason"], found["torchx"]["observed"]["state"]) == (
        "CANCELLED",
        "Cancelled",
        "CANCELLED",
    )
    assert write_status(store, PLACE, StackChange(uid="u-1", look=gone()), locks).outcome is Recorded.KNOWN


def test_a_request_that_does_not_follow_the_one_of_the_stack_is_not_taken(store: Store, locks: OwnedLocks) -> None:
    put(store, checkpoint())
    for request, present in (
        (CANCEL, CANCEL),
        (replace(CANCEL, by="bob"), CANCEL),
        (replace(CANCEL, counter=3), CANCEL),
        (replace(CANCEL, counter=2, action=RequestedAction.RESUME), None),
    ):
        written = write_status(store, PLACE, StackChange(uid="u-1", request=request), locks)
        assert (written.answer and written.answer.requested) == (present or request)


def test_a_look_is_judged_by_what_the_stack_has_under_the_lock(store: Store, locks: OwnedLocks) -> None:
    put(store, checkpoint())

    class Requesting(Racing):
        """A store in which somebody requests the end of the run before the lock is taken."""

        requests = 1

        def lock(self, path: str, data: bytes) -> None:
            self._store.lock(path, data)
            if self.requests:
                self.requests -= 1
                other = parse_checkpoint(json.dumps(checkpoint()))
                status_writer.changed(other, StackChange(uid="u-1", request=CANCEL), program_stacks=False)
                self._store.write(PATH, encode_checkpoint(other, PATH))

    requesting: Any = Requesting(store)
    written = write_status(requesting, PLACE, StackChange(uid="u-1", look=gone()), locks)
    assert written.answer is not None
    assert (written.outcome, written.answer.observed["state"]) == (Recorded.WRITTEN, "CANCELLED")


def test_what_a_look_does_not_show_changes_nothing(store: Store, locks: OwnedLocks) -> None:
    before = put(store, checkpoint())
    for look in (gone(objects=None), gone(uid="u-2")):
        change = StackChange(uid=look.uid or "", look=look)
        assert write_status(store, PLACE, change, locks).outcome is Recorded.KNOWN
    assert store.read(PATH) == Stored(data=before)
