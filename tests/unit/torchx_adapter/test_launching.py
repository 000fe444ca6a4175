from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import yaml
from torchx_pulumi.kube import kinds
from torchx_pulumi.model import labels
from torchx_pulumi.model.app_entry import Stage
from torchx_pulumi.model.errors import ClusterError, DeployError, InvalidJobError, RefusedError
from torchx_pulumi.model.status import JobState, Reason
from torchx_pulumi.planning.names import owner_digest
from torchx_pulumi.runs.index import RunIndex
from torchx_pulumi.runs.observation import status_of
from torchx_pulumi.schedulers.appwrapper.objects import APP_WRAPPER
from torchx_pulumi.schedulers.diagnosis.refusals import diagnose_refusal, refused_status
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB, VOLCANO_QUEUE
from torchx_pulumi.torchx_adapter import dryrun

from .conftest import CONFIG, World, app, role

HEADS = {"volcano": VOLCANO_JOB, "mcad": APP_WRAPPER}


def test_submit_creates_the_job_and_notes_it(world: World, kind: str, submit: Callable[..., str]) -> None:
    app_id = submit(kind)
    assert app_id.startswith("default:train-")
    head = world.head(app_id, HEADS[kind])
    assert head is not None
    assert head["metadata"]["labels"][labels.LAUNCHER] == "torchx"
    assert head["metadata"]["labels"][labels.SESSION] == "torchx"
    entry = RunIndex().find(app_id, kind)
    assert entry is not None
    assert (entry.stage, entry.owner, entry.uid) == (Stage.LAUNCHED, None, head["metadata"]["uid"])
    assert entry.place.stack.startswith(f"default.{entry.job_name}-")
    assert head["metadata"]["labels"][labels.LAUNCH] == entry.launch


def test_dry_run_writes_nothing_and_its_text_is_yaml(world: World, kind: str, tmp_path: Path) -> None:
    info = world.scheduler(kind).submit_dryrun(app(), CONFIG[kind])
    assert yaml.safe_load(str(info)) == info.request.resource
    assert info.request.images_to_push == {}
    assert world.head(f"default:{info.request.resource['metadata']['name']}", HEADS[kind]) is None
    assert not (tmp_path / "state").exists()
    assert world.driver.stacks == {}


def test_the_request_is_submitted_as_the_caller_left_it(world: World) -> None:
    scheduler = world.scheduler()
    info = scheduler.submit_dryrun(app(), CONFIG["volcano"])
    info.request.resource["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["image"] = "mine:2"
    info.request.resource["metadata"]["name"] = "chosen"
    app_id = scheduler.schedule(info)
    assert app_id == "default:chosen"
    head = world.head(app_id)
    assert head is not None
    assert head["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["image"] == "mine:2"


def test_the_same_dry_run_scheduled_twice_is_a_value_error(world: World, kind: str) -> None:
    scheduler = world.scheduler(kind)
    info = scheduler.submit_dryrun(app(), CONFIG[kind])
    first = scheduler.schedule(info)
    with pytest.raises(ValueError, match=r"already exists.*Make a new dry run, delete the app first"):
        scheduler.schedule(info)
    assert scheduler.schedule(scheduler.submit_dryrun(app(), CONFIG[kind])) != first
    scheduler.delete(first)
    assert scheduler.schedule(info) == first


@pytest.fixture
def torchx_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process be the command `torchx run`, which launches after each dry run."""
    monkeypatch.setattr(sys, "argv", ["/usr/bin/torchx", "run", "-s", "pulumi_volcano", "utils.sh"])


@pytest.mark.usefixtures("torchx_run")
def test_the_engine_of_torchx_run_starts_before_the_request_is_validated(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[Any] = []
    monkeypatch.setattr(dryrun, "validate", lambda *_: begun.extend(RunIndex().all()))
    scheduler = world.scheduler()
    info = scheduler.submit_dryrun(app(), CONFIG["volcano"])
    assert [(entry.stage, entry.place) for entry in begun] == [(Stage.LAUNCHING, *world.driver.begun)]
    app_id = scheduler.schedule(info)
    (entry,) = RunIndex().all()
    assert (entry.app_id, entry.stage, entry.owner) == (app_id, Stage.LAUNCHED, None)
    assert world.head(app_id) is not None
    assert world.driver.begun == set()
    # A second launch of this process is begun as well.
    assert scheduler.schedule(scheduler.submit_dryrun(app(), CONFIG["volcano"])) != app_id


@pytest.mark.usefixtures("torchx_run")
@pytest.mark.parametrize("end", ["refused", "interrupted", "closed", "changed"])
def test_what_torchx_run_began_goes_without_its_launch(world: World, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    scheduler = world.scheduler()
    errors = {"refused": InvalidJobError("train", []), "interrupted": KeyboardInterrupt()}
    if end in errors:
        monkeypatch.setattr(dryrun, "validate", Mock(side_effect=errors[end]))
        with pytest.raises(type(errors[end])):
            scheduler.submit_dryrun(app(), CONFIG["volcano"])
    else:
        info = scheduler.submit_dryrun(app(), CONFIG["volcano"])
        assert len(world.driver.begun) == 1
        if end == "changed":
            info.request.resource["metadata"]["name"] = "chosen"
            assert scheduler.schedule(info) == "default:chosen"
            scheduler.delete("default:chosen")
        scheduler.close()
    assert (world.driver.begun, world.driver.stacks, RunIndex().all()) == (set(), {}, [])


@pytest.mark.usefixtures("torchx_run")
def test_what_cannot_be_removed_after_a_refusal_is_left_to_the_next_call(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = world.scheduler()
    scheduler.submit_dryrun(app(), CONFIG["volcano"])
    monkeypatch.setattr(world.driver, "abandon", Mock(side_effect=DeployError("the disk is full")))
    scheduler.close()
    (entry,) = RunIndex().all()
    assert (entry.stage, entry.owner) == (Stage.LAUNCHING, None)
    assert world.scheduler().describe(entry.app_id) is None
    assert RunIndex().all() == []


@pytest.mark.parametrize(
    "words", [["run", "--dryrun", "utils.sh"], ["run", "--dry", "utils.sh"], ["status", "run"], []]
)
def test_no_other_command_begins_anything(world: World, monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["torchx", *words])
    world.scheduler().submit_dryrun(app(), CONFIG["volcano"])
    assert (world.driver.begun, RunIndex().all()) == (set(), [])


@pytest.mark.usefixtures("torchx_run")
def test_a_cluster_that_does_not_answer_is_told_by_the_launch(world: World) -> None:
    def connect(*_: object) -> Any:
        raise ClusterError("no answer", retryable=True)

    scheduler = world.scheduler(connect=connect)
    info = scheduler.submit_dryrun(app(), CONFIG["volcano"])
    with pytest.raises(ClusterError, match="no answer"):
        scheduler.schedule(info)
    assert RunIndex().all() == []


def test_another_kind_than_planned_is_refused(world: World) -> None:
    scheduler = world.scheduler()
    info = scheduler.submit_dryrun(app(), CONFIG["volcano"])
    info.request.resource.update(apiVersion="v1", kind="Pod")
    with pytest.raises(DeployError, match=r"must be a Job of batch\.volcano\.sh/v1alpha1"):
        scheduler.schedule(info)
    assert not RunIndex().all()


@pytest.mark.parametrize(("policy", "same"), [("ignore", True), ("replace", False)])
def test_on_running_change_says_what_becomes_of_the_old_run(world: World, policy: str, same: bool) -> None:
    scheduler = world.scheduler()
    info = scheduler.submit_dryrun(app(), {**CONFIG["volcano"], "on_running_change": policy})
    first = scheduler.schedule(info)
    uid = (world.head(first) or {})["metadata"]["uid"]
    assert scheduler.schedule(info) == first
    assert ((world.head(first) or {})["metadata"]["uid"] == uid) is same


def test_a_process_that_cannot_launch_replaces_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = world.scheduler()
    info = scheduler.submit_dryrun(app(), {**CONFIG["volcano"], "on_running_change": "replace"})
    first = scheduler.schedule(info)
    before, entries = world.head(first), RunIndex().all()

    def refuse() -> None:
        raise DeployError("not in this process")

    monkeypatch.setattr(world.driver, "check_process", refuse)
    with pytest.raises(DeployError, match="not in this process"):
        scheduler.schedule(info)
    assert (world.head(first), RunIndex().all()) == (before, entries)


def test_an_object_of_somebody_else_is_never_adopted(world: World) -> None:
    scheduler = world.scheduler()
    info = scheduler.submit_dryrun(app(), CONFIG["volcano"])
    world.cluster.create(VOLCANO_JOB, "default", info.request.resource)
    with pytest.raises(ValueError, match="already exists in namespace 'default', made by another program"):
        scheduler.schedule(info)
    assert RunIndex().all() == []


def test_a_refused_launch_leaves_nothing(world: World) -> None:
    world.driver.error = DeployError("queue `test` is closed")
    with pytest.raises(DeployError, match="closed"):
        world.scheduler().submit(app(), CONFIG["volcano"])
    assert RunIndex().all() == []
    assert world.cluster.list(VOLCANO_JOB, None) == []


def test_a_refused_launch_whose_rest_cannot_be_removed_is_failed_and_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    diagnosis = diagnose_refusal('namespaces "x" not found')
    assert diagnosis is not None
    world.driver.error = RefusedError("it was refused", status=refused_status(diagnosis))
    monkeypatch.setattr(world.driver, "find", lambda place: place)
    with pytest.raises(RefusedError):
        world.scheduler().submit(app(), CONFIG["volcano"])
    (entry,) = RunIndex().all()
    noted = RunIndex().observation(entry)
    assert noted is not None
    status = status_of(noted)
    assert (status.state, status.reason) == (JobState.FAILED, Reason.REFUSED)
    assert status.message == "namespace 'x' does not exist: namespaces \"x\" not found"


@pytest.mark.parametrize("made", [True, False])
def test_an_interrupted_launch_is_put_right_at_once(world: World, monkeypatch: pytest.MonkeyPatch, made: bool) -> None:
    launch = world.driver.launch

    def interrupted(order: Any, tell: Any, **given: Any) -> Any:
        if made:
            launch(order, tell, **given)
        raise KeyboardInterrupt

    monkeypatch.setattr(world.driver, "launch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        world.scheduler().submit(app(), CONFIG["volcano"])
    assert [entry.stage for entry in RunIndex().all()] == ([Stage.LAUNCHED] if made else [])


def test_an_unreachable_cluster_is_a_warning_in_the_dry_run_and_an_error_in_the_launch(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.cluster.error = ClusterError("the cluster cannot be reached", retryable=True)
    scheduler = world.scheduler()
    info = scheduler.submit_dryrun(app(), CONFIG["volcano"])
    assert "not validated: the cluster cannot be reached" in caplog.text
    with pytest.raises(ClusterError):
        scheduler.schedule(info)
    assert RunIndex().all() == []


def test_credentials_that_are_not_accepted_are_no_mistake_of_the_job(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.cluster.error = ClusterError("the plugin is not there", reason="Unauthorized")
    scheduler = world.scheduler()
    info = scheduler.submit_dryrun(app(), CONFIG["volcano"])
    assert "not validated: the plugin is not there" in caplog.text
    with pytest.raises(ClusterError, match="the plugin is not there"):
        scheduler.schedule(info)


def test_what_the_cluster_refuses_is_refused_in_the_dry_run(world: World) -> None:
    world.cluster.error = ClusterError("admission webhook denied it: unknown queue")
    with pytest.raises(ValueError, match=r"Invalid job spec.*unknown queue"):
        world.scheduler().submit_dryrun(app(), CONFIG["volcano"])
    world.scheduler().submit_dryrun(app(), {**CONFIG["volcano"], "validate_spec": False})


@pytest.mark.parametrize(
    ("denied", "named"),
    [
        (
            set(),
            ["namespace: 'ml' is not in the cluster; there are", "queue: 'gold' is not in the cluster; there are test"],
        ),
        ({("list", VOLCANO_QUEUE)}, ["namespace: 'ml' is not in the cluster; there are"]),
        ({("list", VOLCANO_QUEUE), ("get", kinds.NAMESPACE)}, []),
    ],
)
def test_a_refused_dry_run_names_all_that_the_cluster_lacks_and_what_there_is(
    world: World, monkeypatch: pytest.MonkeyPatch, denied: set[Any], named: list[str]
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise ClusterError('unable to find job queue: queue "gold" not found', reason="Forbidden")

    monkeypatch.setattr(world.cluster, "create", refuse)
    world.cluster.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}})
    world.cluster.denied.update(denied)
    with pytest.raises(InvalidJobError) as refused:
        world.scheduler().submit_dryrun(app(), {"queue": "gold", "namespace": "ml"})
    *absent, raw = map(str, refused.value.problems)
    assert [text[: len(start)] for text, start in zip(absent, named, strict=True)] == named
    assert raw == 'validate_spec: Invalid job spec: unable to find job queue: queue "gold" not found'


def test_an_absent_namespace_is_said_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise ClusterError('create jobs answered 404: namespaces "ml" not found', reason="NotFound")

    monkeypatch.setattr(world.cluster, "create", refuse)
    with pytest.raises(InvalidJobError) as refused:
        world.scheduler().submit_dryrun(app(), {**CONFIG["volcano"], "namespace": "ml"})
    (problem,) = refused.value.problems
    assert str(problem).startswith("namespace: 'ml' is not in the cluster; ")
    # What is not the namespace is not left out.
    world.cluster.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml"}})
    with pytest.raises(InvalidJobError, match="validate_spec: Invalid job spec: create jobs answered 404"):
        world.scheduler().submit_dryrun(app(), {**CONFIG["volcano"], "namespace": "ml"})


def test_local_images_are_pushed_under_the_names_of_the_seed(world: World) -> None:
    local = f"sha256:{'a' * 64}"
    config = {**CONFIG["volcano"], "image_repo": "example.com/team/app"}
    given = app(role(image=local))
    info = world.scheduler().submit_dryrun(given, config)
    assert info.request.images_to_push == {local: ("example.com/team/app", "a" * 64)}
    image = info.request.resource["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["image"]
    assert image == f"example.com/team/app:{'a' * 64}"
    assert given.roles[0].image == local
    with pytest.raises(KeyError, match="image_repo"):
        world.scheduler().submit_dryrun(given, CONFIG["volcano"])


def test_gang_of_pods_is_launched_and_found(world: World, submit: Callable[..., str]) -> None:
    app_id = submit(gang="pods")
    assert len(world.cluster.list(kinds.POD, "default")) == 2
    described = world.scheduler().describe(app_id)
    assert described is not None
    assert len(described.roles_statuses[0].replicas) == 2


def test_namespace_without_value_is_default(world: World, submit: Callable[..., str]) -> None:
    assert submit(namespace=None).startswith("default:")
    assert submit(namespace="team").startswith("team:")


def test_long_names_are_shortened_and_stay_unique(world: World, submit: Callable[..., str]) -> None:
    long = app(name="n" * 100)
    ids = {submit("volcano", long), submit("volcano", long)}
    assert len(ids) == 2
    assert all(len(f"{app_id.partition(':')[2]}-trainer-1-0") <= 63 for app_id in ids)


def test_wait_for_waits_outside_the_engine(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    launch = world.driver.launch

    def started(order: Any, tell: Any, **given: Any) -> Any:
        launched = launch(order, tell, **given)
        world.phase(order.entry.app_id, "Completed")
        return launched

    monkeypatch.setattr(world.driver, "launch", started)
    app_id = world.scheduler().submit(app(), {**CONFIG["volcano"], "wait_for": "completed"})
    assert str(world.scheduler().describe(app_id).state) == "SUCCEEDED"


def test_a_second_namespace_and_options_reach_the_manifest(world: World) -> None:
    options = {"service_account": "sa", "priority_class": "high", "labels": {"team": "a"}, "efa_device_count": 2}
    info = world.scheduler().submit_dryrun(app(), {**CONFIG["volcano"], **options})
    job = info.request.resource
    pod = job["spec"]["tasks"][0]["template"]["spec"]
    assert pod["serviceAccountName"] == "sa"
    assert job["spec"]["priorityClassName"] == "high"
    assert job["metadata"]["labels"]["team"] == "a"
    assert pod["containers"][0]["resources"]["limits"]["vpc.amazonaws.com/efa"] == "2"


def test_launches_reads_and_deletions_from_many_threads_do_not_mix(world: World) -> None:
    scheduler = world.scheduler()

    def one(number: int) -> str:
        app_id = scheduler.submit(app(name=f"app{number}"), CONFIG["volcano"])
        described = scheduler.describe(app_id)
        assert described is not None
        assert app_id.startswith(f"default:app{number}-")
        scheduler.list()
        if number % 2:
            scheduler.delete(app_id)
        return str(app_id)

    with ThreadPoolExecutor(8) as pool:
        ids = list(pool.map(one, range(16)))
    assert {entry.app_id for entry in RunIndex().all()} == set(ids[::2])
    assert len(world.driver.stacks) == 8


def test_the_organization_of_a_service_is_in_the_entry_and_in_the_label(
    world: World, submit: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    service = "https://api.pulumi.com"
    app_id = submit(pulumi_backend=service, pulumiOrganization="acme")
    (entry,) = RunIndex().all()
    place = entry.place
    assert (place.organization, place.cli_name) == ("acme", f"acme/torchx/{place.stack}")
    urn = f"urn:pulumi:{place.stack}::torchx::torchx:index:VolcanoTrainingJob::train"
    assert entry.launch == owner_digest("acme", "torchx", place.stack, urn)
    # A colleague with another default organization names it; who does not, looks in another one.
    monkeypatch.setenv("XDG_STATE_HOME", str(Path.cwd() / "colleague"))
    config = Path.cwd() / ".torchxconfig"
    monkeypatch.setenv("TORCHXCONFIG", str(config))
    config.write_text(f"[pulumi_volcano]\nqueue=test\npulumi_backend={service}\npulumi_organization=other\n")
    with pytest.raises(DeployError, match="stack is neither in the index"):
        world.scheduler().delete(app_id)
    config.write_text(f"[pulumi_volcano]\nqueue=test\npulumi_backend={service}\npulumi_organization=acme\n")
    world.scheduler().delete(app_id)
    assert world.driver.stacks == {}


def test_an_organization_of_another_backend_is_refused_in_the_dry_run(world: World) -> None:
    with pytest.raises(InvalidJobError, match=r"pulumi_organization: is 'acme', and file://.* has no organizations"):
        world.scheduler().submit_dryrun(app(), {"queue": "test", "pulumi_organization": "acme"})
