"""The API of a real controller gives logs of real containers: followed, archived, of earlier attempts; and the runs."""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.kube.kinds import POD
from torchx_pulumi.model.timestamps import parse_nanoseconds
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB

from tests.e2e.fleet.test_controller_stacks import controller
from tests.e2e.project import eventually
from tests.e2e.torchx_cli import TorchxCli

pytestmark = pytest.mark.e2e

COMPONENT = """
from torchx import specs

# A node keeps the log of one earlier run: each lasts for long enough that the one before it can be copied meanwhile.
FAILS = "i=0; while [ $i -lt 300 ]; do i=$((i+1)); echo line $i; done; sleep 10; exit 3"
# Its grace time is 30 s. What it does first leaves time for its deletion to be noticed.
ENDLESS = (
    "trap 'sleep 10; j=0; while [ $j -lt 300 ]; do j=$((j+1)); i=$((i+1)); echo line $i; done; echo end; exit 0' TERM; "
    "i=0; while true; do i=$((i+1)); echo line $i; sleep 0.05; done"
)
# It writes its lines at once and is restarted, at first without a pause.
RESTARTS = "id=$(cat /proc/sys/kernel/random/uuid); for i in 1 2 3 4 5; do echo $id $i; done; exit 3"

def _app(image: str, script: str, restart: str) -> specs.AppDef:
    role = specs.Role(name="main", image=image, entrypoint="sh", args=["-c", script], num_replicas=1,
                      resource=specs.Resource(cpu=0.1, gpu=0, memMB=32),
                      metadata={"kubernetes": {"spec": {"restartPolicy": restart}}})
    return specs.AppDef("logs", [role])

def endless(image: str) -> specs.AppDef:
    return _app(image, ENDLESS, "Never")

def fails(image: str) -> specs.AppDef:
    return _app(image, FAILS, "OnFailure")

def restarts(image: str) -> specs.AppDef:
    return _app(image, RESTARTS, "OnFailure")
"""

TOKEN = "a-token-of-a-test-0123456789"
RUNS = 4
"""Runs of a container that restarts: the node waits 10 s longer before each, but before the second."""

PAUSE_S = 3.0
"""Pause of the page between two questions."""

READERS = 40
"""Readers one after the other: more than logs may be read at the same time."""


class Api:
    """The API of a controller."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")

    def open(self, path: str, **query: Any) -> HTTPResponse:
        asked = urllib.request.Request(f"{self._url}/api/v1/{path}{'?' if query else ''}{urlencode(query)}")
        asked.add_header("Authorization", f"Bearer {TOKEN}")
        answer: HTTPResponse = urllib.request.urlopen(asked, timeout=180)
        return answer

    def json(self, path: str) -> Any:
        with self.open(path) as answer:
            return json.load(answer)

    def log(self, app: str, **query: Any) -> list[str]:
        with self.open(f"apps/{app}/logs", role="main", replica=0, timestamps="false", **query) as answer:
            return answer.read().decode().splitlines()

    def log_if_any(self, app: str, **query: Any) -> list[str]:
        """Return the lines of a log. Empty: it cannot be read at this moment, for example while its container goes."""
        try:
            return self.log(app, **query)
        except urllib.error.HTTPError as error:
            error.close()
            return []

    def first_line(self, app: str) -> bytes:
        """Follow a log up to its first line, and go away. Empty: as many are read as may be."""
        try:
            with self.open(f"apps/{app}/logs", role="main", replica=0, follow="true", tail=1) as answer:
                return bytes(answer.readline())
        except urllib.error.HTTPError as error:
            if error.code != 503:
                raise
            error.close()
            return b""

    def refusal(self, app: str, **query: Any) -> tuple[int, str]:
        with pytest.raises(urllib.error.HTTPError) as raised:
            self.log(app, **query)
        with raised.value as answer:
            return answer.code, json.load(answer)["error"]["message"]

    def id_of(self, name: str) -> str:
        """Return the id of an app, once the controller knows it."""
        return str(eventually(lambda: next((app["id"] for app in self._apps() if app["app_id"].endswith(name)), None)))

    def _apps(self) -> list[Mapping[str, Any]]:
        return list(self.json("apps")["apps"])


@contextlib.contextmanager
def served(cli: TorchxCli, namespace: str) -> Iterator[Api]:
    token = cli.folder / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    words = ["--namespace", namespace, "--log-archive", str(cli.folder / "logs")]
    words += ["--listen", "127.0.0.1:0", "--token-file", str(token)]
    with controller(cli.env, cli.folder, *words) as said:
        found = eventually(lambda: re.search(r"http://127\.0\.0\.1:\d+", said.read_text()))
        yield Api(found.group())


class Poller:
    """Asks again and again what a replica has written since, as the page does for the log of all replicas."""

    def __init__(self, api: Api, app: str) -> None:
        self._api, self._app = api, app
        self._since = self._until = ""
        self._counts: Counter[str] = Counter()
        self.lines: list[str] = []

    def ask(self) -> None:
        """Take the lines that are new."""
        query = {"since": self._since} if self._since else {"tail": 100}
        try:
            with self._api.open(f"apps/{self._app}/logs", role="main", replica=0, **query) as answer:
                shown = [line for line in answer.read().decode().splitlines() if not line.startswith("# ")]
        except urllib.error.HTTPError as error:
            error.close()
            return
        counts: Counter[str] = Counter()
        for line in shown:
            counts[line] += 1
            if counts[line] > self._counts[line]:
                self.lines.append(line.partition(" ")[2])
        stamps = [line.partition(" ")[0] for line in shown]
        until = max([self._until, *stamps], key=lambda stamp: parse_nanoseconds(stamp) or 0)
        self._since, self._until, self._counts = self._until or until, until, counts


class Follower:
    """Follows a log in a thread."""

    def __init__(self, answer: HTTPResponse) -> None:
        self.lines: list[str] = []
        self._answer = answer
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with self._answer, contextlib.suppress(OSError, HTTPException):
            for line in self._answer:
                self.lines.append(line.decode().rstrip("\n"))

    def end(self) -> list[str]:
        self._thread.join(180)
        assert not self._thread.is_alive(), self.lines[-3:]
        return self.lines


@pytest.fixture
def cli(pulumi_env: dict[str, str], tmp_path: Path, kubeconfig: Path) -> TorchxCli:
    made = TorchxCli(pulumi_env, tmp_path, kubeconfig)
    (tmp_path / "mine.py").write_text(COMPONENT)
    return made


def numbers(lines: list[str]) -> list[int]:
    return [int(line.removeprefix("line ")) for line in lines if line.startswith("line ")]


def run(cli: TorchxCli, namespace: str, component: str, image: str) -> str:
    """Launch a component and return the name of its job."""
    config = f"namespace={namespace},queue=default"
    words = ["run", "--workspace", "", "-s", "pulumi_volcano", "-cfg", config, f"mine.py:{component}", "--image", image]
    return cli.torchx(*words).handle.rpartition(":")[2]


def test_logs_are_followed_and_outlive_their_pods(
    cli: TorchxCli, image: str, namespace: str, look: KubernetesCluster
) -> None:
    with served(cli, namespace) as api:
        endless = run(cli, namespace, "endless", image)
        app = api.id_of(endless)
        follower = Follower(api.open(f"apps/{app}/logs", role="main", replica=0, timestamps="false", follow="true"))
        fails = run(cli, namespace, "fails", image)
        failing = api.id_of(fails)
        eventually(lambda: len(numbers(follower.lines)) > 20, 180)
        assert follower.lines[0].startswith("# torchx-pulumi: ")

        # A reader that goes away gives its place to the next one.
        for _ in range(READERS):
            # That it has gone is noticed when something is sent to it.
            line = eventually(lambda: api.first_line(app))
            assert line.startswith(b"# torchx-pulumi: the log of main/0 is read from pod "), line

        newest = numbers(follower.lines)[-1]
        (last,) = api.log(app, tail=1)[1:]
        assert numbers([last])[0] >= newest
        assert api.refusal(app, container="other")[0] == 404
        assert api.refusal(app, attempt=7)[0] == 404

        look.delete(VOLCANO_JOB, namespace, endless)
        got = follower.end()
        assert got[-1].startswith("# torchx-pulumi: end of the log: ")
        # If the pod goes before the reader knows that its log has ended, a note says that the rest is from the archive.
        lines = [line for line in got if not line.startswith("# torchx-pulumi: ")]
        assert numbers(lines) == [*range(1, len(numbers(lines)) + 1)]
        assert lines[-1] == "end"
        eventually(lambda: api.json(f"apps/{app}/runs")["runs"][0]["archived"])
        # Until the pod is gone, its log is read from it.
        archive = "read from the archive"
        archived = eventually(lambda: found if archive in (found := api.log_if_any(app) or [""])[0] else None)
        assert archived[-1] == "end"
        assert archived[1:] == lines
        # A reader whose watch is behind says first that it reads the pod.
        followed = [line for line in api.log(app, follow="true") if not line.startswith("# torchx-pulumi: ")]
        assert followed == archived[1:]

        eventually(lambda: attempts(api, failing).get(1, {}).get("archived"), 180)
        second = eventually(lambda: attempts(api, failing).get(2))
        assert {name: attempts(api, failing)[1][name] for name in ("exit_code", "complete", "running")} == {
            "exit_code": 3,
            "complete": True,
            "running": False,
        }
        assert (second["pod"], second["container"]) == (attempts(api, failing)[1]["pod"], second["container"])
        for attempt in (1, 2):
            eventually(lambda attempt=attempt: numbers(api.log_if_any(failing, attempt=attempt)) == [*range(1, 301)])
        history = api.json(f"apps/{failing}/runs")
        assert (history["updates"][0]["kind"], history["updates"][0]["result"]) == ("update", "succeeded")
        assert history["notes"] == []
        (present,) = history["runs"]
        assert api.log(failing, attempt=1, run=present["uid"])[-1] == "line 300"
        eventually(lambda: "Started" in {item["reason"] for item in api.json(f"apps/{failing}/events")["events"]})
        # A reader that waits does not hold up the end of the controller, whose time `controller` looks at.
        waits = Follower(api.open(f"apps/{failing}/logs", role="main", replica=0, follow="true", tail=0))
        eventually(lambda: waits.lines)
    waits.end()


def test_what_was_written_since_has_every_line_of_a_container_that_restarts(
    cli: TorchxCli, image: str, namespace: str, look: KubernetesCluster
) -> None:
    def restarts() -> int:
        (pod,) = look.list(POD, namespace, {})
        return int(pod["status"]["containerStatuses"][0]["restartCount"])

    with served(cli, namespace) as api:
        poller = Poller(api, api.id_of(run(cli, namespace, "restarts", image)))
        eventually(lambda: poller.ask() or poller.lines, 180)
        # The first answer has the present run only.
        before, until = restarts(), time.monotonic() + 180
        while len({line.split()[0] for line in poller.lines}) < RUNS and time.monotonic() < until:
            time.sleep(PAUSE_S)
            poller.ask()
        begun = 1 + restarts()
        for _ in range(2):
            time.sleep(PAUSE_S)
            poller.ask()
    found = Counter(line.split()[0] for line in poller.lines)
    assert len(found) >= max(RUNS, begun - before), (found, before, begun)
    assert poller.lines == [f"{name} {number}" for name in found for number in range(1, 6)]


def attempts(api: Api, app: str) -> dict[int, Mapping[str, Any]]:
    """Return the attempts of the present run by their number."""
    return {item["attempt"]: item for item in api.json(f"apps/{app}/runs")["runs"][0]["attempts"]}
