"""Who works on an app: known of this process, looked up in this PID namespace, and by the lease elsewhere."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.model.app_entry import Owner, RunEntry, Stage, read_entry, write_entry
from torchx_pulumi.model.errors import TakenOverError
from torchx_pulumi.runs.index import RunIndex
from torchx_pulumi.runs.lease import Lease, claim
from torchx_pulumi.storage import owners as owner_module
from torchx_pulumi.storage.owners import (
    Life,
    describe_owner,
    is_same,
    is_working,
    life_of,
    renewed,
    started,
    this_process,
)

from tests.unit.runs.test_index import entry

GONE = 2**22 + 1
"""No process has this number."""


@pytest.fixture(params=["proc", "no proc"])
def table(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """With `/proc` as on Linux, and without it as on macOS."""
    if request.param == "no proc":
        monkeypatch.setattr(owner_module, "_PROC", tmp_path / "no-proc")
    return str(request.param)


@pytest.fixture
def index(tmp_path: Path) -> RunIndex:
    return RunIndex(tmp_path / "state" / "runs")


@pytest.fixture
def neighbour() -> Iterator[int]:
    """Another process of this machine."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"])
    yield child.pid
    child.kill()
    child.wait()


@pytest.mark.usefixtures("table")
def test_this_process_works_while_it_holds(index: RunIndex) -> None:
    me = this_process()
    assert life_of(me) is Life.ENDED
    with Lease(index, entry(owner=me), me):
        assert is_working(me)
        assert life_of(this_process()) is Life.ENDED  # another claim: of another thread, or an earlier one
    assert not is_working(me)
    assert not is_working(None)


@pytest.mark.usefixtures("table")
def test_the_process_table_decides_here_whatever_the_lease_says(neighbour: int) -> None:
    other = replace(this_process(), pid=neighbour, started=started(neighbour), lease_until=0.0)
    assert other.started
    assert life_of(other) is Life.WORKS
    assert life_of(replace(other, started="another")) is Life.ENDED  # the number was given out again
    assert life_of(replace(other, pid=GONE, lease_until=time.time() + 100)) is Life.ENDED


@pytest.mark.usefixtures("table")
def test_a_zombie_works_no_more() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    try:
        other = replace(this_process(), pid=child.pid, started="")
        end = time.monotonic() + 30
        while is_working(other) and time.monotonic() < end:
            time.sleep(0.01)
        assert life_of(other) is Life.ENDED
    finally:
        child.wait()


@pytest.mark.parametrize("elsewhere", [{"pid_namespace": 1}, {"boot_id": "another"}, {"host": "x", "boot_id": "a@5"}])
def test_b8_the_lease_decides_of_other_namespaces_and_boots(elsewhere: dict[str, Any]) -> None:
    far = replace(this_process(), pid=GONE, **elsewhere)
    assert life_of(far) is Life.WORKS
    assert life_of(replace(far, lease_until=time.time() - 1)) is Life.EXPIRED
    assert "cannot be seen from here" in describe_owner(far)


def test_a_host_that_was_renamed_is_still_this_one() -> None:
    assert life_of(replace(this_process(), host="its-old-name", pid=GONE)) is Life.ENDED


def test_f9_a_boot_without_an_id_is_known_by_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner_module, "_PROC", tmp_path / "no-proc")
    me = this_process()
    assert me.pid_namespace is None
    host, _, at = str(me.boot_id).rpartition("@")
    assert life_of(replace(me, boot_id=f"{host}@{int(at) + 2}", pid=GONE)) is Life.ENDED  # the clock was set
    assert life_of(replace(me, boot_id=f"{host}@{int(at) + 3600}", pid=GONE)) is Life.WORKS
    assert life_of(replace(me, boot_id=f"other@{at}", pid=GONE)) is Life.WORKS


def test_an_owner_without_a_lease_that_cannot_be_looked_up_has_expired() -> None:
    elsewhere = replace(this_process(), host="elsewhere", boot_id="another boot", seen_at=time.time() - 1e7)
    assert life_of(replace(elsewhere, lease_until=None)) is Life.EXPIRED
    assert "elsewhere (which cannot be seen from here), last seen 116 days ago" in describe_owner(elsewhere)


def test_an_owner_is_read_as_it_was_written() -> None:
    me = this_process()
    written = json.loads(json.dumps(write_entry(entry(owner=me))))
    assert read_entry(written, "test").owner == me
    assert read_entry({**written, "owner": {**written["owner"], "later": 1}}, "test").owner == me


def test_a_lease_is_renewed_and_stays_the_same_claim() -> None:
    me = this_process()
    assert is_same(me, renewed(replace(me, lease_until=0.0)))
    assert not is_same(me, this_process())
    assert not is_same(me, None)
    assert is_same(None, None)


@pytest.mark.parametrize(("text", "seconds"), [("", 120.0), ("5", 5.0), ("0.1", 1.0), ("soon", 120.0)])
def test_the_lease_can_be_set(monkeypatch: pytest.MonkeyPatch, text: str, seconds: float) -> None:
    monkeypatch.setenv("TORCHX_PULUMI_LEASE_S", text)
    assert owner_module.lease_s() == seconds


def launching(index: RunIndex, owner: Owner | None) -> RunEntry:
    given = entry(stage=Stage.LAUNCHING, owner=owner)
    index.add(given)
    return given


def test_b9_of_two_claims_the_second_sees_the_first(index: RunIndex) -> None:
    found = launching(index, None)
    first = claim(index, found)
    assert first is not None
    assert claim(index, found) is None
    with first:
        now = index.get(found)
        assert now is not None
        assert is_working(now.owner)
        first.check()
        first.end(lambda now: replace(now, stage=Stage.LAUNCHED))
    now = index.get(found)
    assert now is not None
    assert (now.stage, now.owner) == (Stage.LAUNCHED, None)
    assert claim(index, found) is None


def test_a_claim_of_what_is_gone_does_not_bring_it_back(index: RunIndex) -> None:
    assert claim(index, entry()) is None
    assert index.all() == []


def test_an_owner_that_wakes_up_stops_where_it_lost_the_app(index: RunIndex) -> None:
    asleep = claim(index, launching(index, None))
    assert asleep is not None
    found = index.get(entry())
    assert found is not None
    other = claim(index, found)
    assert other is not None
    with pytest.raises(TakenOverError, match=r"was taken over by process \d+ on .* changed nothing more"):
        asleep.check()
    with pytest.raises(TakenOverError):
        asleep.end(lambda _: None)
    asleep.restore_owner(None)
    other.check()
    assert other.end(lambda _: None) is None
    with pytest.raises(TakenOverError, match="another process has removed it"):
        asleep.check()
    assert index.all() == []


@pytest.mark.parametrize("left_s", [60, -5])
def test_a_check_renews_a_lease_that_runs_out(index: RunIndex, left_s: float) -> None:
    found = launching(index, None)
    lease = claim(index, found)
    assert lease is not None
    fresh = index.get(found)
    assert fresh is not None
    lease.check()
    assert index.get(found) == fresh  # nothing is written while most of the lease is left
    earlier = replace(fresh.owner, lease_until=time.time() + left_s)  # type: ignore[type-var]
    index.change(found, lambda now: replace(now, uid="noted meanwhile", owner=earlier))
    lease.check()
    after = index.get(found)
    assert after is not None
    assert after.owner is not None
    assert (after.owner.lease_until or 0.0) > time.time() + 60
    assert after.uid == "noted meanwhile"


def test_work_that_failed_is_given_back(index: RunIndex) -> None:
    before = replace(this_process(), pid=GONE)
    found = launching(index, before)
    lease = claim(index, found)
    assert lease is not None
    lease.restore_owner(found.owner)
    now = index.get(found)
    assert now is not None
    assert is_same(now.owner, before)


def test_psutil_is_loaded_only_where_another_process_is_judged(tmp_path: Path) -> None:
    program = (
        "import sys, torchx_pulumi.torchx_adapter.scheduler\n"
        "from torchx_pulumi.storage.owners import life_of, this_process\n"
        "life_of(this_process())\n"
        "life_of(None)\n"
        "sys.exit('psutil' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=False)
    assert done.returncode == 0
