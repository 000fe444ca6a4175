"""The command `torchx-pulumi fleet`, and what this machine saw of the apps."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from torchx_pulumi.cli.main import main
from torchx_pulumi.runs.index import RunIndex

from tests.doc_blocks import commands
from tests.fleet.tracker.states import checkpoint, noted, output, saw, write_stack


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("PULUMI_BACKEND_URL", raising=False)


@pytest.fixture
def backend(tmp_path: Path) -> str:
    write_stack(tmp_path, "a", checkpoint(output("a"), entry=noted("a")))
    write_stack(tmp_path, "b", checkpoint(output("b", observed={"state": "FAILED"})))
    return f"file://{tmp_path}"


def test_every_view_is_printed(backend: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    for words, shown in (
        ([], "team:a"),
        (["--json"], '"app_id": "team:a"'),
        (["--prometheus"], 'torchx_fleet_apps{state="FAILED"} 1'),
        (["--html", "-"], "<!DOCTYPE html>"),
    ):
        assert main(["fleet", "--backend", backend, *words]) == 0
        assert shown in capsys.readouterr().out
    assert main(["fleet", "--backend", backend, "--html", str(page)]) == 0
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert [path.name for path in tmp_path.iterdir() if "page" in path.name] == ["page.html"]


EACH_VIEW = """
import sys
from torchx_pulumi.cli.main import main
backend, *views = sys.argv[1:]
errors = sys.stdout.errors
for view in views:
    sys.stdout.reconfigure(errors=errors)
    if code := main(["fleet", "--backend", backend, view]):
        sys.exit(f"{view}: {code}")
    print(end="\\x1e")
    if "rich" in sys.modules and view != "--offline":
        sys.exit(f"{view} loads the library of tables")
"""
"""Views of a fleet, each with a character behind it that is in none."""


@pytest.mark.parametrize("encoding", ["ascii", "utf-8:surrogateescape"])
def test_letters_that_the_output_cannot_encode_are_escaped_and_only_the_table_needs_its_library(
    encoding: str, tmp_path: Path
) -> None:
    write_stack(
        tmp_path, "a", checkpoint(output("a", observed={"message": "日本\ud800"}, declared={"created_by": "é"}))
    )
    views = ["--prometheus", "--json", "--html=-", "--offline"]
    done = subprocess.run(
        [sys.executable, "-c", EACH_VIEW, f"file://{tmp_path}", *views],
        env={**os.environ, "PYTHONIOENCODING": encoding, "COLUMNS": "60"},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert [b"team:a" in shown for shown in done.stdout.split(b"\x1e")] == [True] * len(views) + [False]


def test_the_commands_of_the_page_run(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PULUMI_BACKEND_URL", backend)
    monkeypatch.chdir(tmp_path)
    for line in commands("docs/fleet.md", "fleet"):
        assert main(shlex.split(line)[1:]) == 0
        assert "".join(capsys.readouterr())
    assert (tmp_path / "fleet.html").read_text().startswith("<!DOCTYPE html>")


def test_only_what_was_asked_for_is_printed(backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words, wanted in (
        (["--state", "failed"], {"team:b"}),
        (["--state", "active"], {"team:a"}),
        (["--state", "failed", "--state", "running"], {"team:a", "team:b"}),
        (["--user", "grace"], set()),
        (["--since", "1h"], set()),
    ):
        assert main(["fleet", "--backend", backend, "--json", *words]) == 0
        assert {app["app_id"] for app in json.loads(capsys.readouterr().out)["apps"]} == wanted


def test_a_filter_that_excludes_all_apps_is_told_from_no_apps(backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fleet", "--backend", backend, "--user", ""]) == 0
    assert capsys.readouterr().out == f"no apps in {backend} match: the filter excludes all 2\n"


def test_a_users_mistake_is_one_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, said in (
        (["--state", "sad", "--since", "soon"], "--since"),
        (["--backend", "file:///absent"], "no such folder"),
        (["--html", str(tmp_path / "absent" / "page.html")], "cannot be written"),
    ):
        assert main(["fleet", *words]) == 2
        printed = capsys.readouterr()
        assert said in printed.err
        assert not printed.out


def test_who_never_launched_anything_has_no_apps(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fleet"]) == 0
    assert "no apps in file://" in capsys.readouterr().out


def test_another_backend_is_asked_through_the_pulumi_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    exported = tmp_path / "exported.json"
    exported.write_text(json.dumps({"version": 3, "deployment": checkpoint(output("a"))["checkpoint"]["latest"]}))
    listed = json.dumps([{"name": "organization/torchx/good"}, {"name": "organization/torchx/bad"}])
    program = tmp_path / "pulumi"
    program.write_text(
        "#!/bin/sh\n"
        f"case \"$*\" in *'stack ls'*) echo '{listed}';;\n"
        f"*--stack\\ good*) /bin/cat {exported};; *) echo 'error: no access' >&2; exit 1;; esac\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["fleet", "--backend", "postgres://db/state", "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert [app["app_id"] for app in values["apps"]] == ["team:a"]
    (broken,) = values["broken"]
    assert (broken["stack"], "no access" in broken["why"]) == ("bad", True)
    monkeypatch.setenv("PATH", str(tmp_path / "absent"))
    assert main(["fleet", "--backend", "postgres://db/state"]) == 2
    assert "Pulumi CLI" in capsys.readouterr().err


PASSWORD = "p/w@hunter22"


def test_no_view_and_no_error_shows_the_password_of_a_backend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"postgres://me:{PASSWORD}@db/x?sslpassword=hunter23"
    program, given = tmp_path / "pulumi", tmp_path / "given"
    program.write_text(f"#!/bin/sh\necho $PULUMI_BACKEND_URL > {given}\necho '[]'\n")
    program.chmod(0o755)
    page = tmp_path / "page.html"
    monkeypatch.setenv("PATH", str(tmp_path))
    for words in ([], ["--json"], ["--prometheus"], ["--html", "-"], ["--html", str(page)]):
        assert main(["fleet", "--backend", url, *words]) == 0
        printed = "".join(capsys.readouterr())
        assert "hunter2" not in printed
        assert given.read_text().strip() == url
    assert "hunter2" not in page.read_text()
    program.write_text(f"""#!/bin/sh
echo 'error: parse "{url}": invalid port ":p" after host; hunter23' >&2; exit 1
""")
    monkeypatch.setenv("PULUMI_BACKEND_URL", url)
    assert main(["fleet"]) == 2
    printed = "".join(capsys.readouterr())
    assert "postgres://me:***@db/x" in printed
    assert "hunter2" not in printed


def test_what_this_machine_saw_later_is_shown(backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    seen = {"state": "SUCCEEDED", "reason": "Completed", "message": "", "observed_at": "2026-01-03T00:00:00Z"}
    saw(noted("a"), seen)
    assert main(["fleet", "--backend", backend, "--json", "--state", "succeeded"]) == 0
    (app,) = json.loads(capsys.readouterr().out)["apps"]
    assert (app["app_id"], app["reason"], app["source"]) == ("team:a", "Completed", "local")


def test_records_that_cannot_be_read_are_said_and_the_stacks_are_shown(
    backend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    saw(noted("a"), {"state": "RUNNING", "reason": "Running", "message": ""})
    for path in RunIndex().folder.rglob("*.json"):
        path.write_text("{")
    assert main(["fleet", "--backend", backend, "--json"]) == 0
    printed = capsys.readouterr()
    assert "warning" in printed.err
    assert len(json.loads(printed.out)["apps"]) == 2
