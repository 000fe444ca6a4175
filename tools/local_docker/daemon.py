"""Starts dockerd from Debian's package in a folder of its own, and ends it with all that it started."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Final

START_S: Final = 60.0
"""Seconds until the daemon must answer."""
STOP_S: Final = 30.0
"""Seconds that the daemon may take to end by itself."""


class LocalDockerError(Exception):
    """The daemon cannot be started on this machine."""


def running_host() -> str | None:
    """Return DOCKER_HOST's value for a daemon that runs on this machine already. None: there is none."""
    host = os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
    return host if _answers(host) else None


class LocalDocker:
    """One private daemon."""

    def __init__(self, folder: Path) -> None:
        """Use a folder, whose path must be short: sockets lie in it."""
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def host(self) -> str:
        """Value of DOCKER_HOST for clients."""
        return f"unix://{self._folder / 'docker.sock'}"

    def start(self) -> None:
        """Start the daemon and wait until it answers.

        Raises:
            LocalDockerError: It cannot be had, or does not come up; the end of its log is in the message.
        """
        if os.geteuid() != 0:
            raise LocalDockerError("dockerd needs root: run as root, or start Docker yourself")
        programs = _programs()
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        command = [
            *("dockerd", "--host", self.host, "--data-root", str(self._folder / "data")),
            *("--exec-root", str(self._folder / "exec"), "--pidfile", str(self._folder / "pid")),
            *("--config-file", str(self._configuration())),
            *("--exec-opt", "native.cgroupdriver=cgroupfs", "--cgroup-parent", "/torchx-pulumi-docker"),
            *("--bridge", "none", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false"),
        ]
        path = os.pathsep.join([*programs, os.environ.get("PATH", os.defpath)])
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PATH": path},
                start_new_session=True,
            )
        deadline = time.monotonic() + START_S
        while not _answers(self.host):
            if self._process.poll() is not None or time.monotonic() > deadline:
                tail = "\n".join((self._folder / "log").read_text(errors="replace").splitlines()[-12:])
                self.stop()
                raise LocalDockerError(f"dockerd did not come up; the end of its log:\n{tail}")
            time.sleep(0.1)

    def stop(self) -> None:
        """End the daemon and what it started. Its images stay in the folder."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(STOP_S)
        self._process = None

    def remove(self) -> None:
        """Stop, and remove the folder with all images."""
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _configuration(self) -> Path:
        # An empty file of our own: the machine's /etc/docker/daemon.json is meant for another daemon.
        file = self._folder / "daemon.json"
        file.write_text("{}")
        return file


def _programs() -> list[str]:
    from tools.bootstrap import BootstrapError, ensure

    try:
        # dockerd starts a containerd of its own, which it finds on PATH.
        found = ensure(["dockerd", "containerd"])
    except BootstrapError as error:
        raise LocalDockerError(f"dockerd cannot be had: {error}") from error
    return [str(folder) for folder in found.values()]


def _answers(host: str) -> bool:
    scheme, _, path = host.partition("://")
    if scheme != "unix":
        return False  # a daemon elsewhere cannot push to a registry on this machine's loopback
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(10.0)
        try:
            probe.connect(path)
            probe.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
            return b" 200 " in probe.recv(64)
        except OSError:
            return False
