"""One namespace with apps that are really launched, and controllers of their stacks."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.fleet.cluster_watch import Server
from tests.e2e.fleet.controller_fleet import FAKE_NODE
from tests.e2e.fleet.controller_process import ControllerProcess, StackWatch
from tests.e2e.project import eventually
from tests.e2e.torchx_cli import TorchxCli
from tests.s3_server import S3Backend

POD_PATH = "/api/v1/namespaces/{}/pods"


def tell(script: str) -> None:
    """Send SIGUSR1 to the shell in a container that runs a script: the test says when it goes on, not a time."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            # The last of the words, however the shell was started.
            if (folder / "cmdline").read_bytes().rstrip(b"\0").endswith(b"-c\0" + script.encode()):
                os.kill(int(folder.name), signal.SIGUSR1)
                found.append(folder.name)
    assert found, f"no process of this machine runs {script!r}"


class World:
    """One namespace with apps, and controllers of their stacks."""

    def __init__(
        self, cli: TorchxCli, scheduler: Any, server: Server, namespace: str, image: str, backend: Path | None = None
    ) -> None:
        self.cli, self.server, self.namespace = cli, server, namespace
        self._scheduler, self._image = scheduler, image
        self.backend = backend or Path(cli.env["XDG_STATE_HOME"]) / "torchx-pulumi" / "backend"
        self.backend.mkdir(parents=True, exist_ok=True)
        self.stacks = StackWatch(self.backend)
        self._controllers: list[ControllerProcess] = []

    def controller(self, *words: str) -> ControllerProcess:
        """Start a controller of the namespace."""
        made = ControllerProcess(self.cli.env, self.cli.folder, "--namespace", self.namespace, *words)
        self._controllers.append(made)
        made.wait_ready()
        return made

    def launch(self, script: str | None = None, count: int = 1, gpus: int = 0) -> list[str]:
        """Launch apps of one replica: on the real node with a script, else on a fake one until `end`."""
        with ThreadPoolExecutor(4) as pool:
            return list(pool.map(lambda _: self._submit(script, gpus), range(count)))

    def _submit(self, script: str | None, gpus: int) -> str:
        from torchx.specs import AppDef, Resource, Role

        where = {} if script else {"kubernetes": {"spec": FAKE_NODE}}
        role = Role(
            name="trainer", image=self._image, entrypoint="sh", args=["-c", script or "true"], num_replicas=1,
            resource=Resource(cpu=1, gpu=gpus, memMB=64), metadata=where,
        )  # fmt: skip
        options = {"namespace": self.namespace, "queue": "default", "reserved_millicpu": 980, "reserved_memmb": 48}
        return str(self._scheduler.submit(AppDef(name="train", roles=[role]), options))

    def end(self, app_id: str, code: int = 0) -> None:
        """End the pods of an app on a fake node, as soon as they run."""
        ends = {"metadata": {"annotations": {"torchx-pulumi/fake-exit-code": str(code)}}}
        path = f"{POD_PATH.format(self.namespace)}/{app_id.partition(':')[2]}-trainer-0-0"
        eventually(lambda: self._phase(path) == "Running")
        self.server.ask("PATCH", path, ends, kind="merge-patch+json")

    def _phase(self, path: str) -> str | None:
        with contextlib.suppress(OSError):
            return str(self.server.ask("GET", path)["status"].get("phase"))
        return None

    def state(self, app_id: str) -> str | None:
        """Return the state in an app's stack."""
        written = self.stacks.last(app_id)
        return None if written is None else written.state

    def reaches(self, app_id: str, state: str, timeout_s: float = 60) -> float:
        """Wait for a state in an app's stack; return when it was written."""
        eventually(lambda: self.state(app_id) == state, timeout_s)
        return next(written.at for written in self.stacks.versions(app_id) if written.state == state)

    def checkpoint(self, app_id: str) -> Path:
        """Return the file of an app's stack."""
        (path,) = self.backend.glob(f".pulumi/stacks/torchx/*{app_id.partition(':')[2]}*.json")
        return path

    def close(self) -> None:
        """End the controllers and the watch."""
        self.stacks.close()
        for each in self._controllers:
            each.close()


@contextlib.contextmanager
def controller_world(
    env: dict[str, str],
    folder: Path,
    kubeconfig: Path,
    namespace: str,
    image: str,
    monkeypatch: pytest.MonkeyPatch,
    store: S3Backend | None = None,
) -> Iterator[World]:
    """Make a world, with the environment of its commands also in this process, whose scheduler launches.

    Args:
        env: Environment of the commands.
        folder: Home and working folder.
        kubeconfig: Of the cluster.
        namespace: Of the apps.
        image: With a shell.
        monkeypatch: Of the test.
        store: Backend of the apps. None: a folder.
    """
    cli = TorchxCli(env, folder, kubeconfig)
    for name in ("PULUMI_BACKEND_URL", "PULUMI_CONFIG_PASSPHRASE", "PULUMI_CONFIG_PASSPHRASE_FILE", "TORCHXCONFIG"):
        monkeypatch.delenv(name, raising=False)
    if store is not None:
        cli.env |= {**store.env, "PULUMI_BACKEND_URL": store.url}
    for name, value in cli.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(folder)
    from torchx_pulumi_stacks.entrypoints import create_volcano

    scheduler = create_volcano("torchx")
    made = World(cli, scheduler, Server(kubeconfig), namespace, image, store and store.bucket)
    try:
        yield made
    finally:
        made.close()
        scheduler.close()
