"""Both schedulers over a fake cluster and a fake driver, each test with a state folder of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from torchx import specs
from torchx.cli import argparse_util
from torchx.cli.main import main as torchx
from torchx_pulumi.cli.main import main
from torchx_pulumi.kube import kinds
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB
from torchx_pulumi.torchx_adapter import context
from torchx_pulumi.torchx_adapter.context import AdapterContext
from torchx_pulumi.torchx_adapter.scheduler import PulumiScheduler
from torchx_pulumi_stacks import entrypoints

from tests.fakes import FakeCluster, FakeDriver
from tests.unit.builders import put_running_pods

QUEUE = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "test"}}


class World:
    """What lies outside of the adapter."""

    def __init__(self) -> None:
        self.cluster = FakeCluster([QUEUE])
        self.driver = FakeDriver(self.cluster)
        self.connected: list[tuple[str | None, str | None]] = []

    def connect(self, kubeconfig: str | None, context: str | None) -> FakeCluster:
        self.connected.append((kubeconfig, context))
        return self.cluster

    def context(self, **changes: Any) -> AdapterContext:
        return AdapterContext(**{"make_driver": lambda: self.driver, "connect": self.connect, **changes})

    def scheduler(self, kind: str = "volcano", session: str = "torchx", **changes: Any) -> PulumiScheduler:
        return PulumiScheduler(kind, session, self.context(**changes))

    def command(self, words: Sequence[str], **changes: Any) -> int:
        """Run the command `torchx-pulumi` in this process; return its exit code."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(context, "AdapterContext", lambda **_: self.context(**changes))
            return main(words)

    def phase(self, app_id: str, phase: str, **status: Any) -> None:
        """Let Volcano say something of a job, whose pods run if it does."""
        namespace, _, name = app_id.partition(":")
        job = self.cluster.get(VOLCANO_JOB, namespace, name)
        assert job is not None
        job["status"] = {"state": {"phase": phase}, **status}
        self.cluster.put(job)
        if phase == "Running":
            put_running_pods(self.cluster, job)

    def head(self, app_id: str, kind: kinds.Kind = VOLCANO_JOB) -> dict[str, Any] | None:
        namespace, _, name = app_id.partition(":")
        return self.cluster.get(kind, namespace, name)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.delenv("PULUMI_BACKEND_URL", raising=False)
    monkeypatch.delenv("TORCHXCONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return World()


CONFIG: dict[str, dict[str, Any]] = {"volcano": {"queue": "test"}, "mcad": {}}


@pytest.fixture(params=["volcano", "mcad"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def submit(world: World) -> Callable[..., str]:
    """Launch the usual app and return its id."""

    def launch(kind: str = "volcano", given: Any = None, **options: Any) -> str:
        return str(world.scheduler(kind).submit(given or app(), {**CONFIG[kind], **options}))

    return launch


def role(**changes: Any) -> Any:
    fields = {
        "name": "trainer",
        "image": "img:1",
        "entrypoint": "main",
        "args": ["--id", "${app_id}", "${replica_id}"],
        "num_replicas": 2,
        "resource": specs.Resource(cpu=1, gpu=0, memMB=1024),
    }
    return specs.Role(**{**fields, **changes})


def app(*roles: Any, **changes: Any) -> Any:
    return specs.AppDef(**{"name": "train", "roles": list(roles) or [role()], **changes})


ECHO = ["utils.echo", "--msg", "hello", "--image", "img:1"]


@pytest.fixture
def installed(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """Both schedulers over the fakes, where TorchX finds them."""

    def create(kind: str, session: str, client: Any, docker_client: Any) -> Any:
        assert client is None
        return world.scheduler(kind, session)

    monkeypatch.setattr(entrypoints, "create_scheduler", create)
    return world


def run(*words: str) -> None:
    """Run the command `torchx` in this process."""
    # TorchX 0.7.0 keeps in its classes which options this process has seen.
    for kind in vars(argparse_util).values():
        if isinstance(kind, type):
            vars(kind).get("called_args", set()).clear()
    torchx([*words])
