"""A launched app as a Pulumi program that goes on with it."""

from __future__ import annotations

import ast
import errno
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from torchx_pulumi.cli.main import EXIT_INVALID, main
from torchx_pulumi.inputs.appdef import read_app
from torchx_pulumi.inputs.appfile import read_app_file
from torchx_pulumi.model.app_entry import StackRef
from torchx_pulumi.runs.eject import next_steps, project_files
from torchx_pulumi.runs.index import RunIndex
from torchx_pulumi.torchx_adapter.app_json import write_app

from tests.parity.apps import CASES
from tests.unit.builders import run_entry

ENTRY = run_entry(
    app_id="ml:train-x1",
    place=StackRef(backend="file:///state", project="torchx", stack="ml.train-x1-abc"),
    queue="gold",
    app={
        "name": "train",
        "metadata": {},
        "roles": [
            {
                "name": "trainer",
                "image": "i",
                "entrypoint": "sh",
                "args": ["-c", "true"],
                "base_image": None,
                "workspace": None,
                "retry_policy": "APPLICATION",
                "resource": {"cpu": 1, "gpu": 0, "memMB": 2, "capabilities": {}, "devices": {}, "tags": {}},
                "mounts": [{"type": "bind", "src_path": "/a", "dst_path": "/b", "read_only": True}],
            }
        ],
    },
    options={"queue": "gold", "namespace": "ml", "labels": {"team": "vision"}},
)


def arguments_of(program: str) -> dict[str, object]:
    call = next(
        node
        for node in ast.walk(ast.parse(program))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "from_app"
    )
    return {word.arg or "": ast.literal_eval(word.value) for word in call.keywords}


def test_the_program_names_the_job_and_what_was_chosen() -> None:
    files = project_files(ENTRY)
    assert files["Pulumi.yaml"] == 'name: "torchx"\nruntime: python\n'
    assert arguments_of(files["__main__.py"]) == {
        "app_id": "train-x1", "namespace": "ml", "queue": "gold", "labels": {"team": "vision"},
    }  # fmt: skip
    assert next_steps(ENTRY.place, "there")[2] == "pulumi stack select ml.train-x1-abc"


def test_the_app_is_read_back_by_the_door_for_files(tmp_path: Path) -> None:
    path = tmp_path / "app.json"
    path.write_text(project_files(ENTRY)["app.json"])
    (role,) = read_app_file(path).roles
    assert (role.image, list(role.args), role.resource.memory_mb) == ("i", ["-c", "true"], 2)
    assert [(mount.kind, mount.src, mount.read_only) for mount in role.mounts] == [("bind", "/a", True)]
    assert json.loads(path.read_text())["name"] == "train"


def test_every_app_is_read_back_as_it_was_launched(tmp_path: Path) -> None:
    path = tmp_path / "app.json"
    for name, case in CASES.items():
        app = case.app()
        path.write_text(project_files(replace(ENTRY, app=write_app(app)))["app.json"])
        assert read_app_file(path) == read_app(app), name


def test_options_take_the_names_that_the_component_has() -> None:
    entry = replace(ENTRY, scheduler="mcad", queue=None, kube_context="far", options={"priority_class_name": "high"})
    program = project_files(entry)["__main__.py"]
    assert "MCADTrainingJob.from_app" in program
    assert arguments_of(program) == {
        "app_id": "train-x1", "namespace": "ml", "priority_class": "high", "kube_context": "far",
    }  # fmt: skip


def test_the_command_writes_the_project_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE", raising=False)
    monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE_FILE", raising=False)
    RunIndex().add(ENTRY)
    there = tmp_path / "over there"
    words = ["program", "pulumi_volcano://s/ml:train-x1", "--to", str(there)]
    assert main(words) == 0
    assert sorted(path.name for path in there.iterdir()) == ["Pulumi.yaml", "__main__.py", "app.json"]
    assert {path.stat().st_mode & 0o777 for path in there.iterdir()} == {0o600}
    passphrase = tmp_path / "state" / "torchx-pulumi" / "passphrase"
    steps = capsys.readouterr().out
    assert f"export PULUMI_CONFIG_PASSPHRASE_FILE={passphrase}\n" in steps
    assert f"cd '{there}'\n" in steps
    assert main(words) == EXIT_INVALID


def test_a_write_that_fails_midway_leaves_no_file_and_may_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    RunIndex().add(ENTRY)
    there = tmp_path / "there"
    words = ["program", "pulumi_volcano://s/ml:train-x1", "--to", str(there)]
    last = list(project_files(ENTRY))[-1]
    write_text = Path.write_text

    def fill(path: Path, text: str, encoding: str) -> None:
        write_text(path, text, encoding)
        if path.name == last:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as full:
        full.setattr(Path, "write_text", fill)
        assert main(words) == EXIT_INVALID
    assert f"{there} cannot be written: No space left on device" in capsys.readouterr().err
    assert list(there.iterdir()) == []
    assert main(words) == 0


@pytest.mark.parametrize("folder", ["", " "])
def test_a_folder_without_a_name_is_not_the_current_one(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    RunIndex().add(ENTRY)
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    assert main(["program", "pulumi_volcano://s/ml:train-x1", "--to", folder]) == EXIT_INVALID
    assert "--to: is empty; name a folder, or `.` for the current one" in capsys.readouterr().err
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("handle", ["train", "kubernetes://s/ml:train", "pulumi_mcad://x", "pulumi_mcad://s/"])
def test_what_is_no_handle_is_refused(handle: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["program", handle, "--to", str(tmp_path / "there")]) == EXIT_INVALID
    said = capsys.readouterr().err
    assert "must be pulumi_volcano://SESSION/NAMESPACE:NAME" in said


def test_an_app_that_nobody_knows_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert main(["program", "pulumi_volcano://s/ml:gone", "--to", str(tmp_path / "there")]) == EXIT_INVALID
    assert "ml:gone was not launched from this machine" in capsys.readouterr().err


@pytest.mark.parametrize("backend", ["postgres://me:hunter22@db/x", "postgres://me:***@db/x"])
def test_the_next_steps_show_no_password(backend: str) -> None:
    said = "\n".join(next_steps(replace(ENTRY.place, backend=backend), "folder"))
    assert "hunter22" not in said
    assert "export PULUMI_BACKEND_URL='postgres://me:***@db/x'" in said
    assert "pulumi login" not in said
    assert "pulumi login file:///state" in "\n".join(next_steps(ENTRY.place, "folder"))


def test_the_program_exports_what_torchx_and_the_fleet_read() -> None:
    program = project_files(ENTRY)["__main__.py"]
    assert "from torchx_pulumi_components import VolcanoTrainingJob, export_outputs\n" in program
    assert "\nexport_outputs(job)\n" in program


def test_the_program_keeps_the_archive_of_the_logs() -> None:
    program = project_files(replace(ENTRY, log_options={"log_archive": "s3://logs/x", "log_previous": True}))
    assert arguments_of(program["__main__.py"])["log_archive"] == "s3://logs/x"
