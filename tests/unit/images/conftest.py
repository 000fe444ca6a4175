"""A registry of the test's own, caches in its folder, and no configuration of Docker's but what a test writes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from torchx_pulumi.images.registry import RegistryClient

from tests.unit.images.fake_docker import FakeDocker
from tests.unit.images.fake_registry import FakeRegistry


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no.sock")


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    made = FakeRegistry()
    yield made
    made.close()


@pytest.fixture
def waits() -> list[float]:
    """How long a client paused, each time."""
    return []


@pytest.fixture
def client(waits: list[float]) -> Iterator[RegistryClient]:
    with closing(RegistryClient(pause=waits.append)) as made:
        yield made


@pytest.fixture
def docker() -> FakeDocker:
    return FakeDocker()


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    (folder / "train.py").write_text("print('one')\n")
    return folder
