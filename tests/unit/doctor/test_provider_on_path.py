"""A provider on PATH says its version to the doctor, and is not left behind."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import psutil
import pytest
from torchx_pulumi.doctor.machine import EXECUTABLE, provider_on_path
from torchx_pulumi.model.errors import TorchxPulumiError

SERVES = """
import sys, threading
from concurrent import futures
import grpc
from pulumi.runtime.proto import plugin_pb2, provider_pb2_grpc

class Provider(provider_pb2_grpc.ResourceProviderServicer):
    def GetPluginInfo(self, request, context):
        return plugin_pb2.PluginInfo(version="4.33.0-alpha.1+x")

server = grpc.server(futures.ThreadPoolExecutor(max_workers=1))
provider_pb2_grpc.add_ResourceProviderServicer_to_server(Provider(), server)
print(server.add_insecure_port("127.0.0.1:0"), flush=True)
server.start()
threading.Event().wait()
"""


@pytest.fixture
def on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The program on PATH, to be written: a child of it is seen by the folder in its command line."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    program = tmp_path / EXECUTABLE
    program.touch(0o755)
    return program


def left_behind(program: Path) -> list[str]:
    """Return the command lines of processes that stay; a killed one is listed until its parent has seen its end."""
    late = time.monotonic() + 10
    while time.monotonic() < late:
        lines = (" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"]))
        found = [line for line in lines if str(program.parent) in line]
        if not found:
            return []
        time.sleep(0.05)
    return found


def test_the_version_is_that_of_get_plugin_info(on_path: Path) -> None:
    (on_path.parent / "serves.py").write_text(SERVES)
    # A wrapper that does not hand its process over.
    on_path.write_text(f"#!/bin/sh\n'{sys.executable}' '{on_path.parent}/serves.py' \"$@\"\nexit $?\n")
    assert provider_on_path(timeout_s=30) == "4.33.0-alpha.1+x"
    assert left_behind(on_path) == []


@pytest.mark.parametrize(
    "words", ["sleep 60", "echo 1; sleep 60", "echo hello", "exit 3"], ids=["silent", "no-port", "no-number", "ends"]
)
def test_a_program_that_is_no_provider_is_named_and_ended(on_path: Path, words: str) -> None:
    on_path.write_text(f"#!/bin/sh\n{words} # {on_path}\n")
    with pytest.raises(TorchxPulumiError, match=f"{on_path} does not answer as a Pulumi provider; install"):
        provider_on_path(timeout_s=1)
    assert left_behind(on_path) == []


def test_without_a_provider_on_path_and_with_one_that_cannot_start(on_path: Path) -> None:
    on_path.write_text("#!/no/such/interpreter\n")
    with pytest.raises(TorchxPulumiError, match="does not start: No such file or directory; install"):
        provider_on_path()
    on_path.unlink()
    assert provider_on_path() is None
