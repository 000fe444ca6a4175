"""Puts a prepared image into the storage folder of a docker-registry that is not running, or is.

The folder's format is that of distribution's filesystem driver, version 2. Blobs are hard links to the cache, which
is safe since a registry never writes to a blob that it has; the small files that name them are our own.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tools.images.oci import ImageFolder


def place_image(image: ImageFolder, storage: Path, repository: str, tag: str) -> None:
    """Make `repository:tag` of a registry's storage folder this image."""
    root = storage / "docker" / "registry" / "v2"
    here = root / "repositories" / repository
    manifest = image.manifest.digest
    for digest in (manifest, *image.blobs()):
        _link_blob(image.blob(digest), root / "blobs" / _parts(digest, spread=True) / "data")
    for digest in image.blobs():
        _write_link(here / "_layers" / _parts(digest), digest)
    manifests = here / "_manifests"
    _write_link(manifests / "revisions" / _parts(manifest), manifest)
    _write_link(manifests / "tags" / tag / "index" / _parts(manifest), manifest)
    _write_link(manifests / "tags" / tag / "current", manifest)


def _parts(digest: str, *, spread: bool = False) -> Path:
    algorithm, value = digest.split(":", 1)
    return Path(algorithm, value[:2], value) if spread else Path(algorithm, value)


def _link_blob(source: Path, target: Path) -> None:
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:  # the cache is on another file system
        shutil.copyfile(source, target)


def _write_link(folder: Path, digest: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "link.new").write_text(digest)
    (folder / "link.new").rename(folder / "link")
