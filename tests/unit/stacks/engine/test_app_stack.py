"""The stack of one app, removed and forgotten: with a CLI that notes what it is asked for, and no engine."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.model.errors import ClusterError, DeployError
from torchx_pulumi.runs import deletion
from torchx_pulumi.runs.registration import plan_registration
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB, VOLCANO_JOB_NAME
from torchx_pulumi_stacks.engine.app_stack import NO_STACK, AppStack
from torchx_pulumi_stacks.engine.engine_semaphore import VARIABLE, EngineSlot

from tests.fakes import FakeCluster

BASE = "urn:pulumi:default.train-1::torchx::"
COMPONENT = "torchx:index:VolcanoTrainingJob"
OURS: list[dict[str, Any]] = [
    {"type": "pulumi:pulumi:Stack", "urn": f"{BASE}pulumi:pulumi:Stack::torchx-default.train-1"},
    {"type": COMPONENT, "urn": f"{BASE}{COMPONENT}::train"},
    *(
        {
            "type": "pulumi:index:Stash",
            "urn": f"{BASE}{COMPONENT}$pulumi:index:Stash::train-{note}",
            "outputs": {"input": {"uid": None}},
        }
        for note in ("intent", "app")
    ),
    {"type": "pulumi:providers:kubernetes", "urn": f"{BASE}pulumi:providers:kubernetes::default_4_34_2"},
    # Of the stashes.
    {"type": "pulumi:providers:pulumi", "urn": f"{BASE}pulumi:providers:pulumi::default"},
]
OTHERS = {
    "random": {"type": "random:index/randomPet:RandomPet", "urn": f"{BASE}random:index/randomPet:RandomPet::pet"},
    "bucket": {"type": "aws:s3/bucketV2:BucketV2", "urn": f"{BASE}aws:s3/bucketV2:BucketV2::data"},
    "command": {"type": "command:local:Command", "urn": f"{BASE}command:local:Command::train-app"},
    "stash": {"type": "pulumi:index:Stash", "urn": f"{BASE}pulumi:index:Stash::best-app"},
    "child stash": {"type": "pulumi:index:Stash", "urn": f"{BASE}{COMPONENT}$pulumi:index:Stash::train-metrics"},
    "component": {"type": "acme:index:Cluster", "urn": f"{BASE}acme:index:Cluster::acme"},
}


class Lab:
    """An app's stack in a folder, and a CLI that succeeds in everything."""

    def __init__(self, make_order: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._calls = tmp_path / "calls"
        self.cli = cli = tmp_path / "bin" / "pulumi"
        cli.parent.mkdir()
        cli.write_text(f'#!/bin/sh\necho "$@" >> "{self._calls}"\n')
        cli.chmod(0o755)
        monkeypatch.setenv("PATH", str(cli.parent), prepend=":")
        self.state = tmp_path / "backend/.pulumi/stacks/torchx/default.train-1.json"
        self.state.parent.mkdir(parents=True)
        self.told: list[str] = []
        self.cluster = FakeCluster()
        self.stack = AppStack(
            make_order().entry, tmp_path / "engine", self.told.append, lambda _config, _context: self.cluster
        )

    def holds(self, *resources: dict[str, Any], begun: dict[str, Any] | None = None) -> None:
        pending = [{"resource": begun, "type": "creating"}] if begun else []
        latest = {"resources": list(resources), "pending_operations": pending}
        self.state.write_text(json.dumps({"version": 3, "checkpoint": {"latest": latest}}))

    @property
    def destroyed(self) -> bool:
        return self._calls.exists() and "destroy" in self._calls.read_text()


@pytest.fixture
def lab(make_order: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    return Lab(make_order, tmp_path, monkeypatch)


def test_a_state_of_our_own_without_objects_is_swept_without_an_engine(lab: Lab) -> None:
    lab.holds(*OURS)
    lab.stack.remove()
    assert not lab.destroyed
    assert not lab.state.exists()


def test_the_lock_of_an_engine_that_was_killed_after_it_removed_the_stack_is_removed(lab: Lab, tmp_path: Path) -> None:
    lock = tmp_path / "backend/.pulumi/locks/organization/torchx/default.train-1/a.json"
    lab.holds(*OURS, OTHERS["bucket"])
    lab.cli.write_text(f"""#!/bin/sh
mkdir -p "{lock.parent}"
echo '{{"pid":'$$',"username":"u","hostname":"'$(hostname)'","timestamp":"'$(date -Iseconds)'"}}' > "{lock}"
rm "{lab.state}"
kill -9 $$
""")
    lab.stack.remove()
    assert not lock.exists()


@pytest.mark.parametrize("other", OTHERS.values(), ids=list(OTHERS))
def test_what_a_program_has_put_into_the_stack_is_destroyed_and_not_forgotten(lab: Lab, other: dict[str, Any]) -> None:
    lab.holds(*OURS, other)
    lab.stack.remove()
    assert lab.destroyed


def test_a_creation_that_was_begun_counts_as_well(lab: Lab) -> None:
    lab.holds(*OURS, begun=OTHERS["bucket"])
    lab.stack.remove()
    assert lab.destroyed


@pytest.mark.parametrize("engine", ["killed", "interrupted"])
def test_an_object_that_the_server_stores_after_its_launch_was_ended_is_deleted(
    lab: Lab, make_order: Callable[..., Any], engine: str
) -> None:
    plan = plan_registration(make_order())
    job = dict(plan.objects[0])
    kind = "kubernetes:batch.volcano.sh/v1alpha1:Job"
    if engine == "killed":
        lab.holds(*OURS, begun={"type": kind, "urn": f"{BASE}{kind}::train-1", "inputs": job})
    else:
        # It has removed the pending creation from the state.
        lab.stack.work_dir.write_request(plan)
        lab.holds(*OURS)
    get, asked = lab.cluster.get, [0]

    def late(*args: Any) -> Any:
        """Answer as if the request were stored after the second look."""
        asked[0] += 1
        if asked[0] == 3:
            lab.cluster.create(VOLCANO_JOB, "default", job)
        return get(*args)

    lab.cluster.get = late  # type: ignore[method-assign]
    lab.stack.remove(interrupted=True)
    assert "waiting up to 5 s for Job train-1, whose creation was interrupted" in lab.told[0]
    assert "deleting Job default/train-1" in lab.told
    assert get(VOLCANO_JOB, "default", "train-1") is None
    assert lab.destroyed == (engine == "killed")
    assert (engine == "killed") == lab.state.exists()


@pytest.mark.parametrize("interrupted", [False, True])
def test_a_launch_that_ended_before_its_job_was_begun_waits_for_no_object(
    lab: Lab, make_order: Callable[..., Any], interrupted: bool
) -> None:
    lab.stack.work_dir.write_request(plan_registration(make_order()))
    # An engine that fails by itself records what it has asked for; one without an intent has asked for nothing.
    lab.holds(*(item for item in OURS if not interrupted or not item["urn"].endswith("-intent")))
    lab.stack.remove(interrupted=interrupted)
    assert (lab.told, lab.state.exists()) == ([], False)


def test_a_stack_with_resources_of_a_program_is_not_forgotten_and_they_are_named(lab: Lab) -> None:
    lab.holds(*OURS, OTHERS["bucket"], OTHERS["random"])
    with pytest.raises(DeployError) as caught:
        lab.stack.forget()
    assert "also holds aws:s3/bucketV2:BucketV2 'data', random:index/randomPet:RandomPet 'pet'" in str(caught.value)
    assert "pulumi destroy" in str(caught.value)
    assert lab.state.exists()
    lab.holds(*OURS, {"type": "kubernetes:batch.volcano.sh/v1alpha1:Job", "urn": f"{BASE}x::train"})
    lab.stack.forget()
    assert not lab.state.exists()


def test_a_deletion_that_meets_one_by_a_colleague_ends_well_once_the_stack_is_gone(lab: Lab) -> None:
    lab.holds(*OURS, OTHERS["bucket"])
    lab.cli.write_text(f'#!/bin/sh\nrm "{lab.state}"\necho "panic: invalid memory address" >&2\nexit 2\n')
    lab.stack.remove()
    lab.holds(*OURS, OTHERS["bucket"])
    lab.cli.write_text("#!/bin/sh\necho 'panic: invalid memory address' >&2\nexit 2\n")
    with pytest.raises(DeployError, match="cannot be deleted"):
        lab.stack.remove()


def test_a_colleague_with_another_passphrase_deletes_the_recorded_object_and_no_other_of_its_name(lab: Lab) -> None:
    lab.cli.write_text("#!/bin/sh\necho 'error: getting secrets manager: incorrect passphrase' >&2\nexit 255\n")
    made = lab.cluster.create(VOLCANO_JOB, "default", {"metadata": {"name": "train-1"}})
    job = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": made["metadata"]}
    kind = "kubernetes:batch.volcano.sh/v1alpha1:Job"
    recorded = {"type": kind, "urn": f"{BASE}{kind}::train-1", "inputs": job, "outputs": job}
    lab.holds(*OURS, recorded, OTHERS["bucket"])
    with pytest.raises(DeployError, match="another passphrase"):
        lab.stack.remove()
    lab.holds(*OURS, recorded)
    lab.stack.remove()
    assert lab.cluster.get(VOLCANO_JOB, "default", "train-1") is None
    assert not lab.state.exists()
    assert any("another passphrase" in line for line in lab.told)


@pytest.mark.parametrize(
    "said",
    [
        "error: no stack named 'default.train-1' found",
        'error: failed to load checkpoint: blob (key ".pulumi/stacks/torchx/a.json") (code=NotFound): operation error '
        "S3: GetObject, https response error StatusCode: 404, RequestID: , HostID: x=, NoSuchKey: ",
    ],
)
def test_a_stack_that_went_while_it_was_read_is_gone(said: str) -> None:
    assert NO_STACK.search(said)
    assert not NO_STACK.search('error: failed to load checkpoint: blob (key "a") (code=PermissionDenied): 403')


class SlotLab(Lab):
    """An app with one object, one slot for engines, and a look at the slot when the deletion calls back."""

    def __init__(self, make_order: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(make_order, tmp_path, monkeypatch)
        monkeypatch.setenv(VARIABLE, "1")
        self.slots = tmp_path / "engine" / "slots"
        self.made = self.cluster.create(VOLCANO_JOB, "default", {"metadata": {"name": "train-1"}})
        job = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": self.made["metadata"]}
        kind = "kubernetes:batch.volcano.sh/v1alpha1:Job"
        self.recorded = {"type": kind, "urn": f"{BASE}{kind}::train-1", "inputs": job, "outputs": job}

    @property
    def is_free(self) -> bool:
        """Return whether an engine could start now; this does not wait for longer than a moment."""

        def interrupted() -> None:
            if len(tries) > 1:
                raise TimeoutError
            tries.append(0)

        tries: list[int] = []
        try:
            with EngineSlot(self.slots, print, interrupted):
                return True
        except DeployError:  # it makes one of an OSError
            return False

    @property
    def present(self) -> bool:
        return self.cluster.get(VOLCANO_JOB, "default", "train-1") is not None


@pytest.fixture
def slot_lab(make_order: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlotLab:
    return SlotLab(make_order, tmp_path, monkeypatch)


def test_a_deletion_waits_for_the_end_of_its_pods_without_a_slot(slot_lab: SlotLab) -> None:
    lab, seen = slot_lab, list[tuple[bool, bool]]()
    lab.holds(*OURS, lab.recorded)
    get, left = lab.cluster.get, [3]

    def slow(*args: Any) -> Any:
        """Answer as if the object stayed until its pods have ended."""
        left[0] -= 1
        seen.append((lab.is_free, lab.destroyed))
        return get(*args) or (lab.made if left[0] > 0 else None)

    lab.cluster.get = slow  # type: ignore[method-assign]
    lab.stack.remove()
    assert len(seen) >= 3
    assert set(seen) == {(True, False)}
    assert lab.destroyed


def test_a_deletion_says_what_it_waits_for_and_once_what_it_deletes(
    slot_lab: SlotLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deletion, "FIRST_S", 0.1)
    lab = slot_lab
    lab.holds(*OURS, lab.recorded)
    meta = {"name": "train-1-0", "namespace": "default", "labels": {VOLCANO_JOB_NAME: "train-1"}}
    lab.cluster.put({"apiVersion": "v1", "kind": "Pod", "metadata": {**meta, "deletionGracePeriodSeconds": 30}})
    get, step = lab.cluster.get, "resourcePreEvent"
    event = {step: {"metadata": {"op": "delete", "old": lab.recorded, **lab.recorded}}}
    lab.cli.write_text(
        lab.cli.read_text()
        + f"""for word; do case $word in *events-*) echo '{json.dumps(event)}' >> "$word"; esac; done\n"""
    )

    def slow(*args: Any) -> Any:
        """Answer as if the object stayed until its pod has ended."""
        return get(*args) or (None if any("so far" in line for line in lab.told) else lab.made)

    lab.cluster.get = slow  # type: ignore[method-assign]
    lab.stack.remove()
    waits = "1 pod to end (grace period 30 s): train-1-0"
    assert lab.told == [
        "deleting Job default/train-1",
        f"deleting Job default/train-1, 0 s so far: waiting for {waits}",
    ]


@pytest.mark.parametrize("mark", ["protect", "retainOnDelete"])
def test_an_object_that_is_protected_from_the_engine_is_left_to_it(slot_lab: SlotLab, mark: str) -> None:
    slot_lab.holds(*OURS, {**slot_lab.recorded, mark: True})
    slot_lab.stack.remove()
    assert slot_lab.destroyed
    assert slot_lab.present


def test_the_engine_deletes_what_this_user_may_not(slot_lab: SlotLab, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_args: Any, **_more: Any) -> bool:
        raise ClusterError("jobs is forbidden", reason="Forbidden")

    slot_lab.holds(*OURS, slot_lab.recorded)
    monkeypatch.setattr(slot_lab.cluster, "delete", forbidden)
    slot_lab.stack.remove()
    assert slot_lab.destroyed


def test_an_engine_that_waits_for_the_lock_of_its_stack_holds_no_slot(
    slot_lab: SlotLab, make_order: Callable[..., Any], tmp_path: Path
) -> None:
    lab = slot_lab
    said = "error: the stack is currently locked by 1 lock(s). Either wait or delete the lock file"
    lock = tmp_path / "backend/.pulumi/locks/organization/torchx/default.train-1/a.json"
    lock.parent.mkdir(parents=True)
    content = json.dumps({"pid": 7, "hostname": "elsewhere", "username": "u", "timestamp": "2026-01-01T00:00:00Z"})
    lab.cli.write_text(f"""#!/bin/sh
if [ -e "{tmp_path}/refused" ]; then exit 0; fi
touch "{tmp_path}/refused"
echo '{content}' > "{lock}"
echo "{said}" >&2
exit 255
""")
    free: list[bool] = []

    def check() -> None:
        # The lock is there between the two runs only; the first look finds it, and the second one waits for it.
        if lock.exists():
            free.append(lab.is_free)
        if len(free) > 1:
            lock.unlink(missing_ok=True)

    lab.holds(*OURS, OTHERS["bucket"])
    AppStack(make_order().entry, tmp_path / "engine", print, lambda *_: lab.cluster, check).remove()
    assert free == [True, True]


def test_the_slot_is_free_while_progress_is_shown_of_an_engine_that_has_ended(
    slot_lab: SlotLab, make_order: Callable[..., Any], tmp_path: Path
) -> None:
    lab = slot_lab
    event = {"diagnosticEvent": {"urn": f"{BASE}x::y", "severity": "warning", "message": "slow", "prefix": ""}}
    lab.cli.write_text(f"#!/bin/sh\necho '{json.dumps(event)}'\n")
    free: list[bool] = []

    def show(_line: str) -> None:
        # As a terminal that is stopped, or a pager: the line is shown when a slot is free, or after a while.
        free.append(any(lab.is_free for _ in range(5)))

    lab.holds(*OURS, OTHERS["bucket"])
    AppStack(make_order().entry, tmp_path / "engine", show, lambda *_: lab.cluster).remove()
    assert free == [True]


def test_a_launch_whose_program_was_not_ready_in_time_is_repeated(
    lab: Lab, make_order: Callable[..., Any], tmp_path: Path
) -> None:
    said = 'connection error: desc = "error reading server preface: use of closed network connection"'
    lab.cli.write_text(f"""#!/bin/sh
echo run >> "{tmp_path}/runs"
if [ $(wc -l < "{tmp_path}/runs") -lt 2 ]; then echo '{said}' >&2; exit 1; fi
""")
    order = plan_registration(make_order())
    lab.stack.create(seed=True)
    lab.stack.up(lambda: order)
    assert (tmp_path / "runs").read_text() == "run\nrun\n"
    lab.cli.write_text(f"#!/bin/sh\necho '{said}' >&2\nexit 1\n")
    with pytest.raises(DeployError, match="server preface"):
        lab.stack.up(lambda: order)
