"""The controller copies logs when containers end and when their pods are deleted, and says what it cannot copy."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.apps.app import App
from torchx_pulumi.logs.archive_marks import find_no_writer
from torchx_pulumi.model import labels
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.stack_state.stacks import StackName
from torchx_pulumi.storage.stores import FolderStore
from torchx_pulumi_fleet.archive import Archive, ArchivedRun, open_archive
from torchx_pulumi_fleet.archive.archive import newest_copies
from torchx_pulumi_fleet.archive.archive_rules import ArchiveRules
from torchx_pulumi_fleet.archive.archiving import LogArchiver
from torchx_pulumi_fleet.tracker.reporting import Reporter
from torchx_pulumi_fleet.writer.checks import check_archives

from tests.fleet.archive.clusters import PodCluster
from tests.fleet.archive.pods import UID, ended, pod, running, status
from tests.fleet.writer.live_apps import app_of
from tests.fleet.writer.world import World, wait_for
from tests.unit.logs.scripted import Stream, shown

S = 10**9
LINES = [(number * S // 4, f"line {number}") for number in range(1, 13)]
TEXT = "".join(map(shown, LINES))
BROKEN = ClusterError("broke off", retryable=True, reason="BrokenStream")
GONE = ClusterError("there is no pod", reason="NotFound")
FORBIDDEN = ClusterError("pods/log is forbidden", reason="Forbidden")


LAUNCHED = {
    "kind": "Job",
    "metadata": {"name": "train", "namespace": "default", "uid": UID, "labels": {labels.LAUNCH: "mine"}},
}
"""The job object of the launch."""
FOREIGN = {**LAUNCHED, "metadata": {**LAUNCHED["metadata"], "labels": {labels.LAUNCH: "of a colleague"}}}  # type: ignore[dict-item]
"""The same, created by another launch."""


class Cluster(PodCluster):
    api_server = "https://fake"


def app(**changes: Any) -> App:
    run = {"namespace": "default", "job_name": "train", "launches": frozenset({"mine"}), "uid": UID}
    return app_of({}, StackName(project="torchx", stack="s"), **{**run, **changes})


def owned(found: dict[str, Any], uid: str = UID) -> dict[str, Any]:
    found = copy.deepcopy(found)
    found["metadata"]["ownerReferences"] = [{"kind": "Job", "uid": uid, "name": "train"}]
    return found


class Setup:
    """An archiver with an archive in a folder, and what it says."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.url = str(folder / "logs")
        self.archive = open_archive(self.url)
        self.lines: list[str] = []
        own = str(folder / "own")
        rules = ArchiveRules(**{"own": self.url, "allowed": [own], **options})
        self.archiver = LogArchiver(Reporter(self.lines.append), rules, retry_s=0.02, longest_retry_s=0.1)
        self.archiver.start()

    def see(
        self,
        cluster: PodCluster,
        found: Any,
        known: App | None = None,
        job: dict[str, Any] | None = LAUNCHED,
        *,
        deleted: bool = False,
    ) -> None:
        self.archiver.pod_changed(known or app(), cluster, found, job, deleted=deleted)  # type: ignore[arg-type]

    def runs(self, archive: Archive | None = None) -> list[ArchivedRun]:
        archive = archive or self.archive
        return archive.read(newest_copies(archive.index()))

    def idle(self) -> None:
        assert self.archiver.wait_until_idle(10)

    def said(self) -> list[str]:
        """Return its lines without times."""
        return [line.partition(" ")[2] for line in self.lines]


@pytest.fixture
def setup(tmp_path: Path) -> Iterator[Setup]:
    made = Setup(tmp_path)
    yield made
    made.archiver.stop(5)


def test_a_log_is_copied_once_when_its_container_has_ended(setup: Setup) -> None:
    cluster = Cluster(lines=LINES, pod=pod())
    setup.see(cluster, owned(pod(statuses=[status(state=running())])))
    setup.idle()
    assert setup.runs() == []
    for _ in range(3):
        setup.see(cluster, owned(pod()))
        setup.idle()
    setup.see(cluster, owned(pod()), deleted=True)
    (run,) = setup.runs()
    assert (run.complete, run.lines, run.app_id, run.uid) == (True, 12, "default:train", UID)
    assert len(cluster.asked) == 1
    assert setup.lines == []
    assert setup.archiver._copies == {}


def test_what_is_archived_already_is_not_read_after_a_start(setup: Setup, tmp_path: Path) -> None:
    setup.see(Cluster(lines=LINES, pod=pod()), owned(pod()))
    setup.idle()
    second, cluster = Setup(tmp_path), Cluster(lines=LINES, pod=pod())
    second.see(cluster, owned(pod()))
    second.idle()
    second.archiver.stop(5)
    assert cluster.asked == []


def test_a_container_is_followed_once_its_pod_is_being_deleted(setup: Setup) -> None:
    found = pod(statuses=[status(state=running())], deleted=True)
    cluster = Cluster(lines=LINES, pods=[found, None], streams=[Stream(100, BROKEN)])
    setup.see(cluster, owned(found))
    setup.idle()
    (run,) = setup.runs()
    assert run.complete
    assert [asked["follow"] for asked in cluster.asked] == [True, True]


def test_a_restart_archives_both_runs(setup: Setup) -> None:
    first = ended("c1", code=1, finished="2026-01-01T00:00:05Z")
    found = pod(statuses=[status(state=ended("c2"), container_id="c2", restarts=1, last=first)])
    setup.see(Cluster(lines=LINES, previous_lines=LINES[:3], pod=found), owned(found))
    setup.idle()
    assert [(run.restarts, run.lines, run.exit_code) for run in setup.runs()] == [(0, 3, 1), (1, 12, 0)]


def test_a_failed_copy_is_tried_again_and_said_once(setup: Setup) -> None:
    cluster = Cluster(lines=LINES, pod=pod(), streams=[Stream(None, BROKEN)] * 3)
    setup.see(cluster, owned(pod()))
    wait_for(lambda: bool(setup.runs()))
    setup.idle()
    assert [line.partition(":")[0] for line in setup.said()] == ["default", "default"]
    assert setup.said()[0].endswith("is not archived yet: broke off; it is tried again")
    assert setup.said()[1].endswith("is archived")


def test_a_log_that_is_gone_is_said_to_be_lost(setup: Setup) -> None:
    cluster = Cluster(pod=None, streams=[Stream(None, GONE)])
    setup.see(cluster, owned(pod()))
    setup.idle()
    (line,) = setup.said()
    log = "the log of train-trainer-0-0/main"
    assert line == f"default:train: {log} is not archived as a whole: there is no pod; others may follow"
    setup.see(cluster, owned(pod()), deleted=True)
    setup.idle()


def test_without_the_permission_it_says_so_once_and_tries_again_later(setup: Setup) -> None:
    cluster = Cluster(lines=LINES, pod=pod(), streams=[Stream(None, FORBIDDEN)] * 2)
    other = pod("train-trainer-1-0", uid="9b2c1f0a-0000-4000-8000-00000000000c", replica=1)
    for found in (pod(), other):
        setup.see(cluster, owned(found))
    setup.idle()
    (line,) = setup.said()
    assert "permission: get pods/log" in line
    assert "again every 300 s" in line


def test_an_archive_that_cannot_be_written_is_said_once_and_again_when_it_can(setup: Setup, tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("in the way")
    setup.see(Cluster(lines=LINES, pod=pod()), owned(pod()))
    wait_for(lambda: len(setup.lines) == 1)
    (tmp_path / "logs").unlink()
    wait_for(lambda: bool(setup.runs()))
    setup.idle()
    first, second = setup.said()
    assert first.startswith(f"log archive {setup.url} cannot be used: ")
    assert second == f"log archive {setup.url} can be used again"


def with_secret(found: dict[str, Any]) -> dict[str, Any]:
    found["spec"]["volumes"] = [{"name": "v", "projected": {"sources": [{"secret": {"name": "s"}}]}}]
    return found


def test_pods_with_secrets_are_left_out_of_the_controllers_own_archive(setup: Setup) -> None:
    cluster = Cluster(lines=LINES, pod=pod())
    for _ in range(2):
        setup.see(cluster, owned(with_secret(pod())))
    setup.idle()
    assert setup.runs() == []
    (line,) = setup.said()
    assert "its logs are not archived: its pods have secrets" in line
    assert cluster.asked == []


def test_a_launchs_own_archive_has_the_logs_of_pods_with_secrets(setup: Setup, tmp_path: Path) -> None:
    own = str(tmp_path / "own")
    setup.see(Cluster(lines=LINES, pod=pod()), owned(with_secret(pod())), app(log_archive=own))
    setup.idle()
    assert setup.runs() == []
    assert len(setup.runs(open_archive(own))) == 1
    assert setup.lines == []


@pytest.mark.parametrize("job", [FOREIGN, LAUNCHED], ids=["another launch's job object", "not allowed"])
def test_a_stack_cannot_name_the_archive_of_anothers_logs(setup: Setup, tmp_path: Path, job: dict[str, Any]) -> None:
    named = tmp_path / ("own" if job is FOREIGN else "elsewhere")
    cluster = Cluster(lines=LINES, pod=pod())
    setup.see(cluster, owned(with_secret(pod())), app(log_archive=str(named)), job)
    setup.idle()
    assert cluster.asked == []
    setup.see(cluster, owned(pod()), app(log_archive=str(named)), job)
    setup.idle()
    assert not named.exists()
    assert len(setup.runs()) == 1, "as the log of a launch that named no archive"
    why = "does not show the label of its launch" if job is FOREIGN else "is not allowed (--archive-allow)"
    assert [why in line for line in setup.said()] == [True, True]


def test_a_log_waits_for_the_job_object_that_shows_whose_archive_counts(setup: Setup, tmp_path: Path) -> None:
    known, cluster = app(log_archive=str(tmp_path / "own")), Cluster(lines=LINES, pod=pod())
    setup.see(cluster, owned(pod()), known, None)
    setup.idle()
    assert cluster.asked == []
    setup.see(cluster, owned(pod(statuses=[status(state=running())])), known)
    setup.see(cluster, owned(pod()), known, None, deleted=True)
    setup.idle()
    assert (setup.runs(), len(setup.runs(open_archive(str(tmp_path / "own"))))) == ([], 1)


def test_a_pod_that_goes_before_its_job_object_was_seen_is_archived_as_of_no_choice(
    setup: Setup, tmp_path: Path
) -> None:
    cluster = Cluster(lines=LINES, pod=pod())
    setup.see(cluster, owned(pod()), app(log_archive=str(tmp_path / "own")), None, deleted=True)
    setup.idle()
    assert (len(setup.runs()), (tmp_path / "own").exists()) == (1, False)


def test_the_archive_of_the_controller_may_be_named_in_any_form(setup: Setup) -> None:
    named = app(log_archive=f"file://{setup.url}/")
    setup.see(Cluster(lines=LINES, pod=pod()), owned(with_secret(pod())), named)
    setup.idle()
    assert len(setup.runs()) == 1


def test_secret_pods_are_archived_on_request(tmp_path: Path) -> None:
    setup = Setup(tmp_path, secret_pods=True)
    setup.see(Cluster(lines=LINES, pod=pod()), owned(with_secret(pod())))
    setup.idle()
    setup.archiver.stop(5)
    assert len(setup.runs()) == 1


def test_pods_of_another_job_of_the_same_name_are_left_alone(setup: Setup) -> None:
    cluster = Cluster(lines=LINES, pod=pod())
    setup.see(cluster, owned(pod()), app(uid=None))
    setup.see(cluster, owned(pod(), uid="another"))
    setup.idle()
    assert cluster.asked == []


def test_pods_of_the_run_before_are_archived_as_its_own(setup: Setup) -> None:
    setup.see(Cluster(lines=LINES, pod=pod()), owned(pod(statuses=[status(state=running())])))
    setup.see(Cluster(lines=LINES, pod=pod()), owned(pod()), app(uid="next"))
    setup.idle()
    assert [run.uid for run in setup.runs()] == [UID]


def test_an_app_without_an_archive_is_left_alone(tmp_path: Path) -> None:
    setup = Setup(tmp_path, own=None)
    cluster = Cluster(lines=LINES, pod=pod())
    setup.see(cluster, owned(pod()))
    setup.see(cluster, owned(pod()), app(log_archive="ftp://host"))
    setup.idle()
    setup.archiver.stop(5)
    assert cluster.asked == []
    (line,) = setup.said()
    assert line.endswith("the log_archive that the launch named is not allowed (--archive-allow)")


def test_stopping_ends_followed_logs_and_stores_what_came(tmp_path: Path) -> None:
    setup = Setup(tmp_path)
    found = pod(statuses=[status(state=running())], deleted=True)
    cluster = Cluster(lines=LINES, pod=found)
    setup.see(cluster, owned(found))
    wait_for(lambda: len(cluster.asked) > 1)
    setup.archiver.stop(5)
    assert not any(thread.is_alive() for thread in setup.archiver._threads)
    (run,) = setup.runs()
    assert not run.complete


def test_the_summary_says_where_logs_go_and_which_do_not(tmp_path: Path) -> None:
    assert Setup(tmp_path).archiver.summary() == (
        f"logs are archived in {tmp_path}/logs, without those of pods with secrets (--archive-secret-pods); a launch's "
        f"own archive comes first, if it is {tmp_path}/own"
    )
    assert "of no others (--log-archive)" in Setup(tmp_path, own=None).archiver.summary()
    nothing = Setup(tmp_path, own=None, allowed=[]).archiver.summary()
    assert nothing == "no logs are archived (--log-archive, --archive-allow)"


def test_all_archives_are_marked_and_a_failure_is_said(tmp_path: Path) -> None:
    (tmp_path / "in-the-way").write_text("")
    setup = Setup(tmp_path, allowed=[str(tmp_path / "in-the-way"), "ftp://logs", str(tmp_path / "own")])
    now = datetime(2026, 1, 1, tzinfo=timezone.utc)
    for _ in range(2):
        setup.archiver.mark(["team"], now)
    for name in ("logs", "own"):
        assert find_no_writer(str(tmp_path / name), "team", now) is None
    assert [line for line in setup.lines if "in-the-way cannot be used" in line] == [setup.lines[0]]


def test_only_a_controller_that_leads_marks_its_archives(tmp_path: Path) -> None:
    world, setup, leads = World(root=tmp_path), Setup(tmp_path), list[bool]()
    (tmp_path / "backend/.pulumi").mkdir(parents=True)
    with world.controller(archiver=setup.archiver, leading=lambda: bool(leads), namespaces=["team"]) as controller:
        wait_for(lambda: not controller.not_ready())
        assert find_no_writer(setup.url, "team", datetime.now(timezone.utc)) is not None
        leads.append(True)
        controller.lead_changed()
        wait_for(lambda: find_no_writer(setup.url, "team", datetime.now(timezone.utc)) is None)
    assert find_no_writer(setup.url, "other", datetime.now(timezone.utc)) is not None


def test_all_problems_of_the_options_are_reported(tmp_path: Path) -> None:
    assert check_archives(ArchiveRules(own=str(tmp_path / "logs"), secret_pods=True), "1.5Mi", pages=False) == (
        [],
        3 << 19,
    )
    (tmp_path / "file").write_text("")
    problems, _ = check_archives(ArchiveRules(own=str(tmp_path / "file"), allowed=["logs"]), "1k", pages=False)
    assert [problem.path for problem in problems] == ["--log-archive", "--archive-allow", "--archive-limit"]
    problems, _ = check_archives(ArchiveRules(secret_pods=True), "much", pages=False)
    assert [problem.path for problem in problems] == ["--archive-secret-pods", "--archive-limit"]
    # Pages show live logs of such pods.
    assert check_archives(ArchiveRules(secret_pods=True), "64Mi", pages=True)[0] == []


def test_the_controller_archives_the_logs_of_the_apps_that_it_tracks(tmp_path: Path) -> None:
    world, setup = World(root=tmp_path), Setup(tmp_path)
    launched = world.launch("train-x1")
    name = launched.entry.pods["trainer"][0]
    found = pod(name, statuses=[status(state=running())])
    found["metadata"]["labels"] |= {"volcano.sh/job-name": "train-x1"}
    found["metadata"]["ownerReferences"] = [{"kind": "Job", "uid": launched.entry.uid, "name": "train-x1"}]
    world.cluster.put(found)
    world.cluster._logs["default", name] = ["a", "b"]
    with world.controller(archiver=setup.archiver):
        wait_for(lambda: any("is in stack" in line for line in world.lines))
        assert setup.runs() == []
        world.cluster.put({**found, "status": pod(name)["status"]})
        wait_for(lambda: bool(setup.runs()))
    (run,) = setup.runs()
    assert (run.app_id, run.uid, run.lines, run.complete) == ("default:train-x1", launched.entry.uid, 2, True)
    assert any(setup.archiver.summary() in line for line in world.lines)
    assert find_no_writer(setup.url, "anywhere", datetime.now(timezone.utc)) is None


def test_a_pod_that_is_seen_before_its_job_object_goes_to_the_archive_of_its_launch(tmp_path: Path) -> None:
    world, setup = World(root=tmp_path), Setup(tmp_path)
    launched = world.launch("train-x1")
    whole = json.loads(launched.path.read_text())
    for item in whole["checkpoint"]["latest"]["resources"]:
        if item["urn"].endswith("-app"):
            item["inputs"]["input"]["log_options"] = {"log_archive": str(tmp_path / "own")}
    launched.path.write_text(json.dumps(whole))
    job = world.cluster.find(launched.kind, "default", "train-x1")
    assert job is not None
    world.cluster.remove(launched.kind, "default", "train-x1")
    name = launched.entry.pods["trainer"][0]
    found = pod(name, owner=str(launched.entry.uid))
    found["metadata"]["labels"] |= {"volcano.sh/job-name": "train-x1"}
    world.cluster.put(found)
    world.cluster._logs["default", name] = ["a", "b"]
    with world.controller(archiver=setup.archiver):
        wait_for(lambda: any("in stack" in line for line in world.lines))
        setup.idle()
        assert setup.runs(open_archive(str(tmp_path / "own"))) == []
        world.cluster.put(job)
        wait_for(lambda: bool(setup.runs(open_archive(str(tmp_path / "own")))))
    assert setup.runs() == []


@pytest.mark.parametrize(
    ("url", "warned"), [("s3://logs?region=eu", False), ("s3://logs/?region=eu", True), ("s3://logs", True)]
)
def test_a_mark_has_the_forms_of_an_archive_that_are_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, warned: bool
) -> None:
    store = FolderStore(tmp_path / "bucket")
    monkeypatch.setattr("torchx_pulumi_fleet.archive.archive.open_store", lambda *_: store)
    monkeypatch.setattr("torchx_pulumi.logs.archive_marks.open_store", lambda *_: store)
    now = datetime(2026, 1, 1, tzinfo=timezone.utc)
    Setup(tmp_path, own=None, allowed=["s3://logs?region=eu"]).archiver.mark([], now)
    assert ("allows 's3://logs?region=eu'" in str(find_no_writer(url, "team", now))) == warned
