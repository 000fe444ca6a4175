"""Two users with different homes, umasks and kubeconfigs work on each other's apps, on a shared folder and on S3."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.cluster import KubernetesCluster
from torchx_pulumi.kinds import APP_WRAPPER, VOLCANO_JOB

from tests.e2e.project import eventually
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


@pytest.fixture(params=["folder", "s3"])
def backend(request: pytest.FixtureRequest, team: Team) -> Backend:
    if request.param == "folder":
        return Backend(env={"PULUMI_BACKEND_URL": team.backend})
    server: S3Backend = request.getfixturevalue("s3_backend")
    return Backend(env={"PULUMI_BACKEND_URL": server.url, **server.env})


@pytest.mark.parametrize(
    ("scheduler", "umasks"),
    [
        ("pulumi_volcano", (0o022, 0o027)),
        ("pulumi_volcano", (0o077, 0o002)),
        pytest.param("pulumi_mcad", (0o022, 0o022), marks=pytest.mark.mcad),
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
    wait_for(other, handle, "RUNNING")
    assert jobs.image in other.torchx("describe", handle).text
    assert app_id in other.torchx("list", "-s", scheduler).text
    eventually(lambda: "hello" in other.torchx("log", f"{handle}/sh/0").text)
    other.torchx("cancel", handle)
    wait_for(other, handle, "CANCELLED")
    other.ours("delete", handle)
    assert jobs.object(handle) is None


def wait_for(user: UnixUser, handle: str, state: str) -> None:
    eventually(lambda: state in user.torchx("status", handle).text, timeout_s=240)
