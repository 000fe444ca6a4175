"""Two hosts of one name in two PID namespaces share a home: whatever they do at once, no app is lost or launched twice.

`TORCHX_PULUMI_INTERLEAVINGS` sets how many random interleavings of launch, status, kill and delete are run, and
`TORCHX_PULUMI_SEED_FROM` the first seed: a failure names its seed.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.model import labels
from torchx_pulumi.model.app_entry import RunEntry, Stage
from torchx_pulumi.runs.index import RunIndex
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB, VOLCANO_POD_GROUP
from torchx_pulumi_stacks.engine import AutomationDriver
from torchx_pulumi_stacks.engine.work_dir import place_key

from tests.e2e.launch_orders import processes_of
from tests.e2e.project import eventually

ROOT = Path(__file__).resolve().parents[2]

LEASE_S = 6.0
OPERATION_TIMEOUT_S = 300.0

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="a PID namespace of one's own needs root"),
]


class Host:
    """One of the hosts."""

    def __init__(self, name: str, folder: Path, env: dict[str, str]) -> None:
        self.name = name
        self.ended: dict[int, dict[str, Any]] = {}
        self.asked: set[int] = set()
        unshare = ["unshare", "--pid", "--fork", "--mount-proc", "--uts", "--kill-child"]
        self._errors = (folder / f"{name}.err").open("w")
        words = [*unshare, sys.executable, "-m", "tests.e2e.two_hosts", str(folder)]
        self._process = subprocess.Popen(
            words, cwd=ROOT, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True
        )
        assert self._process.stdout is not None
        self.namespace = json.loads(self._process.stdout.readline())["namespace"]
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def ask(self, do: str, app_id: str, **more: Any) -> None:
        number = more.pop("id", None)
        if number is not None:
            self.asked.add(number)
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, "app_id": app_id, "id": number, **more}) + "\n")
        self._process.stdin.flush()

    def wait(self) -> None:
        """Wait until all operations have ended."""
        end = time.monotonic() + OPERATION_TIMEOUT_S
        while self.asked - set(self.ended):
            assert time.monotonic() < end, f"{self.name}: operations {self.asked - set(self.ended)} do not end"
            assert self._process.poll() is None, f"{self.name} has ended: {Path(self._errors.name).read_text()}"
            time.sleep(0.02)

    def close(self, *, at_once: bool = False) -> None:
        """End it and all that runs on it. May be called again."""
        if self._errors.closed:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            # Its first process ends, or is killed with unshare; the kernel then kills the others.
            self._process.wait(0.0 if at_once else 20.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._errors.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            told = json.loads(line)
            self.ended[told["ended"]] = told


@dataclass
class TwoHosts:
    """The hosts, and what they share."""

    hosts: tuple[Host, Host]
    namespace: str
    backend: Path
    look: KubernetesCluster
    log: list[str] = field(default_factory=list)
    ids: int = 0
    ends: Counter[str] = field(default_factory=Counter)

    def do(self, host: Host, what: str, number: int, **more: Any) -> int:
        """Start an operation on an app."""
        self.ids += 1
        self.log.append(f"{host.name} {what} {more or ''} (operation {self.ids})")
        host.ask(what, self.app_id(number), id=self.ids, number=number, namespace=self.namespace, **more)
        return self.ids

    def signal(self, host: Host, number: int, sent: int, *, with_engine: bool = True, at_most: int = 1) -> None:
        """Send a signal to operations on an app."""
        host.ask("signal", self.app_id(number), number=int(sent), with_engine=with_engine, at_most=at_most)

    def locks(self, number: int) -> list[Path]:
        """Return Pulumi's locks on the stack of an app."""
        return [path for path in self.backend.glob(".pulumi/locks/**/*.json") if job_name(number) in str(path)]

    def wait(self) -> None:
        for host in self.hosts:
            host.wait()
        for host in self.hosts:
            for number in sorted(host.asked):
                told = host.ended[number]
                self.log.append(f"{host.name} operation {number}: {told}")
                self.ends[next(key for key in ("did", "refused", "killed", "broke") if key in told)] += 1
                assert "broke" not in told, told["broke"]
            host.asked.clear()

    def app_id(self, number: int) -> str:
        return f"{self.namespace}:{job_name(number)}"

    def interleave(self, seed: int) -> None:
        """Run one random interleaving of operations on one app, and check what came of it."""
        chance = random.Random(seed)
        number = seed
        self.log.clear()
        first = chance.choice(self.hosts)
        self.do(first, "launch", number)
        for _ in range(chance.randint(2, 5)):
            time.sleep(chance.choice([0.0, 0.05, 0.3, 0.8, 1.5]) * chance.random())
            host = chance.choice(self.hosts)
            what = chance.choices(["launch", "status", "delete", "kill"], [2, 3, 3, 3])[0]
            if what == "kill":
                with_engine = chance.random() < 0.6
                self.log.append(f"{host.name} kill {'with engine' if with_engine else ''}")
                at_most = chance.randint(1, 3)
                self.signal(host, number, signal.SIGKILL, with_engine=with_engine, at_most=at_most)
            else:
                self.do(host, what, number)
        self.wait()
        # Each host finds the truth of what was killed on it: only it can see that its processes are gone.
        for host in (*self.hosts, *self.hosts):
            self.do(host, "settle", number)
            self.wait()
        entry = self.check(number)
        if entry is not None:
            uid = entry.uid
            for host in self.hosts:
                self.do(host, "status", number)
            self.wait()
            again = self.check(number)
            assert again is not None
            assert again.uid == uid
            self.do(chance.choice(self.hosts), "delete", number)
            self.wait()
            assert self.check(number) is None

    def check(self, number: int) -> RunEntry | None:
        """Check that an app is launched once and whole, or gone everywhere. Return its entry. None: it is gone."""
        entry = RunIndex().find(self.app_id(number), "volcano")
        name = job_name(number)
        job = self.look.get(VOLCANO_JOB, self.namespace, name)
        files = [path for path in self.backend.rglob("*") if name in str(path)]
        assert self.locks(number) == []
        work = Path(os.environ["XDG_STATE_HOME"]) / "torchx-pulumi/engine/work"
        assert [path for path in work.rglob("*") if path.is_file()] == []
        assert [pid for folder in work.glob("*") for pid in processes_of(folder.name)] == []
        if entry is None:
            assert job is None, "the object is there and the index does not know it"
            assert [path for path in files if path.is_file()] == []
            eventually(lambda: self.look.get(VOLCANO_POD_GROUP, self.namespace, name) is None)
            return None
        assert (entry.stage, entry.owner) == (Stage.LAUNCHED, None), entry
        assert processes_of(place_key(entry.place)) == []
        assert job is not None, "the index knows the app and its object is gone"
        assert job["metadata"]["uid"] == entry.uid
        assert job["metadata"]["labels"][labels.LAUNCH] == entry.launch
        note = AutomationDriver().find(entry.place)
        assert note is not None, "the stack is not whole"
        assert note.uid == entry.uid
        return entry


def job_name(number: int) -> str:
    """Return the name that TorchX makes of the number, which stands for its random one."""
    from torchx.schedulers import ids

    real = ids.random_uint64
    ids.random_uint64 = lambda: 10**15 + number
    try:
        return str(ids.make_unique("two"))
    finally:
        ids.random_uint64 = real


@pytest.fixture
def two(
    e2e_env: dict[str, str], kubeconfig: Path, namespace: str, tmp_path: Path, look: KubernetesCluster, monkeypatch: Any
) -> Iterator[TwoHosts]:
    """Two hosts of one name, with one home, one backend and one kubeconfig."""
    for name in ("PULUMI_BACKEND_URL", "PULUMI_CONFIG_PASSPHRASE", "PULUMI_CONFIG_PASSPHRASE_FILE"):
        e2e_env.pop(name, None)
        monkeypatch.delenv(name, raising=False)
    shared = {
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "KUBECONFIG": str(kubeconfig),
        "TORCHX_PULUMI_LEASE_S": str(LEASE_S),
        "HOME": str(tmp_path),
        "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache"),
        "GRPC_ENABLE_FORK_SUPPORT": "false",
    }
    for name, value in {**e2e_env, **shared}.items():
        monkeypatch.setenv(name, value)
    paths = os.pathsep.join([str(ROOT), e2e_env["PYTHONPATH"]])
    env = {**e2e_env, **shared, "PYTHONPATH": paths}
    folder = tmp_path / "hosts"
    folder.mkdir()
    hosts = (Host("a", folder, env), Host("b", folder, env))
    backend = tmp_path / "state/torchx-pulumi/backend"
    try:
        yield TwoHosts(hosts=hosts, namespace=namespace, backend=backend, look=look)
    finally:
        for host in hosts:
            host.close()


def asleep(two: TwoHosts, number: int) -> int:
    """Launch an app on the first host, and put that to sleep while its engine holds the stack's lock."""
    launched = two.do(two.hosts[0], "launch", number)
    end = time.monotonic() + OPERATION_TIMEOUT_S
    while not two.locks(number):
        assert time.monotonic() < end, "the launch takes no lock"
        assert launched not in two.hosts[0].ended, two.hosts[0].ended[launched]
        time.sleep(0.005)
    two.signal(two.hosts[0], number, signal.SIGSTOP)
    entry = RunIndex().find(two.app_id(number), "volcano")
    assert entry is not None
    # The operation is stopped before the engine that it started.
    eventually(lambda: any(map(is_stopped, processes_of(place_key(entry.place)))))
    assert two.locks(number), "the lock was released before the host fell asleep"
    return launched


def is_stopped(pid: int) -> bool:
    """Return whether a signal has stopped a process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False


def test_b8_a_host_that_sleeps_in_a_launch_is_left_alone_and_finishes_it(two: TwoHosts) -> None:
    first, second = two.hosts
    launched = asleep(two, 1)
    locks, index = two.locks(1), RunIndex()
    before = index.find(two.app_id(1), "volcano")
    assert before is not None
    for wait_s in (0.0, LEASE_S + 1.0):
        time.sleep(wait_s)
        looked = two.do(second, "status", 1)
        second.wait()
        assert second.ended[looked].get("did") in ("SUBMITTED", "RUNNING", "PENDING"), second.ended[looked]
        assert two.locks(1) == locks
        assert index.find(two.app_id(1), "volcano") == before
    # Its lease has expired. It holds Pulumi's lock, so that only --take-over would do.
    refused = two.do(second, "delete", 1)
    second.wait()
    assert "--take-over" in second.ended[refused].get("refused", ""), second.ended[refused]
    assert (two.locks(1), index.find(two.app_id(1), "volcano")) == (locks, before)
    two.signal(first, 1, signal.SIGCONT)
    first.wait()
    assert first.ended[launched].get("did") == two.app_id(1), first.ended[launched]
    assert two.check(1) is not None
    two.do(second, "delete", 1)
    two.wait()
    assert two.check(1) is None


def test_f4_an_app_whose_host_is_gone_in_mid_launch_is_taken_over(two: TwoHosts) -> None:
    first, second = two.hosts
    asleep(two, 2)
    first.close(at_once=True)
    refused = two.do(second, "delete", 2)
    second.wait()
    assert "--take-over" in second.ended[refused].get("refused", ""), second.ended[refused]
    taken = two.do(second, "delete", 2, take_over=True)
    second.wait()
    assert second.ended[taken].get("did") == "deleted", second.ended[taken]
    assert two.check(2) is None


@pytest.mark.counted
def test_two_hosts_of_one_name_lose_nothing_and_launch_nothing_twice(two: TwoHosts) -> None:
    assert two.hosts[0].namespace != two.hosts[1].namespace
    first = int(os.environ.get("TORCHX_PULUMI_SEED_FROM", "0"))
    count = int(os.environ.get("TORCHX_PULUMI_INTERLEAVINGS", "4"))
    for seed in range(first, first + count):
        try:
            two.interleave(seed)
        except AssertionError as error:
            story = "\n".join(two.log)
            raise AssertionError(f"seed {seed}: {error}\n{story}") from error
    print(f"{count} interleavings: {two.ids} operations, {dict(two.ends)}")  # noqa: T201 - the figures of the test
