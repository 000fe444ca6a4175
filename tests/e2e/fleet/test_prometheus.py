"""Debian's Prometheus scrapes two real controllers with their token, loads the rules of the examples, and runs each
query of the dashboard; promtool judges the metrics, the rules and the configuration.
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.fleet.controller_process import ControllerProcess
from tests.e2e.fleet.controller_world import World
from tests.e2e.project import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.extended]

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "dashboards"
LISTENS = re.compile(r"the page: http://(127\.0\.0\.1:\d+)/")
VARIABLES = {"$namespace": ".*", "$queue": ".*", "$user": ".*", "$__rate_interval": "15s"}
"""What Grafana puts in for the variables of the dashboard."""


@pytest.fixture(scope="module")
def parts() -> Path:
    """The folder of `prometheus` and `promtool`."""
    from tools.bootstrap import ensure

    return ensure(["prometheus"])["prometheus"]


def promtool(parts: Path, *words: Any, given: str | None = None) -> str:
    """Run promtool; it has to find nothing wrong."""
    done = subprocess.run(
        [parts / "promtool", *map(str, words)], input=given, capture_output=True, text=True, check=False, timeout=180
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


class Prometheus:
    """A server on loopback that scrapes controllers as the example says, but more often."""

    def __init__(self, parts: Path, folder: Path, targets: Sequence[str], token: Path) -> None:
        folder.mkdir()
        config = yaml.safe_load((EXAMPLES / "prometheus.yaml").read_text())
        (scrape,) = config["scrape_configs"]
        scrape["authorization"]["credentials_file"] = str(token)
        # Debian's build has no discovery of pods.
        for name in ("kubernetes_sd_configs", "relabel_configs"):
            del scrape[name]
        scrape["static_configs"] = [{"targets": [*targets]}]
        stranger = {"job_name": "stranger", "static_configs": scrape["static_configs"]}
        whole = {
            # An answer may take as long as the time to the next one.
            "global": {"scrape_interval": "3s", "evaluation_interval": "3s"},
            "rule_files": [str(EXAMPLES / name) for name in config["rule_files"]],
            "scrape_configs": [scrape, stranger],
        }
        file = folder / "prometheus.yaml"
        file.write_text(yaml.safe_dump(whole))
        promtool(parts, "check", "config", file)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._address = f"127.0.0.1:{free.getsockname()[1]}"
        self._log = (folder / "log").open("w+")
        self._process = subprocess.Popen(
            [
                parts / "prometheus", f"--config.file={file}", f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address={self._address}",
            ],
            stdout=self._log, stderr=self._log, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def ask(self, path: str, **words: str) -> Any:
        """Return the data of an answer of its API."""
        address = f"http://{self._address}/api/v1/{path}?{urllib.parse.urlencode(words)}"
        with urllib.request.urlopen(address, timeout=60) as answer:
            whole = json.loads(answer.read())
        assert whole["status"] == "success", whole
        assert not whole.get("warnings"), whole
        return whole["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the samples of an expression now."""
        found: list[dict[str, Any]] = self.ask("query", query=expression)["result"]
        return found

    def value(self, expression: str) -> float | None:
        """Return the value of an expression with one sample or none."""
        found = self.query(expression)
        assert len(found) < 2, found
        return float(found[0]["value"][1]) if found else None

    def comes_to(self, wanted: Mapping[str, float]) -> None:
        """Wait until expressions have some values."""

        found: dict[str, list[float]] = {}
        whole = {expression: [value] for expression, value in wanted.items()}

        def is_so() -> bool:
            found.update({each: [float(one["value"][1]) for one in self.query(each)] for each in wanted})
            return found == whole

        with contextlib.suppress(AssertionError):
            eventually(is_so)
        assert found == whole

    def evaluated_rules(self) -> list[dict[str, Any]] | None:
        """Return the rules. None: one was not evaluated yet."""
        rules = [rule for group in self.ask("rules")["groups"] for rule in group["rules"]]
        return None if any(rule["health"] == "unknown" for rule in rules) else rules

    def firing(self) -> list[dict[str, str]]:
        """Return the labels of the alerts that fire."""
        return [each["labels"] for each in self.ask("alerts")["alerts"] if each["state"] == "firing"]

    def is_ready(self) -> bool:
        """Return whether it answers."""
        assert self._process.poll() is None, self.said()
        with contextlib.suppress(OSError):
            return bool(self.ask("status/buildinfo"))
        return False

    def said(self) -> str:
        """Return its log."""
        self._log.seek(0)
        return self._log.read()

    def close(self) -> None:
        """End it."""
        self._process.terminate()
        try:
            self._process.wait(60)
        finally:
            self._process.kill()
            self._process.wait()
            self._log.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas:
    """Two controllers of the same stacks, and what scrapes them."""

    prometheus: Prometheus
    controllers: Mapping[str, ControllerProcess]
    """`HOST:PORT` to the controller."""
    token: str


@pytest.fixture
def replicas(world: World, parts: Path, tmp_path: Path) -> Iterator[Replicas]:
    token = tmp_path / "token"
    token.write_text(secrets.token_urlsafe(24))
    token.chmod(0o600)
    words = ("--listen", "0", "--token-file", str(token), "--lease", f"{world.namespace}/controller")
    started = [world.controller(*words) for _ in range(2)]
    controllers = {LISTENS.findall(each.said())[0]: each for each in started}
    server = Prometheus(parts, tmp_path / "prometheus", [*controllers], token)
    try:
        eventually(server.is_ready)
        yield Replicas(prometheus=server, controllers=controllers, token=token.read_text())
    finally:
        server.close()


def queries() -> Iterator[tuple[str, str]]:
    """Yield the kind of panel and the expression of each query of the dashboard."""
    for panel in json.loads((EXAMPLES / "grafana.json").read_text())["panels"]:
        for target in panel.get("targets", ()):
            expression = target["expr"]
            for variable, text in VARIABLES.items():
                expression = expression.replace(variable, text)
            assert "$" not in expression
            yield panel["type"], expression


def test_prometheus_has_an_answer_to_every_query_and_each_app_once(
    world: World, parts: Path, replicas: Replicas
) -> None:
    prometheus = replicas.prometheus
    (failed,) = world.launch("sleep 1; exit 3")
    (runs,) = world.launch(gpus=2)
    (waits,) = world.launch(gpus=800)

    def state(app_id: str) -> str | None:
        found = prometheus.query(f'torchx_app_state{{app_id="{app_id}"}} == 1')
        return found[0]["metric"]["state"] if found else None

    eventually(lambda: [state(app) for app in (failed, runs, waits)] == ["FAILED", "RUNNING", "PENDING"], 180)

    # The first scrape of a target may be after that of another one has shown the states.
    def targets(job: str) -> list[tuple[str, bool]]:
        found = [each for each in prometheus.ask("targets")["activeTargets"] if each["labels"]["job"] == job]
        return [(each["health"], "401" in each["lastError"]) for each in found]

    eventually(lambda: targets("torchx-controller") == [("up", False)] * 2)
    eventually(lambda: targets("stranger") == [("down", True)] * 2)

    wanted = {
        "sum(torchx_app_requested_gpus)": 802,
        "sum(torchx_app_gpus_in_use)": 2,
        'sum(torchx_app_replicas{state="RUNNING"})': 1,
        f'torchx_app_state{{app_id="{failed}",state="FAILED",reason="ExitCode"}}': 1,
        'torchx_app_queue_wait_seconds_count{scheduler="volcano",queue="default"}': 2,
        'torchx_app_run_time_seconds_count{state="FAILED"}': 1,
        'count(torchx_controller_stack_writes_total{outcome="written"} >= 2)': 1,
        "count(time() - torchx_fleet_read_timestamp_seconds < 60)": 1,
        "max(torchx_controller_watch_lag_seconds)": 0,
        "count(torchx_controller_leader)": 2,
        "sum(torchx_controller_leader)": 1,
        "count(torchx_app_info)": 3,
    }

    # The histograms and the stacks follow what is seen.
    prometheus.comes_to(wanted)

    named = re.findall(r"- alert: (\w+)", (EXAMPLES / "alerts.yaml").read_text())
    rules = eventually(prometheus.evaluated_rules)
    assert [rule["name"] for rule in rules] == named
    assert {rule["health"] for rule in rules} == {"ok"}, rules
    firing = eventually(prometheus.firing)
    assert [(each["alertname"], each["app_id"]) for each in firing] == [("TorchXAppFailed", failed)]

    def unanswered() -> list[str]:
        return [expression for _, expression in queries() if not prometheus.query(expression)]

    # A rate needs two samples.
    with contextlib.suppress(AssertionError):
        eventually(lambda: not unanswered())
    assert unanswered() == []
    now = prometheus.value("vector(time())") or 0.0
    for kind, expression in queries():
        if kind == "timeseries":
            assert prometheus.ask("query_range", query=expression, start=str(now - 60), end=str(now), step="5")[
                "result"
            ]
    for item in json.loads((EXAMPLES / "grafana.json").read_text())["templating"]["list"]:
        values = re.fullmatch(r"label_values\((\w+), (\w+)\)", item.get("definition", ""))
        if values is not None:
            assert prometheus.ask(f"label/{values[2]}/values", **{"match[]": values[1]})

    (writer,) = (each["metric"]["instance"] for each in prometheus.query("torchx_controller_leader == 1"))
    (other,) = replicas.controllers.keys() - {writer}
    replicas.controllers[writer].stop()
    eventually(lambda: prometheus.value(f'torchx_controller_leader{{instance="{other}"}}') == 1)
    # It has seen the same runs, and each app is there once again.
    after = {
        "count(torchx_app_info)": 3,
        f'count(torchx_app_info{{instance="{other}"}})': 3,
        'sum(torchx_app_queue_wait_seconds_count{scheduler="volcano",queue="default"})': 2,
        'sum(torchx_app_run_time_seconds_count{state="FAILED"})': 1,
    }
    prometheus.comes_to(after)

    asked = urllib.request.Request(f"http://{other}/metrics", headers={"Authorization": f"Bearer {replicas.token}"})
    with urllib.request.urlopen(asked, timeout=10) as answer:
        promtool(parts, "check", "metrics", given=answer.read().decode())


@pytest.mark.parametrize("more", ["", ',backend="file:///b",instance="pod-1"'], ids=["textfile", "controller"])
def test_rules_of_apps_fire_for_the_app_that_they_are_about(parts: Path, tmp_path: Path, more: str) -> None:
    # All apps are in one stack; two of a state differ by their times only.
    series = {"torchx_fleet_read_timestamp_seconds": "0+60x60", "torchx_fleet_broken_stacks": "0x60"}
    for app, at in (("new", 0), ("old", -100_000)):
        for state, time in (("FAILED", "finished"), ("PENDING", "queued")):
            labels = f'app_id="{app}-{state}",namespace="n",project="p",scheduler="volcano",stack="s"{more}'
            series[f'torchx_app_state{{{labels},queue="q",user="u",reason="why",state="{state}"}}'] = "1x60"
            series[f"torchx_app_{time}_timestamp_seconds{{{labels}}}"] = f"{at}x60"
    check_rules(
        parts,
        tmp_path,
        series,
        'alertname="TorchXAppFailed",app_id="new-FAILED"',
        'alertname="TorchXAppWaitsLong",app_id="old-PENDING"',
    )


def test_rules_of_a_fleet_that_is_not_read(parts: Path, tmp_path: Path) -> None:
    series = {"torchx_fleet_read_timestamp_seconds": "0x60", "torchx_fleet_broken_stacks": "2x60"}
    check_rules(parts, tmp_path, series, 'alertname="TorchXFleetNotRead"', 'alertname="TorchXStacksBroken"')
    check_rules(parts, tmp_path, {"up": "0x60"}, 'alertname="TorchXFleetAbsent"')


def test_rules_of_the_controller(parts: Path, tmp_path: Path) -> None:
    def series(*, leader: int, lag_s: int, problems: int, written: str) -> dict[str, str]:
        return {
            "torchx_fleet_read_timestamp_seconds": "0+60x60",
            'torchx_controller_leader{job="c",instance="1"}': "0x60",
            'torchx_controller_leader{job="c",instance="2"}': f"{leader}x60",
            'torchx_controller_watch_lag_seconds{job="c",cluster="k",kind="pods"}': f"{lag_s}x60",
            'torchx_controller_problems{job="c",instance="1"}': f"{problems}x60",
            'torchx_controller_failed_writes_total{backend="b"}': "0+1x60",
            'torchx_controller_stack_writes_total{backend="b",outcome="written"}': written,
        }

    check_rules(parts, tmp_path, series(leader=1, lag_s=0, problems=0, written="0+1x60"))
    check_rules(
        parts,
        tmp_path,
        series(leader=0, lag_s=300, problems=1, written="7x60"),
        'alertname="TorchXControllerProblems"',
        'alertname="TorchXControllerWithoutLeader"',
        'alertname="TorchXWatchLags",kind="pods"',
        'alertname="TorchXWritesFail"',
    )


def check_rules(parts: Path, folder: Path, series: Mapping[str, str], *fired: str) -> None:
    """Check by promtool which alerts fire, and that no other does.

    Args:
        parts: Folder of promtool.
        folder: Takes the file of the test.
        series: Name and labels to values, one a minute, in promtool's notation.
        fired: Labels of each alert that fires after 50 minutes.
    """
    asked = {
        "expr": 'count by (alertname, app_id, kind) (ALERTS{alertstate="firing"})',
        "eval_time": "50m",
        "exp_samples": [{"labels": f"{{{labels}}}", "value": 1} for labels in fired],
    }
    given = [{"series": name, "values": values} for name, values in series.items()]
    test = {"interval": "1m", "input_series": given, "promql_expr_test": [asked]}
    whole = {"rule_files": [str(EXAMPLES / "alerts.yaml")], "evaluation_interval": "1m", "tests": [test]}
    file = folder / "rules.yaml"
    file.write_text(yaml.safe_dump(whole))
    promtool(parts, "test", "rules", file)
