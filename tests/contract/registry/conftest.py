"""The two registries that the contract is about: one in this process, and Debian's docker-registry."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from torchx_pulumi.images.reference import Reference, parse_reference
from torchx_pulumi.images.registry import RegistryClient

from tests.unit.images.fake_registry import FakeRegistry


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))


@pytest.fixture(scope="module", params=["fake", pytest.param("real", marks=pytest.mark.e2e)])
def host(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if request.param == "real":
        from tools.local_registry import LocalRegistry

        with LocalRegistry(tmp_path_factory.mktemp("registry")) as real:
            yield real.address
        return
    fake = FakeRegistry()
    yield fake.host
    fake.close()


@pytest.fixture
def client() -> Iterator[RegistryClient]:
    made = RegistryClient(tries=2, first_wait_s=0)
    yield made
    made.close()


@pytest.fixture
def target(host: str, request: pytest.FixtureRequest) -> Reference:
    """A repository of the test's own."""
    return parse_reference(f"{host}/{request.node.originalname.replace('_', '-')}:1")
