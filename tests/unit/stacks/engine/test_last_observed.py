"""What single stacks say of their runs: one read of one file, no process; a backend that fails rests for a while."""

from __future__ import annotations

import gzip
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from torchx_pulumi.apps.answer import Answer
from torchx_pulumi.model.app_entry import StackRef
from torchx_pulumi.model.errors import DeployError
from torchx_pulumi.model.requested import read_requested
from torchx_pulumi.stack_state import backend
from torchx_pulumi.storage.stores import FolderStore, ObjectStore
from torchx_pulumi_stacks.engine import AutomationDriver
from torchx_pulumi_stacks.engine import driver as driver_module

from tests.fleet.tracker.states import checkpoint, output
from tests.unit.runs.test_index import entry


@pytest.fixture(autouse=True)
def _no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: Any, **__: Any) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess.Popen, "__init__", start)


class Requests:
    """A store whose reads are counted, and may fail."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.paths: list[str] = []
        self.error: OSError | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def read_bytes(self, path: str) -> bytes | None:
        self.paths.append(path)
        if self.error is not None:
            raise self.error
        data: bytes | None = self._store.read_bytes(path)
        return data


@pytest.fixture(params=["folder", "bucket"])
def requests(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Requests]:
    files = fsspec.filesystem("memory", skip_instance_cache=True)
    counted = Requests(FolderStore(tmp_path) if request.param == "folder" else ObjectStore(files, "/bucket"))
    (tmp_path / ".pulumi/stacks/torchx").mkdir(parents=True)
    monkeypatch.setattr(backend, "open_objects", lambda *_: counted)
    yield counted
    if files.exists("/bucket"):
        files.rm("/bucket", recursive=True)


class Reader:
    """A driver, asked for single stacks."""

    def __init__(self) -> None:
        self._driver = AutomationDriver()

    def read(self, ref: StackRef) -> Answer | None:
        return self._driver.answer(entry(place=ref))


REF = StackRef(backend="s3://bucket", project="torchx", stack="a")
PATH = ".pulumi/stacks/torchx/a.json"


def test_the_observation_is_read_by_one_request(requests: Requests) -> None:
    requested = {"action": "cancel", "at": "2026-01-02T11:00:00Z", "counter": 1.0}
    requests.write(PATH, json.dumps(checkpoint(output("a", requested=requested))).encode())
    reader = Reader()
    for _ in range(2):
        answer = reader.read(REF)
        assert answer is not None
        assert answer.observed["state"] == "RUNNING"
        assert answer.requested == read_requested(requested)
    assert requests.paths == [PATH, PATH]


def test_a_compressed_checkpoint_is_read(requests: Requests) -> None:
    requests.write(f"{PATH}.gz", gzip.compress(json.dumps(checkpoint(output("a"))).encode()))
    assert (Reader().read(REF) or Answer()).observed["state"] == "RUNNING"


@pytest.mark.parametrize(
    "content", [None, {"version": 3, "checkpoint": {"latest": None}}, checkpoint({"schema_version": 1})]
)
def test_a_stack_that_is_absent_or_has_no_observation_has_none(requests: Requests, content: Any) -> None:
    if content is not None:
        requests.write(PATH, json.dumps(content).encode())
    assert Reader().read(REF) is None


def test_a_stack_that_cannot_be_parsed_is_an_error_of_that_stack_only(requests: Requests) -> None:
    requests.write(PATH, b'{"version": 3, "checkpoi')
    requests.write(".pulumi/stacks/torchx/b.json", json.dumps(checkpoint(output("b"))).encode())
    reader = Reader()
    with pytest.raises(DeployError, match="stack torchx/a in s3://bucket cannot be read: its checkpoint"):
        reader.read(REF)
    assert reader.read(StackRef(backend=REF.backend, project="torchx", stack="b")) is not None


def test_a_backend_that_fails_is_left_alone_for_a_while(requests: Requests, monkeypatch: pytest.MonkeyPatch) -> None:
    requests.write(PATH, json.dumps(checkpoint(output("a"))).encode())
    reader = Reader()
    requests.error = PermissionError("access denied")
    with pytest.raises(DeployError, match="access denied"):
        reader.read(REF)
    requests.error = None
    with pytest.raises(DeployError, match="could not be read a moment ago"):
        reader.read(REF)
    assert len(requests.paths) == 1
    monkeypatch.setattr(driver_module, "PAUSE_S", 0.0)
    assert reader.read(REF) is not None


@pytest.mark.parametrize("backend", ["https://api.pulumi.com", "postgres://db/state"])
def test_a_backend_that_only_the_cli_reads_is_not_read(backend: str) -> None:
    assert Reader().read(StackRef(backend=backend, project="torchx", stack="a")) is None
