"""Asks the Kubernetes provider on PATH for its version, as Pulumi's engine does."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import threading

from torchx_pulumi.model.errors import TorchxPulumiError

EXECUTABLE = "pulumi-resource-kubernetes"
_METHOD = "/pulumirpc.ResourceProvider/GetPluginInfo"


def provider_on_path(*, timeout_s: float = 4.0) -> str | None:
    """Start the provider on PATH, return its version, and end it. None: PATH has none.

    Args:
        timeout_s: Time limit of the start, and of the answer.

    Raises:
        TorchxPulumiError: It does not start or does not answer in time.
    """
    program = shutil.which(EXECUTABLE)
    if program is None:
        return None
    try:
        process = subprocess.Popen(
            [program], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise TorchxPulumiError(f"{program} does not start: {error.strerror}; install the provider again") from error
    end_late = threading.Timer(timeout_s, _end, [process])
    end_late.start()
    with process:
        try:
            port = process.stdout.readline().strip() if process.stdout else ""
            version = _ask(port, timeout_s) if port.isdecimal() else None
        finally:
            end_late.cancel()
            end_late.join()
            _end(process)
    if version is None:
        raise TorchxPulumiError(f"{program} does not answer as a Pulumi provider; install the provider again")
    return version


def _ask(port: str, timeout_s: float) -> str | None:
    import grpc
    from google.protobuf.empty_pb2 import Empty  # type: ignore[import-untyped]
    from google.protobuf.wrappers_pb2 import StringValue  # type: ignore[import-untyped]

    # The answer, a PluginInfo, has the version as its first field, as a StringValue has its text.
    with grpc.insecure_channel(f"127.0.0.1:{port}", [("grpc.enable_http_proxy", 0)]) as channel:
        ask = channel.unary_unary(_METHOD, Empty.SerializeToString, StringValue.FromString)
        try:
            return str(ask(Empty(), timeout=timeout_s).value)
        except grpc.RpcError:
            return None


def _end(process: subprocess.Popen[str]) -> None:
    # A wrapper on PATH may have started the provider in its place. PermissionError: macOS, of a group that has ended.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
