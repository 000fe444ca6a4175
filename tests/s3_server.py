"""A real S3 server over a folder, and what Pulumi and s3fs need to find it."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

BUCKET = "state"
READY_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Backend:
    """A Pulumi backend in a bucket of the test's own."""

    url: str
    """URL of the Pulumi backend."""
    endpoint: str
    """URL of the server."""
    env: Mapping[str, str]
    """Credentials and region, for the environment of whoever uses the backend."""
    bucket: Path
    """Folder in which the server keeps the objects of the bucket, each in a file of its key."""


@contextlib.contextmanager
def serve_s3(program: Path, folder: Path, host: str = "127.0.0.1") -> Iterator[S3Backend]:
    """Run the server on a folder, with one bucket; it has ended when the block ends.

    Args:
        program: The executable `versitygw`.
        folder: Where it keeps its objects; made if it is absent.
        host: Address that it listens on; pods of the local cluster reach the one of its bridge, `settings.gateway`.
    """
    bucket = folder / "objects" / BUCKET
    for each in (bucket, folder / "metadata"):
        each.mkdir(parents=True)
    port = _free_port(host)
    endpoint = f"http://{host}:{port}"
    keys = {"AWS_ACCESS_KEY_ID": "tester", "AWS_SECRET_ACCESS_KEY": "not-a-secret-of-anything"}
    words = [program, "--port", f"{host}:{port}", "--health", "/health", "--quiet", "posix"]
    given = {"ROOT_ACCESS_KEY": keys["AWS_ACCESS_KEY_ID"], "ROOT_SECRET_KEY": keys["AWS_SECRET_ACCESS_KEY"]}
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            [*words, "--sidecar", str(folder / "metadata"), str(folder / "objects")],
            env={"PATH": os.defpath, **given},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            _wait(server, endpoint, folder / "log")
            query = f"endpoint={endpoint}&s3ForcePathStyle=true&region=us-east-1&disableSSL=true"
            yield S3Backend(
                url=f"s3://{BUCKET}?{query}",
                endpoint=endpoint,
                env={**keys, "AWS_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true"},
                bucket=bucket,
            )
        finally:
            server.terminate()
            server.wait(timeout=30)


def _free_port(host: str) -> int:
    with socket.create_server((host, 0)) as listener:
        return int(listener.getsockname()[1])


def _wait(server: subprocess.Popen[bytes], endpoint: str, log: Path) -> None:
    end = time.monotonic() + READY_TIMEOUT_S
    while True:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{endpoint}/health", timeout=5):
            return
        if server.poll() is not None or time.monotonic() > end:
            raise AssertionError(f"the S3 server does not answer: {log.read_text(errors='replace')}")
        time.sleep(0.05)
