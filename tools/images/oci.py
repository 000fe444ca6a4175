"""Images as data, in the OCI format: layers, configuration, manifest, and the folder that holds them.

Nothing here knows what is in an image or where it goes.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

from tools.images.errors import ImageError

MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
CONFIG: Final = "application/vnd.oci.image.config.v1+json"
LAYER: Final = "application/vnd.oci.image.layer.v1.tar"
ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
_TAG: Final = "org.opencontainers.image.ref.name"


@dataclass(frozen=True, slots=True, kw_only=True)
class Descriptor:
    """What names a blob."""

    media_type: str
    """What it is."""
    digest: str
    """`sha256:` and the hex digest of its bytes."""
    size_bytes: int
    """Its length."""

    def as_json(self) -> dict[str, Any]:
        """Return it as manifests spell it."""
        return {"mediaType": self.media_type, "digest": self.digest, "size": self.size_bytes}


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageConfig:
    """How a container of the image starts."""

    command: tuple[str, ...]
    """Default command."""
    entrypoint: tuple[str, ...] = ()
    """Put before the command."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables."""


class ImageFolder:
    """An OCI image layout with one image in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        """Where it is."""

    def blob(self, digest: str) -> Path:
        """Return the file of a blob."""
        return self.folder / "blobs" / Path(*digest.split(":", 1))

    @property
    def manifest(self) -> Descriptor:
        """The image's manifest."""
        one = json.loads((self.folder / "index.json").read_text("utf-8"))["manifests"][0]
        return Descriptor(media_type=one["mediaType"], digest=one["digest"], size_bytes=one["size"])

    def blobs(self) -> list[str]:
        """Return the digests of the configuration and of all layers."""
        manifest = json.loads(self.blob(self.manifest.digest).read_text("utf-8"))
        return [manifest["config"]["digest"], *(layer["digest"] for layer in manifest["layers"])]

    def put(self, media_type: str, content: bytes) -> Descriptor:
        """Store a blob and return its name."""
        return self.adopt(media_type, content=lambda file: file.write(content))

    def adopt(self, media_type: str, *, content: Callable[[IO[bytes]], object]) -> Descriptor:
        """Store what `content` writes, which may be large, and return its name."""
        blobs = self.folder / "blobs" / "sha256"
        blobs.mkdir(parents=True, exist_ok=True)
        with (blobs / "new").open("w+b") as file:
            content(file)
            size = file.seek(0, io.SEEK_END)
            file.seek(0)
            digest = hashlib.sha256()
            while chunk := file.read(1 << 20):
                digest.update(chunk)
        (blobs / "new").rename(blobs / digest.hexdigest())
        return Descriptor(media_type=media_type, digest=f"sha256:{digest.hexdigest()}", size_bytes=size)

    def finish(self, config: ImageConfig, layers: list[Descriptor], diff_ids: list[str], tag: str) -> None:
        """Write configuration, manifest and index: the image is complete with that."""
        described = self.put(CONFIG, _bytes(_config_json(config, diff_ids)))
        manifest = self.put(MANIFEST, _bytes(manifest_json(described, layers)))
        index = {"schemaVersion": 2, "manifests": [{**manifest.as_json(), "annotations": {_TAG: tag}}]}
        (self.folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}\n')
        (self.folder / "index.json").write_text(json.dumps(index) + "\n")


def manifest_json(config: Descriptor, layers: Iterable[Descriptor]) -> dict[str, Any]:
    """Return a manifest."""
    return {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": config.as_json(),
        "layers": [layer.as_json() for layer in layers],
    }


def files_tar(
    files: Mapping[str, bytes | Path], *, folders: Iterable[str] = (), links: Mapping[str, str] | None = None
) -> bytes:
    """Pack files into a tar whose bytes depend on nothing else than what is given.

    Args:
        files: content, or a file to take it from, by absolute path in the image. What is executable on disk stays so;
            bytes that begin with `#!` become executable.
        folders: absolute paths of empty folders, writable by everyone.
        links: targets of symbolic links by absolute path.

    Returns:
        The tar. Folders that lead to a file are in it.

    Raises:
        ImageError: a path is not absolute, or a file is not there.
    """
    packed, made = io.BytesIO(), set[str]()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(folders):
            _add_parents(tar, path, made)
            made.add(path)
            tar.addfile(_entry(path, tarfile.DIRTYPE, 0o1777))
        for path, source in sorted(files.items()):
            _add_parents(tar, path, made)
            content, mode = _read(path, source)
            entry = _entry(path, tarfile.REGTYPE, mode)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
        for path, target in sorted((links or {}).items()):
            _add_parents(tar, path, made)
            entry = _entry(path, tarfile.SYMTYPE, 0o777)
            entry.linkname = target
            tar.addfile(entry)
    return packed.getvalue()


def _read(path: str, source: bytes | Path) -> tuple[bytes, int]:
    if isinstance(source, bytes):
        return source, 0o755 if source.startswith(b"#!") else 0o644
    try:
        return source.read_bytes(), 0o755 if source.stat().st_mode & 0o100 else 0o644
    except OSError as error:
        raise ImageError(f"file for {path} in the image: cannot read {source}: {error.strerror}") from error


def _add_parents(tar: tarfile.TarFile, path: str, made: set[str]) -> None:
    if not path.startswith("/") or ".." in path.split("/"):
        raise ImageError(f"path in the image {path!r}: must be absolute and without `..`")
    for parent in reversed(Path(path).parents[:-1]):
        if str(parent) not in made:
            made.add(str(parent))
            tar.addfile(_entry(str(parent), tarfile.DIRTYPE, 0o755))


def _entry(path: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(path.lstrip("/"))
    entry.type, entry.mode = kind, mode
    return entry


def _config_json(config: ImageConfig, diff_ids: list[str]) -> dict[str, Any]:
    environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", **config.environment}
    started: dict[str, Any] = {"Cmd": list(config.command), "Env": [f"{k}={v}" for k, v in environment.items()]}
    if config.entrypoint:
        started["Entrypoint"] = list(config.entrypoint)
    return {
        "architecture": architecture(),
        "os": "linux",
        "config": started,
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
        "history": [{"created_by": "tools/images"} for _ in diff_ids],
    }


def architecture() -> str:
    """Return this machine's architecture as images spell it."""
    return ARCHITECTURES.get(platform.machine(), platform.machine())


def _bytes(content: dict[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True).encode()
