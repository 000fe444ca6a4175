"""The examples of dashboards ask for metrics and labels that are there, and their programs run."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
import yaml
from torchx_pulumi.stack_state.stacks import StackName
from torchx_pulumi_fleet.tracker.live_fleet import LiveFleet
from torchx_pulumi_fleet.views.prometheus import to_prometheus
from torchx_pulumi_fleet.views.row import Fleet, build_row
from torchx_pulumi_fleet.web.metrics import ControllerMetrics
from torchx_pulumi_fleet.writer.controller import WatchState

from tests.fleet.tracker.states import checkpoint, output, write_stack
from tests.fleet.web.measured import Told
from tests.fleet.writer.live_apps import app_of, tracked_app

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples" / "dashboards"
ENDED = {"state": "FAILED", "finished_at": "2026-01-02T11:58:00Z"}
NOW = datetime(2026, 1, 2, 12, tzinfo=timezone.utc)


def offered_by_the_command() -> dict[str, set[str]]:
    """Metric to its labels, of an app of which everything is known, in `torchx-pulumi fleet --prometheus`."""
    row = build_row(app_of(output(observed=ENDED), StackName(project="torchx", stack="s")), NOW)
    return labels_in(to_prometheus(Fleet(backend="file:///b", read_at=NOW, rows=[row])))


def offered() -> dict[str, set[str]]:
    """The same of a controller of two backends, with the labels that Prometheus adds."""
    fleet, watch = LiveFleet(), WatchState(cluster="c", kind="pods", namespace=None, lag_s=0.0)
    told = Told(states=[watch], writes={("file:///b", "written"): 1})
    metrics = ControllerMetrics(fleet, told, backends=("file:///a", "file:///b"), now=lambda: NOW)
    fleet.put_stack(tracked_app("a", observed=ENDED))
    return {name: {*labels, "job", "instance"} for name, labels in labels_in(metrics.render()[0].decode()).items()}


def labels_in(text: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name = re.split(r"[{ ]", line)[0]
            found.setdefault(name, set()).update(re.findall(r'(\w+)="', line))
    return found


def rules(*groups: str) -> Iterator[str]:
    for group in yaml.safe_load((EXAMPLES / "alerts.yaml").read_text())["groups"]:
        yield from (rule["expr"] for rule in group["rules"] if not groups or group["name"] in groups)


def expressions() -> Iterator[str]:
    dashboard = json.loads((EXAMPLES / "grafana.json").read_text())
    for panel in dashboard["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))
    yield from (item["definition"] for item in dashboard["templating"]["list"] if "definition" in item)
    yield from rules()


@pytest.mark.parametrize("expression", sorted(set(expressions())))
def test_dashboard_and_rules_ask_for_what_is_offered(expression: str) -> None:
    metrics = offered()
    names = set(re.findall(r"\b(?:torchx|process)_\w+", expression))
    assert names
    assert names <= metrics.keys()
    for name, body in re.findall(r"\b(torchx_\w+)\{([^}]*)\}", expression):
        assert set(re.findall(r"(\w+)=~?\"", body)) <= metrics[name]
    known = set[str]().union(*(metrics[name] for name in names))
    for clause in re.findall(r"(?:on|by|group_left) \(([^)]*)\)", expression):
        assert {label.strip() for label in clause.split(",") if label} <= known


@pytest.mark.parametrize("expression", [*rules("torchx")])
def test_rules_of_apps_need_no_controller(expression: str) -> None:
    assert set(re.findall(r"\btorchx_\w+", expression)) <= offered_by_the_command().keys()


def test_the_scrape_example_keeps_the_labels_of_apps() -> None:
    config = yaml.safe_load((EXAMPLES / "prometheus.yaml").read_text())
    assert all((EXAMPLES / file).exists() for file in config["rule_files"])
    (scrape,) = config["scrape_configs"]
    # The label `namespace` of an app would otherwise become `exported_namespace`, which no query has.
    assert scrape["honor_labels"] is True


def test_every_panel_has_a_place_of_its_own() -> None:
    panels = json.loads((EXAMPLES / "grafana.json").read_text())["panels"]
    places: set[tuple[int, int]] = set()
    for panel in panels:
        at: dict[str, int] = panel["gridPos"]
        mine = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not mine & places
        assert at["x"] + at["w"] <= 24
        places |= mine
    assert len({panel["id"] for panel in panels}) == len(panels)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Environment with our command on PATH, and a `pulumi` that prints the outputs of a failed job."""
    programs = tmp_path / "bin"
    programs.mkdir()
    diagnosis = {"reason": "ExitCode", "summary": "trainer-0 ended with 3", "detail": "", "resolution": "mend it"}
    torchx = output(observed={"state": "FAILED", "reason": "ExitCode", "diagnoses": [{**diagnosis, "objects": []}]})
    flat = {"app_id": torchx["app"]["id"], "state": "FAILED", "reason": "ExitCode", "log_command": "kubectl logs"}
    (tmp_path / "outputs.json").write_text(json.dumps({"torchx": torchx, **flat}))
    for name, body in (
        (
            "torchx-pulumi",
            f'exec {sys.executable} -c "from torchx_pulumi.cli.main import main; exit(main())" "$@"',
        ),
        ("pulumi", f"exec cat {tmp_path / 'outputs.json'}"),
    ):
        (programs / name).write_text(f"#!/bin/sh\n{body}\n")
        (programs / name).chmod(0o755)
    python_path = os.pathsep.join([str(ROOT / "sdk"), os.environ.get("PYTHONPATH", "")])
    return {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": python_path,
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }


def run(environment: dict[str, str], *words: Any, given: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        list(map(str, words)), env=environment, capture_output=True, text=True, check=False, input=given, timeout=60
    )


def test_the_textfile_is_put_in_place_whole(environment: dict[str, str], tmp_path: Path) -> None:
    write_stack(tmp_path, "a", checkpoint(output("a")))
    folder = tmp_path / "textfile"
    folder.mkdir()
    script = EXAMPLES / "textfile.sh"
    done = run(environment, script, folder, "--backend", f"file://{tmp_path}")
    assert done.returncode == 0, done.stderr
    text = (folder / "torchx.prom").read_text()
    assert 'torchx_fleet_apps{state="RUNNING"} 1' in text
    assert run(environment, script, folder, "--backend", "file:///absent").returncode != 0
    assert [path.name for path in folder.iterdir()] == ["torchx.prom"]
    assert (folder / "torchx.prom").read_text() == text


def test_the_outputs_are_read_by_python(environment: dict[str, str], tmp_path: Path) -> None:
    done = run(environment, sys.executable, EXAMPLES / "outputs.py", given=(tmp_path / "outputs.json").read_text())
    assert done.returncode == 1, done.stderr
    assert "team:train-x1: FAILED, ExitCode" in done.stdout
    assert "do: mend it" in done.stdout


@pytest.mark.skipif(shutil.which("jq") is None, reason="this machine has no jq")
def test_the_outputs_are_read_by_a_shell(environment: dict[str, str]) -> None:
    done = run(environment, EXAMPLES / "outputs.sh", "dev")
    assert done.returncode == 1, done.stderr
    assert "team:train-x1: FAILED, ExitCode" in done.stdout
    assert "do: mend it" in done.stdout
    assert "trainer: 1 RUNNING, 1 PENDING" in done.stdout
