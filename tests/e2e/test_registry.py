"""Pushes to Debian's registry through a network that fails, and of processes that are killed; crane checks them."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from torchx_pulumi.images.oci import LayeredImage
from torchx_pulumi.images.reference import Reference, parse_reference
from torchx_pulumi.images.registry import RegistryClient, push_image
from torchx_pulumi.model.errors import ImageError

from tests.e2e.fault_proxy import Fault, FaultProxy, Passing, fault_proxy
from tests.layered_images import image_of, layer
from tools.local_registry import LocalRegistry

pytestmark = pytest.mark.e2e

SHORT = 1 << 21
"""Bytes of a layer where many pushes are made."""
KILLS = int(os.environ.get("TORCHX_PULUMI_PUSH_KILLS", "16"))
"""Points at which a push is killed, half of them behind a proxy that forwards whole requests."""
CUTS = int(os.environ.get("TORCHX_PULUMI_PUSH_CUTS", "3"))


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalRegistry]:
    with LocalRegistry(tmp_path_factory.mktemp("registry")) as made:
        yield made


@pytest.fixture
def proxy(real: LocalRegistry) -> Iterator[FaultProxy]:
    with fault_proxy(real.address) as made:
        yield made


@pytest.fixture
def nginx(real: LocalRegistry) -> Iterator[FaultProxy]:
    """A proxy that forwards whole requests only."""
    with fault_proxy(real.address, buffered=True) as made:
        yield made


@pytest.fixture
def client() -> Iterator[RegistryClient]:
    made = RegistryClient(tries=5, first_wait_s=0.01)
    yield made
    made.close()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A repository of the test's own."""
    return str(request.node.name).translate(str.maketrans("_[]", "-/-")).rstrip("-").lower()


def silent(_: str) -> None:
    """Say nothing."""


def validate(real: LocalRegistry, target: Reference) -> bool:
    """Return whether crane takes the image for whole."""
    from tools.bootstrap import ensure

    image = f"{real.address}/{target.path}:{target.version}"
    command = [ensure(["crane"])["crane"] / "crane", "validate", "--remote", image]
    return subprocess.run(command, capture_output=True, timeout=120, check=False).returncode == 0


def has_tag(real: LocalRegistry, target: Reference) -> bool:
    direct = RegistryClient(tries=1)
    try:
        return direct.digest(parse_reference(f"{real.address}/{target.path}:{target.version}")) is not None
    finally:
        direct.close()


@pytest.mark.counted
def test_connections_that_are_cut_at_random_bytes_do_not_end_a_push(
    real: LocalRegistry, proxy: FaultProxy, client: RegistryClient, name: str
) -> None:
    chance = random.Random(4711)
    base = parse_reference(f"{proxy.host}/{name}/base:1")
    large, small = layer(SHORT + 700_000, 1), layer(300_000, 2)
    push_image(client, image_of([large, small]), base, progress=silent)
    other = FaultProxy(real.address)
    try:
        for number in range(CUTS):
            faults = [
                Fault(cut_request=chance.randrange(300_000)),
                Fault(cut_answer=chance.randrange(SHORT)),
                Fault(status=503),
                Fault(status=429, headers={"Retry-After": "0"}),
                Fault(lose_answer=True),
                Fault(delay_s=0.05),
            ]
            chance.shuffle(faults)
            every = chance.choice((2, 3, 5))

            def decide(passing: Passing, faults: list[Fault] = faults, every: int = every) -> Fault | None:
                return faults.pop() if faults and passing.number % every == 0 else None

            # Another host: the layers of the base are copied, not mounted.
            target = parse_reference(f"{other.host}/{name}/{number}:1")
            image = image_of([layer(400_000, 10 + number)], base, [large, small])
            proxy.forget()
            other.forget()
            proxy.fault = other.fault = decide
            assert push_image(client, image, target, progress=silent) == image.manifest.digest
            assert len(faults) < 6
            assert validate(real, target)
    finally:
        other.close()


def test_layers_of_a_base_in_the_same_registry_are_mounted_and_not_sent(
    real: LocalRegistry, proxy: FaultProxy, client: RegistryClient, name: str
) -> None:
    base, first = parse_reference(f"{proxy.host}/{name}/base:1"), layer(SHORT, 1)
    push_image(client, image_of([first]), base, progress=silent)
    proxy.forget()
    image = image_of([layer(1000, 2)], base, [first])
    target = parse_reference(f"{proxy.host}/{name}/app:1")
    assert push_image(client, image, target, progress=silent) == image.manifest.digest
    assert proxy.sent + proxy.received < 20_000
    assert validate(real, target)


def test_a_registry_that_goes_down_in_the_middle_is_told_and_the_next_attempt_sends_the_rest(
    real: LocalRegistry, proxy: FaultProxy, name: str
) -> None:
    small, large = layer(1000, 2), layer(48_000_000, 1)
    client, image = RegistryClient(tries=2, first_wait_s=0), image_of([large, small])
    target = parse_reference(f"{proxy.host}/{name}:1")
    proxy.after_bytes = 24_000_000
    with pytest.raises(ImageError, match=r"cannot be reached.*Nothing refers to what was pushed") as caught:
        push_image(client, image, target, progress=silent)
    assert caught.value.retryable
    assert not has_tag(real, target)
    proxy.forget()
    assert push_image(client, image, target, progress=silent) == image.manifest.digest
    # The small blobs had arrived as a whole.
    assert proxy.sent == large[0].size + len(image.manifest.content)
    assert validate(real, target)
    client.close()


PUSH = """
import os
from torchx_pulumi.images.reference import parse_reference
from torchx_pulumi.images.registry import RegistryClient, push_image
from tests.e2e.test_registry import killed_image

image = killed_image()
while line := os.read(0, 1000):
    host, path = line.decode().split()
    pid = os.fork()
    if not pid:
        os.write(1, f"{os.getpid()}\\n".encode())
        os.read(0, 1)
        push_image(RegistryClient(), image, parse_reference(f"{host}/{path}:1"), progress=lambda line: None)
        os._exit(0)
    os.write(1, f"{os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}\\n".encode())
"""


def killed_image() -> LayeredImage:
    """Return the image that killed processes push: one large layer and three small ones."""
    return image_of([layer(2 * SHORT + SHORT // 4, 1), layer(SHORT // 2, 2), layer(300_000, 3), layer(10_000, 4)])


def confirmed_bytes(requests: list[Passing]) -> int:
    """Return the bytes of blobs that must not be sent again: the registry has confirmed them."""
    return sum(each.length for each in requests if "/uploads/" in each.path and each.status == 201)


class Pusher:
    """Makes processes that push an image. Each waits until it is told to begin."""

    def __init__(self) -> None:
        root = Path(__file__).parents[2]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(root), str(root / "sdk")))}
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([sys.executable, "-c", PUSH], stdin=pipe, stdout=pipe, env=env, bufsize=0)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._to, self._from = self.process.stdin, self.process.stdout

    def make(self, target: Reference) -> int:
        """Return the id of a process that will push to a repository."""
        self._to.write(f"{target.registry} {target.path}\n".encode())
        return int(self._from.readline())

    def run(self) -> int:
        """Let it begin; return its exit code."""
        self._to.write(b"!")
        return int(self._from.readline())

    def close(self) -> None:
        self._to.close()
        self._from.close()
        assert self.process.wait(30) == 0


@pytest.fixture
def pusher() -> Iterator[Pusher]:
    made = Pusher()
    yield made
    made.close()


@pytest.mark.counted
@pytest.mark.parametrize("way", ["direct", "buffered"])
def test_a_push_may_be_killed_at_any_point(
    real: LocalRegistry, proxy: FaultProxy, nginx: FaultProxy, name: str, way: str, pusher: Pusher
) -> None:
    before = proxy if way == "direct" else nginx
    image, client = killed_image(), RegistryClient()
    push_image(client, image, parse_reference(f"{before.host}/{name}/whole:1"), progress=silent)
    client.close()
    requests, total, points = len(before.requests), before.sent, -(-KILLS // 4)
    limits = [(1 + (total - 1) * number // points, None) for number in range(points)]
    limits += [(None, 1 + (requests - 1) * number // points) for number in range(points)]
    kept = 0
    for number, (after_bytes, after_requests) in enumerate(limits):
        target = parse_reference(f"{before.host}/{name}/{number}:1")
        pid = pusher.make(target)
        before.forget()
        before.after_bytes, before.after_requests = after_bytes, after_requests
        before.then = lambda pid=pid: os.kill(pid, signal.SIGKILL)  # type: ignore[misc]
        assert pusher.run() == -signal.SIGKILL
        before.settle()  # of the connections of this process none is open
        assert not has_tag(real, target) or validate(real, target)
        confirmed = confirmed_bytes(before.requests)
        kept += confirmed > 0
        before.forget()
        assert push_image(client, image, target, progress=silent) == image.manifest.digest
        assert validate(real, target)
        assert before.sent <= total - confirmed
        client.close()
    assert kept


def test_a_tag_that_exists_is_not_moved_by_a_push_of_a_digest(
    real: LocalRegistry, client: RegistryClient, name: str
) -> None:
    first, second = image_of([layer(1000, 1)]), image_of([layer(1000, 2)])
    target = parse_reference(f"{real.address}/{name}:1")
    push_image(client, first, target, progress=silent)
    named = replace(target, tag=None, digest=second.manifest.digest)
    assert push_image(client, second, named, progress=silent) == second.manifest.digest
    assert client.digest(target) == first.manifest.digest
