"""What goes wrong while an image is made without a daemon: one message, no image, and the next attempt succeeds."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.images import PatchedImage, build_plans, patch_image, plan_patch
from torchx_pulumi.images.reference import parse_reference
from torchx_pulumi.images.registry import RegistryClient
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.model.errors import ImageError
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB

from tests.e2e.project import eventually
from tests.e2e.registry_images import (
    crane_program,
    delete_image,
    layer,
    manifest_of,
    put_image,
    validated,
    without_daemon,
)
from tests.e2e.torchx_cli import TorchxCli
from tests.loopback import LoopbackProxy
from tools.local_registry import PASSWORD, USER, LocalRegistry, registry_program

pytestmark = pytest.mark.e2e

NOBODY = 65534
BIG = 40_000_000
"""Bytes of a file whose layer is sent in many pieces."""


@pytest.fixture(scope="module", autouse=True)
def programs() -> None:
    """Find the programs in the user's cache."""
    registry_program()
    crane_program()


@pytest.fixture(autouse=True)
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    return without_daemon(tmp_path, monkeypatch)


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[LocalRegistry]:
    with LocalRegistry(tmp_path / "registry") as made:
        yield made


@pytest.fixture
def base(registry: LocalRegistry) -> str:
    put_image(f"{registry.address}/base", "1", [layer({"etc/base": b"of the base"})])
    return f"{registry.address}/base:1"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "train.py").write_text("print('one')\n")
    return folder


class Outage(LoopbackProxy):
    """Forwards to a registry until so many bytes of requests have passed; from then on it is down, until told."""

    def __init__(self, registry: LocalRegistry, limit: int | None) -> None:
        host, _, port = registry.address.partition(":")
        self._target = (host, int(port))
        self.limit = limit
        """Bytes that may pass. None: any number."""
        self.passed = 0
        super().__init__()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def _serve(self, client: socket.socket) -> None:
        if self._is_down:
            self._end(client)
            return
        server = self._connect(self._target)
        self._run(self._forward, server, client, False)
        self._forward(client, server, True)

    @property
    def _is_down(self) -> bool:
        return self.limit is not None and self.passed >= self.limit

    def _forward(self, source: socket.socket, sink: socket.socket, counted: bool) -> None:
        with suppress(OSError):
            while (data := source.recv(1 << 16)) and not self._is_down:
                sink.sendall(data)
                self.passed += len(data) if counted else 0
        self._end(source, sink)


@contextlib.contextmanager
def outage(registry: LocalRegistry, limit: int | None) -> Iterator[Outage]:
    proxy = Outage(registry, limit)
    try:
        yield proxy
    finally:
        proxy.close()


def refused(base: str, workspace: Path, repository: str, **options: Any) -> str:
    """Return the message with which an image is refused; see that it is one, and that no image is there."""
    with pytest.raises(ImageError) as caught:
        patch_image(base, str(workspace), repository, **options)
    assert "Traceback" not in str(caught.value)
    return str(caught.value)


def is_there(reference: str) -> bool:
    return RegistryClient().digest(parse_reference(reference)) is not None


def test_a_registry_that_goes_down_in_the_middle_of_a_push(registry: LocalRegistry, base: str, workspace: Path) -> None:
    (workspace / "weights.bin").write_bytes(os.urandom(BIG))
    with outage(registry, BIG // 2) as proxy:
        text = refused(base, workspace, f"{proxy.address}/app")
        assert proxy.address in text
        assert "the next attempt sends only what is missing" in text
        proxy.limit, before = None, len(registry.requests())
        made = patch_image(base, str(workspace), f"{proxy.address}/app")
    # What was complete is not sent again.
    asked = [(each.method, each.path.rpartition("/")[0]) for each in registry.requests()[before:]]
    assert asked.count(("POST", "/v2/app/blobs/uploads")) == 1
    assert len(validated(made.reference.replace(proxy.address, registry.address))["app/weights.bin"]) == BIG


def test_torchx_run_with_a_registry_that_is_down_creates_nothing(
    registry: LocalRegistry,
    base: str,
    workspace: Path,
    pulumi_env: dict[str, str],
    env: dict[str, str],
    tmp_path: Path,
    kubeconfig: Path,
    namespace: str,
    look: KubernetesCluster,
) -> None:
    (workspace / "weights.bin").write_bytes(os.urandom(BIG))
    cli = TorchxCli({**pulumi_env, **env}, tmp_path, kubeconfig)
    with outage(registry, BIG // 2) as proxy:
        said = cli.torchx(
            *("run", "-s", "pulumi_volcano", "--workspace", f"file://{workspace}"),
            *("-cfg", f"queue=default,namespace={namespace},image_repo={proxy.address}/app"),
            *("utils.sh", "--image", base, "sh", "/train.sh"),
            code=None,
        )
        assert proxy.passed >= BIG // 2
    assert said.code != 0
    assert said.text.count("Error") + said.text.count("error:") <= 2, said.text
    assert "Traceback" not in said.text, said.text
    assert proxy.address in said.text
    assert look.list(VOLCANO_JOB, namespace) == []


def test_a_login_that_is_missing_wrong_and_right(
    base: str, workspace: Path, tmp_path: Path, env: dict[str, str]
) -> None:
    def log_in(password: str) -> None:
        folder = Path(env["DOCKER_CONFIG"])
        folder.mkdir(exist_ok=True)
        secret = base64.b64encode(f"{USER}:{password}".encode()).decode()
        (folder / "config.json").write_text(json.dumps({"auths": {closed.address: {"auth": secret}}}))

    with LocalRegistry(tmp_path / "closed", login=True) as closed:
        repository = f"{closed.address}/team/app"
        assert f"docker login {closed.address}" in refused(base, workspace, repository)
        log_in("wrong-4711")
        text = refused(base, workspace, repository)
        assert f"docker login {closed.address}" in text
        assert "wrong-4711" not in text
        assert not [each for each in closed.requests() if each.method in ("POST", "PATCH", "PUT") and each.status < 300]
        log_in(PASSWORD)
        made = patch_image(base, str(workspace), repository)
        assert made.pushed
        assert len(manifest_of(made.reference)["layers"]) == 2


def test_a_base_that_is_deleted(registry: LocalRegistry, base: str, workspace: Path) -> None:
    digest = put_image(f"{registry.address}/gone", "1", [layer({"etc/gone": b"x"})])["digest"]
    repository = f"{registry.address}/app"
    plan = plan_patch(f"{registry.address}/gone:1", str(workspace), repository)
    delete_image(f"{registry.address}/gone@{digest}")
    text = refused(f"{registry.address}/gone:1", workspace, repository)
    assert f"{registry.address}/gone" in text
    # Planned before, and the layers are gone as well.
    shutil.rmtree(registry.storage / "docker/registry/v2/blobs")
    registry.stop()
    registry.start()
    with pytest.raises(ImageError) as caught:
        build_plans([plan], lambda _line: None)
    assert f"{registry.address}/gone" in str(caught.value)
    assert not is_there(plan.reference)


def test_a_file_that_changes_between_plan_and_push(registry: LocalRegistry, base: str, workspace: Path) -> None:
    repository = f"{registry.address}/app"
    plan = plan_patch(base, str(workspace), repository)
    (workspace / "train.py").write_text("print('two')\n")
    with pytest.raises(ImageError, match=r"train\.py.*changed after it was hashed"):
        build_plans([plan], lambda _line: None)
    assert not is_there(plan.reference)
    assert patch_image(base, str(workspace), repository).pushed


def test_a_file_that_is_written_all_the_time(registry: LocalRegistry, base: str, workspace: Path) -> None:
    (workspace / "log.bin").write_bytes(bytes(BIG))
    writer = subprocess.Popen(
        ["sh", "-c", 'while :; do printf x >> "$1"; done', "sh", str(workspace / "log.bin")],
        stdin=subprocess.DEVNULL,
    )
    try:
        eventually(lambda: (workspace / "log.bin").stat().st_size > BIG)
        text = refused(base, workspace, f"{registry.address}/app")
    finally:
        writer.kill()
        writer.wait()
    assert "log.bin" in text
    assert "changed" in text
    assert not [each for each in registry.requests() if "/app/manifests/" in each.path and each.method == "PUT"]
    assert patch_image(base, str(workspace), f"{registry.address}/app").pushed


@contextlib.contextmanager
def another_user() -> Iterator[None]:
    """Be a user who may read only what all may read."""
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_files_that_another_user_may_not_read(
    registry: LocalRegistry, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory(prefix="txu-") as folder:
        code = Path(folder, "code")
        code.mkdir()
        Path(folder).chmod(0o755)
        monkeypatch.setenv("XDG_CACHE_HOME", folder)
        for name in ("one.key", "two.key"):
            (code / name).write_text("secret")
            (code / name).chmod(0o600)
        with another_user():
            text = refused(base, code, f"{registry.address}/app")
        assert [name for name in ("one.key", "two.key") if name in text] == ["one.key", "two.key"]
        (code / ".dockerignore").write_text("*.key\n")
        with another_user():
            assert patch_image(base, str(code), f"{registry.address}/app").pushed


def test_a_link_that_leaves_the_workspace_brings_nothing_with_it(
    registry: LocalRegistry, base: str, workspace: Path
) -> None:
    (workspace.parent / "outside").write_text("not of the workspace")
    (workspace / "way-out").symlink_to("../outside")
    made = patch_image(base, str(workspace), f"{registry.address}/app")
    assert "app/way-out" not in validated(made.reference)  # it has files only
    (workspace / "Dockerfile.torchx").write_text("ARG IMAGE\nFROM $IMAGE\nCOPY way-out /x/\n")
    text = refused(base, workspace, f"{registry.address}/app", builder="registry")
    assert "way-out" in text


@pytest.fixture
def full_registry(tmp_path: Path) -> Iterator[LocalRegistry]:
    """A registry whose disk has no room for the workspace."""
    if os.geteuid() != 0:
        pytest.skip("a small disk can be mounted by root only")
    storage = tmp_path / "small"
    storage.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", storage], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("no disk can be mounted on this machine")
    try:
        with LocalRegistry(tmp_path / "full", storage=storage) as made:
            yield made
    finally:
        subprocess.run(["umount", "--lazy", storage], check=True)


def test_a_registry_whose_disk_is_full(full_registry: LocalRegistry, base: str, workspace: Path) -> None:
    (workspace / "weights.bin").write_bytes(os.urandom(BIG))
    repository = f"{full_registry.address}/app"
    text = refused(base, workspace, repository)
    assert full_registry.address in text
    assert not is_there(plan_patch(base, str(workspace), repository).reference)
    subprocess.run(["mount", "-o", "remount,size=200m", full_registry.storage], check=True)
    assert made_again(base, workspace, repository).pushed


def made_again(base: str, workspace: Path, repository: str) -> PatchedImage:
    made = patch_image(base, str(workspace), repository)
    validated(made.reference)
    return made
