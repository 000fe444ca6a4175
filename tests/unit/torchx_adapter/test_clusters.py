"""Apps and the clusters that they are in: re-pointed contexts, tunnels, second addresses, colleagues' kubeconfigs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.kube import kinds
from torchx_pulumi.kube.kubeconfig import api_server, find_access
from torchx_pulumi.model.app_entry import RunEntry
from torchx_pulumi.model.errors import ClusterError, InvalidJobError
from torchx_pulumi.runs.index import RunIndex
from torchx_pulumi.runs.whereabouts import DIFFERENT_CLUSTER, UNDECIDED_CLUSTER
from torchx_pulumi.schedulers.appwrapper.objects import APP_WRAPPER
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB

from tests.fakes import FakeCluster

from .conftest import World, app

HERE = "https://fake.example.com"
ENDED = {
    "phase": "Succeeded",
    "containerStatuses": [{"name": "trainer-0", "state": {"terminated": {"exitCode": 0, "containerID": "c"}}}],
}
THERE = "https://there.example.com"
NO_HOME = [("get", kinds.NAMESPACE)]


def only_entry() -> RunEntry:
    (entry,) = RunIndex().all()
    return entry


def refused(call: Callable[[], Any]) -> ClusterError:
    with pytest.raises(ClusterError) as caught:
        call()
    assert "was launched in the cluster at https://fake.example.com" in str(caught.value)
    assert "Nothing was changed" in str(caught.value)
    assert "--forget-unreachable" in str(caught.value)
    return caught.value


# A cluster that was made again at the same address, as `kind` and `minikube` do it, or a tunnel that leads elsewhere.


def test_a_cluster_that_was_made_again_is_an_error_and_no_state(
    world: World, kind: str, submit: Callable[..., str]
) -> None:
    app_id = submit(kind)
    scheduler = world.scheduler(kind)
    world.cluster = FakeCluster(uid="made again")
    calls = [
        lambda: scheduler.describe(app_id),
        lambda: scheduler.cancel(app_id),
        lambda: scheduler.resume(app_id),
        lambda: scheduler.describe_native(app_id),
        lambda: list(scheduler.log_iter(app_id, "trainer")),
    ]
    if kind == "mcad":
        calls.remove(calls[2])  # an AppWrapper cannot be resumed anyway
    for call in calls:
        error = refused(call)
        assert error.reason == DIFFERENT_CLUSTER
        assert "uid made again" in str(error)
    assert only_entry().requested is None


def test_in_a_cluster_that_was_made_again_apps_are_listed_as_last_seen(
    world: World, submit: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    app_id = submit()
    world.phase(app_id, "Running")
    scheduler = world.scheduler()
    scheduler.describe(app_id)
    world.cluster = FakeCluster(uid="made again")
    assert [(item.app_id, str(item.state)) for item in scheduler.list()] == [(app_id, "RUNNING")]
    assert "is another one" in caplog.text


@pytest.mark.parametrize("state_lost", [False, True])
def test_delete_in_another_cluster_forgets_nothing(
    world: World, kind: str, submit: Callable[..., str], state_lost: bool
) -> None:
    app_id = submit(kind)
    first = world.cluster
    if state_lost:
        world.driver.stacks.clear()
    world.cluster = world.driver._cluster = FakeCluster(uid="made again")
    scheduler = world.scheduler(kind)
    assert refused(lambda: scheduler.delete(app_id)).reason == DIFFERENT_CLUSTER
    assert [entry.app_id for entry in RunIndex().all()] == [app_id]
    scheduler.delete(app_id, forget_unreachable=True)
    assert RunIndex().all() == []
    assert world.driver.stacks == {}
    namespace, name = app_id.split(":")
    head = VOLCANO_JOB if kind == "volcano" else APP_WRAPPER
    assert first.get(head, namespace, name) is not None


def test_delete_where_the_state_is_lost_deletes_the_object_in_the_right_cluster(
    world: World, submit: Callable[..., str]
) -> None:
    app_id = submit()
    world.driver.stacks.clear()
    world.scheduler().delete(app_id)
    assert world.head(app_id) is None
    assert RunIndex().all() == []


# Not decided: another address, and the uid of one side is not known.


def test_where_the_cluster_is_not_known_reading_warns_and_changes_are_refused(
    world: World, submit: Callable[..., str]
) -> None:
    app_id = submit()
    world.phase(app_id, "Running")
    scheduler = world.scheduler()
    scheduler.describe(app_id)
    world.cluster = world.driver._cluster = FakeCluster(api_server=THERE, denied=NO_HOME)
    described = scheduler.describe(app_id)
    assert str(described.state) == "RUNNING"
    assert f"whether the cluster at {THERE} is that one is not known" in described.msg
    assert [str(item.state) for item in scheduler.list()] == ["RUNNING"]
    assert scheduler.describe_native(app_id) is None
    for call in (scheduler.cancel, scheduler.resume, scheduler.delete):
        assert refused(lambda call=call: call(app_id)).reason == UNDECIDED_CLUSTER  # type: ignore[misc]
    assert only_entry().requested is None


def test_the_job_itself_proves_the_cluster(world: World, submit: Callable[..., str]) -> None:
    app_id = submit()
    job = world.head(app_id)
    world.cluster = world.driver._cluster = FakeCluster([job or {}], api_server=THERE, denied=NO_HOME)
    world.phase(app_id, "Running")
    scheduler = world.scheduler()
    assert str(scheduler.describe(app_id).state) == "RUNNING"
    assert [str(item.state) for item in scheduler.list()] == ["RUNNING"]
    scheduler.cancel(app_id)
    assert str(scheduler.describe(app_id).state) == "CANCELLED"
    scheduler.delete(app_id)
    assert RunIndex().all() == []


# One cluster under two addresses, two clusters behind one.


def test_one_cluster_under_two_addresses_is_one_cluster(world: World, submit: Callable[..., str]) -> None:
    app_id = submit()
    launched = only_entry()
    assert launched.cluster_identity == world.cluster.identify()
    assert launched.cluster == world.cluster.identify().key != world.cluster.identity
    world.cluster.uid = world.cluster.identify().uid
    world.cluster.api_server = THERE
    scheduler = world.scheduler()
    assert [item.app_id for item in scheduler.list()] == [app_id]
    world.cluster.remove(VOLCANO_JOB, *app_id.split(":"))
    assert "its objects are gone from the cluster" in scheduler.describe(app_id).msg
    scheduler.delete(app_id)
    assert RunIndex().all() == []


def test_an_app_is_listed_once_where_its_cluster_is_reached_by_two_addresses(
    world: World, submit: Callable[..., str]
) -> None:
    app_id = submit(kubeconfig="tunnel")
    tunnel = world.cluster
    here = FakeCluster([world.head(app_id) or {}], uid=tunnel.identify().uid, api_server=THERE)
    scheduler = world.scheduler(connect=lambda kubeconfig, _: tunnel if kubeconfig == "tunnel" else here)
    assert [item.app_id for item in scheduler.list()] == [app_id]


def test_two_clusters_behind_one_address_are_two(world: World, submit: Callable[..., str]) -> None:
    app_id = submit()
    first, second = world.cluster, FakeCluster(uid="second")
    world.cluster = second
    twin = replace(only_entry(), cluster=second.identify().key, cluster_identity=second.identify(), uid="u2")
    RunIndex().add(twin)
    second.put({**(first.get(VOLCANO_JOB, *app_id.split(":")) or {}), "status": {"state": {"phase": "Running"}}})
    job = world.head(app_id)
    assert job is not None
    second.put({**job, "metadata": {**job["metadata"], "uid": "u2"}})
    assert str(world.scheduler().describe(app_id).state) == "RUNNING"
    world.cluster = first
    assert str(world.scheduler().describe(app_id).state) == "SUBMITTED"
    world.cluster = FakeCluster(uid="third")
    with pytest.raises(InvalidJobError, match="2 clusters"):
        world.scheduler().describe(app_id)


def test_a_launch_asks_once_which_cluster_it_is(world: World, submit: Callable[..., str]) -> None:
    asked = []
    identify = world.cluster.identify

    def counted() -> Any:
        asked.append(1)
        return identify()

    world.cluster.identify = counted  # type: ignore[method-assign]
    app_id = submit()
    assert len(asked) == 1
    scheduler = world.scheduler()
    scheduler.describe(app_id)
    scheduler.list()
    scheduler.cancel(app_id)
    assert len(asked) == 1


def test_without_the_permission_to_know_the_uid_names_are_of_the_address(
    world: World, submit: Callable[..., str]
) -> None:
    world.cluster.uid = ""
    app_id = submit()
    entry = only_entry()
    assert entry.cluster == world.cluster.identity
    assert entry.cluster_identity is not None
    assert entry.cluster_identity.uid is None
    assert str(world.scheduler().describe(app_id).state) == "SUBMITTED"
    world.cluster = world.driver._cluster = FakeCluster(authority="another", uid="")
    with pytest.raises(ClusterError, match="is not known"):
        world.scheduler().delete(app_id)


# Colleagues: another home, another kubeconfig, other names of contexts.


class Team:
    """Two users of one backend and one cluster; each has a home with a kubeconfig of its own."""

    def __init__(self, world: World, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.world, self._folder, self._patch = world, folder, patch
        self.clusters = {HERE: world.cluster}
        patch.setenv("PULUMI_BACKEND_URL", f"file://{folder / 'shared'}")

    def become(self, name: str, *servers: tuple[str, str]) -> None:
        """Work as a user whose kubeconfig has these contexts and addresses, the first of which is in force."""
        home = self._folder / name
        (home / ".kube").mkdir(parents=True, exist_ok=True)
        path = home / ".kube" / "config"
        config = {
            "clusters": [{"name": context, "cluster": {"server": server}} for context, server in servers],
            "contexts": [{"name": context, "context": {"cluster": context}} for context, _ in servers],
            "current-context": servers[0][0],
        }
        path.write_text(json.dumps(config))
        self._patch.setenv("KUBECONFIG", str(path))
        self._patch.setenv("XDG_STATE_HOME", str(home / "state"))

    def leave(self, name: str) -> None:
        """Take a user's home away."""
        (self._folder / name / ".kube" / "config").unlink()

    def connect(self, kubeconfig: str | None, context: str | None) -> FakeCluster:
        return self.clusters[api_server(find_access(kubeconfig, context))]

    def scheduler(self) -> Any:
        return self.world.scheduler(connect=self.connect)

    def submit(self, **options: Any) -> str:
        return str(self.scheduler().submit(app(), {"queue": "test", **options}))


@pytest.fixture
def team(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Team:
    return Team(world, tmp_path, monkeypatch)


@pytest.mark.parametrize("named", [False, True])
def test_a_colleagues_app_is_reached_by_ones_own_access(team: Team, tmp_path: Path, named: bool) -> None:
    team.become("alice", ("alice@lab", HERE))
    path = str(tmp_path / "alice" / ".kube" / "config")
    app_id = team.submit(**({"kubeconfig": path, "kube_context": "alice@lab"} if named else {}))
    team.leave("alice")
    team.become("bob", ("bob@lab", HERE))
    scheduler = team.scheduler()
    assert str(scheduler.describe(app_id).state) == "SUBMITTED"
    assert scheduler.describe_native(app_id) is not None
    assert [item.app_id for item in scheduler.list()] == [app_id]
    name = app_id.partition(":")[2]
    pod: dict[str, Any] = {
        "metadata": {"name": f"{name}-trainer-0-0", "namespace": "default"},
        "apiVersion": "v1",
        "kind": "Pod",
    }
    pod["spec"] = {"containers": [{"name": "trainer-0"}]}
    team.world.cluster.put({**pod, "status": ENDED})
    team.world.cluster._logs = {("default", f"{name}-trainer-0-0"): ["one"]}
    assert list(scheduler.log_iter(app_id, "trainer", 0)) != []
    scheduler.cancel(app_id)
    assert str(scheduler.describe(app_id).state) == "CANCELLED"
    entry = only_entry()
    own = (str(tmp_path / "bob" / ".kube" / "config"), "bob@lab")
    assert (entry.kubeconfig or entry.ambient_kubeconfig, entry.kube_context or entry.ambient_context) == own
    assert (entry.kubeconfig is not None, entry.kube_context is not None) == (named, named)
    scheduler.delete(app_id)
    assert RunIndex().all() == []
    assert team.world.driver.stacks == {}


def test_the_engine_is_given_ones_own_access(team: Team, tmp_path: Path) -> None:
    team.become("alice", ("alice@lab", HERE))
    app_id = team.submit()
    team.leave("alice")
    team.become("bob", ("bob@lab", HERE))
    given = []
    destroy = team.world.driver.destroy

    def noted(entry: RunEntry, *rest: Any, **options: Any) -> None:
        given.append((entry.ambient_kubeconfig, entry.ambient_context))
        destroy(entry, *rest, **options)

    team.world.driver.destroy = noted  # type: ignore[method-assign]
    team.scheduler().delete(app_id)
    assert given == [(str(tmp_path / "bob" / ".kube" / "config"), "bob@lab")]


def test_ones_own_access_is_checked_as_well(team: Team) -> None:
    team.clusters[THERE] = FakeCluster(api_server=THERE)
    team.become("alice", ("lab", HERE))
    app_id = team.submit()
    entry = only_entry()
    team.leave("alice")
    # A context of that name is there, and leads elsewhere; the one in force is right.
    team.become("bob", ("mine", HERE), ("lab", THERE))
    RunIndex().add(entry)
    assert str(team.scheduler().describe(app_id).state) == "SUBMITTED"
    team.become("bob", ("lab", THERE))
    with pytest.raises(ClusterError, match="is another one"):
        team.scheduler().describe(app_id)


@pytest.mark.parametrize("address", [HERE, THERE])
def test_a_colleague_who_may_not_know_the_uid_finds_the_app_in_a_shared_folder(team: Team, address: str) -> None:
    team.become("alice", ("lab", HERE))
    app_id = team.submit()
    job = team.world.head(app_id)
    team.clusters[address] = FakeCluster([job or {}], api_server=address, denied=NO_HOME)
    team.leave("alice")
    team.become("bob", ("lab", address))
    assert str(team.scheduler().describe(app_id).state) == "SUBMITTED"
    # Found in the backend, and not by the object alone, which knows no session.
    assert team.scheduler().describe(app_id).app_id == app_id
    assert team.scheduler()._lookup.find(app_id).place.backend != ""


def test_a_stack_of_another_cluster_is_not_taken_for_the_app(team: Team) -> None:
    team.clusters[THERE] = FakeCluster(api_server=THERE)
    team.become("alice", ("lab", HERE))
    app_id = team.submit()
    team.become("bob", ("lab", THERE))
    assert team.scheduler().describe(app_id) is None


def test_a_kubeconfig_that_cannot_be_looked_for_is_an_error_that_says_so() -> None:
    # Stands for every error but absence: a closed home is open to root, who may run the tests.
    with pytest.raises(ClusterError, match="cannot be read: File name too long"):
        find_access("/" + "x" * 5000)
