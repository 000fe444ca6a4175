"""Two users with different homes, umasks and kubeconfigs work on each other's apps, on a shared folder and on S3."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.schedulers.appwrapper.objects import APP_WRAPPER
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB

from tests.e2e.project import eventually
from tests.e2e.torchx_cli import wait_for_pods
from tests.e2e.unix_users import Team, UnixUser, team_of
from tests.s3_server import S3Backend

pytestmark = pytest.mark.e2e

SCRIPT = "trap 'exit 143' TERM; echo hello from $0; sleep 600 & wait"
KINDS = {"pulumi_volcano": VOLCANO_JOB, "pulumi_mcad": APP_WRAPPER}
PASSPHRASE = {"PULUMI_CONFIG_PASSPHRASE": "correct horse battery staple"}


@pytest.fixture
def team(kubeconfig: Path, pulumi_env: dict[str, str]) -> Iterator[Team]:
    with team_of(kubeconfig, pulumi_env) as made:
        yield made


@dataclass(kw_only=True)
class Jobs:
    """Apps of users, in one namespace."""

    namespace: str
    image: str
    look: KubernetesCluster
    made: list[tuple[UnixUser, str]] = field(default_factory=list)

    def run(self, user: UnixUser, scheduler: str = "pulumi_volcano", **env: str) -> str:
        """Launch an app and return its handle."""
        options = f"namespace={self.namespace}" + (",queue=default" if scheduler == "pulumi_volcano" else "")
        words = ["run", "--workspace", "", "-s", scheduler, "-cfg", options]
        said = user.torchx(*words, "utils.sh", "--image", self.image, "sh", "-c", SCRIPT, **env)
        self.made.append((user, said.handle))
        return said.handle

    def object(self, handle: str) -> Any:
        scheduler, _, rest = handle.partition("://")
        return self.look.get(KINDS[scheduler], self.namespace, rest.rpartition(":")[2])


@pytest.fixture
def jobs(namespace: str, cluster: Any, look: KubernetesCluster) -> Iterator[Jobs]:
    if not cluster.images:
        pytest.skip("the local cluster has no real node: no container can write a log")
    made = Jobs(namespace=namespace, image=str(cluster.images["busybox"]), look=look)
    yield made
    for user, handle in made.made:
        if user.home.is_dir():
            user.ours("delete", handle, code=None)


@dataclass(frozen=True, kw_only=True)
class Backend:
    """Where the team keeps its stacks, and what each user sets for it."""

    env: Mapping[str, str]


@pytest.fixture
def backend(request: pytest.FixtureRequest, team: Team, kind: str) -> Backend:
    if kind == "folder":
        return Backend(env={"PULUMI_BACKEND_URL": team.backend})
    server: S3Backend = request.getfixturevalue("s3_backend")
    return Backend(env={"PULUMI_BACKEND_URL": server.url, **server.env})


@pytest.mark.parametrize(
    ("kind", "scheduler", "umasks"),
    [
        ("folder", "pulumi_volcano", (0o077, 0o002)),
        # Objects have no modes: the umask makes no difference there.
        pytest.param("s3", "pulumi_volcano", (0o077, 0o002), marks=pytest.mark.extended),
        pytest.param("folder", "pulumi_volcano", (0o022, 0o027), marks=pytest.mark.extended),
        pytest.param("folder", "pulumi_mcad", (0o022, 0o022), marks=[pytest.mark.mcad, pytest.mark.extended]),
    ],
)
def test_users_work_on_each_others_apps(
    scheduler: str, umasks: tuple[int, int], team: Team, backend: Backend, jobs: Jobs
) -> None:
    alice, bob = (
        team.user(name, umask=umask, **backend.env, **PASSPHRASE)
        for name, umask in zip(("alice", "bob"), umasks, strict=True)
    )
    one, two = jobs.run(alice, scheduler), jobs.run(bob, scheduler)
    work_on(one, bob, jobs)
    work_on(two, alice, jobs)
    for handle, owner in ((one, alice), (two, bob)):
        assert "RUNNING" not in owner.torchx("status", handle, code=None).text
        assert jobs.object(handle) is None


def work_on(handle: str, other: UnixUser, jobs: Jobs) -> None:
    """Do to an app of a colleague all that can be done to it."""
    scheduler, app_id = handle.partition("://")[0], handle.rpartition("/")[2]
    wait_for(other, jobs, handle, "RUNNING")
    assert jobs.image in other.torchx("describe", handle).text
    assert app_id in other.torchx("list", "-s", scheduler).text
    # Its container may not have started yet, although the job runs.
    eventually(lambda: (log := other.torchx("log", f"{handle}/sh/0", code=None)).code == 0 and "hello" in log.text, 240)
    other.torchx("cancel", handle)
    wait_for(other, jobs, handle, "CANCELLED")
    other.ours("delete", handle)
    assert jobs.object(handle) is None


def wait_for(user: UnixUser, jobs: Jobs, handle: str, state: str) -> None:
    wait_for_pods(jobs.look, handle, state)
    eventually(lambda: state in user.torchx("status", handle).text)


@pytest.mark.parametrize(("kind", "context"), [("folder", "lab"), pytest.param("s3", None, marks=pytest.mark.extended)])
def test_users_with_passphrases_of_their_own_work_on_each_others_apps(
    context: str | None, team: Team, backend: Backend, jobs: Jobs
) -> None:
    alice, bob = (team.user(name, context=context, **backend.env) for name in ("alice", "bob"))
    handle = jobs.run(alice)
    wait_for(bob, jobs, handle, "RUNNING")
    assert jobs.image in bob.torchx("describe", handle).text
    assert handle.rpartition("/")[2] in bob.ours("fleet").text
    bob.torchx("cancel", handle)
    wait_for(alice, jobs, handle, "CANCELLED")
    bob.ours("delete", handle)
    assert jobs.object(handle) is None
    assert "CANCELLED" in alice.torchx("status", handle, code=None).text
    alice.ours("delete", handle)


@pytest.mark.parametrize("kind", [pytest.param("folder", marks=pytest.mark.extended), "s3"])
def test_of_two_users_who_delete_an_app_at_once_one_does_it_and_nothing_is_left(
    team: Team, backend: Backend, jobs: Jobs
) -> None:
    alice, bob = (team.user(name, umask=0o077, **backend.env, **PASSPHRASE) for name in ("alice", "bob"))
    handle = jobs.run(alice)
    wait_for(bob, jobs, handle, "RUNNING")
    deleting = [(user, user.start("torchx-pulumi", "delete", handle)) for user in (alice, bob)]
    said = [user.finish(running, None, "delete") for user, running in deleting]
    assert 0 in [each.code for each in said], said
    for each in said:
        # The other one may be told that somebody is at it, which is no mistake of its own.
        assert each.code == 0 or "process" in each.text, said
    for user in (alice, bob):
        user.ours("delete", handle)
        assert "RUNNING" not in user.torchx("status", handle, code=None).text
    assert jobs.object(handle) is None
    assert handle.rpartition(":")[2] not in alice.ours("fleet", "--offline", code=None).out


@pytest.mark.parametrize("kind", ["folder", pytest.param("s3", marks=pytest.mark.extended)])
def test_lists_and_fleets_of_one_user_are_whole_while_another_launches(
    team: Team, backend: Backend, jobs: Jobs
) -> None:
    alice, bob = (team.user(name, umask=0o077, **backend.env, **PASSPHRASE) for name in ("alice", "bob"))
    first = jobs.run(alice)
    options = f"namespace={jobs.namespace},queue=default"
    words = ["run", "--workspace", "", "-s", "pulumi_volcano", "-cfg", options]
    launching = alice.start("torchx", *words, "utils.sh", "--image", jobs.image, "sh", "-c", SCRIPT)
    while launching.poll() is None:
        assert first.rpartition("/")[2] in bob.torchx("list", "-s", "pulumi_volcano").text
        assert first.rpartition(":")[2] in bob.ours("fleet").text
    second = alice.finish(launching, 0, "run").handle
    jobs.made.append((alice, second))
    listed = bob.torchx("list", "-s", "pulumi_volcano").text
    assert second.rpartition("/")[2] in listed


def test_a_state_that_a_colleague_may_not_read_is_an_error_that_names_the_file_and_its_mode(
    team: Team, jobs: Jobs
) -> None:
    alice, bob = (
        team.user(name, umask=0o077, PULUMI_BACKEND_URL=team.backend, **PASSPHRASE) for name in ("alice", "bob")
    )
    handle = jobs.run(alice)
    (state,) = team.shared.glob(".pulumi/stacks/torchx/*.json")
    state.chmod(0o600)
    for words in (("torchx", "status"), ("torchx", "cancel"), ("torchx-pulumi", "delete")):
        said = bob.finish(bob.start(*words, handle), None, " ".join(words))
        assert said.code != 0, said
        assert str(state) in said.text, said
        assert "0600" in said.text, said
    assert jobs.object(handle) is not None
    state.chmod(0o660)
    wait_for(bob, jobs, handle, "RUNNING")
