"""Layers: the same bytes everywhere, and not read again without need."""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import zlib
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.images.content.files import Entry, LocalSource
from torchx_pulumi.images.content.hashing import cache_folder, hash_files
from torchx_pulumi.images.content.tree import read_tree
from torchx_pulumi.images.layers import layer as layers
from torchx_pulumi.images.oci import Blob, LayeredImage
from torchx_pulumi.model.errors import ImageError

from tests.unit.images.layers.images import build, make_base

TEXT = "FROM base\nCOPY . .\nADD train.py /opt/"


@pytest.fixture
def files(workspace: Path) -> Path:
    """Return a workspace whose content never changes."""
    (workspace / "src").mkdir()
    (workspace / "src" / "big.bin").write_bytes(bytes(range(256)) * 1000)
    (workspace / "src" / ("x" * 120)).write_text("long name")
    (workspace / "run.sh").write_text("run")
    (workspace / "run.sh").chmod(0o755)
    (workspace / "link").symlink_to("src")
    return workspace


def layer_of(image: LayeredImage) -> Blob:
    return image.new_blobs[0]


def content_of(blob: Blob) -> bytes:
    return b"".join(blob.read())


def test_the_digest_of_a_workspace_is_the_same_everywhere(files: Path) -> None:
    image = build(files, TEXT, make_base())
    assert layer_of(image).digest == "sha256:b9bafedfb0e6c7f4062ce6854bce6eb2567fb1861e34dd3c614e5bfe5dde7e79"
    assert image.manifest.digest == "sha256:ac022174309a4809f7cdbccb8ad91fcb3a745d89e9388d3cb0d541da9eec16a4"


def test_times_permissions_and_order_do_not_matter(files: Path, tmp_path: Path) -> None:
    wanted = build(files, TEXT, make_base()).manifest.digest
    other = tmp_path / "other"
    other.mkdir(mode=0o700)
    for path in sorted(files.rglob("*"), reverse=True):
        copy = other / path.relative_to(files)
        copy.parent.mkdir(exist_ok=True, mode=0o711)
        if path.is_symlink():
            copy.symlink_to(path.readlink())
        elif path.is_file():
            copy.write_bytes(path.read_bytes())
            copy.chmod(0o500 if os.access(path, os.X_OK) and path.name == "run.sh" else 0o400)
            os.utime(copy, (1, 2))
    assert build(other, TEXT, make_base()).manifest.digest == wanted


def test_the_stream_is_gzip_and_what_the_digests_say(files: Path) -> None:
    blob = layer_of(build(files, TEXT, make_base()))
    content = content_of(blob)
    assert len(content) == blob.size
    assert f"sha256:{hashlib.sha256(content).hexdigest()}" == blob.digest
    assert isinstance(blob, layers.Layer)
    assert f"sha256:{hashlib.sha256(gzip.decompress(content)).hexdigest()}" == blob.diff_id
    assert all(len(piece) <= 1 << 20 for piece in blob.read())


def test_zlib_is_used_for_a_checksum_only(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("compress", "compressobj", "decompress", "decompressobj"):
        monkeypatch.setattr(zlib, name, None)
    assert content_of(layer_of(build(files, TEXT, make_base())))


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the paths of the files that are opened from now on."""
    really, paths = LocalSource.open, list[str]()

    def note(source: LocalSource, path: str) -> Any:
        paths.append(path)
        return really(source, path)

    monkeypatch.setattr(LocalSource, "open", note)
    return paths


def test_a_known_layer_is_not_read_again(files: Path, opened: list[str]) -> None:
    first = build(files, TEXT, make_base())
    assert {"train.py", "src/big.bin"} <= set(opened)
    entries = hash_files(read_tree(str(files)).entries)
    opened.clear()
    again = build(files, TEXT, make_base(), entries=entries)
    assert opened == []
    assert again.manifest == first.manifest


@pytest.mark.parametrize("damage", ["", "{", '{"digest": "x"}', "[]"])
def test_a_damaged_cache_is_ignored(files: Path, damage: str) -> None:
    wanted = build(files, TEXT, make_base()).manifest
    caches = list(cache_folder().with_name("layers").iterdir())
    assert len(caches) == 2
    for file in caches:
        file.write_text(damage)
    assert build(files, TEXT, make_base()).manifest == wanted


def test_without_a_cache_folder_all_is_read(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = build(files, TEXT, make_base()).manifest
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert build(files, TEXT, make_base()).manifest == wanted


@pytest.fixture
def changed(files: Path) -> list[Entry]:
    """Return hashed entries of files that are other ones by now."""
    return hash_files(read_tree(str(files)).entries)


@pytest.mark.parametrize("content", ["print('two')\n", "", "print('one')\n and more"])
def test_a_file_that_changes_is_an_error(files: Path, changed: list[Entry], content: str) -> None:
    (files / "train.py").write_text(content)
    with pytest.raises(ImageError, match=r"line 2: COPY: 'train\.py': changed after it was hashed"):
        build(files, TEXT, make_base(), entries=changed)


def test_a_file_that_is_gone_is_an_error(files: Path, changed: list[Entry]) -> None:
    (files / "train.py").unlink()
    with pytest.raises(ImageError, match=r"'train\.py': can no longer be read"):
        build(files, TEXT, make_base(), entries=changed)


def test_a_file_that_changes_before_the_push_is_an_error(files: Path) -> None:
    blob = layer_of(build(files, TEXT, make_base()))
    (files / "train.py").write_text("print('two')\n")
    with pytest.raises(ImageError, match="changed after it was hashed"):
        content_of(blob)


def test_a_cache_with_another_digest_is_ignored(files: Path) -> None:
    wanted = build(files, TEXT, make_base()).manifest
    for cache in cache_folder().with_name("layers").iterdir():
        cache.write_text(re.sub("sha256:[0-9a-f]{64}", f"sha256:{'0' * 64}", cache.read_text()))
    assert build(files, TEXT, make_base()).manifest == wanted
