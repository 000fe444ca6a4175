"""Apps that ended long ago, in stacks as the engine writes them, with archived logs and index entries."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from torchx_pulumi.logs.query import runs_of_pod
from torchx_pulumi.model.app_entry import RunEntry, Stage
from torchx_pulumi.model.errors import DeployError
from torchx_pulumi.model.status import JobState
from torchx_pulumi.runs.index import RunIndex
from torchx_pulumi.schedulers.manifest_objects import objects_of
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB
from torchx_pulumi.stack_state.stacks import open_stacks
from torchx_pulumi_fleet import read_fleet
from torchx_pulumi_fleet.archive import open_archive
from torchx_pulumi_fleet.writer.pruning import Outcome, Pruning

from tests.fakes import FakeDriver
from tests.fakes.driver import FakeStack
from tests.fleet.archive.pods import archived_run, pod
from tests.fleet.writer.world import App, World, urn_of, without_none

NOW = datetime(2026, 6, 1, tzinfo=timezone.utc)
LIMIT = NOW - timedelta(days=30)
ENDED = "2026-01-01T00:01:00Z"

ALL = ["objects", "logs", "entry", "stack"]
"""What an app leaves."""


class Engine(FakeDriver):
    """A driver whose stacks are the files of a world."""

    def __init__(self, old: OldApps) -> None:
        super().__init__(old.world.cluster)
        self.failure: DeployError | None = None
        self.begins: Callable[[], object] = lambda: None
        """Called when a deletion begins."""

    def destroy(self, entry: RunEntry, progress: Any, **options: Any) -> None:
        self.begins()
        if self.failure is not None:
            raise self.failure
        super().destroy(entry, progress, **options)
        place = entry.place
        Path(f"{place.backend[7:]}/.pulumi/stacks/{place.project}/{place.stack}.json").unlink()


class OldApps:
    """A world whose apps ended on 2026-01-01."""

    def __init__(self, root: Path) -> None:
        (root / "backend/.pulumi").mkdir(parents=True)
        self.world = World(root=root)
        self.index = RunIndex(root / "runs")
        self.engine = Engine(self)
        self.logs = root / "logs"

    def launch(self, name: str, *, program: bool = False, end: Mapping[str, Any] | None = None, **options: Any) -> App:
        """Launch an app, let it succeed, archive a log, and note the app in the index."""
        world = self.world
        app = world.create(world.plan(name, **options))
        objects = objects_of({"kind": "List", "items": list(app.plan.objects)})
        self.engine.stacks[app.entry.place] = FakeStack(app.entry, objects)
        for item in self.objects(app):
            if item["kind"] == "Pod":
                world.cluster.put({**item, "status": {"phase": "Succeeded"}})
        if app.kind == VOLCANO_JOB:
            world.phase(app, "Completed", succeeded=1)
        self.write(app, program=program, end=end)
        self.note_update(app)
        record = archived_run(runs_of_pod(pod())[-1], NOW, app_id=app.entry.app_id, uid=str(app.entry.uid))
        open_archive(str(self.logs)).write(record, io.BytesIO(b"log"))
        self.index.add(replace(app.entry, stage=Stage.LAUNCHED))
        return app

    def objects(self, app: App) -> list[Any]:
        """Return the objects of an app as the cluster has them."""
        made = objects_of({"kind": "List", "items": list(app.plan.objects)})
        found = [self.world.cluster.find(kind, "default", item["metadata"]["name"]) for kind, item in made]
        return [item for item in found if item is not None]

    def write(self, app: App, *, program: bool, end: Mapping[str, Any] | None) -> None:
        """Write the stack of an app with its objects and its end."""
        self.world.write(app, program=program)
        seen = {"state": "SUCCEEDED", "reason": "Completed", "message": "", "attempt": 1, "uid": app.entry.uid}
        times = {"queued_at": "2026-01-01T00:00:00Z", "finished_at": ENDED, "observed_at": ENDED}
        observed = without_none({**seen, **times, **(end or {})})

        def change(whole: Any) -> None:
            outputs = resources(whole)[0]["outputs"]
            outputs["torchx"]["observed"] = resources(whole)[1]["outputs"]["observed"] = observed
            outputs |= {"state": observed["state"], "reason": observed["reason"]}
            urn = urn_of(app.entry.place, app.entry.scheduler)
            resources(whole).extend(
                {
                    "urn": f"{urn.rpartition('::')[0]}$kubernetes:{item['apiVersion']}:{item['kind']}::train",
                    "type": f"kubernetes:{item['apiVersion']}:{item['kind']}",
                    "custom": True,
                    "parent": urn,
                    "inputs": {},
                    "outputs": item,
                }
                for item in self.objects(app)
            )

        self.change(app, change)

    def change(self, app: App, change: Callable[[Any], object]) -> None:
        """Change the checkpoint of an app."""
        whole = json.loads(app.path.read_text())
        change(whole)
        app.path.write_text(json.dumps(whole))

    def note_update(self, app: App, started_by: str = "auto.inline", *, kind: str = "update", text: str = "") -> None:
        """Write Pulumi's note of an update."""
        folder = self.world.root / f"backend/.pulumi/history/{app.entry.place.project}/{app.entry.place.stack}"
        folder.mkdir(parents=True, exist_ok=True)
        note = {"kind": kind, "environment": {"exec.kind": started_by}, "result": "succeeded", "startTime": 1767225600}
        number = len([*folder.iterdir()]) + 1
        (folder / f"{app.entry.place.stack}-{number}.history.json").write_text(text or json.dumps(note))

    def left(self, app: App) -> list[str]:
        """Return the remains of an app."""
        has = {
            "objects": bool(self.objects(app)),
            "logs": any(str(app.entry.uid) in str(path) for path in self.logs.rglob("*") if path.is_file()),
            "entry": self.index.get(app.entry) is not None,
            "stack": app.path.exists(),
        }
        return [name for name in ALL if has[name]]

    def everything(self) -> dict[str, str]:
        """Return all files of backend, archive and index with their content."""
        folders = [self.world.root / name for name in ("backend", "logs", "runs")]
        files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
        return {str(path): path.read_text() for path in files if ".lock" not in path.name}

    def prune(self, *states: JobState, **options: Any) -> dict[str, Outcome]:
        """Prune, and return what became of the apps."""
        pruning = Pruning(
            **{
                "backend": self.world.backend,
                "stacks": open_stacks(self.world.backend),
                "before": LIMIT,
                "driver": self.engine,
                "connect": lambda *_: self.world.cluster,
                "say": self.world.lines.append,
                "archives": [str(self.logs)],
                "index": self.index,
                "now": NOW,
                **options,
            }
        )
        return {outcome.app_id: outcome for outcome in pruning.run(read_fleet(self.world.backend).rows, states)}

    def prune_one(self, app: App, **options: Any) -> Outcome:
        return self.prune(**options)[app.entry.app_id]


def resources(whole: Any) -> Any:
    return whole["checkpoint"]["latest"]["resources"]
