from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from torchx.runner import Runner
from torchx.runner.config import load

from tests.doc_blocks import block
from tests.unit.torchx_adapter.run_options import run_options

from .conftest import World, app

PAGE = Path(__file__).resolve().parents[3] / "docs" / "torchx-users.md"


def test_the_page_for_torchx_users_names_every_option_and_no_other() -> None:
    known = {name for kind in ("volcano", "mcad") for name, _ in run_options(kind)}
    tables = [line for line in PAGE.read_text().splitlines() if line.startswith(("| `", "| Volc"))]
    tables += [line for line in PAGE.read_text().splitlines() if line.startswith("| MCAD: `")]
    named = {word for line in tables for word in re.findall(r"`(\w+)`", line.split("|")[1])}
    assert known <= named
    assert not {word for word in named - known if "_" in word}


def test_the_section_of_the_page_on_logs_is_read() -> None:
    options = run_options("volcano")
    launch = options.cfg_from_str("queue=default")
    load("pulumi_volcano", io.StringIO(block("docs/logs.md", "torchxconfig")), launch)
    resolved = options.resolve(launch)
    assert (resolved["log_containers"], resolved["log_timestamps"]) == (["trainer-0", "sidecar"], False)


def test_the_program_of_the_page_launches_what_it_changed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = world.scheduler()
    monkeypatch.setattr(
        "torchx.runner.get_runner", lambda: Runner("docs", {"pulumi_volcano": lambda *_, **__: scheduler})
    )
    monkeypatch.setattr(Runner, "wait", lambda runner, handle: runner.status(handle))
    names = {"app": app()}
    exec(block("docs/torchx-users.md", "program"), names)
    job = world.head(str(names["handle"]).rpartition("/")[2])
    assert job is not None
    assert job["metadata"]["labels"]["team"] == "a"
    assert job["spec"]["tasks"][0]["template"]["spec"]["nodeSelector"] == {"pool": "a"}
    assert names["status"] is not None
