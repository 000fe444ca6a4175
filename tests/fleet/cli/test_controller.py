"""The command `torchx-pulumi controller`: what it refuses before it starts, all at once."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from torchx_pulumi.cli.main import main
from torchx_pulumi.kube.kinds import LEASE
from torchx_pulumi.model.errors import TorchxPulumiError
from torchx_pulumi_fleet.tracker.reporting import Reporter
from torchx_pulumi_fleet.writer import ControllerSettings
from torchx_pulumi_fleet.writer.checks import check_settings

from tests.fakes import FakeCluster, FakeDriver

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: here
contexts: [{{name: here, context: {{cluster: c, user: u}}}}]
clusters: [{{name: c, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
users: [{{name: u, user: {{token: t}}}}]
"""


def test_all_problems_are_said_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    config = tmp_path / "config"
    config.write_text(KUBECONFIG.format(port=1))
    words = [
        *("--backend", "https://api.pulumi.com", "--backend", "postgres://me:hunter2@db/state"),
        *("--backend", f"file://{tmp_path}/absent", "--kubeconfig", str(config), "--context", "there"),
    ]
    assert main(["controller", *words]) == 2
    said = capsys.readouterr().err
    assert "the controller cannot start: 4 problems:" in said
    for part in ("https://api.pulumi.com", "postgres://me:***@db/state", "/absent", "--context", "here"):
        assert part in said
    assert "hunter2" not in said
    assert "Traceback" not in said
    assert said.count("give --listen [HOST:]PORT, and page, API and metrics show how their jobs stand now") == 2


def test_a_lease_is_checked_before_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    config = tmp_path / "config"
    config.write_text(KUBECONFIG.format(port=1))
    for word in ("", "Ops/lease", "ops/", "a/b/c", "no_name"):
        assert main(["controller", "--kubeconfig", str(config), "--once", "--lease", word]) == 2
        said = capsys.readouterr().err
        assert "2 problems" in said
        assert f"--lease: found {word!r}, allowed is [NAMESPACE/]NAME" in said
        assert "--once" in said
    denied = FakeCluster(denied=[("get", LEASE)], namespace="ops")
    monkeypatch.setattr("torchx_pulumi.kube.KubernetesCluster.connect", lambda *_: denied)
    assert main(["controller", "--lease", "controller"]) == 2
    said = capsys.readouterr().err
    assert "1 problem" in said
    assert "--lease ops/controller: " in said
    assert "leases.coordination.k8s.io" in said


def test_a_signal_ends_it_while_the_cluster_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("PULUMI_BACKEND_URL", raising=False)
    config = tmp_path / "config"
    config.write_text(KUBECONFIG.format(port=1))
    before = signal.getsignal(signal.SIGTERM)
    parts, ended_at = [], []
    over = threading.Event()

    def end_when_it_watches() -> None:
        late = time.monotonic() + 240
        while "watching stopped" not in "".join(parts) and time.monotonic() < late:
            if over.wait(0.05):
                return  # the signal would end the tests
            parts.append(capsys.readouterr().err)
        ended_at.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=end_when_it_watches)
    thread.start()
    words = ["controller", "--kubeconfig", str(config)]
    try:
        assert main(words, make_driver=lambda: FakeDriver(FakeCluster())) == 0
    finally:
        over.set()
        thread.join()
    assert time.monotonic() - ended_at[0] < 5
    said = "".join(parts) + capsys.readouterr().err
    assert "0 apps in 0 stacks of file://" in said
    assert said.count("watching stopped and goes on when the cluster answers") == 1
    assert said.rstrip().endswith("stopped")
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_signal_ends_it_while_a_backend_that_is_checked_does_not_answer(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(60)
        backend = f"s3://bucket?endpoint=http://127.0.0.1:{silent.getsockname()[1]}&region=here&s3ForcePathStyle=true"
        config = tmp_path / "config"
        config.write_text(KUBECONFIG.format(port=1))
        keys = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "XDG_STATE_HOME": str(tmp_path)}
        words = [sys.executable, "-m", "torchx_pulumi_stacks.console", "controller", "--kubeconfig", str(config)]
        process = subprocess.Popen([*words, "--backend", backend], env={**os.environ, **keys})
        try:
            asked, _ = silent.accept()
            with asked:
                process.terminate()
                assert process.wait(5) == 0
        finally:
            process.kill()
            process.wait()


def test_empty_options_are_no_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    config = tmp_path / "config"
    config.write_text(KUBECONFIG.format(port=1))
    words = ["--backend", "", "--context", " ", "--namespace", "", "--namespace", "A/../b", "--kubeconfig", str(config)]
    assert main(["controller", *words]) == 2
    said = capsys.readouterr().err
    for part in ("--backend: is empty", "--context: is empty", "--namespace: found ''", "--namespace: found 'A/../b'"):
        assert part in said


def test_problems_of_the_page_are_said_with_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    config = tmp_path / "config"
    config.write_text(KUBECONFIG.format(port=1))
    words = ["controller", "--kubeconfig", str(config)]
    assert main([*words, "--context", "there", "--listen", "0.0.0.0:0", "--once"]) == 2
    said = capsys.readouterr().err
    assert "3 problems" in said
    for part in ("--listen: with --once there is nothing to serve", "needs --token-file FILE", "--context"):
        assert part in said
    # The port is released when something else is wrong. Other tests use 127.0.0.1.
    with socket.create_server(("127.0.0.7", 0)) as free:
        port = free.getsockname()[1]
    assert main([*words, "--context", "there", "--listen", f"127.0.0.7:{port}"]) == 2
    socket.create_server(("127.0.0.7", port)).close()


def test_lines_are_dropped_where_stderr_is_closed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.stderr", None)
    Reporter().line("nobody reads this")
    with (tmp_path / "log").open("w") as file:
        monkeypatch.setattr("sys.stderr", file)
    Reporter().line("nobody reads this")


def test_a_start_without_a_backend_that_is_away_if_another_one_answers(
    tmp_path: Path, unreadable: Callable[[Path, int], None]
) -> None:
    there, away, cluster = f"file://{tmp_path}/there", f"file://{tmp_path}/away", FakeCluster()
    (tmp_path / "there/.pulumi").mkdir(parents=True)
    settings = ControllerSettings(backends=(away, there))
    assert list(check_settings(settings, lambda *_: cluster).values()) == [cluster]
    with pytest.raises(TorchxPulumiError, match="is not there, so its stacks are unknown"):
        check_settings(replace(settings, backends=(away,)), lambda *_: cluster)
    with pytest.raises(TorchxPulumiError, match=r"2 problems:(.|\n)*only the Pulumi CLI(.|\n)*is not there"):
        check_settings(replace(settings, backends=(away, "postgres://db/state")), lambda *_: cluster)
    unreadable(tmp_path / "away", errno.EACCES)
    with pytest.raises(TorchxPulumiError, match="this user has no permission"):
        check_settings(settings, lambda *_: cluster)
