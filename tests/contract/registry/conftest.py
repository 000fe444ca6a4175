"""The registries that the contract is about: one in this process, Debian's docker-registry, and its successor.

All of them take tokens of a service whose policy the tests change.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from torchx_pulumi.images.reference import Reference, parse_reference
from torchx_pulumi.images.registry import RegistryClient

from tests.token_service import TokenPolicy, TokenService
from tests.unit.images.fake_registry import FakeRegistry

REAL = [pytest.param(part, marks=pytest.mark.e2e) for part in ("registry", "distribution")]


@dataclass(frozen=True)
class World:
    host: str
    policy: TokenPolicy
    pause: Callable[[float], None] = time.sleep
    """Waits before a request is sent again; there is nothing to wait for in the fake."""


@pytest.fixture(scope="module", params=["fake", *REAL])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    if request.param == "fake":
        with closing(FakeRegistry()) as fake:
            yield World(fake.host, fake.use_tokens(), pause=lambda _: None)
        return
    from tools.local_registry import LocalRegistry

    folder = tmp_path_factory.mktemp("registry")
    repositories = folder / "stored" / "docker" / "registry" / "v2" / "repositories"
    policy = TokenPolicy(("me", "right"), exists=lambda path: (repositories / path / "_manifests").exists())
    with (
        closing(TokenService(folder, policy)) as service,
        LocalRegistry(folder, token=service.auth, part=request.param) as real,
    ):
        yield World(real.address, policy)


@pytest.fixture
def policy(world: World) -> Iterator[TokenPolicy]:
    before = replace(world.policy)
    world.policy.asked.clear()
    yield world.policy
    vars(world.policy).update(vars(before))


@pytest.fixture
def client(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RegistryClient]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    secret = base64.b64encode(b"me:right").decode()
    (tmp_path / "config.json").write_text(json.dumps({"auths": {world.host: {"auth": secret}}}))
    with closing(RegistryClient(tries=2, first_wait_s=0, pause=world.pause)) as made:
        yield made


@pytest.fixture
def target(world: World, request: pytest.FixtureRequest) -> Reference:
    """A repository of the test's own."""
    return parse_reference(f"{world.host}/{request.node.name.translate(str.maketrans('_[]', '-/-')).rstrip('-')}:1")
