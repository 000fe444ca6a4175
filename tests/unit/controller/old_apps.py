"""Apps that ended long ago, in stacks as the engine writes them, with archived logs and index entries."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from torchx_pulumi.controller.archive_rules import ArchiveRules
from torchx_pulumi.controller.observing import ChangeListener, ClusterView
from torchx_pulumi.controller.reporting import Reporter
from torchx_pulumi.controller.retention import Retention
from torchx_pulumi.controller.settings import ControllerSettings, RetentionSettings
from torchx_pulumi.controller.shared import ControllerParts
from torchx_pulumi.kube import Cluster
from torchx_pulumi.log_archive import ArchivedJob, open_archive
from torchx_pulumi.logs.query import runs_of_pod
from torchx_pulumi.model.app_entry import Stage
from torchx_pulumi.runs.driver import Driver
from torchx_pulumi.runs.index import RunIndex
from torchx_pulumi.schedulers.manifest_objects import objects_of

from tests.unit.controller.world import App, World, component, urn_of, without_none
from tests.unit.log_archive.pods import archived_run, pod

NOW = datetime(2026, 6, 1, tzinfo=timezone.utc)
ENDED = "2026-01-01T00:01:00Z"
SETTINGS = RetentionSettings(
    after=timedelta(days=30), failed_after=timedelta(days=60), again_s=0.01, pause_s=0.0, retry_s=0.0, pass_s=0.02
)

Change = Callable[[dict[str, Any]], object]
"""Changes a checkpoint."""


class OldApps:
    """A world whose apps ended long ago."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.index = RunIndex(world.root / "runs")
        self.logs = world.root / "logs"

    def launch(self, name: str, *, program: bool = False, end: Mapping[str, Any] | None = None, **options: Any) -> App:
        """Launch an app, let it succeed on 2026-01-01, archive a log, and note the app in the index."""
        world = self.world
        app = world.create(world.plan(name, **options))
        for item in self.pods(app):
            world.cluster.put({**item, "status": {"phase": "Succeeded"}})
        if app.entry.scheduler == "volcano" and app.kind.kind == "Job":
            world.phase(app, "Completed", succeeded=1)
        self.write(app, program=program, end=end)
        self.note_update(app)
        self.archive(app)
        self.index.add(replace(app.entry, stage=Stage.LAUNCHED))
        return app

    def pods(self, app: App) -> list[dict[str, Any]]:
        """Return the pods that a launch made itself."""
        return [dict(item) for item in self.objects(app) if item["kind"] == "Pod"]

    def objects(self, app: App) -> list[Any]:
        """Return the objects of an app as the cluster has them."""
        made = objects_of({"apiVersion": "v1", "kind": "List", "items": list(app.plan.objects)})
        found = [self.world.cluster.find(kind, "default", item["metadata"]["name"]) for kind, item in made]
        return [item for item in found if item is not None]

    def write(self, app: App, *, program: bool = False, end: Mapping[str, Any] | None = None) -> None:
        """Write the stack of an app with its objects and its end."""
        self.world.write(app, program=program)
        observed = {
            "state": "SUCCEEDED", "reason": "Completed", "message": "", "attempt": 1, "uid": app.entry.uid,
            "finished_at": ENDED, "observed_at": ENDED, **(end or {}),
        }  # fmt: skip
        observed = without_none(observed)

        def change(resources: list[dict[str, Any]]) -> None:
            outputs = resources[0]["outputs"]
            outputs["torchx"]["observed"] = resources[1]["outputs"]["observed"] = observed
            outputs |= {"state": observed["state"], "reason": observed["reason"]}
            urn = urn_of(app.entry.place, app.entry.scheduler)
            resources += [
                {
                    "urn": f"{urn.rpartition('::')[0]}$kubernetes:{item['apiVersion']}:{item['kind']}::train",
                    "type": f"kubernetes:{item['apiVersion']}:{item['kind']}",
                    "custom": True,
                    "parent": urn,
                    "inputs": {},
                    "outputs": item,
                }
                for item in self.objects(app)
            ]

        self.change(app, lambda text: change(text["checkpoint"]["latest"]["resources"]))

    def change(self, app: App, change: Change) -> None:
        """Change the checkpoint of an app."""
        whole = json.loads(app.path.read_text())
        change(whole)
        app.path.write_text(json.dumps(whole, indent=4))

    def note_update(self, app: App, started_by: str = "auto.inline", *, kind: str = "update", text: str = "") -> None:
        """Write Pulumi's note of an update."""
        folder = self.world.root / f"backend/.pulumi/history/{app.entry.place.project}/{app.entry.place.stack}"
        folder.mkdir(parents=True, exist_ok=True)
        note = {"kind": kind, "environment": {"exec.kind": started_by}, "result": "succeeded", "startTime": 1767225600}
        number = len([*folder.iterdir()]) + 1
        (folder / f"{app.entry.place.stack}-{number}.history.json").write_text(text or json.dumps(note))

    def archive(self, app: App) -> None:
        """Archive a log of an app."""
        assert app.entry.uid is not None
        job = ArchivedJob(app_id=app.entry.app_id, scheduler=app.entry.scheduler, uid=app.entry.uid)
        ref = runs_of_pod(pod())[-1]
        run = archived_run(job, ref, NOW)
        open_archive(str(self.logs)).write(run, io.BytesIO(b"log"))

    def has_stack(self, app: App) -> bool:
        return app.path.exists()

    def has_objects(self, app: App) -> bool:
        return bool(self.objects(app))

    def has_logs(self, app: App) -> bool:
        return any(str(app.entry.uid) in str(path) for path in self.logs.rglob("*") if path.is_file())

    def has_entry(self, app: App) -> bool:
        return self.index.get(app.entry) is not None

    def left(self, app: App) -> list[str]:
        """Return what is left of an app."""
        parts = {
            "objects": self.has_objects, "logs": self.has_logs, "entry": self.has_entry, "stack": self.has_stack
        }  # fmt: skip
        return [name for name, has in parts.items() if has(app)]

    @contextmanager
    def retention(
        self,
        *,
        cluster: Cluster | None = None,
        driver: Driver | None = None,
        namespaces: Sequence[str] | None = None,
        settings: RetentionSettings = SETTINGS,
        now: datetime = NOW,
        further: Sequence[str] = (),
        **options: Any,
    ) -> Iterator[Retention]:
        """Yield a retention over the world as it is now, and further backends."""
        shared = ControllerParts(
            settings=ControllerSettings(backends=(self.world.backend, *further)),
            driver=driver or self.world.driver(),
            reporter=Reporter(self.world.lines.append),
            now=lambda: now,
            **options,
        )
        tracked, listener = shared.tracked, ChangeListener()
        for backend in shared.settings.backends:
            tracked.refresh(backend)
        view = ClusterView("test", cluster or self.world.cluster, tracked, listener, namespaces=namespaces)
        shared.views = [view]
        archives = ArchiveRules(own=str(self.logs), allowed=[str(self.world.root / "own")])
        yield Retention(shared, replace(settings, archives=archives), self.index)

    def forget(self, *, timeout_s: float = 5.0, **options: Any) -> None:
        """Forget what is due."""
        with self.retention(**options) as retention:
            retention.run_once(threading.Event(), timeout_s)

    def preview(self, **options: Any) -> tuple[dict[str, str], dict[str, str]]:
        """Return the app ids that would go with what goes with them, and those that would stay with the reason."""
        with self.retention(**options) as retention:
            goes, stays = retention.preview()
        return (
            {app.app_id: words.partition("), ")[2] for app, words in goes},
            {app.app_id: why.removeprefix(", ") for app, why in stays},
        )

    def everything(self) -> dict[str, str]:
        """Return all files of backend, archive and index with their content."""
        folders = [self.world.root / name for name in ("backend", "logs", "runs")]
        files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
        return {str(path): path.read_text() for path in files if ".lock" not in path.name}


def second_component(whole: dict[str, Any], app: App) -> None:
    """Add a second app to a stack."""
    other = urn_of(app.entry.place, app.entry.scheduler, "second")
    whole["checkpoint"]["latest"]["resources"] += component(app, other, program=True)


def root_of(tmp_path: Path) -> World:
    (tmp_path / "backend/.pulumi").mkdir(parents=True)
    return World(root=tmp_path)
