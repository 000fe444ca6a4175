"""How often a program's update meets the lock of a controller, while all of its 1,000 apps change all the time.

Real: the controller, its writes, and 1,000 stacks of programs in a folder. Fake: the cluster, whose jobs change
faster than a controller writes a stack, and the updates, which take Pulumi's lock as its CLI does (`Lock` in
`pkg/backend/diy/lock.go`: look for locks, write one, look again), hold it for `HOLD_S`, and are run again at once, as a
pipeline does that runs `up` twice. `python -m bench.locks [SECONDS] [JOBS]` measures stacks of so many jobs.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

APPS = int(os.environ.get("TORCHX_PULUMI_BENCH_APPS", "1000"))
UPDATES_AT_ONCE = 16
HOLD_S = 1.0
AGAIN_S = 0.3
"""Time between two commands of a pipeline."""


def main(seconds: float = 60.0, jobs: int = 1) -> int:
    """Measure, and print what was met."""
    from torchx_pulumi_fleet.cli.controller import SWITCH_S
    from torchx_pulumi_fleet.writer.settings import ControllerTiming

    from tests.fleet.writer.world import World

    sys.setswitchinterval(SWITCH_S)
    with tempfile.TemporaryDirectory() as folder:
        world = World(root=Path(folder))
        apps = [world.launch_program(f"train-{number:04d}") for number in range(APPS)]
        if jobs > 1:
            join_stacks(apps, jobs)
        stop = threading.Event()

        def change() -> None:
            phases = ("Running", "Pending")
            for turn in range(10**6):
                for app in apps:
                    if stop.wait(5.0 / APPS):
                        return
                    world.phase(app, phases[turn % 2])

        with world.controller(timing=ControllerTiming(), program_stacks=True) as controller:
            threading.Thread(target=change, daemon=True).start()
            time.sleep(10)
            before, begun = sum(controller.writes.values()), time.monotonic()
            words = [sys.executable, "-m", "bench.locks", "updates", f"{folder}/backend", str(seconds)]
            found = json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout)
            rate = (sum(controller.writes.values()) - before) / (time.monotonic() - begun)
            print(f"locks: {APPS} apps, {jobs} a stack, {rate:.0f} writes a second: {dict(controller.writes)}")
            for name, (met, tried) in found.items():
                print(f"locks: {name}: {met} of {tried} met a lock, {100 * met / tried:.3f} %")
            stop.set()
    return 0


def join_stacks(apps: list, jobs: int) -> None:
    """Put so many apps into each stack: that of the first of them."""
    for start in range(0, len(apps), jobs):
        first, *others = apps[start : start + jobs]
        whole = json.loads(first.path.read_text())
        name = first.entry.place.stack
        for app in others:
            text = app.path.read_text().replace(app.entry.place.stack, name).replace("::train", f"::{app.name}")
            whole["checkpoint"]["latest"]["resources"] += json.loads(text)["checkpoint"]["latest"]["resources"][1:]
            app.path.unlink()
        first.path.write_text(json.dumps(whole))


def updates(backend: Path, seconds: float) -> None:
    """Run updates of random stacks, each twice; print how many were refused of how many."""
    stacks = [path.stem for path in (backend / ".pulumi/stacks/mine").glob("*.json")]
    free, guard, end = set(stacks), threading.Lock(), time.monotonic() + seconds
    found, looks = {"first update": [0, 0], "the next one": [0, 0]}, [0, 0]

    def look() -> None:
        """Look for locks on random stacks, at most 1,000 times a second, and take none."""
        while time.monotonic() < end:
            folder = backend / ".pulumi/locks/organization/mine" / random.choice(stacks)
            with guard:
                if folder.name in free:
                    looks[0] += any(folder.glob("*.json"))
                    looks[1] += 1
            time.sleep(0.001)

    def run() -> None:
        while time.monotonic() < end:
            with guard:
                stack = random.choice(sorted(free))
                free.discard(stack)
            folder = backend / ".pulumi/locks/organization/mine" / stack
            for name in found:
                met = not update(folder)
                with guard:
                    found[name][0] += met
                    found[name][1] += 1
                time.sleep(AGAIN_S)
            with guard:
                free.add(stack)

    with ThreadPoolExecutor(UPDATES_AT_ONCE) as pool:
        for each in [*(pool.submit(run) for _ in range(UPDATES_AT_ONCE - 1)), pool.submit(look)]:
            each.result()
    print(json.dumps({**found, "a look": looks}))


def update(folder: Path) -> bool:
    """Take and hold the lock of a stack. False: another one was there."""
    own = folder / f"{uuid.uuid4()}.json"
    if any(folder.glob("*.json")):
        return False
    folder.mkdir(parents=True, exist_ok=True)
    hidden = folder.parent / f".{own.name}.tmp"
    hidden.write_text(json.dumps({"pid": 1, "username": "u", "hostname": "h", "timestamp": "2026-01-01T00:00:00Z"}))
    hidden.rename(own)
    try:
        if [path for path in folder.glob("*.json") if path != own]:
            return False
        time.sleep(HOLD_S)
        return True
    finally:
        own.unlink()


if __name__ == "__main__":
    if sys.argv[1:2] == ["updates"]:
        updates(Path(sys.argv[2]), float(sys.argv[3]))
    else:
        sys.exit(main(*(kind(word) for kind, word in zip((float, int), sys.argv[1:], strict=False))))
