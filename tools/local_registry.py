"""An image registry in a folder of its own, for tests and benchmarks: Debian's docker-registry, or its successor."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

USER: Final = "me"
PASSWORD: Final = "right"  # noqa: S105  of registries of tests
_HASH: Final = "$2b$05$abcdefghijklmnopqrstuu8xaCxxL82bnl.UY74PMksDxIJShppPC"
"""The password, by bcrypt."""
_LISTENING: Final = re.compile(r"listening on ([\d.]+:\d+)")
_REQUEST: Final = re.compile(r'"([A-Z]+) (/v2/\S*) HTTP/1.1" (\d+) \d+ "[^"]*" "([^"]*)"')
_START_S: Final = 30.0


@cache
def registry_program(part: str = "registry") -> Path:
    """Return the program of a part. Found once: a test may use another cache from then on."""
    from tools.bootstrap import ensure

    return ensure([part])[part] / {"registry": "docker-registry"}.get(part, part)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedRequest:
    """A request that a registry answered."""

    method: str
    path: str
    """With the query."""
    status: int
    agent: str
    """The client, as its header says."""


class LocalRegistry:
    """A registry that serves http. Its content and its address stay the same when it is started again."""

    def __init__(
        self,
        folder: Path,
        *,
        host: str = "127.0.0.1",
        login: bool = False,
        token: Mapping[str, str] | None = None,
        storage: Path | None = None,
        part: str = "registry",
    ) -> None:
        """Use a folder.

        Args:
            folder: Folder for the configuration and the log; made if it is absent.
            host: Address on which it listens.
            login: Requests need `USER` and `PASSWORD`.
            token: Requests need a token; this is the registry's configuration of its service. None: they need none.
            storage: Folder of the content. None: a folder below `folder`.
            part: `registry` or `distribution`.
        """
        self.storage = storage or folder / "stored"
        self.address = f"{host}:0"
        """Host and port, once it was started."""
        self._folder, self._part = folder, part
        realm = {"htpasswd": {"realm": "test", "path": str(folder / "htpasswd")}} if login else {}
        self._auth = {"token": dict(token)} if token else realm
        self._process: subprocess.Popen[bytes] | None = None
        self._starts = 0

    def __enter__(self) -> LocalRegistry:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def log(self) -> Path:
        """File with the messages and the requests since the last start."""
        return self._folder / f"registry-{self._starts}.log"

    def start(self) -> None:
        """Start the registry and wait until it listens.

        Raises:
            RuntimeError: It ended, or does not listen in time. The message has its log.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / "htpasswd").write_text(f"{USER}:{_HASH}\n")
        (self._folder / "registry.yml").write_text(json.dumps(self._configuration()))  # JSON is YAML
        self._starts += 1
        with self.log.open("wb") as log:
            command = [str(registry_program(self._part)), "serve", str(self._folder / "registry.yml")]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + _START_S
        while (found := _LISTENING.search(self.log.read_text())) is None:
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"the registry does not listen: {self.log.read_text()}")
            time.sleep(0.02)
        self.address = found[1]

    def stop(self) -> None:
        """End the registry. The content stays."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(30)
            self._process = None

    def requests(self) -> list[LoggedRequest]:
        """Return all requests since the last start, in the order of their ends."""
        found = _REQUEST.findall(self.log.read_text())
        return [
            LoggedRequest(method=method, path=path, status=int(status), agent=agent)
            for method, path, status, agent in found
        ]

    def _configuration(self) -> dict[str, Any]:
        return {
            "version": "0.1",
            "log": {"level": "info", "formatter": "text"},
            "storage": {"filesystem": {"rootdirectory": str(self.storage)}, "delete": {"enabled": True}},
            # The secret signs the state of an upload, which outlives a restart.
            "http": {"addr": self.address, "secret": "of-a-test"},
            **({"auth": self._auth} if self._auth else {}),
        }
