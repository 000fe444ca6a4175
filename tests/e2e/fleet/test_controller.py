"""The controller on the real cluster and node: killed again and again, it leaves every stack with the truth.

Real: each app is launched by a scheduler for TorchX through the engine, the jobs run under Volcano and MCAD on the real
node and on fake ones (`controller_fleet`), the controller is the command `torchx-pulumi controller`, and SIGKILL ends
it at random points. The truth comes from a watch that uses no code of the product, and so is what reads the stacks and
the archive.

A pod that is deleted while no controller runs takes its log with it: of logs of pods that were deleted before their
containers had ended on their own, the archive must have no gap; whether it has them is counted and printed.
"""

from __future__ import annotations

import itertools
import os
import random
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi_fleet.writer.settings import ControllerTiming

from tests.e2e.fleet.cluster_watch import ClusterWatch, Server
from tests.e2e.fleet.controller_fleet import App, Fleet, Truth, percentile
from tests.e2e.fleet.controller_process import ControllerProcess, StackWatch, Written, stored_logs
from tests.e2e.project import STOP_S, eventually
from tests.e2e.torchx_cli import TorchxCli

pytestmark = [pytest.mark.e2e, pytest.mark.mcad]

APPS = int(os.environ.get("TORCHX_PULUMI_CONTROLLER_APPS", "30"))
"""Apps that are launched; 300 in the long run."""
KILLS = int(os.environ.get("TORCHX_PULUMI_CONTROLLER_KILLS", "3"))
"""How often the controller is killed; 30 in the long run."""
CANCELS = int(os.environ.get("TORCHX_PULUMI_CANCELS", "2"))
"""Apps of each scheduler that are cancelled while their image cannot be pulled; 50 in the long run."""
SETTLE_S = 90.0
"""Time in which the stacks have the truth once nothing is killed any more; the longest retry takes 30 s."""
DELAY_S = 1.0 if APPS >= 300 else 5.0
"""Wanted of the delay from an event to the stack output, for 99 of 100; of few apps, that is the slowest one."""
LOOK_S = 8.0
"""A controller that runs for less between an end and the deletion of its objects may not have seen the end."""


@pytest.fixture
def cli(pulumi_env: dict[str, str], tmp_path: Path, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch) -> TorchxCli:
    """The commands, with their environment also in this process, whose schedulers launch."""
    made = TorchxCli(pulumi_env, tmp_path, kubeconfig)
    for name in ("PULUMI_BACKEND_URL", "PULUMI_CONFIG_PASSPHRASE", "PULUMI_CONFIG_PASSPHRASE_FILE", "TORCHXCONFIG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in made.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    return made


@pytest.fixture
def schedulers(cli: TorchxCli) -> Iterator[dict[str, Any]]:
    from torchx_pulumi_stacks.entrypoints import create_mcad, create_volcano

    made = {"volcano": create_volcano("torchx"), "mcad": create_mcad("torchx")}
    yield made
    for scheduler in made.values():
        scheduler.close()


@pytest.fixture
def watch(kubeconfig: Path, namespace: str, look: KubernetesCluster) -> Iterator[ClusterWatch]:
    made = ClusterWatch(Server(kubeconfig), namespace)
    yield made
    made.close()


def backend_of(cli: TorchxCli) -> Path:
    return Path(cli.env["XDG_STATE_HOME"]) / "torchx-pulumi" / "backend"


@pytest.mark.counted
@pytest.mark.idle
def test_every_stack_has_the_truth_after_kills(
    cli: TorchxCli,
    schedulers: dict[str, Any],
    watch: ClusterWatch,
    cluster: Any,
    namespace: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if "mcad" not in cluster.settings.features or not cluster.images:
        pytest.skip("the local cluster has no MCAD or no real node")
    archive = tmp_path / "archive"
    fleet = Fleet(watch, namespace, cluster.images["busybox"], f"{cluster.registry}/none-such:1", seed=APPS)
    backend = backend_of(cli)
    backend.mkdir(parents=True)
    stacks = StackWatch(backend)
    words = ("--namespace", namespace, "--log-archive", str(archive))
    controller = ControllerProcess(cli.env, tmp_path, *words)
    killer = Killer(controller, fleet, KILLS)
    try:
        began = time.monotonic()
        fleet.launch(schedulers, APPS, each=killer.look)
        launched_s = time.monotonic() - began
        eventually(lambda: killer.look() or fleet.over(), timeout_s=240 + APPS)
        while killer.left:
            killer.kill()
        controller.wait_ready()
        missed = [app for app in fleet.apps if may_miss(fleet, app, controller.downs)]
        known = [app for app in fleet.apps if app not in missed]
        eventually(lambda: all(is_told(fleet, stacks, app) for app in known), timeout_s=SETTLE_S)
        eventually(lambda: all(is_possible(fleet, stacks, app) for app in missed), timeout_s=SETTLE_S)
        stop_s = controller.stop()
        ended_s = time.monotonic() - began
    except AssertionError as error:
        raise AssertionError(
            "\n".join([str(error), *fleet.unfinished(), *differences(fleet, stacks), controller.said()])
        ) from error
    finally:
        fleet.close()
        stacks.close()
        controller.close()
    for app in fleet.apps:
        check_expected(fleet, app)
        check_order(stacks, app)
        if app in missed:
            check_nothing_is_made_up(fleet, stacks, app)
    unseen = [app for app in missed if not is_told(fleet, stacks, app)]
    kept = check_logs(fleet, archive, missed)
    assert stop_s < STOP_S
    assert "Traceback" not in controller.said()
    whole = delays_of(fleet, stacks, controller.downs)
    delays = [delay.seconds for delay in whole if not delay.disturbed]
    disturbed = [delay.seconds for delay in whole if delay.disturbed]
    with capsys.disabled():
        sys.stdout.write(
            f"\n{APPS} apps launched in {launched_s:.0f} s, all over after {ended_s:.0f} s; "
            f"{len(controller.downs)} kills, {len(unseen)} of {len(missed)} ends unseen that were gone before a "
            "controller was back; "
            f"event to stack output, controller running ({len(delays)}): median {percentile(delays, 0.5):.2f} s, "
            f"p99 {percentile(delays, 0.99):.2f} s; around kills ({len(disturbed)}): "
            f"{percentile(disturbed or [0.0], 0.5):.2f} s, {percentile(disturbed or [0.0], 0.99):.2f} s; {kept}; "
            f"controller: {controller.cpu_s:.1f} s CPU, {controller.most_kb / 1024:.0f} MB; SIGTERM {stop_s:.2f} s\n"
        )
    slowest = "; ".join(f"{delay.app} {delay.seconds:.1f} s" for delay in whole[-5:] if not delay.disturbed)
    assert percentile(delays, 0.99) <= DELAY_S, slowest


@pytest.mark.counted
def test_what_waits_for_an_image_that_does_not_exist_is_always_cancelled(
    cli: TorchxCli,
    schedulers: dict[str, Any],
    watch: ClusterWatch,
    cluster: Any,
    namespace: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The kubelet ends such a pod with an exit code once it is deleted; nobody may take that for the end of the run."""
    if "mcad" not in cluster.settings.features or not cluster.images:
        pytest.skip("the local cluster has no MCAD or no real node")
    nowhere = f"{cluster.registry}/none-such:1"
    fleet = Fleet(watch, namespace, cluster.images["busybox"], nowhere, seed=CANCELS, only="-image")
    backend = backend_of(cli)
    backend.mkdir(parents=True)
    stacks = StackWatch(backend)
    controller = ControllerProcess(cli.env, tmp_path, "--namespace", namespace)
    reader = Reader(schedulers, fleet)
    try:
        fleet.launch(schedulers, 2 * CANCELS, each=lambda: None)
        eventually(fleet.over, timeout_s=120 + 30 * CANCELS)
        eventually(lambda: all(is_told(fleet, stacks, app) for app in fleet.apps), timeout_s=SETTLE_S)
    except AssertionError as error:
        raise AssertionError(
            "\n".join([str(error), *fleet.unfinished(), *differences(fleet, stacks), controller.said()])
        ) from error
    finally:
        reader.close()
        fleet.close()
        stacks.close()
        controller.close()
    told: dict[str, list[str]] = {"volcano": [], "mcad": []}
    for app in fleet.apps:
        written = stacks.last(app.app_id)
        told[app.recipe.scheduler].append(written.state if written is not None else "not written")
    assert {name: set(states) for name, states in told.items()} == {"volcano": {"CANCELLED"}, "mcad": {"CANCELLED"}}
    assert reader.seen.isdisjoint({"FAILED", "SUCCEEDED"}), reader.seen
    with capsys.disabled():
        counts = ", ".join(f"{name} {states.count('CANCELLED')} of {len(states)}" for name, states in told.items())
        sys.stdout.write(f"\ncancelled while their image could not be pulled: {counts}; {reader.reads} statuses read\n")


class Reader:
    """Reads the status of every app of a fleet again and again, as `torchx status` does."""

    def __init__(self, schedulers: dict[str, Any], fleet: Fleet) -> None:
        self._schedulers, self._fleet, self._over = schedulers, fleet, threading.Event()
        self.seen: set[str] = set()
        """Names of the states that were read."""
        self.reads = 0
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop reading."""
        self._over.set()
        self._thread.join(timeout=60)

    def _read(self) -> None:
        while not self._over.wait(0.2):
            for app in [*self._fleet.apps]:
                try:
                    described = self._schedulers[app.recipe.scheduler].describe(app.app_id)
                except ClusterError:
                    # It had no time for an answer.
                    continue
                if described is not None:
                    self.seen.add(described.state.name)
                    self.reads += 1


class Killer:
    """Kills a controller at random points of the launches and ends of a fleet, and starts it again at once."""

    def __init__(self, controller: ControllerProcess, fleet: Fleet, count: int) -> None:
        self._controller, self._fleet, self.left = controller, fleet, count
        self._random = random.Random(count)
        self._next = time.monotonic() + self._pause_s()

    def look(self) -> None:
        """Kill it if it is time."""
        if self.left and time.monotonic() >= self._next:
            self.kill()

    def kill(self) -> None:
        """Kill it now."""
        self.left -= 1
        self._controller.kill()
        self._next = time.monotonic() + self._pause_s()

    def _pause_s(self) -> float:
        # A start of Python takes a second: some kills come in the middle of it.
        return self._random.uniform(0.3, 2.0 * max(APPS, 30) / max(KILLS, 1))


def is_told(fleet: Fleet, stacks: StackWatch, app: App) -> bool:
    truth, written = fleet.truth(app), stacks.last(app.app_id)
    return truth is not None and written is not None and tells(written, truth)


def may_miss(fleet: Fleet, app: App, downs: list[tuple[float, float]]) -> bool:
    """Return whether no controller was there for long enough between the end of an app and its deletion."""
    truth, gone_at = fleet.truth(app), fleet.gone_at(app)
    if truth is None or gone_at is None or truth.state == "UNKNOWN" or app.recipe.act is not None:
        return False
    away = sum(max(min(ready, gone_at) - max(killed, truth.at), 0.0) for killed, ready in downs)
    return gone_at - truth.at - away < LOOK_S


def tells(written: Written, truth: Truth) -> bool:
    """Return whether a stack's outputs, in all places, are the truth."""
    wanted = (truth.state, truth.reason, truth.attempt, truth.uid)
    return all(
        (one["state"], one["reason"], one.get("attempt", 1), one.get("uid")) == wanted
        for one in (written.observed, written.component)
    ) and (written.state, written.reason) == (truth.state, truth.reason)


def differences(fleet: Fleet, stacks: StackWatch) -> list[str]:
    """Say what is not the truth, for a failure."""
    found = []
    for app in fleet.apps:
        if not is_told(fleet, stacks, app):
            written = stacks.last(app.app_id)
            seen = (
                None if written is None else {key: written.observed.get(key) for key in ("state", "reason", "attempt")}
            )
            found.append(f"{app.name} ({app.recipe.name}): truth {fleet.truth(app)}, stack {seen}")
    return found


def check_expected(fleet: Fleet, app: App) -> None:
    """Check that an app ended as its recipe wants, so that every kind of end was there."""
    truth = fleet.truth(app)
    assert truth is not None
    # On a busy machine, Volcano may give a job up before all of its retries.
    wanted = {app.recipe.reason, "ExitCode"} if app.recipe.retries else {app.recipe.reason}
    assert truth.state == app.recipe.state, (app, truth)
    assert truth.reason in wanted, (app, truth)


def is_possible(fleet: Fleet, stacks: StackWatch, app: App) -> bool:
    """Return whether a stack whose end went unseen says that, or a part of the truth."""
    truth, written = fleet.truth(app), stacks.last(app.app_id)
    if truth is None or written is None:
        return False
    known = {(truth.state, truth.reason), (truth.state, "Failed"), ("UNKNOWN", "NotFound")}
    return (written.state, written.reason) in known


def check_nothing_is_made_up(fleet: Fleet, stacks: StackWatch, app: App) -> None:
    """Check that a stack whose end went unseen says that, or a part of the truth, and no other end."""
    assert is_possible(fleet, stacks, app), (app, fleet.truth(app), stacks.last(app.app_id))


def check_order(stacks: StackWatch, app: App) -> None:
    """Check that no older observation was written over a newer one, whenever they were written."""
    versions = [written.observed for written in stacks.versions(app.app_id)]
    for before, after in itertools.pairwise(versions):
        if before.get("uid") != after.get("uid"):
            assert before.get("uid") is None, (before, after)
            continue
        attempts = before.get("attempt", 1), after.get("attempt", 1)
        assert attempts[1] >= attempts[0], (before, after)
        ended = [one["state"] in ("SUCCEEDED", "FAILED", "CANCELLED") for one in (before, after)]
        assert not ended[0] or ended[1] or attempts[1] > attempts[0], (before, after)
        looked = [int(one["resource_version"]) for one in (before, after) if "resource_version" in one]
        if attempts[0] == attempts[1] and not any(ended) and len(looked) == 2:
            assert looked[0] <= looked[1], (before, after)


def check_logs(fleet: Fleet, archive: Path, missed: Sequence[App]) -> str:
    """Check the archived logs, and return how many there are of those that went with their pods.

    Args:
        fleet: The apps.
        archive: Folder of the archive.
        missed: Apps whose objects were gone before a controller could see their end.
    """
    stored: dict[str, list[Any]] = {}
    for log in stored_logs(archive):
        stored.setdefault(log.record["app_id"], []).append(log)
    gone, of_gone = 0, 0
    for app in fleet.apps:
        logs, recipe = stored.get(app.app_id, []), app.recipe
        for log in logs:
            numbers = [line.removeprefix("line ") for line in log.lines if line.startswith("line ")]
            assert numbers == [str(number) for number in range(1, len(numbers) + 1)], (app, log)
            if recipe.script is None and log.record["complete"]:
                assert len(numbers) == app.lines, (app, log.record)
        if not recipe.real or recipe.image:
            assert logs == [], (app, logs)
        elif recipe.act is None and app not in missed:
            # The scheduler removes the pods of an attempt as soon as it has failed.
            whole = [log for log in logs if log.record["complete"]]
            assert len(whole) >= recipe.replicas, (app, logs)
            assert {log.record["replica"] for log in whole} == set(range(recipe.replicas)), (app, logs)
            gone, of_gone = gone + len(whole) - recipe.replicas, of_gone + recipe.replicas * max(recipe.retries - 1, 0)
        else:
            gone, of_gone = gone + sum(log.record["complete"] for log in logs), of_gone + recipe.replicas
    return f"{gone} of {of_gone} logs whose pods were deleted before their end are archived whole"


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay:
    """Time from the end of an app to its stack."""

    app: str
    seconds: float
    disturbed: bool
    """The controller was killed in that time."""


def delays_of(fleet: Fleet, stacks: StackWatch, downs: list[tuple[float, float]]) -> list[Delay]:
    """Return the delay of each end until it is in its stack.

    A launch or a cancellation that holds the lock of the stack until later counts as its beginning. After a lock that
    it met, the controller leaves the stack alone for a while, which does not count.
    """
    quiet_s = ControllerTiming().quiet_s
    found = []
    for app in fleet.apps:
        truth, versions = fleet.truth(app), stacks.versions(app.app_id)
        assert truth is not None
        at = next((written.at for written in versions if tells(written, truth)), None)
        if at is not None:
            since, quiet_until = max(truth.at, app.commanded_at), app.commanded_at + quiet_s
            since = quiet_until if since < quiet_until < at else since
            disturbed = any(killed < at and since < ready for killed, ready in downs)
            found.append(Delay(app=app.recipe.name, seconds=max(at - since, 0.0), disturbed=disturbed))
    return sorted(found, key=lambda delay: delay.seconds)
