"""Workspaces behind URLs: they are read as folders are, and as they are now."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from torchx_pulumi.images.content.archive import stream
from torchx_pulumi.images.content.hashing import hash_files
from torchx_pulumi.images.content.tree import read_tree
from torchx_pulumi.model.errors import ImageError

from .test_content import archive, fill, paths


def test_a_url_is_read_as_a_folder_is(workspace: Path) -> None:
    fill(workspace, {"sub/b.py": b"b", ".dockerignore": b"*.log", "x.log": b"x"})
    memory = fsspec.filesystem("memory")
    memory.put(f"{workspace}/", "/project", recursive=True)
    try:
        tree, here = read_tree("memory://project"), read_tree(str(workspace))
        assert paths(tree) == paths(here)
        assert archive(tree) == archive(here)
        assert archive(read_tree(f"file://{workspace}")) == archive(here)
    finally:
        memory.rm("/project", recursive=True)


class ListingStore(MemoryFileSystem):  # type: ignore[misc]  # fsspec has no types
    """A store that, as those of S3 and of others, keeps its listings and reads as many bytes as they say."""

    protocol = "listing"
    cachable = True

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.removeprefix("listing:/")))

    def ls(self, path: str, detail: bool = True, **_: Any) -> Any:
        path = self._strip_protocol(path)
        if path not in self.dircache:
            self.dircache[path] = super().ls(path, detail=True)
        return self.dircache[path] if detail else [each["name"] for each in self.dircache[path]]

    def info(self, path: str, **_: Any) -> Any:
        path = self._strip_protocol(path)
        listed = self.dircache.get(self._parent(path), [])
        return next((each for each in listed if each["name"] == path), None) or super().info(path)

    def _open(self, path: str, mode: str = "rb", **_: Any) -> Any:
        size = self.info(path)["size"]
        with super()._open(path, mode) as file:
            return BytesIO(file.read()[:size])

    def invalidate_cache(self, path: str | None = None) -> None:
        self.dircache.clear()
        super().invalidate_cache(path)


@pytest.fixture
def listing_store() -> Iterator[MemoryFileSystem]:
    fsspec.register_implementation("listing", ListingStore, clobber=True)
    memory = MemoryFileSystem()
    memory.pipe({"/code/train.py": b"one", "/code/gone.py": b"gone"})
    yield memory
    memory.rm("/code", recursive=True)
    ListingStore.clear_instance_cache()


def test_a_url_that_changed_is_read_again_by_the_next_plan(listing_store: MemoryFileSystem) -> None:
    assert paths(read_tree("listing://code")) == ["gone.py", "train.py"]
    listing_store.rm("/code/gone.py")
    listing_store.pipe({"/code/train.py": b"one and two", "/code/new.py": b"new"})
    tree = read_tree("listing://code")
    assert paths(tree) == ["new.py", "train.py"]
    with tarfile.open(fileobj=BytesIO(archive(tree))) as read:
        file = read.extractfile("train.py")
        assert file is not None
        assert file.read() == b"one and two"


@pytest.mark.parametrize("hashed", [False, True])
def test_a_file_of_a_url_that_grows_after_the_walk_is_refused(listing_store: MemoryFileSystem, hashed: bool) -> None:
    tree = read_tree("listing://code")
    entries = hash_files(tree.entries) if hashed else []
    listing_store.pipe({"/code/train.py": b"one and two"})
    with pytest.raises(ImageError, match=r"'train.py': changed (while it was read|after it was hashed)"):
        b"".join(stream(entries or hash_files(tree.entries)))
