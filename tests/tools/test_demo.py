"""The demo, as far as it needs no cluster: one at a time, and clear words when it cannot begin."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tools.demo.__main__ import main
from tools.demo.errors import DemoError
from tools.demo.pulumi_cli import ROOT, PulumiCli
from tools.demo.running import alone, explain_how_to_look
from tools.demo.target import Target, made_meanwhile


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "absent"))
    monkeypatch.setattr("signal.signal", lambda *_: None)
    return tmp_path


def test_a_second_demo_is_told_to_wait(capsys: pytest.CaptureFixture[str]) -> None:
    with alone():
        assert main([]) == 1
    assert capsys.readouterr().err == "demo: error: another demo of yours is running; wait for its end\n"
    with alone():
        pass


def test_an_unknown_cluster_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--cluster", "elsewhere"])
    assert caught.value.code == 2
    assert "'local', 'current'" in capsys.readouterr().err


def test_a_shell_that_looks_around_has_the_commands_of_this_checkout(tmp_path: Path) -> None:
    pulumi = PulumiCli(tmp_path, {"PATH": "/parts"}, None)
    assert pulumi.shell_settings["PATH"].split(":") == [str(ROOT / ".venv" / "bin"), "/parts"]


def test_what_is_left_running_is_explained_with_an_image_that_can_be_pulled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = Target(image="registry:5000/torchx-demo:1", jobs=(), create_namespace=True)
    explain_how_to_look(PulumiCli(tmp_path, {}, None), target)
    said = capsys.readouterr().out
    assert "Image that its pods can pull: registry:5000/torchx-demo:1" in said
    assert f"source {tmp_path}/env.sh" in said


def test_an_image_that_is_made_meanwhile_ends_with_what_it_is_beside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = tmp_path / "started"
    maker = tmp_path / "python"
    maker.write_text(f"#!/bin/sh\necho $$ $* > {started}\nexec sleep 600\n")
    maker.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(maker))
    with made_meanwhile("pytorch"):
        while not (started.exists() and started.read_text().endswith("\n")):
            time.sleep(0.01)
        pid, _, words = started.read_text().strip().partition(" ")
        assert Path("/proc", pid).exists()
    assert words == "-m tools.images pytorch"
    assert not Path("/proc", pid).exists()


def test_commands_name_the_provider_once_and_fail_loudly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fake = tmp_path / "bin" / "pulumi"
    fake.parent.mkdir()
    lines = "Kubernetes provider: a stand-in for the official one, version 4"
    fake.write_text(f"#!/bin/sh\necho '{lines}'\necho made\ntest $1 != down\n")
    fake.chmod(0o755)
    pulumi = PulumiCli(tmp_path / "demo", {"PATH": f"{fake.parent}:/usr/bin:/bin"}, None)
    pulumi.project.mkdir(parents=True)
    pulumi.run("up")
    with pytest.raises(DemoError, match="exited with 1"):
        pulumi.run("down")
    said = capsys.readouterr().out
    assert (said.count("pulumi | made"), "stand-in" in said) == (2, False)
