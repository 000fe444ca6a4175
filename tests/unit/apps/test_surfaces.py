"""The same recorded objects go through six surfaces, which give one answer: state, reason and attempt.

`torchx status`, `torchx list`, `torchx-pulumi fleet`, the page's API, the controller's write, the component's output.
Each reason has one sentence and one advice on all of them; those of docs/diagnosis.md are compared with them in
`tests/unit/schedulers/diagnosis/test_reasons.py`.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.apps.judge import judge
from torchx_pulumi.kube.kinds import POD
from torchx_pulumi.model import labels
from torchx_pulumi.model.app_entry import Stage
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.launch_options import WaitFor
from torchx_pulumi.model.requested import Requested, write_requested
from torchx_pulumi.model.run_record import RunRecord, write_record
from torchx_pulumi.model.status import Diagnosis, JobState, JobStatus, Reason
from torchx_pulumi.outputs.building import build_observed
from torchx_pulumi.runs.index import RunIndex
from torchx_pulumi.runs.observation import status_of
from torchx_pulumi.runs.waiting import Wait, progress_line
from torchx_pulumi.schedulers import Variant, find_backend
from torchx_pulumi.schedulers.appwrapper.options import AppWrapperVersion
from torchx_pulumi.schedulers.diagnosis.evidence import Evidence, ObservedObjects
from torchx_pulumi.schedulers.diagnosis.messages import MESSAGES
from torchx_pulumi.schedulers.diagnosis.ranking import CAUSES, diagnose_status
from torchx_pulumi.schedulers.registry import component_type
from torchx_pulumi.schedulers.volcano.options import GangMode
from torchx_pulumi.stack_state.stacks import StackName
from torchx_pulumi.testing import cluster_for_tests
from torchx_pulumi.torchx_adapter.context import AdapterContext
from torchx_pulumi.torchx_adapter.responses import message_of
from torchx_pulumi.torchx_adapter.scheduler import PulumiScheduler
from torchx_pulumi_components import MCADTrainingJob, VolcanoTrainingJob
from torchx_pulumi_components.launch import LaunchPlanner
from torchx_pulumi_components.read_args import read_args
from torchx_pulumi_components.resources import STASH
from torchx_pulumi_components.stack_state import StackState
from torchx_pulumi_fleet import read_fleet
from torchx_pulumi_fleet.tracker.live_fleet import LiveFleet
from torchx_pulumi_fleet.views.columns import ShownApp, detail
from torchx_pulumi_fleet.views.row import Fleet, build_row
from torchx_pulumi_fleet.views.table import to_table
from torchx_pulumi_fleet.views.values import row_values

from tests.components import conftest
from tests.fakes import FakeCluster
from tests.fleet.web.site_server import served
from tests.fleet.writer.live_apps import app_of
from tests.fleet.writer.world import FAST, App, World, checkpoint, wait_for
from tests.unit.apps.judge_cases import CASES as TABLE
from tests.unit.apps.simulated_cluster import UID, VARIANTS
from tests.unit.apps.test_judge import job_object, look_of, observation, options_of, pods_of, request_of
from tests.unit.schedulers.observed_objects import Manifest

engine = conftest.engine

Told = tuple[Any, Any, Any]
"""State, reason and attempt. None: the surface does not show it, or does not know it."""

BEFORE = 100
"""Versions of the cluster before the first object, so that there are earlier ones."""

PLANNED = "backend"
"""Folder of the backend that the apps are planned for; each surface has a copy of it."""

TIMING = replace(FAST, sync_s=0.5, flush_s=0.1)

MORE = """
c | volcano | Running again=2 | run run |  |  | RUNNING Running | RUNNING Running
"""


@dataclass(frozen=True)
class Case:
    """One run with its objects in a namespace of its own, and what its stack says of it."""

    number: int
    row: tuple[str, ...]

    @property
    def kind(self) -> str:
        return self.row[1]

    @property
    def variant(self) -> Variant:
        return VARIANTS[self.kind]

    @property
    def name(self) -> str:
        return " ".join(" ".join(self.row).split())

    @property
    def namespace(self) -> str:
        return f"case-{self.number}"

    @property
    def uid(self) -> str:
        return f"{UID}-{self.number}"

    @property
    def where(self) -> str:
        """Return the context of the cluster that it is in, by what may be read there."""
        _, _, job, pods, *_ = self.row
        return "unread" if job == "unread" else "hidden" if pods == "hidden" else "open"

    @property
    def previous(self) -> dict[str, Any] | None:
        return observation(self.row[6])

    @property
    def request(self) -> Requested | None:
        return request_of(self.row[5])

    @property
    def objects(self) -> list[Manifest]:
        """Return the objects in the cluster, pods first; the job object is last if there is one."""
        _, kind, job, pods, *_ = self.row
        variant, scheduler = VARIANTS[kind], scheduler_of(kind)
        selector = find_backend(scheduler).pod_selector("app")
        found = []
        for pod in [] if pods == "hidden" else pods_of(kind, pods):
            owner = {"uid": "another" if "other" in pod["metadata"]["name"] else UID, "kind": variant.job_object.kind}
            pod["apiVersion"] = "v1"
            pod["metadata"]["labels"] |= {**selector, labels.ORGANIZATION: labels.ORGANIZATION_VALUE}
            pod["metadata"]["ownerReferences"] = [{**owner, "name": "app"}]
            found.append(pod)
        if job.split()[0] not in ("gone", "unread"):
            found.append(job_object(kind, job))
            found[-1]["apiVersion"] = variant.job_object.api_version
            found[-1]["metadata"]["labels"] = {labels.LAUNCHER: labels.LAUNCHER_VALUE, labels.LAUNCH: "a-launch"}
        for one in found:
            one["metadata"]["namespace"] = self.namespace
        return [json.loads(json.dumps(one).replace(f'"{UID}"', f'"{self.uid}"')) for one in found]

    @property
    def answer(self) -> Told:
        """Return the answer of `judge`, whose table has a test of its own."""
        return self.judged()

    @functools.cache  # noqa: B019 - there are as many cases as rows
    def judged(self, *, alone: bool = False) -> Told:
        """Return the answer of `judge`; `alone`: by the job object."""
        look, now = look_of(self.kind, *self.row[2:5]), datetime.now(timezone.utc)
        if look.objects is not None:
            objects = replace(look.objects, pods=(), queues=None) if alone else look.objects
            look = replace(look, at=now, objects=replace(objects, at=now))
        return told(judge(look, self.request, self.previous))


def told(observed: Mapping[str, Any] | None) -> Told:
    if observed is None:
        return "UNKNOWN", "NotObserved", 1
    return observed["state"], observed["reason"], int(observed.get("attempt") or 1)


def scheduler_of(kind: str) -> str:
    return "mcad" if kind.startswith("v1") else "volcano"


def is_used(row: Sequence[str]) -> bool:
    """Return whether one look at the cluster and the stack is all that a row needs."""
    _, kind, job, _, memory, request, previous, _ = row
    if kind == "pods" and "v=" in job:
        return False
    return not memory and "watched" not in job and "changing" not in job and "uid=" not in request + previous


ROWS = [tuple(cell.strip() for cell in line.split("|")) for line in (TABLE + MORE).splitlines() if line]
CASES = [Case(number, row) for number, row in enumerate(ROWS) if is_used(row)]


@dataclass(frozen=True, kw_only=True)
class Less:
    """A surface that shows less by design."""

    surface: str
    of: Callable[[Case], bool]
    """Returns whether it does for a case."""
    shows: Callable[[Case], Told | None]
    """Returns what it shows. None: nothing."""
    why: str


def previous(case: Case) -> Told:
    return told(case.previous)


def is_ended(case: Case) -> bool:
    return case.previous is not None and case.previous["state"] in ("SUCCEEDED", "FAILED", "CANCELLED")


def is_back(case: Case) -> bool:
    """Return whether the job object is there of a run that was seen to be gone, which only a restored cluster shows."""
    return case.row[2] == "Running" and case.row[6].startswith("UNKNOWN NotFound")


LESS = (
    Less(
        surface="status",
        of=is_back,
        shows=lambda case: ("RUNNING", "Running", 1),
        why="the index keeps no absence, and the stack is not read for a run that goes on",
    ),
    Less(
        surface="list",
        of=is_back,
        shows=lambda case: ("RUNNING", None, None),
        why="as status",
    ),
    Less(
        surface="list",
        of=lambda case: case.kind == "volcano" and case.judged(alone=True)[0] in ("SUBMITTED", "PENDING", "RUNNING"),
        shows=lambda case: (case.judged(alone=True)[0], None, None),
        why="the pods of Volcano's jobs are read of those that have ended, and by whoever looks at one",
    ),
    Less(
        surface="list",
        of=lambda case: True,
        shows=lambda case: (case.answer[0], None, None),
        why="TorchX prints ids and states",
    ),
    Less(
        surface="fleet",
        of=is_ended,
        shows=previous,
        why="clusters are asked about apps that have not ended by their stacks",
    ),
    Less(
        surface="component",
        of=lambda case: case.where == "unread",
        shows=lambda case: None,
        why="a deployment that cannot read the cluster ends with an error",
    ),
    Less(
        surface="component",
        of=lambda case: case.where == "hidden" and case.kind == "pods",
        shows=lambda case: None,
        why="a deployment with gang=pods needs the permission to list pods (docs/permissions.md)",
    ),
)


class Scene:
    """The clusters of some cases, and copies of their stacks."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.folder, self.kind, self.scheduler_name = folder, kind, scheduler_of(kind)
        self.cases = [case for case in CASES if case.kind == kind]
        self.clusters = {
            "open": FakeCluster(api_server="https://open.example.com"),
            "hidden": FakeCluster(
                api_server="https://hidden.example.com", denied=[(verb, POD) for verb in ("get", "list", "watch")]
            ),
            "unread": FakeCluster(api_server="https://unread.example.com"),
        }
        self.shift: dict[int, int] = {}
        self.empty = {name: FakeCluster(api_server=one.api_server) for name, one in self.clusters.items()}
        for cluster in (*self.clusters.values(), *self.empty.values()):
            for _ in range(BEFORE):
                cluster.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}})
            cluster.put({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue",
                         "metadata": {"name": "default"}, "status": {"state": "Open"}})  # fmt: skip
        for case in self.cases:
            self._put(case)
            self.empty[case.where].put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": case.namespace}})
        self.apps = {case.number: self._plan(case) for case in self.cases}
        self._texts = {case.number: self._text(case) for case in self.cases}
        self.clusters["unread"].error = ClusterError("no answer", retryable=True, reason="Unreachable")

    def _put(self, case: Case) -> None:
        """Put the objects into the cluster; versions of stack and request keep their distance to the job object's."""
        cluster = self.clusters[case.where]
        cluster.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": case.namespace}})
        found = None
        for found in case.objects:
            cluster.put(found)
        _, words = options_of(case.row[2])
        (last,) = cluster.find_all(VARIANTS[self.kind].job_object, case.namespace) or (None,)
        if last is not None:
            self.shift[case.number] = int(last["metadata"]["resourceVersion"]) - int(words.get("v", 100))

    def connect(self, kubeconfig: str | None, context: str | None) -> FakeCluster:
        return self.clusters[context or "open"]

    def observed(self, case: Case) -> dict[str, Any] | None:
        """Return the last observation, as a stack has it."""
        found = case.previous
        if found is None:
            return None
        version = str(int(found["resource_version"]) + self.shift.get(case.number, 0))
        times = {"queued_at": "2026-03-01T10:00:00Z", "source": "live"}
        texts = {"message": "", "roles": [], "conditions": [], "diagnoses": []}
        return {**found, **times, **texts, "uid": case.uid, "resource_version": version}

    def requested(self, case: Case) -> Requested | None:
        found = case.request
        if found is None:
            return None
        version = str(int(found.resource_version or 0) + self.shift.get(case.number, 0))
        return replace(found, uid=case.uid, resource_version=version, counter=1)

    def known(self, case: Case) -> dict[str, Any]:
        """Return the observation in the outputs."""
        requested = self.requested(case)
        more = {} if requested is None else {"requested": write_requested(requested)}
        return {"observed": self.observed(case) or {}, **more}

    def backend(self, name: str) -> str:
        return f"file://{self.folder}/{name}"

    def write_stacks(self, name: str) -> None:
        """Write the stacks to a backend."""
        for case in self.cases:
            app = self.apps[case.number]
            path = self.folder / name / app.path.relative_to(self.folder / PLANNED)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self._texts[case.number].replace(self.backend(PLANNED), self.backend(name)))

    def _plan(self, case: Case) -> App:
        options = {"pods": {"gang": GangMode.PODS}, "v1beta2": {"api_version": AppWrapperVersion.V1BETA2}}.get(
            self.kind, {}
        )
        world = World(root=self.folder, cluster=self.clusters[case.where])
        where = {"namespace": case.namespace, "kube_context": case.where}
        app = world.plan("app", scheduler=self.scheduler_name, replicas=2, **where, **options)
        return replace(app, entry=replace(app.entry, uid=case.uid))

    def _text(self, case: Case) -> str:
        text = checkpoint(self.apps[case.number])
        stack, component, *_ = text["checkpoint"]["latest"]["resources"]
        for outputs in (stack["outputs"]["torchx"], component["outputs"]):
            outputs.update(self.known(case))
        return json.dumps(text)

    def scheduler(self, name: str) -> PulumiScheduler:
        """Return the scheduler of the user who launched the apps and saw them last."""
        index = RunIndex(self.folder / f"index-{name}")
        self.write_stacks(name)
        for case in self.cases:
            planned, requested = self.apps[case.number].entry, self.requested(case)
            entry = replace(
                planned,
                place=replace(planned.place, backend=self.backend(name)),
                stage=Stage.LAUNCHED,
                requested=requested,
                request_written=requested is not None,
            )
            index.add(entry)
            observed = self.observed(case)
            if observed is not None:
                index.observe(entry, lambda _, observed=observed: observed)
        driver = World(root=self.folder).driver()
        context = AdapterContext(make_driver=lambda: driver, connect=self.connect, index=index)
        return PulumiScheduler(self.scheduler_name, "torchx", context)


def by_status(scene: Scene) -> dict[int, Told]:
    """`torchx status`, as TorchX prints it."""
    scheduler = scene.scheduler("status")
    found = {}
    for case in scene.cases:
        shown = scheduler.describe(f"{case.namespace}:app")
        word = shown.msg.partition(":")[0]
        reason = word if word in {one.value for one in Reason} else shown.state.name.capitalize()
        found[case.number] = shown.state.name, reason, shown.num_restarts + 1
    return found


def by_list(scene: Scene) -> dict[int, Told]:
    """`torchx list`."""
    rows = {row.app_id: row.state.name for row in scene.scheduler("list").list()}
    return {case.number: (rows[f"{case.namespace}:app"], None, None) for case in scene.cases}


def by_fleet(scene: Scene) -> dict[int, Told]:
    """`torchx-pulumi fleet --live`, of a user who launched nothing."""
    scene.write_stacks("fleet")
    return rows_of(scene, "fleet", live=True, connect=scene.connect)


def by_page(scene: Scene) -> dict[int, Told]:
    """The page's API, of a controller that does not write."""
    scene.write_stacks("page")
    fleet, found = LiveFleet(), {}
    with served(fleet=fleet) as server, controller(scene, "page", fleet=fleet, leading=lambda: False):
        for row in server.ask("/api/v1/apps").json["apps"]:
            found[row["namespace"]] = row["state"], row["reason"], row["attempt"]
    return {case.number: found[case.namespace] for case in scene.cases}


def by_write(scene: Scene) -> dict[int, Told]:
    """The stacks after a controller, as `torchx-pulumi fleet` reads them without a cluster."""
    scene.write_stacks("write")
    with controller(scene, "write"):
        pass
    return rows_of(scene, "write")


def rows_of(scene: Scene, name: str, **options: Any) -> dict[int, Told]:
    rows = read_fleet(scene.backend(name), **options).rows
    found = {row.namespace: (row.state.value, row.reason, row.attempt) for row in rows}
    return {case.number: found[case.namespace] for case in scene.cases}


@contextmanager
def controller(scene: Scene, name: str, **options: Any) -> Iterator[None]:
    """Run a controller until it waits only for the cluster that does not answer."""
    unread = sum(case.where == "unread" for case in scene.cases)
    world = World(root=scene.folder, url=scene.backend(name))
    with world.controller(clusters=scene.clusters, timing=TIMING, **options) as running:
        wait_for(lambda: not running.not_ready(), 60)
        wait_for(lambda: len(running.pending) <= unread, 60)
        yield


def by_component(scene: Scene, engine: conftest.Engine) -> dict[int, Told]:
    """The output `observed` of components that are deployed again without a change."""
    urn = f"urn:pulumi:dev::torchx::{component_type(scene.scheduler_name)}"
    cases = [case for case in scene.cases if expected_of("component", case) is not None]

    for case in cases:
        record = write_record(replace(launched(scene, case), uid=case.uid))
        engine.mocks.state[f"{urn}${STASH}::{case.namespace}-intent"] = {"input": record}
        known = {"uid": case.uid, "record": record, **scene.known(case)}
        engine.mocks.state[f"{urn}::{case.namespace}"] = known

    def program() -> dict[int, Any]:
        made = {}
        for case in cases:
            with cluster_for_tests(scene.clusters[case.where]):
                made[case.number] = component_of(case.kind)(case.namespace, args_of(case))
        return made

    made = engine.run(program, project="torchx")
    return {number: told(engine.value(one.observed)) for number, one in made.items()}


def launched(scene: Scene, case: Case) -> RunRecord:
    """Return the run that a deployment launches in the cluster before it has any objects of it."""
    planner = LaunchPlanner(
        name=case.namespace,
        args=read_args(case.namespace, args_of(case), component_of(case.kind)._scheduler),
        state=StackState(urn=""),
        organization=("organization", "torchx", "dev"),
        cluster=scene.empty[case.where],
        created_here=frozenset(),
        importing=None,
        now=datetime.now(timezone.utc),
    )
    return planner.plan().run


def component_of(kind: str) -> Any:
    return MCADTrainingJob if kind.startswith("v1") else VolcanoTrainingJob


def args_of(case: Case) -> Any:
    role: Any = {"name": "trainer", "image": "img:1", "entrypoint": "sleep", "num_replicas": 2}
    chosen = {"volcano": {"queue": "default"}, "pods": {"queue": "default", "gang": "pods"}}
    options = chosen.get(case.kind, {"api_version": case.kind})
    return {"roles": [role], "namespace": case.namespace, "job_name": "app", **options}


SURFACES = {"status": by_status, "list": by_list, "fleet": by_fleet, "page": by_page, "write": by_write}


@pytest.fixture(autouse=True)
def _own_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_STATE_HOME", "KUBECONFIG"):
        monkeypatch.setenv(name, str(tmp_path / "own"))
    for name in ("PULUMI_BACKEND_URL", "TORCHXCONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("kind", [*VARIANTS])
def test_six_surfaces_give_one_answer(kind: str, tmp_path: Path, engine: conftest.Engine) -> None:
    scene = Scene(tmp_path, kind)
    answers = {name: ask(scene) for name, ask in SURFACES.items()}
    answers["component"] = by_component(scene, engine)
    wrong = [
        f"{case.name}: {surface} says {told}, not {expected}"
        for surface, found in answers.items()
        for case in scene.cases
        if (expected := expected_of(surface, case)) != (told := found.get(case.number))
    ]
    assert not wrong, "\n".join(wrong)


def expected_of(surface: str, case: Case) -> Told | None:
    """Return the answer of `judge`, or the part of it that a surface shows. None: it shows nothing."""
    less = next((one for one in LESS if one.surface == surface and one.of(case)), None)
    return case.answer if less is None else less.shows(case)


def test_the_table_has_each_kind_of_case_for_each_variant() -> None:
    assert len(CASES) >= 100
    for kind in VARIANTS:
        cases = [case for case in CASES if case.kind == kind]
        assert len(cases) >= 20
    # Each reason to show less is still one.
    for less in LESS:
        assert any(less.of(case) and less.shows(case) != case.answer for case in CASES), less.why


def status_with(reason: Reason) -> JobStatus:
    """Return a status with a reason and the diagnosis that the reason by itself gives, if it is one of a problem."""
    message = MESSAGES.get(reason, f"{reason.value}, as an object says")
    state = JobState.SUCCEEDED if reason is Reason.COMPLETED else JobState.PENDING
    status = JobStatus(state=state, reason=reason, message=message, uid=UID)
    evidence = Evidence.of(ObservedObjects(), status=status, lost_pod_advice="launch again: it has no retries")
    own = diagnose_status(evidence)
    if own is None and reason in CAUSES:
        own = Diagnosis(reason=reason, summary=message, detail="", resolution="correct what it names")
    return status if own is None else replace(status, diagnoses=(own,))


@pytest.mark.parametrize("reason", Reason)
def test_surfaces_say_of_a_reason_the_same(reason: Reason) -> None:
    status, now = status_with(reason), datetime.now(timezone.utc)
    observed = build_observed(status, observed_at=now)
    name = StackName(project="p", stack="s")
    app = app_of({"app": {"id": "a:b"}, "observed": observed}, name)
    row = build_row(app, now, seen=observed, source="live")
    shown = detail(ShownApp("id", "file:///b", row))
    waits = Wait(WaitFor.COMPLETED, timeout_s=0).observed(status, 0)
    said = {
        "torchx status": message_of(status),
        "output": json.dumps(observed),
        "table": to_table(Fleet(backend="file:///b", read_at=now, rows=[row])),
        "JSON": json.dumps(row_values(row)),
        "page": json.dumps(shown),
        "component": f"{waits.failure}" if not waits.done else progress_line(status),
    }
    assert [surface for surface, text in said.items() if status.message not in text] == []
    assert [surface for surface, text in said.items() if status.advice not in text] in ([], ["table"])
    assert shown["cause"] == status.message
    assert bool(status.advice) is (reason in CAUSES)


def test_a_run_that_is_gone_says_what_to_do() -> None:
    observed = judge(look_of("volcano", "gone", "", ""), None, observation("RUNNING Running"))
    assert observed is not None
    output = {"app": {"id": "a:b"}, "observed": observed}
    row = build_row(app_of(output, StackName(project="p", stack="s")), datetime.now(timezone.utc))
    shown = detail(ShownApp("id", "file:///b", row))
    assert shown["advice"] == CAUSES[Reason.NOT_FOUND].advice
    assert shown["cause"] == observed["message"]
    assert message_of(status_of(observed)).endswith(f"({shown['advice']})")
