"""A process of `bench.scale`: launches, reads and deletes one app by TorchX's Runner, and says how long each took."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from bench._workers import serve

FAKE_NODES = {
    "nodeSelector": {"torchx-pulumi/node": "fake"},
    "tolerations": [{"key": "kwok.x-k8s.io/node", "operator": "Exists"}],
}
LOGGING_ROLE = "evaluator"
LOGGING_REPLICAS = 1


def main(way: str, namespace: str) -> int:
    """Serve TorchX's scheduler or ours, as `way` says: `torchx` or `ours`."""
    from torchx.runner import Runner
    from torchx.schedulers import kubernetes_scheduler
    from torchx_pulumi_stacks.entrypoints import create_volcano

    scheduler = "kubernetes" if way == "torchx" else "pulumi_volcano"
    factory: Any = kubernetes_scheduler.create_scheduler if way == "torchx" else create_volcano
    worker = ScaleWorker(Runner("bench", {scheduler: factory}), scheduler, namespace)
    return serve(
        {
            "choose": worker.choose,
            "launch": worker.launch,
            "status": lambda handle: timed(lambda: worker.status(handle)),
            "list": lambda handle: timed(lambda: worker.list(handle)),
            "log": lambda handle: timed(lambda: worker.log(handle)),
            "delete": lambda handle: timed(lambda: worker.delete(handle)),
        }
    )


def timed(run: Callable[[], None]) -> dict[str, float]:
    """Run and return when it began and how many seconds it took."""
    begun, start = time.time(), time.perf_counter()
    run()
    return {"begun": begun, "took_s": time.perf_counter() - start}


class ScaleWorker:
    """The operations, of one scheduler."""

    def __init__(self, runner: Any, scheduler: str, namespace: str) -> None:
        self._runner = runner
        self._scheduler = scheduler
        self._namespace = namespace

    def launch(
        self, replicas: int, queue: str, layout: str | None, image: str | None, hosts: bool = True
    ) -> dict[str, Any]:
        """Launch an app; return when it began, the seconds of the dry run and of all, its handle and its layout.

        Args:
            replicas: How many.
            queue: Where.
            layout: Run option of that name. None: TorchX's scheduler, which has none.
            image: Image of a role of one replica that logs. None: the app has no such role.
            hosts: False: pods do not get the hosts of all others from Volcano's plugin svc.
        """
        given, config = app(replicas, image), self._config(queue, layout)
        if not hosts:
            config["plugins"] = {"env": []}
        begun, start = time.time(), time.perf_counter()
        info = self._runner.dryrun(given, self._scheduler, config)
        dry_s = time.perf_counter() - start
        handle = self._runner.schedule(info)
        took_s = time.perf_counter() - start
        chosen = None if layout is None else layout_of(info)
        return {"begun": begun, "dry_s": dry_s, "took_s": took_s, "handle": handle, "layout": chosen}

    def choose(self, replicas: int) -> dict[str, str]:
        """Return the layout that `auto` chooses."""
        info = self._runner.dryrun(app(replicas, None), self._scheduler, self._config("default", "auto"))
        return {"layout": layout_of(info)}

    def _config(self, queue: str, layout: str | None) -> dict[str, Any]:
        config: dict[str, Any] = {"queue": queue, "namespace": self._namespace}
        if layout is not None:
            # A fake node has 64 cores and takes 1,100 pods.
            config |= {"layout": layout, "reserved_millicpu": 980, "reserved_memmb": 48}
        return config

    def status(self, handle: str) -> None:
        """Read the status."""
        if self._runner.status(handle) is None:
            raise RuntimeError(f"{handle} has no status")

    def list(self, handle: str) -> None:
        """List the apps."""
        if handle.rpartition("/")[2] not in {app.app_id for app in self._runner.list(self._scheduler)}:
            raise RuntimeError(f"{handle} is not listed")

    def log(self, handle: str) -> None:
        """Read the first line of the role that logs."""
        if "ready" not in next(iter(self._runner.log_lines(handle, LOGGING_ROLE, 0))):
            raise RuntimeError(f"{handle} has another first line")

    def delete(self, handle: str) -> None:
        """Delete the app; TorchX 0.7.0 has no such call, and its `cancel` deletes the job."""
        if self._scheduler == "kubernetes":
            self._runner.cancel(handle)
        else:
            self._runner._scheduler(self._scheduler).delete(handle.rpartition("/")[2])


def layout_of(info: Any) -> str:
    """Return the layout of a dry run of ours."""
    tasks = [task for role in info.request.plan.roles for task in role.tasks]
    return "role" if any(task.count > 1 for task in tasks) else "replica"


def app(replicas: int, image: str | None) -> Any:
    """Make a job of TorchX's component for distributed training, on fake nodes."""
    from torchx.components.dist import ddp
    from torchx.specs import Resource, Role

    made = ddp(script="train.py", image="train:1", cpu=1, memMB=64, j=f"{replicas}x8")
    made.roles[0].metadata = {"kubernetes": {"spec": FAKE_NODES}}
    if image is not None:
        # A shell without a trap would take 30 s to end.
        logging = Role(
            name=LOGGING_ROLE, image=image, entrypoint="sh",
            args=["-c", "trap 'exit 0' TERM; echo ready; sleep 600 & wait"],
            resource=Resource(cpu=1, gpu=0, memMB=64),
        )  # fmt: skip
        made.roles.append(logging)
    return made


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
