from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from torchx import specs
from torchx.schedulers import kubernetes_scheduler
from torchx.schedulers.api import Stream
from torchx_pulumi.apps.answer import Answer
from torchx_pulumi.apps.judge import judge
from torchx_pulumi.apps.look import Look
from torchx_pulumi.kube import kinds
from torchx_pulumi.model import labels
from torchx_pulumi.model.app_entry import Stage
from torchx_pulumi.model.errors import ClusterError, DeployError, InvalidJobError
from torchx_pulumi.runs.handle import read_handle
from torchx_pulumi.runs.index import RunIndex
from torchx_pulumi.schedulers import find_backend
from torchx_pulumi.schedulers.diagnosis.evidence import ObservedObjects
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB, VOLCANO_JOB_NAME
from torchx_pulumi.stack_state.checkpoint import SECRET, STACK, checkpoint_text, parse_checkpoint
from torchx_pulumi.storage.owners import this_process
from torchx_pulumi.torchx_adapter import compat
from torchx_pulumi_stacks.engine.driver import AutomationDriver

from tests.fakes import FakeCluster

from .conftest import World, app, role


def pod(name: str, job: str, phase: str = "Running", **status: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": {
                VOLCANO_JOB_NAME: job,
                labels.ROLE_NAME: "trainer",
                labels.REPLICA_ID: name.rpartition("-trainer-")[2].partition("-")[0],
            },
        },
        "spec": {"nodeName": "n1", "containers": [{"name": "trainer-0"}]},
        "status": {"phase": phase, "podIP": "10.1.2.3", **status},
    }


def rich_app() -> Any:
    first = role(
        env={"A": "1", "B": "[FIELD_PATH]status.hostIP"},
        args=["${app_id}", "${replica_id}", "$$", "${unknown}"],
        min_replicas=2,
        max_retries=3,
        retry_policy=specs.RetryPolicy.REPLICA,
        port_map={"tensorboard": 6006},
        mounts=[
            specs.BindMount(src_path="/a", dst_path="/b", read_only=True),
            specs.VolumeMount(src="claim", dst_path="/c"),
            specs.DeviceMount(src_path="/dev/x", dst_path="/dev/x", permissions="r"),
        ],
        metadata={"kubernetes": {"V1Pod": {"spec": {"tolerations": [{"key": "gpu"}]}}}, "x": ("a", 1)},
        resource=specs.Resource(cpu=2, gpu=0, memMB=100, capabilities={"a": "b"}, devices={"example.com/nic": 1}),
    )
    return app(first, role(name="reader", num_replicas=1), metadata={"owner": "me"})


def test_describe_returns_the_roles_exactly_as_given(world: World, kind: str, submit: Callable[..., str]) -> None:
    given = rich_app()
    described = world.scheduler(kind).describe(submit(kind, given))
    assert described.roles == rich_app().roles
    assert [type(mount) for mount in described.roles[0].mounts] == [type(m) for m in given.roles[0].mounts]
    assert described.roles[0].metadata["x"] == ("a", 1)
    assert [(status.role, len(status.replicas)) for status in described.roles_statuses] == [
        ("trainer", 2),
        ("reader", 1),
    ]


def test_describe_of_the_never_heard_of_is_none(world: World, kind: str) -> None:
    scheduler = world.scheduler(kind)
    for app_id in ("default:none", "none", "", "a:b:c", "Not Valid:/../x"):
        assert scheduler.describe(app_id) is None
        assert scheduler.exists(app_id) is False
        assert scheduler.describe_native(app_id) is None
    assert world.driver.stacks == {}


def test_the_id_in_the_environment_of_a_pod_is_that_of_its_app(
    world: World, kind: str, submit: Callable[..., str]
) -> None:
    scheduler = world.scheduler(kind)
    app_id = submit(kind)
    # TorchX has the handle in TORCHX_JOB_ID with `${app_id}`, which is the name alone.
    name = app_id.partition(":")[2]
    handle = read_handle(f"pulumi_{kind}://torchx/{name}")
    assert scheduler.exists(handle.app_id)
    assert scheduler.describe(handle.app_id).app_id == app_id
    assert scheduler.describe_native(handle.app_id).request.manifest()["metadata"]["name"] == name
    scheduler.cancel(handle.app_id)
    assert scheduler.describe(app_id).state.name == "CANCELLED"
    scheduler.delete(handle.app_id)
    assert not scheduler.exists(app_id)


def test_a_name_in_two_namespaces_is_asked_about(world: World, submit: Callable[..., str]) -> None:
    app_id = submit("volcano")
    name = app_id.partition(":")[2]
    (known,) = RunIndex().all()
    RunIndex().add(replace(known, app_id=f"other:{name}"))
    with pytest.raises(InvalidJobError, match=f"2 namespaces: default:{name}, other:{name}; write one of them"):
        world.scheduler("volcano").describe(name)


@pytest.mark.parametrize(
    ("phase", "state"),
    [
        ("Pending", "PENDING"),
        ("Running", "RUNNING"),
        ("Restarting", "RUNNING"),
        ("Aborting", "RUNNING"),
        ("Terminating", "RUNNING"),
        ("Completing", "RUNNING"),
        ("Aborted", "CANCELLED"),
        ("Completed", "SUCCEEDED"),
        ("Terminated", "FAILED"),
        ("Failed", "FAILED"),
    ],
)
def test_phases_of_volcano_are_torchx_states(world: World, submit: Callable[..., str], phase: str, state: str) -> None:
    app_id = submit()
    world.phase(app_id, phase)
    scheduler = world.scheduler()
    assert str(scheduler.describe(app_id).state) == state
    assert [str(item.state) for item in scheduler.list()] == [state]


def test_replicas_have_hostname_state_and_reason(world: World, submit: Callable[..., str]) -> None:
    app_id = submit()
    name = app_id.partition(":")[2]
    world.phase(app_id, "Running", retryCount=2)
    failed = {"containerStatuses": [{"name": "trainer-1", "state": {"terminated": {"exitCode": 3}}}]}
    world.cluster.put(pod(f"{name}-trainer-0-0", name))
    world.cluster.put(pod(f"{name}-trainer-1-0", name, "Failed", **failed))
    described = world.scheduler().describe(app_id)
    first, second = described.roles_statuses[0].replicas
    assert (first.id, str(first.state), first.hostname) == (0, "RUNNING", "10-1-2-3.default.pod.cluster.local")
    assert str(second.state) == "FAILED"
    assert json.loads(second.structured_error_msg)["message"]["errorCode"] == 3
    assert described.num_restarts == 2
    status = specs.AppStatus(described.state, described.num_restarts, described.msg, roles=described.roles_statuses)
    assert "exitcode: 3" in status.format()


def test_a_forgotten_run_keeps_its_last_state(world: World, submit: Callable[..., str]) -> None:
    app_id = submit()
    scheduler = world.scheduler()
    world.phase(app_id, "Completed")
    assert str(scheduler.describe(app_id).state) == "SUCCEEDED"
    world.cluster.remove(VOLCANO_JOB, *app_id.split(":"))
    assert str(scheduler.describe(app_id).state) == "SUCCEEDED"
    assert [str(item.state) for item in scheduler.list()] == ["SUCCEEDED"]


@pytest.mark.parametrize("options", [{}, {"ttl_seconds_after_finished": 5}])
def test_how_a_run_ended_that_vanished_is_not_known(
    world: World, submit: Callable[..., str], options: dict[str, Any]
) -> None:
    app_id, scheduler = submit(**options), world.scheduler()
    world.phase(app_id, "Running")
    scheduler.describe(app_id)
    world.cluster.remove(VOLCANO_JOB, *app_id.split(":"))
    for _ in range(2):
        gone = scheduler.describe(app_id)
        assert str(gone.state) == "UNKNOWN"
        assert "NotFound: its objects are gone from the cluster; last seen RUNNING at" in gone.msg
        assert [str(item.state) for item in scheduler.list()] == ["UNKNOWN"]
    (stack,) = world.driver.stacks.values()
    assert stack.outputs["torchx"]["observed"].get("state") != "FAILED"


def test_another_object_of_the_same_name_is_not_taken_for_the_run(world: World, submit: Callable[..., str]) -> None:
    app_id = submit()
    namespace, name = app_id.split(":")
    job = world.head(app_id)
    world.cluster.delete(VOLCANO_JOB, namespace, name)
    world.cluster.create(VOLCANO_JOB, namespace, job)
    world.phase(app_id, "Completed")
    assert str(world.scheduler().describe(app_id).state) == "UNKNOWN"


def test_without_the_cluster_the_record_answers(world: World, kind: str, submit: Callable[..., str]) -> None:
    app_id = submit(kind)
    scheduler = world.scheduler(kind)
    scheduler.describe(app_id)
    world.cluster.error = ClusterError("the cluster cannot be reached", retryable=True)
    described = scheduler.describe(app_id)
    assert "the cluster cannot be reached" in described.msg
    assert [item.app_id for item in scheduler.list()] == [app_id]
    assert scheduler.exists(app_id)


def test_reading_makes_no_engine(world: World, submit: Callable[..., str]) -> None:
    app_id = submit()

    def no_engine() -> Any:
        raise AssertionError("an engine was made")

    reading = world.scheduler(make_driver=no_engine)
    reading.describe(app_id)
    reading.list()
    assert reading.exists(app_id)
    reading.describe("default:never-heard-of")
    reading.describe_native(app_id)
    reading.close()


def test_list_is_one_call_for_each_kind(world: World, kind: str, submit: Callable[..., str]) -> None:
    ids = sorted(submit(kind) for _ in range(5))
    calls: list[str] = []
    listed = world.cluster.list

    def counted(what: kinds.Kind, *rest: Any) -> Any:
        calls.append(what.kind)
        return listed(what, *rest)

    world.cluster.list = counted  # type: ignore[method-assign]
    assert [item.app_id for item in world.scheduler(kind).list()] == ids
    assert len(calls) == len(set(calls))


def test_list_has_what_colleagues_launched_and_nothing_else(
    world: World, submit: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = submit()
    foreign = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "x", "namespace": "a"}}
    world.cluster.put(foreign)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "mine"))
    assert [item.app_id for item in world.scheduler().list()] == [theirs]


def test_list_may_be_narrowed(world: World, submit: Callable[..., str]) -> None:
    here, there = submit(), submit(namespace="team")
    world.phase(there, "Running")
    scheduler = world.scheduler()
    assert [item.app_id for item in scheduler.list({"namespace": "team"})] == [there]
    assert [item.app_id for item in scheduler.list({"list_states": ["RUNNING"]})] == [there]
    assert {item.app_id for item in scheduler.list({"list_session": "torchx"})} == {here, there}
    assert scheduler.list({"list_session": "other"}) == []


def test_apps_that_the_cluster_forgot_are_listed_as_well(world: World, submit: Callable[..., str]) -> None:
    entry = RunIndex().find(submit(), "volcano")
    assert entry is not None
    for number in range(20):
        RunIndex().add(replace(entry, app_id=f"default:copy-{number}"))
    assert len(world.scheduler().list()) == 21


def test_where_listing_everything_is_forbidden_our_namespaces_are_listed(
    world: World, submit: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    app_id = submit()
    listed = FakeCluster.list

    def limited(self: FakeCluster, what: kinds.Kind, namespace: str | None, *rest: Any) -> Any:
        if namespace is None:
            raise ClusterError("forbidden", reason="Forbidden")
        return listed(self, what, namespace, *rest)

    monkeypatch.setattr(FakeCluster, "list", limited)
    assert [item.app_id for item in world.scheduler().list()] == [app_id]


def test_an_id_of_two_clusters_is_a_named_error(world: World, submit: Callable[..., str]) -> None:
    app_id = submit()
    index = RunIndex()
    entry = index.find(app_id, "volcano")
    assert entry is not None
    changed = replace(entry, cluster="0123456789ab", kubeconfig="/other/config", kube_context="b")
    index.update(changed, lambda _: changed)
    world.scheduler().describe(app_id)  # the cluster in force is one of them
    world.cluster.api_server = "https://third.example.com"
    with pytest.raises(InvalidJobError, match="2 clusters"):
        world.scheduler().describe(app_id)


@pytest.mark.parametrize("made", [True, False])
def test_describe_finds_the_truth_of_an_interrupted_launch(
    world: World, submit: Callable[..., str], made: bool
) -> None:
    app_id = submit()
    index = RunIndex()
    entry = index.find(app_id, "volcano")
    assert entry is not None
    dead = replace(this_process(), pid=1, started="never")
    changed = replace(entry, stage=Stage.LAUNCHING, owner=dead, uid=None)
    index.update(changed, lambda _: changed)
    if not made:
        world.cluster.remove(VOLCANO_JOB, *app_id.split(":"))
        stack = world.driver.stacks[entry.place]
        stack.finished = False
    described = world.scheduler().describe(app_id)
    assert (described is not None) is made
    assert bool(RunIndex().all()) is made


def test_native_read_back_is_the_same_type_of_request(world: World, kind: str, submit: Callable[..., str]) -> None:
    app_id = submit(kind)
    info = world.scheduler(kind).describe_native(app_id)
    dry = world.scheduler(kind).submit_dryrun(app(), {"queue": "test"} if kind == "volcano" else {})
    assert type(info.request) is type(dry.request)
    assert info.request.resource["metadata"]["name"] == app_id.partition(":")[2]
    assert info.request.images_to_push == {}
    assert "apiVersion" in str(info)


def test_log_lines_have_times_and_ends(world: World, submit: Callable[..., str]) -> None:
    app_id = submit()
    name = app_id.partition(":")[2]
    ended = {"containerStatuses": [{"name": "trainer-0", "state": {"terminated": {"exitCode": 0, "containerID": "c"}}}]}
    world.cluster.put(pod(f"{name}-trainer-0-0", name, "Succeeded", **ended))
    world.cluster._logs = {("default", f"{name}-trainer-0-0"): ["one", "two"]}
    scheduler = world.scheduler()
    lines = list(scheduler.log_iter(app_id, "trainer", 0))
    assert [line.split(" ", 1)[1] for line in lines] == ["one\n", "two\n"]
    assert next(iter(scheduler.log_iter(app_id, "trainer", 0, regex="tw", streams=Stream.COMBINED))).endswith(" two\n")
    since = datetime(2100, 1, 1, tzinfo=timezone.utc)
    assert list(scheduler.log_iter(app_id, "trainer", 0, since=since)) == []


def relaunch(world: World, app_id: str) -> None:
    """Launch an app again with three replicas, as a program does that has taken its stack over."""
    head = world.head(app_id)
    assert head is not None
    metadata = {**head["metadata"], "uid": "second"}
    world.cluster.put({**head, "metadata": metadata, "status": {"state": {"phase": "Running"}}})
    stack = next(stack for stack in world.driver.stacks.values() if stack.entry.app_id == app_id)
    name = app_id.partition(":")[2]
    pods = {"trainer": [f"{name}-trainer-{index}-0" for index in range(3)]}
    stack.entry = replace(stack.entry, uid="second", pods=pods)


def test_status_list_log_and_cancel_follow_an_app_that_its_program_launched_again(
    world: World, submit: Callable[..., str]
) -> None:
    app_id = submit()
    world.phase(app_id, "Running")
    scheduler = world.scheduler()
    assert str(scheduler.describe(app_id).state) == "RUNNING"
    relaunch(world, app_id)
    assert [str(item.state) for item in scheduler.list()] == ["RUNNING"]
    assert scheduler.logs.replicas(app_id) == [("trainer", 0), ("trainer", 1), ("trainer", 2)]
    entry = RunIndex().find(app_id, "volcano")
    assert entry is not None
    assert entry.uid == "second"
    assert str(scheduler.describe(app_id).state) == "RUNNING"
    scheduler.cancel(app_id)
    head = world.head(app_id)
    assert head is not None
    assert head["status"]["state"]["phase"] == "Aborted"


def test_a_followed_log_ends_with_the_run_that_took_the_place_of_the_first(
    world: World, submit: Callable[..., str]
) -> None:
    app_id = submit()
    name = app_id.partition(":")[2]
    world.phase(app_id, "Running")
    relaunch(world, app_id)
    world.phase(app_id, "Completed")
    ended = {"containerStatuses": [{"name": "trainer-0", "state": {"terminated": {"exitCode": 0, "containerID": "c"}}}]}
    world.cluster.put(pod(f"{name}-trainer-0-0", name, "Succeeded", **ended))
    world.cluster._logs["default", f"{name}-trainer-0-0"] = ["second run"]
    lines = list(world.scheduler().log_iter(app_id, "trainer", 0, should_tail=True))
    assert [line.rstrip().endswith("second run") for line in lines] == [True]
    entry = RunIndex().find(app_id, "volcano")
    assert entry is not None
    assert entry.uid == "second"


@pytest.mark.parametrize("follow", [False, True])
def test_the_containers_that_the_installed_torchx_reads_are_read(
    world: World, submit: Callable[..., str], follow: bool
) -> None:
    app_id = submit()
    name = app_id.partition(":")[2]
    world.phase(app_id, "Completed")
    containers = [{"name": "istio-proxy"}, {"name": "trainer-0"}]
    state = {"state": {"terminated": {"exitCode": 0, "containerID": "c"}}}
    ended = pod(f"{name}-trainer-0-0", name, "Succeeded", containerStatuses=[{**one, **state} for one in containers])
    ended["spec"]["containers"] = containers
    ended["spec"]["initContainers"] = [{"name": "init"}]
    world.cluster.put(ended)
    world.cluster._logs["default", f"{name}-trainer-0-0"] = ["a line"]
    lines = list(world.scheduler().log_iter(app_id, "trainer", 0, should_tail=follow))
    every = compat.container_label("istio-proxy")
    nightly = hasattr(kubernetes_scheduler, "prefix_container_name")
    assert (every is not None) is nightly
    labels = sorted(line.partition("2026")[0] for line in lines)
    assert labels == (["", every] if nightly else [""])
    scheduler = world.scheduler()
    chosen = {"log_containers": ["istio-proxy"]}
    assert len(list(scheduler.logs.read(app_id, "trainer", 0, options=chosen, follow=follow))) == 1


def test_lines_of_a_replicas_own_container_begin_alike_with_both_schedulers(
    world: World, submit: Callable[..., str]
) -> None:
    app_id = submit("mcad")
    name = f"{app_id.partition(':')[2]}-trainer-0"
    own = {"name": name}
    made = pod(name, name, "Running", containerStatuses=[{**own, "containerID": "c", "state": {"running": {}}}])
    made["spec"]["containers"] = [own]
    world.cluster.put(made)
    world.cluster._logs["default", name] = ["a line"]
    lines = list(world.scheduler("mcad").log_iter(app_id, "trainer", 0))
    assert [line.partition("2026")[0] for line in lines] == [""]


def test_wrong_questions_about_logs_are_value_errors(world: World, submit: Callable[..., str]) -> None:
    app_id = submit()
    scheduler = world.scheduler()
    with pytest.raises(ValueError, match="COMBINED"):
        scheduler.log_iter(app_id, "trainer", streams=Stream.STDERR)
    with pytest.raises(ValueError, match="it has 'trainer'"):
        scheduler.log_iter(app_id, "nobody")
    with pytest.raises(ValueError, match="0 to 1"):
        scheduler.log_iter(app_id, "trainer", 2)
    with pytest.raises(ValueError, match="not found in the local index or in backend"):
        scheduler.log_iter("default:none", "trainer")


def test_an_app_launched_elsewhere_is_found_by_its_objects(
    world: World, kind: str, submit: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app_id = submit(kind)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "mine"))
    scheduler = world.scheduler(kind)
    described = scheduler.describe(app_id)
    assert [(item.name, item.image, item.num_replicas) for item in described.roles] == [("trainer", "img:1", 2)]
    assert scheduler.exists(app_id)
    with pytest.raises(DeployError, match="delete it where it was launched"):
        scheduler.delete(app_id)
    scheduler.cancel(app_id)
    assert RunIndex().all() == []


def job_of_program(world: World, kind: str, app_id: str) -> dict[str, Any]:
    """Make the job object of an app that of a program, and return it."""
    kinds_of_jobs = [variant.job_object for variant in find_backend(kind).variants.values()]
    job_object = next(found for each in kinds_of_jobs if (found := world.head(app_id, each)) is not None)
    del job_object["metadata"]["labels"][labels.LAUNCHER]
    world.cluster.put(job_object)
    return job_object


def test_the_job_of_a_program_is_removed_by_its_program(
    world: World,
    kind: str,
    submit: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    app_id = submit(kind)
    job_of_program(world, kind, app_id)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "mine"))
    handle = f"pulumi_{kind}://torchx/{app_id}"
    assert world.command(["delete", handle]) == 2
    assert "is the job of a Pulumi program: take it out of the program" in capsys.readouterr().err
    assert world.command(["cancel", handle]) == 0
    assert "`pulumi destroy` in its program removes it" in capsys.readouterr().err
    assert "its stack does not say yet that it was cancelled at" in caplog.text
    assert "`torchx status` of this user" not in caplog.text


def stack_of_program(kind: str, app_id: str, uid: str, folder: Path) -> Path:
    """Write the stack vision/dev, whose program launched an app and exports something else; return its checkpoint."""
    namespace, _, job_name = app_id.partition(":")
    outputs = {"app_id": app_id, "app_handle": f"pulumi_{kind}://torchx/{app_id}", "uid": uid}
    outputs |= {"namespace": namespace, "job_name": job_name}
    urn, component = "urn:pulumi:dev::vision::", find_backend(kind).component
    resources = [
        {
            "urn": f"{urn}{STACK}::vision-dev",
            "type": STACK,
            "outputs": {"job": {"app": {"id": app_id}, "observed": {}}},
        },
        {"urn": f"{urn}torchx:index:{component}::train", "type": f"torchx:index:{component}", "outputs": outputs},
    ]
    file = folder / ".pulumi" / "stacks" / "vision" / "dev.json"
    file.parent.mkdir(parents=True)
    (file.parent / "damaged.json").write_text("{")
    (file.parent / "a-odd.json").write_text(checkpoint_text("organization/vision/a-odd", [app_id, uid]))  # type: ignore[list-item]
    file.write_text(checkpoint_text("organization/vision/dev", resources))
    return file


def outputs_of(file: Path) -> list[dict[str, Any]]:
    return [resource["outputs"] for resource in parse_checkpoint(file.read_text()).resources]


@pytest.mark.parametrize("form", ["stack", "id", "id, and the backend in .torchxconfig"])
def test_requests_about_the_job_of_a_program_are_written_to_its_stack(
    world: World, kind: str, form: str, submit: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app_id = submit(kind)
    job_object = job_of_program(world, kind, app_id)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "mine"))
    backend, config = f"file://{tmp_path}/shared", tmp_path / "torchxconfig"
    if form in ("stack", "id"):
        monkeypatch.setenv("PULUMI_BACKEND_URL", backend)
    else:
        config.write_text(f"[pulumi_{kind}]\npulumi_backend = {backend}\n")
        monkeypatch.setenv("TORCHXCONFIG", str(config))
    file = stack_of_program(kind, app_id, job_object["metadata"]["uid"], tmp_path / "shared")
    name = "vision/dev" if form == "stack" else app_id
    requests = ["cancel", "resume", "cancel"] if kind == "volcano" else ["cancel"]
    for counter, command in enumerate(requests, 1):
        assert world.command([command, name], make_driver=AutomationDriver) == 0
        if kind == "volcano":
            world.phase(app_id, "Aborted" if command == "cancel" else "Running")
        exported, outputs = outputs_of(file)
        requested = outputs["requested"]
        assert (requested["action"], requested["counter"], requested["uid"]) == (command, counter, outputs["uid"])
        assert exported["job"]["requested"] == requested
    variant = find_backend(kind).variants["job" if kind == "volcano" else "v1beta1"]
    uid, now = outputs["uid"], datetime.now(timezone.utc)
    gone = Look(variant=variant, at=now, uid=uid, objects=ObservedObjects(pods=()))
    found = judge(gone, Answer.of(outputs).requested, outputs["observed"])
    assert found is not None
    assert found["state"] == "CANCELLED"
    assert RunIndex().all() == []


@pytest.mark.parametrize(
    ("kept_from", "why"),
    [("lock", "another process works on the stack"), ("secret", "has secrets"), ("absent", "it is not known here")],
)
def test_a_program_whose_stack_cannot_be_written_is_cancelled_all_the_same(
    world: World,
    submit: Callable[..., str],
    kept_from: str,
    why: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    app_id = submit("mcad")
    job_object = job_of_program(world, "mcad", app_id)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "mine"))
    monkeypatch.setenv("PULUMI_BACKEND_URL", f"file://{tmp_path}/shared")
    uid = job_object["metadata"]["uid"] if kept_from != "absent" else "another"
    file = stack_of_program("mcad", app_id, uid, tmp_path / "shared")
    if kept_from == "secret":
        handle = f'"pulumi_mcad://torchx/{app_id}"'
        file.write_text(file.read_text().replace(handle, f'{{"{SECRET}": "1b47"}}'))
    if kept_from == "lock":
        lock = tmp_path / "shared" / ".pulumi" / "locks" / "organization" / "vision" / "dev" / "up.json"
        lock.parent.mkdir(parents=True)
        lock.write_text("{}")
    before = file.read_bytes()
    assert world.command(["cancel", app_id], make_driver=AutomationDriver) == 0
    assert "does not say yet that it was cancelled at" in caplog.text
    assert why in caplog.text
    assert ("stack dev in file://" in caplog.text) is (kept_from != "absent")
    assert file.read_bytes() == before
    assert "run the same command again later" in caplog.text
    assert world.scheduler("mcad").entry(app_id) is None
    if kept_from != "lock":
        return
    # The deployment has ended, and the objects are gone.
    lock.unlink()
    assert world.command(["cancel", f"pulumi_mcad://torchx/{app_id}"], make_driver=AutomationDriver) == 0
    _, outputs = outputs_of(file)
    assert outputs["requested"]["action"] == "cancel"
    assert outputs["observed"]["state"] == "CANCELLED"
    assert RunIndex().all() == []


def test_cancelling_an_app_that_has_ended_says_so(
    world: World, submit: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    app_id = submit()
    world.phase(app_id, "Completed")
    assert world.command(["cancel", app_id]) == 0
    assert f"{app_id}: had ended already, as SUCCEEDED; `torchx-pulumi delete` removes it" in capsys.readouterr().err


def test_an_app_of_a_shared_backend_is_found_whole(
    world: World, submit: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULUMI_BACKEND_URL", f"file://{tmp_path / 'shared'}")
    app_id = submit(given=rich_app())
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "mine"))
    scheduler = world.scheduler()
    assert scheduler.describe(app_id).roles == rich_app().roles
    scheduler.delete(app_id)
    assert world.driver.stacks == {}
    assert world.head(app_id) is None


def test_a_link_is_made_of_its_template(world: World, submit: Callable[..., str]) -> None:
    app_id = submit(ui_url="https://board.example.com/{namespace}/{name}?q={queue}")
    name = app_id.partition(":")[2]
    assert world.scheduler().describe(app_id).ui_url == f"https://board.example.com/default/{name}?q=test"
    with pytest.raises(ValueError, match="ui_url"):
        world.scheduler().submit_dryrun(app(), {"queue": "q", "ui_url": "https://x.example.com/{nme}"})
