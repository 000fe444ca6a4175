"""Images for tests, put into a registry by its HTTP API, and what an independent client says of an image there."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest
import requests
from torchx_pulumi.images.oci import (
    DOCKER_CONFIG,
    DOCKER_INDEX,
    DOCKER_LAYER,
    DOCKER_MANIFEST,
    OCI_CONFIG,
    OCI_INDEX,
    OCI_LAYER,
    OCI_MANIFEST,
    sha256_digest,
)

from tools.images.oci import architecture
from tools.local_registry import PASSWORD, USER

TYPES = {
    "oci": (OCI_MANIFEST, OCI_CONFIG, OCI_LAYER, OCI_INDEX),
    "docker": (DOCKER_MANIFEST, DOCKER_CONFIG, DOCKER_LAYER, DOCKER_INDEX),
}
"""Media types of manifest, configuration, layer and index."""
LOGIN = (USER, PASSWORD)


def without_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Give this process no daemon, no credentials, and caches of the test's own; return the variables for others."""
    made = {
        "DOCKER_HOST": "unix:///nonexistent/docker.sock",
        "DOCKER_CONFIG": str(tmp_path / "docker"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    for name, value in made.items():
        monkeypatch.setenv(name, value)
    return made


def layer(files: Mapping[str, bytes]) -> bytes:
    """Return a tar of files."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for path, content in sorted(files.items()):
            info = tarfile.TarInfo(path)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return packed.getvalue()


def put_image(
    repository: str,
    tag: str | None,
    layers: Sequence[bytes],
    *,
    kind: str = "oci",
    processor: str | None = None,
    config: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Push an image; return its descriptor.

    Args:
        repository: Host, port and path.
        tag: Its tag. None: it has its digest only.
        layers: Tars, which are compressed.
        kind: A key of `TYPES`.
        processor: Its architecture. None: this machine's.
        config: What containers start with.
    """
    manifest_type, config_type, layer_type, _ = TYPES[kind]
    content = {
        "architecture": processor or architecture(),
        "os": "linux",
        "created": "2024-02-03T04:05:06Z",
        "config": {"Env": ["PATH=/bin"], "WorkingDir": "/app", **(config or {})},
        "rootfs": {"type": "layers", "diff_ids": [sha256_digest(each) for each in layers]},
        "history": [{"created_by": "a test"} for _ in layers],
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": manifest_type,
        "config": _put_blob(repository, json.dumps(content).encode(), config_type),
        "layers": [_put_blob(repository, gzip.compress(each, mtime=0), layer_type) for each in layers],
    }
    described = put_manifest(repository, tag, manifest, manifest_type)
    return {**described, "platform": {"os": "linux", "architecture": processor or architecture()}}


def put_index(repository: str, tag: str, manifests: Sequence[Mapping[str, Any]], *, kind: str = "oci") -> str:
    """Push an index of images; return its digest."""
    index = {"schemaVersion": 2, "mediaType": TYPES[kind][3], "manifests": list(manifests)}
    return str(put_manifest(repository, tag, index, TYPES[kind][3])["digest"])


def put_manifest(repository: str, tag: str | None, content: Mapping[str, Any], media_type: str) -> dict[str, Any]:
    """Push a manifest; return its descriptor."""
    data = json.dumps(content).encode()
    digest = sha256_digest(data)
    answer = _ask("PUT", repository, f"manifests/{tag or digest}", data=data, headers={"Content-Type": media_type})
    assert answer.status_code == 201, answer.text
    return {"mediaType": media_type, "digest": digest, "size": len(data)}


def _put_blob(repository: str, content: bytes, media_type: str) -> dict[str, Any]:
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    answer = _ask("POST", repository, f"blobs/uploads/?digest={digest}", data=b"")
    place = urljoin(answer.url, answer.headers["Location"])
    sign = "&" if "?" in place else "?"
    answer = requests.put(f"{place}{sign}digest={digest}", data=content, auth=LOGIN, timeout=60)
    assert answer.status_code == 201, answer.text
    return {"mediaType": media_type, "digest": digest, "size": len(content)}


def manifest_of(image: str) -> dict[str, Any]:
    """Return the manifest of an image by `repository:tag@digest` or `repository:tag`."""
    name, _, digest = image.partition("@")
    repository, _, tag = name.rpartition(":")
    answer = _ask("GET", repository, f"manifests/{digest or tag}", headers={"Accept": ", ".join(_READ)})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


_READ = [types[position] for types in TYPES.values() for position in (0, 3)]


def delete_image(image: str) -> None:
    """Delete the manifest of an image by `repository@digest`."""
    repository, _, digest = image.partition("@")
    answer = _ask("DELETE", repository, f"manifests/{digest}")
    assert answer.status_code == 202, answer.text


def _ask(method: str, repository: str, path: str, **options: Any) -> requests.Response:
    host, _, name = repository.partition("/")
    return requests.request(method, f"http://{host}/v2/{name}/{path}", auth=LOGIN, timeout=60, **options)


@cache
def crane_program() -> Path:
    """Return the program. Found once: a test may use another cache from then on."""
    from tools.bootstrap import ensure

    return ensure(["crane"])["crane"] / "crane"


def crane(*words: str) -> bytes:
    """Run crane; return what it printed."""
    done = subprocess.run([crane_program(), *words], capture_output=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def validated(image: str) -> dict[str, bytes]:
    """Have crane check all digests of an image, the uncompressed ones included; return its files.

    Args:
        image: Name with a digest or a tag.
    """
    crane("validate", "--remote", image)
    with tarfile.open(fileobj=io.BytesIO(crane("export", image, "-"))) as tar:
        found = [info for info in tar if info.isfile()]
        return {info.name: (tar.extractfile(info) or io.BytesIO()).read() for info in found}
