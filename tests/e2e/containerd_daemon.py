"""A private containerd for e2e tests: what a node makes of an image's layers, without a kubelet and without pods."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path

from torchx_pulumi.images.oci import Manifest

from tools.bootstrap import ensure

START_S = 60.0
SNAPSHOTTER = "overlayfs"
"""What a node uses by default."""
NAME = "example.com/case:1"
CONFIGURATION = """\
version = 2
root = "{folder}/root"
state = "{folder}/state"
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.internal.v1.opt"]
[grpc]
  address = "{folder}/s"
[debug]
  level = "warn"
"""


class LocalContainerd:
    """One containerd with its own storage."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._programs = folder, ensure(["containerd"])["containerd"]
        (folder / "config.toml").write_text(CONFIGURATION.format(folder=folder))
        with (folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [self._programs / "containerd", "--config", folder / "config.toml"], stdout=log, stderr=log
            )
        deadline = time.monotonic() + START_S
        while subprocess.run(self._command("version"), capture_output=True).returncode:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"containerd did not come up: {(folder / 'log').read_text()}")
            time.sleep(0.05)

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(30)

    def _command(self, *words: str) -> list[str]:
        return [str(self._programs / "ctr"), "--address", str(self._folder / "s"), "--namespace", "test", *words]

    def _run(self, *words: str) -> None:
        done = subprocess.run(self._command(*words), capture_output=True, text=True)
        assert done.returncode == 0, f"ctr {' '.join(words)}: {done.stdout}{done.stderr}"

    @contextlib.contextmanager
    def mounted(self, manifest: Manifest, blobs: Mapping[str, bytes]) -> Iterator[Path]:
        """Yield the files of an image, unpacked and mounted as for a container."""
        image = self._folder / "image.tar"
        write_layout(image, manifest, blobs)
        root = self._folder / "mounted"
        root.mkdir(exist_ok=True)
        self._run("image", "import", "--snapshotter", SNAPSHOTTER, str(image))
        try:
            self._run("image", "mount", "--snapshotter", SNAPSHOTTER, NAME, str(root))
            try:
                yield root
            finally:
                self._run("image", "unmount", "--rm", "--snapshotter", SNAPSHOTTER, str(root))
        finally:
            # Otherwise the next image could lose layers to the collection of this one.
            self._run("image", "rm", "--sync", NAME)


def write_layout(file: Path, manifest: Manifest, blobs: Mapping[str, bytes]) -> None:
    """Write an image as an archive of an OCI layout."""
    descriptor = {
        "mediaType": manifest.media_type,
        "digest": manifest.digest,
        "size": len(manifest.content),
        "annotations": {"io.containerd.image.name": NAME},
    }
    files = {
        "oci-layout": b'{"imageLayoutVersion":"1.0.0"}',
        "index.json": json.dumps({"schemaVersion": 2, "manifests": [descriptor]}).encode(),
    }
    for digest, content in {**blobs, manifest.digest: manifest.content}.items():
        files[f"blobs/{digest.replace(':', '/')}"] = content
    with tarfile.open(file, "w") as archive:
        for path, content in files.items():
            info = tarfile.TarInfo(path)
            info.size = len(content)
            archive.addfile(info, BytesIO(content))


@contextlib.contextmanager
def containerd() -> Iterator[LocalContainerd]:
    """Yield a containerd whose storage is removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="txc-"))
    try:
        made = LocalContainerd(folder)
        try:
            yield made
        finally:
            made.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=os.geteuid() != 0)
