"""Stacks in object stores: read directly, and through the CLI only where direct access finds nothing or fails."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from torchx_pulumi.model.app_entry import StackRef
from torchx_pulumi.model.errors import DeployError
from torchx_pulumi.stack_state import backend
from torchx_pulumi.stack_state.stacks import CliStacks, FolderStack, list_stacks, open_stacks, read_checkpoint
from torchx_pulumi.storage.stores import ObjectStore
from torchx_pulumi_fleet import read_fleet
from torchx_pulumi_fleet.tracker.user_fleet import UserFleet
from torchx_pulumi_fleet.views.row import Fleet

from tests.fleet.tracker.states import checkpoint, output

BACKEND = "s3://bucket"
REF = StackRef(backend=BACKEND, project="torchx", stack="a")

CLI = f"""#!{sys.executable}
import json, sys
from pathlib import Path
folder = Path(__file__).parent
with (folder / "calls").open("a") as file:
    file.write(" ".join(sys.argv[4:]) + "\\n")
name = "ls" if "ls" in sys.argv else sys.argv[-1].rpartition("/")[2]
answer = folder / name
if not answer.exists():
    sys.exit(f"error: no stack named {{name!r}} found" if name != "ls" else "error: no such bucket")
print(answer.read_text())
"""


class Cli:
    """A script in place of the CLI. A file of a stack's name holds its export, the file `ls` the list of stacks."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        (folder / "pulumi").write_text(CLI)
        (folder / "pulumi").chmod(0o755)

    def export(self, stack: str) -> None:
        value = {"version": 3, "deployment": checkpoint(output(stack))["checkpoint"]["latest"]}
        (self.folder / stack).write_text(json.dumps(value))

    @property
    def calls(self) -> list[str]:
        log = self.folder / "calls"
        return log.read_text().splitlines() if log.exists() else []


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("PULUMI_BACKEND_URL", raising=False)
    return Cli(tmp_path / "bin")


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    """A bucket in memory, which `open_store` opens."""
    files = fsspec.filesystem("memory", skip_instance_cache=True)
    opened = ObjectStore(files, "/bucket")
    monkeypatch.setattr(backend, "open_objects", lambda *_: opened)
    yield opened
    if files.exists("/bucket"):
        files.rm("/bucket", recursive=True)


def put(bucket: ObjectStore, path: str, content: Any) -> None:
    data = json.dumps(content).encode()
    bucket.write(f".pulumi/{path}", gzip.compress(data) if path.endswith(".gz") else data)


def fleet(**options: Any) -> Fleet:
    return read_fleet(BACKEND, **options)


def test_the_stacks_of_an_object_store_are_read_without_a_process(bucket: ObjectStore, cli: Cli) -> None:
    put(bucket, "stacks/torchx/a.json", checkpoint(output("a")))
    put(bucket, "stacks/other/b.json.gz", checkpoint(output("b")))
    put(bucket, "stacks/legacy.json", checkpoint(output("c")))
    put(bucket, "stacks/torchx/a.json.bak", {})
    put(bucket, "history/torchx/a/a-1.history.json", {})
    put(bucket, "locks/organization/other/b/1.json", {})
    found = fleet()
    assert {str(row.stack): row.updating for row in found.rows} == {"torchx/a": False, "other/b": True, "legacy": False}
    assert [str(row.stack) for row in fleet(project="other").rows] == ["other/b"]
    assert [ref.stack for ref in list_stacks(BACKEND, "torchx")] == ["a"]
    state = read_checkpoint(REF)
    assert state is not None
    assert len(state.resources) == 2
    assert (cli.calls, found.warnings, found.broken) == ([], [], [])


def test_a_store_that_looks_empty_is_confirmed_by_the_cli(bucket: ObjectStore, cli: Cli) -> None:
    del bucket
    with pytest.raises(DeployError, match="no such bucket"):
        fleet()
    assert read_checkpoint(REF) is None
    cli.export("a")
    (cli.folder / "ls").write_text(json.dumps([{"name": "organization/torchx/a"}]))
    assert [str(row.stack) for row in fleet().rows] == ["torchx/a"]
    assert read_checkpoint(REF) is not None
    assert [call.split(" --")[0] for call in cli.calls] == [
        "stack ls",
        "stack export",
        "stack ls",
        "stack export",
        "stack export",
    ]


@pytest.mark.parametrize("kind", [PermissionError, OSError])
def test_a_store_that_cannot_be_read_is_read_by_the_cli_and_says_why(
    kind: type[OSError], bucket: ObjectStore, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: str) -> None:
        raise kind("access denied")

    put(bucket, "stacks/torchx/a.json", checkpoint(output("a")))
    for name in ("versions", "read_bytes"):
        monkeypatch.setattr(bucket, name, fail)
    with pytest.raises(DeployError, match="no such bucket"):
        fleet()
    cli.export("a")
    (cli.folder / "ls").write_text(json.dumps([{"name": "organization/torchx/a"}]))
    found = fleet()
    assert [row.app_id for row in found.rows] == ["team:a"]
    assert "through the Pulumi CLI, one process for each stack: access denied" in found.warnings[0]
    assert read_checkpoint(REF) is not None


def test_without_the_package_of_a_store_the_cli_reads_it_and_the_package_is_named(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    cli.export("a")
    (cli.folder / "ls").write_text(json.dumps([{"name": "organization/torchx/a"}]))
    found = fleet()
    assert [row.app_id for row in found.rows] == ["team:a"]
    assert "install `torchx-pulumi[s3]`" in found.warnings[0]


def test_a_stack_that_only_the_cli_can_decompress_is_read_by_the_cli(bucket: ObjectStore, cli: Cli) -> None:
    put(bucket, "stacks/torchx/a.json", checkpoint(output("a")))
    put(bucket, "stacks/torchx/b.json.zst", {})
    cli.export("b")
    assert [row.app_id for row in fleet().rows] == ["team:a", "team:b"]
    assert cli.calls == ["stack export --stack b"]


def test_a_stack_in_a_folder_that_only_the_cli_can_decompress_is_not_absent(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = StackRef(backend=f"file://{tmp_path}/backend", project="torchx", stack="team.a")
    path = tmp_path / "backend/.pulumi/stacks/torchx/team.a.json.zst"
    path.parent.mkdir(parents=True)
    path.write_text("zstd")
    cli.export("team.a")
    assert list_stacks(place.backend, "torchx") == [place]
    assert read_checkpoint(place) is not None
    stack = FolderStack(tmp_path / "backend", place)
    assert stack.exists()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DeployError, match="not on PATH"):
        read_checkpoint(place)
    stack.sweep(state=True)
    assert not path.exists()


def test_a_checkpoint_of_another_shape_is_unreadable_and_not_empty(bucket: ObjectStore, cli: Cli) -> None:
    put(bucket, "stacks/torchx/a.json", {"resources": []})
    assert "neither `checkpoint` nor `deployment`" in fleet().broken[0].why
    with pytest.raises(DeployError, match="neither"):
        read_checkpoint(REF)
    assert cli.calls == []


def test_the_version_of_a_stack_in_a_folder_changes_when_it_is_replaced(tmp_path: Path) -> None:
    folder = tmp_path / ".pulumi/stacks"
    for path in ("torchx/a.json", "torchx/b.json.gz", "other/c.json", "torchx/a.json.bak", "torchx/a.json.attrs"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("{}")
    stacks = open_stacks(f"file://{tmp_path}")
    before = stacks.versions()
    assert [str(name) for name in before] == ["other/c", "torchx/a", "torchx/b"]
    assert all(before.values())
    assert stacks.versions() == before
    assert [str(name) for name in stacks.versions("torchx")] == ["torchx/a", "torchx/b"]
    # Same length, as of a state that becomes another one, and written in one step, as by the engine.
    (folder / "new").write_text("[]")
    (folder / "new").replace(folder / "torchx/a.json")
    (folder / "other/c.json").unlink()
    after = stacks.versions()
    changed = {str(name) for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert changed == {"torchx/a", "other/c"}


def test_a_stack_whose_compression_changes_has_another_version(tmp_path: Path) -> None:
    folder = tmp_path / ".pulumi/stacks/torchx"
    folder.mkdir(parents=True)
    (folder / "a.json").write_text("{}")
    stacks = open_stacks(f"file://{tmp_path}")
    seen = [stacks.versions()]
    (folder / "a.json.gz").write_text("{}")
    seen.append(stacks.versions())
    (folder / "a.json").unlink()
    seen.append(stacks.versions())
    assert [len(each) for each in seen] == [1, 1, 1]
    assert len({version for each in seen for version in each.values()}) == 3


def test_without_the_cli_an_empty_store_has_no_stacks(
    bucket: ObjectStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert open_stacks(BACKEND).versions() == {}
    assert read_checkpoint(REF) is None
    put(bucket, "stacks/torchx/a.json", checkpoint(output("a")))
    assert [str(name) for name in open_stacks(BACKEND).versions()] == ["torchx/a"]


def test_without_the_cli_a_store_that_fails_says_why(
    bucket: ObjectStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(bucket, "versions", lambda _: (_ for _ in ()).throw(PermissionError("no credentials")))
    with pytest.raises(DeployError, match=r"s3://bucket.*no credentials"):
        open_stacks(BACKEND).versions()


def test_a_store_without_etags_has_no_versions(bucket: ObjectStore) -> None:
    put(bucket, "stacks/torchx/a.json", checkpoint(output("a")))
    found = open_stacks(BACKEND).versions()
    assert {str(name): version for name, version in found.items()} == {"torchx/a": ""}


def test_the_cli_lists_stacks_by_their_last_update_unless_one_runs(bucket: ObjectStore, cli: Cli) -> None:
    del bucket
    done = {"name": "organization/torchx/a", "lastUpdate": "2026-01-01T00:00:00.123Z", "resourceCount": 4}
    runs = {"name": "organization/torchx/b", "updateInProgress": True, "resourceCount": 4}
    (cli.folder / "ls").write_text(json.dumps([runs, done]))
    for stacks in (open_stacks(BACKEND), CliStacks(BACKEND)):
        found = {str(name): version for name, version in stacks.versions().items()}
        assert found == {"torchx/a": "2026-01-01T00:00:00.123Z,4", "torchx/b": ""}
    assert len(cli.calls) == 2


def test_a_listing_by_the_cli_exports_what_has_changed_and_is_not_for_every_two_seconds(cli: Cli) -> None:
    cli.export("a")
    (cli.folder / "ls").write_text(json.dumps([{"name": "organization/torchx/a", "lastUpdate": "2026"}]))
    source = UserFleet("postgres://db/state")
    for _ in range(2):
        source.refresh()
    assert [call.split(" --")[0] for call in cli.calls] == ["stack ls", "stack export", "stack ls"]
    assert not source.tracked.has_versions
