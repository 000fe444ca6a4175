"""Apps with every kind of end, really launched by the schedulers for TorchX, and what became of them.

The engine, the clusters' controllers, the pods and their logs are real; two thirds of the apps run on the real node,
the others on KWOK's fake nodes, whose pods end as their annotations say and have no logs. Volcano removes its jobs 10 s
after their end. MCAD has no such time: there the fleet deletes the AppWrapper itself after as long. The truth is what a
`ClusterWatch` saw: phases of jobs, containers of pods, and which apps the fleet cancelled or deleted.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

from tests.e2e.fleet.cluster_watch import ClusterWatch, Manifest, Seen, first

TTL_S = 10
"""Seconds after its end for which the objects of a job stay."""
LAUNCHES_AT_ONCE = 4
FAKE_NODE = {
    "nodeSelector": {"torchx-pulumi/node": "fake"},
    "tolerations": [{"key": "kwok.x-k8s.io/node", "value": "fake", "operator": "Equal", "effect": "NoSchedule"}],
}
PLURALS = {"volcano": "jobs", "mcad": "appwrappers"}
API_PATHS = {
    "jobs": "/apis/batch.volcano.sh/v1alpha1/namespaces/{0}/jobs/{1}",
    "appwrappers": "/apis/workload.codeflare.dev/v1beta1/namespaces/{0}/appwrappers/{1}",
}
ENDLESS = "trap 'echo last; exit 143' TERM; i=0; while true; do i=$((i+1)); echo line $i; sleep 0.2; done"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How an app is made to end."""

    name: str
    scheduler: str
    state: str
    """State in which it ends."""
    reason: str
    exit_code: int = 0
    """Exit code of each container."""
    script: str | None = None
    """None: numbered lines, then the exit code."""
    real: bool = True
    """It runs on the real node; False: on a fake one."""
    replicas: int = 1
    retries: int = 0
    """Option `max_retries`; Volcano counts the first failure as well."""
    act: str | None = None
    """What is done to it: `cancel` or `delete`. None: nothing, it ends by itself."""
    image: str | None = None
    """None: the one that is there."""
    pod: Mapping[str, Any] = field(default_factory=dict)
    """Fields of its pods."""


def _fake(scheduler: str, exit_code: int) -> Recipe:
    state, reason = ("FAILED", "ExitCode") if exit_code else ("SUCCEEDED", "Completed")
    name = f"{scheduler}-fake-{exit_code}"
    return Recipe(
        name=name, scheduler=scheduler, state=state, reason=reason, exit_code=exit_code, real=False, replicas=2
    )


def recipes(nowhere: str) -> Sequence[Recipe]:
    """Return thirty ways to end.

    Args:
        nowhere: Reference of an image that does not exist.
    """
    both: list[Recipe] = []
    for name in ("volcano", "mcad"):
        both += [
            Recipe(name=f"{name}-succeeds", scheduler=name, state="SUCCEEDED", reason="Completed", replicas=2),
            Recipe(name=f"{name}-succeeds-alone", scheduler=name, state="SUCCEEDED", reason="Completed"),
            Recipe(name=f"{name}-exits", scheduler=name, state="FAILED", reason="ExitCode", exit_code=3, replicas=2),
            Recipe(name=f"{name}-exits-alone", scheduler=name, state="FAILED", reason="ExitCode", exit_code=9),
            Recipe(
                name=f"{name}-memory", scheduler=name, state="FAILED", reason="OutOfMemory",
                script="echo line 1; exec dd if=/dev/zero of=/dev/null bs=256M count=1",
            ),
            Recipe(
                name=f"{name}-cancelled", scheduler=name, state="CANCELLED", reason="Cancelled",
                script=ENDLESS, act="cancel",
            ),
            Recipe(
                name=f"{name}-deleted", scheduler=name, state="UNKNOWN", reason="NotFound",
                script=ENDLESS, act="delete",
            ),
            Recipe(
                name=f"{name}-image", scheduler=name, state="CANCELLED", reason="Cancelled",
                script="true", act="cancel", image=nowhere,
            ),
            Recipe(
                name=f"{name}-fake-deleted", scheduler=name, state="UNKNOWN", reason="NotFound",
                real=False, act="delete", replicas=2,
            ),
            _fake(name, 0), _fake(name, 7), _fake(name, 0),
        ]  # fmt: skip
    # Enough for the container to start on a busy node: it has to write a log before it is ended.
    deadline = {"spec": {"activeDeadlineSeconds": 20}}
    return (
        *both,
        Recipe(
            name="volcano-retries", scheduler="volcano", state="FAILED", reason="RetriesExhausted",
            exit_code=4, retries=2,
        ),
        Recipe(
            name="volcano-deadline", scheduler="volcano", state="FAILED", reason="Failed", script=ENDLESS, pod=deadline
        ),
        _fake("volcano", 5), _fake("mcad", 5), _fake("volcano", 0), _fake("mcad", 6),
    )  # fmt: skip


@dataclass(slots=True, kw_only=True)
class App:
    """One launched app."""

    recipe: Recipe
    namespace: str
    name: str
    """Name of its job object."""
    lines: int
    """Lines that each of its containers writes, where it counts them."""
    commanded_at: float
    """When the last command on it returned that works under the lock of its stack: its launch, or its cancellation."""
    acted_at: float | None = None
    """When it was cancelled or deleted. None: not yet, or never."""
    removed: bool = False
    """The fleet has deleted its object after its end, as a time to live does."""

    @property
    def app_id(self) -> str:
        return f"{self.namespace}:{self.name}"

    @property
    def plural(self) -> str:
        return PLURALS[self.recipe.scheduler]


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """How an app ended, as the watch saw it."""

    state: str
    reason: str
    attempt: int
    uid: str
    at: float
    """When that came."""


class Fleet:
    """Apps of one namespace."""

    def __init__(
        self, watch: ClusterWatch, namespace: str, image: str, nowhere: str, *, seed: int = 0, only: str = ""
    ) -> None:
        """Prepare apps; `only` is how the names of their recipes end."""
        self.apps: list[App] = []
        self._watch, self._namespace, self._image = watch, namespace, image
        self._recipes = [recipe for recipe in recipes(nowhere) if recipe.name.endswith(only)]
        self._random = random.Random(seed)
        self._over = threading.Event()
        self._acting = threading.Thread(target=self._act_on, daemon=True)
        self.errors: list[BaseException] = []
        """What went wrong while apps were cancelled or deleted."""

    def launch(self, schedulers: Mapping[str, Any], count: int, *, each: Callable[[], object]) -> None:
        """Launch apps through the schedulers for TorchX, some at a time, and act on them from then on.

        Args:
            schedulers: Scheduler backend -> adapter.
            count: How many.
            each: Called all the time while launches run.
        """
        self._schedulers = schedulers
        self._acting.start()
        chosen = [self._recipes[number % len(self._recipes)] for number in range(count)]
        self._random.shuffle(chosen)
        with ThreadPoolExecutor(LAUNCHES_AT_ONCE, initializer=_give_way) as pool:
            launches = {pool.submit(self._launch, recipe, self._random.randint(20, 2000)) for recipe in chosen}
            while launches:
                done, launches = wait(launches, timeout=0.2, return_when=FIRST_COMPLETED)
                self.apps.extend(launch.result() for launch in done)
                each()

    def _launch(self, recipe: Recipe, lines: int) -> App:
        options: dict[str, Any] = {"namespace": self._namespace, "reserved_millicpu": 980, "reserved_memmb": 48}
        if recipe.scheduler == "volcano":
            options |= {"queue": "default", "ttl_seconds_after_finished": TTL_S}
        app_id = self._schedulers[recipe.scheduler].submit(_app_def(recipe, self._image, lines), options)
        name = app_id.partition(":")[2]
        return App(recipe=recipe, namespace=self._namespace, name=name, lines=lines, commanded_at=time.time())

    def over(self) -> bool:
        """Return whether every app has ended and is gone as far as it will go."""
        if self.errors:
            raise self.errors[0]
        return all(self._is_over(app) for app in self.apps)

    def unfinished(self) -> list[str]:
        """Name the apps that are not over."""
        return [f"{app.name} ({app.recipe.name})" for app in self.apps if not self._is_over(app)]

    def close(self) -> None:
        """Stop acting on apps."""
        self._over.set()
        self._acting.join(timeout=60)

    def truth(self, app: App) -> Truth | None:
        """Return how an app ended. None: it has not."""
        events = self._watch.events(app.plural, app.name)
        if not events:
            return None
        found = self._ended(app, events)
        uid = str(events[-1].object["metadata"]["uid"])
        attempt = 1 + max(_retries(event.object) for event in events)
        if found is None:
            return None
        state, reason, at = found
        return Truth(state=state, reason=reason, attempt=attempt, uid=uid, at=at)

    def gone_at(self, app: App) -> float | None:
        """Return when the first of an app's objects was deleted. None: none was."""
        head = self._watch.events(app.plural, app.name)
        deleted = [e.at for events in (head, *self._watch.pods(app.name)) for e in events if e.deleted]
        return min(deleted, default=None)

    def _ended(self, app: App, events: Sequence[Seen]) -> tuple[str, str, float] | None:
        end = _volcano_end(events) if app.plural == "jobs" else self._app_wrapper_end(app)
        gone = next((event for event in events if event.deleted), None)
        if end is None and gone is not None:
            return (
                ("CANCELLED", "Cancelled", gone.at) if app.recipe.act == "cancel" else ("UNKNOWN", "NotFound", gone.at)
            )
        if end is None:
            return None
        state, at = end
        if state == "FAILED":
            return state, self._failure(app), at
        return state, "Cancelled" if state == "CANCELLED" else "Completed", at

    def _app_wrapper_end(self, app: App) -> tuple[str, float] | None:
        """Return the end by the pods: MCAD itself says it seconds later, and not for all of them."""
        ended = [event for events in self._watch.pods(app.name) if (event := first(events, _pod_over)) is not None]
        if len(ended) < app.recipe.replicas or any(event.deleted for event in ended):
            return None
        if app.recipe.act is not None:
            return None
        failed = any(event.object["status"].get("phase") == "Failed" for event in ended)
        return "FAILED" if failed else "SUCCEEDED", max(event.at for event in ended)

    def _failure(self, app: App) -> str:
        attempts = 1 + max(_retries(event.object) for event in self._watch.events(app.plural, app.name))
        if attempts > app.recipe.retries > 0:
            return "RetriesExhausted"
        words: set[str] = set()
        for events in self._watch.pods(app.name):
            status = events[-1].object["status"]
            words.add(str(status.get("reason")))
            for container in status.get("containerStatuses") or ():
                end = (container.get("state") or {}).get("terminated") or {}
                words.add(str(end.get("reason")))
        for word, reason in {"OOMKilled": "OutOfMemory", "DeadlineExceeded": "Failed"}.items():
            if word in words:
                return reason
        return "ExitCode"

    def _is_over(self, app: App) -> bool:
        if self.truth(app) is None:
            return False
        events = self._watch.events(app.plural, app.name)
        # An aborted Volcano Job stays: its time to live begins with an end, and it may be resumed.
        return events[-1].deleted or (app.plural == "jobs" and app.recipe.act == "cancel")

    def _act_on(self) -> None:
        while not self._over.is_set():
            for app in [*self.apps]:
                try:
                    self._act(app)
                except BaseException as error:  # noqa: BLE001 - the test's own thread raises it
                    self.errors.append(error)
                    return
            time.sleep(0.2)

    def _act(self, app: App) -> None:
        act = app.recipe.act
        if act is not None:
            if app.acted_at is None and self._ready(app):
                app.acted_at = time.time()
                if act == "cancel":
                    self._schedulers[app.recipe.scheduler].cancel(app.app_id)
                    app.commanded_at = time.time()
                else:
                    self._delete(app)
            return
        truth = self.truth(app)
        if app.plural == "appwrappers" and truth is not None and not app.removed and time.time() > truth.at + TTL_S:
            app.removed = True
            self._delete(app)

    def _delete(self, app: App) -> None:
        path = API_PATHS[app.plural].format(app.namespace, app.name)
        self._watch.server.ask("DELETE", path, {"propagationPolicy": "Background"})

    def _ready(self, app: App) -> bool:
        """Return whether each pod runs, or waits for its image where there is none."""
        pods = self._watch.pods(app.name)
        claim = _waits_for_image if app.recipe.image else _pod_runs
        return len(pods) >= app.recipe.replicas and all(claim(events[-1].object) for events in pods)


def _give_way() -> None:
    """Let the engines of this thread's launches run when nothing else does: they would be on other machines."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)


def _app_def(recipe: Recipe, image: str, lines: int) -> Any:
    from torchx.specs import AppDef, Resource, Role

    count = f"i=0; while [ $i -lt {lines} ]; do i=$((i+1)); echo line $i; done; sleep 1; exit {recipe.exit_code}"
    overlay = dict(recipe.pod)
    if not recipe.real:
        ends = {"torchx-pulumi/fake-exit-code": str(recipe.exit_code), "torchx-pulumi/fake-run-for": "2s"}
        overlay = {"spec": FAKE_NODE, **({} if recipe.act else {"metadata": {"annotations": ends}})}
    role = Role(
        name="trainer",
        image=recipe.image or image,
        entrypoint="sh",
        args=["-c", recipe.script or count],
        num_replicas=recipe.replicas,
        max_retries=recipe.retries,
        resource=Resource(cpu=1, gpu=0, memMB=64),
        metadata={"kubernetes": {"V1Pod": overlay}} if overlay else {},
    )
    return AppDef(name=recipe.name, roles=[role])


def _volcano_end(events: Sequence[Seen]) -> tuple[str, float] | None:
    states = {"Completed": "SUCCEEDED", "Failed": "FAILED", "Terminated": "FAILED", "Aborted": "CANCELLED"}
    phases = [(_phase(event.object), event.at) for event in events]
    last = next((phase for phase, _ in reversed(phases) if phase), None)
    if last not in states:
        return None
    return states[last], next(at for phase, at in phases if phase == last)


def _phase(job: Manifest) -> str | None:
    return (job["status"].get("state") or {}).get("phase")


def _retries(job: Manifest) -> int:
    return int(job["status"].get("retryCount") or 0)


def _pod_over(pod: Manifest) -> bool:
    return pod["status"].get("phase") in ("Succeeded", "Failed")


def _pod_runs(pod: Manifest) -> bool:
    return bool(pod["status"].get("phase") == "Running")


def _waits_for_image(pod: Manifest) -> bool:
    waits = [one.get("state", {}).get("waiting") or {} for one in pod["status"].get("containerStatuses") or ()]
    return any(wait.get("reason") in ("ErrImagePull", "ImagePullBackOff") for wait in waits)


def percentile(values: Iterable[float], share: float) -> float:
    """Return the value below which a share of all values are."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]
