from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest

from tools.images import ImageError, add_layer, prepare, pytorch
from tools.images.debian_tree import pack
from tools.images.oci import LAYER, ImageConfig, ImageFolder, files_tar
from tools.images.storage import place_image


def entries(tar: bytes) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(tar)) as opened:
        return {member.name: member for member in opened.getmembers()}


def image(folder: Path) -> ImageFolder:
    made = ImageFolder(folder)
    layer = made.put(LAYER, files_tar({"/hello": b"hello"}))
    made.finish(ImageConfig(command=("/hello",), environment={"A": "b"}), [layer], [layer.digest], "x:1")
    return made


def test_the_same_files_give_the_same_layer(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"two")
    first = files_tar({"/x/a": b"one", "/x/b": tmp_path / "b"})
    second = files_tar({"/x/b": b"two", "/x/a": b"one"})
    assert first == second


def test_a_layer_has_folders_modes_and_links(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF")
    program.chmod(0o755)
    packed = files_tar(
        {"/app/bin/run": program, "/app/train.py": b"pass", "/app/go.sh": b"#!/bin/sh\n"},
        folders=("/scratch",),
        links={"/bin/sh": "busybox"},
    )
    found = entries(packed)
    assert found["app"].isdir()
    assert found["scratch"].mode == 0o1777
    assert found["app/bin/run"].mode == 0o755
    assert found["app/go.sh"].mode == 0o755
    assert found["app/train.py"].mode == 0o644
    assert found["bin/sh"].linkname == "busybox"
    assert all(member.uid == 0 and member.mtime == 0 for member in found.values())


@pytest.mark.parametrize("path", ["train.py", "/app/../etc/passwd"])
def test_a_path_that_is_not_absolute_is_refused(path: str) -> None:
    with pytest.raises(ImageError, match="must be absolute"):
        files_tar({path: b""})


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match=r"file for /app/x in the image: cannot read .*nowhere: No such file"):
        files_tar({"/app/x": tmp_path / "nowhere"})


def test_an_image_folder_holds_what_its_manifest_names(tmp_path: Path) -> None:
    made = image(tmp_path)
    config, layer = made.blobs()
    described = json.loads(made.blob(config).read_text())
    assert described["config"]["Cmd"] == ["/hello"]
    assert "A=b" in described["config"]["Env"]
    assert described["rootfs"]["diff_ids"] == [layer]
    assert made.blob(layer).is_file()


def test_a_placed_image_shares_its_blobs_with_the_cache_and_nothing_else(tmp_path: Path) -> None:
    made, storage = image(tmp_path / "cache"), tmp_path / "storage"
    place_image(made, storage, "team/x", "1")
    place_image(made, storage, "team/x", "1")
    digest = made.manifest.digest
    root = storage / "docker" / "registry" / "v2"
    current = root / "repositories" / "team" / "x" / "_manifests" / "tags" / "1" / "current" / "link"
    assert current.read_text() == digest
    value = digest.removeprefix("sha256:")
    blob = root / "blobs" / "sha256" / value[:2] / value / "data"
    assert blob.samefile(made.blob(digest))
    links = [path for path in storage.rglob("link") if path.stat().st_nlink > 1]
    assert links == []  # a registry writes to these


def test_an_unknown_image_is_refused_by_name() -> None:
    with pytest.raises(ImageError, match="image 'nosuch': there are busybox"):
        prepare("nosuch")


@pytest.mark.parametrize("reference", ["busybox", "localhost/busybox:1", "localhost:5000/busybox"])
def test_a_reference_without_host_port_or_tag_is_refused(reference: str) -> None:
    with pytest.raises(ImageError, match="must be host:port/name:tag"):
        add_layer(reference, {}, "localhost:5000/new:1")


def test_a_layer_is_not_pushed_to_another_registry() -> None:
    with pytest.raises(ImageError, match="must be on the same registry"):
        add_layer("localhost:5000/a:1", {}, "localhost:5001/a:2")


API = """\
        def to_std(v):
            v = int(v)
            for s in Std:
                if s == v:
                    return s
            # never reached
"""


def test_flags_of_torchrun_are_mended(tmp_path: Path) -> None:
    file = tmp_path / pytorch._API
    (file.parent / "__pycache__").mkdir(parents=True)
    stale = file.parent / "__pycache__" / "api.cpython-311.pyc"
    stale.touch()
    file.write_text(API)
    pytorch.mend(tmp_path)
    assert "            return Std(v)\n" in file.read_text()
    assert not stale.exists()
    with pytest.raises(ImageError, match=r"not as in PyTorch 1.13"):
        pytorch.mend(tmp_path)


def test_what_is_not_needed_is_left_out_of_the_image(tmp_path: Path) -> None:
    for kept in ("usr/bin/torchrun", "usr/lib/x86_64-linux-gnu/libtorch.so", "tmp/.keep"):
        (tmp_path / kept).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / kept).touch()
    for left_out in ("usr/share/doc/x/copyright", "var/lib/apt/lists/x", "usr/lib/x86_64-linux-gnu/dri/x.so"):
        (tmp_path / left_out).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / left_out).touch()
    packed = io.BytesIO()
    pack(tmp_path, pytorch.LEFT_OUT, packed)
    names = set(entries(packed.getvalue()))
    assert {"usr/bin/torchrun", "usr/lib/x86_64-linux-gnu/libtorch.so", "tmp", "usr/bin/python"} <= names
    assert not names & {"tmp/.keep", "usr/share/doc/x", "var/lib/apt/lists/x", "usr/lib/x86_64-linux-gnu/dri/x.so"}
