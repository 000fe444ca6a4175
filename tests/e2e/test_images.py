"""Patched images on a real daemon, a real registry and a real node: what is built, pushed, run, and left behind."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from torchx_pulumi.images import PatchedImage, build_plans, patch_image, plan_patch, plan_push, push_local
from torchx_pulumi.images.reference import parse_reference
from torchx_pulumi.images.registry import RegistryClient
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.model.errors import ImageError
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB

from tests.doc_blocks import commands
from tests.e2e.docker_daemon import docker_environment, docker_host
from tests.e2e.project import changes, eventually
from tests.e2e.stack_project import StackProject
from tests.loopback import closed_port
from tools.local_docker import LocalDocker
from tools.local_registry import PASSWORD, USER, LocalRegistry

pytestmark = pytest.mark.e2e

NOWHERE = "unix:///nonexistent/docker.sock"
TOKEN = "build-token-4711"


@pytest.fixture(scope="module")
def daemon(cluster: Any) -> Iterator[str]:
    if not cluster.images:
        pytest.skip("the local cluster has no real node: no container can run")
    with docker_host() as host:
        yield host


@pytest.fixture
def base(cluster: Any) -> str:
    return str(cluster.images["busybox"])


@pytest.fixture
def env(daemon: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Environment with the daemon; this process's own is the same."""
    made = docker_environment(daemon, tmp_path)
    for name, value in made.items():
        monkeypatch.setenv(name, value)
    return made


@pytest.fixture
def repository(cluster: Any, namespace: str) -> str:
    return f"{cluster.registry}/{namespace}"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "train.sh").write_text("echo one\n")
    return folder


def digest_of(reference: str) -> str | None:
    return RegistryClient().digest(parse_reference(reference))


@pytest.fixture
def stack(tmp_path: Path, e2e_env: dict[str, str], env: dict[str, str], namespace: str) -> StackProject:
    root = tmp_path / "root"
    root.mkdir()
    docker = {name: env[name] for name in ("DOCKER_HOST", "DOCKER_CONFIG", "XDG_CACHE_HOME")}
    return StackProject(root, {**e2e_env, **docker}, namespace, config_dir="stacks")


def test_an_edit_reaches_the_container_and_no_edit_does_nothing(
    stack: StackProject, look: KubernetesCluster, kubeconfig: Path, base: str, repository: str
) -> None:
    code = stack.root / "code"
    code.mkdir()
    (code / "train.sh").write_text("echo one\n")
    (code / "private.key").write_text(TOKEN)
    (code / ".dockerignore").write_text("*.key\n")
    (code / "Dockerfile.torchx").write_text("ARG IMAGE\nFROM $IMAGE\nARG TOKEN\nCOPY . .\n")
    # containerd 1.6 closes the pipes of a container that ends, and what it has not read by then is in no log.
    script = "ls /*.key 2>&1; sh /train.sh; sleep 2"
    role = {"name": "trainer", "image": base, "entrypoint": "sh", "args": ["-c", script]}
    (stack.root / "app.yaml").write_text(yaml.safe_dump({"name": "train", "roles": [role]}))
    stack.configure(
        appFile="app.yaml",
        options={"queue": "default", "namespace": stack.namespace},
        waitFor="completed",
        timeout=180,
        builder="docker",
    )
    *configure, _, _ = commands("docs/images.md", "stack-program", {"registry.example.com/team/train": repository})
    for line in configure:
        stack.run(*line.split()[1:])
    stack.run("config", "set", "--secret", "--path", "buildArgs.TOKEN", TOKEN)
    working, stopped = stack.env, {**stack.env, "DOCKER_HOST": NOWHERE}

    def image_in_preview() -> str:
        stack.env = stopped
        text = stack.run("preview")
        stack.env = working
        return next(word.rstrip(":") for word in text.split() if word.startswith(f"{repository}:"))

    def job() -> dict[str, Any]:
        found = look.get(VOLCANO_JOB, stack.namespace, stack.output("app_id").partition(":")[2])
        assert found is not None
        return dict(found)

    first = image_in_preview()
    assert digest_of(first) is None
    text = stack.up()
    assert TOKEN not in text
    assert printed(kubeconfig, stack.namespace, job()) == "one"
    declared = stack.output("torchx")["declared"]["roles"][0]
    assert (declared["image"], declared["digest"]) == (first, digest_of(first))
    assert json.loads(job()["metadata"]["annotations"]["torchx-pulumi/image-digests"]) == {"trainer": digest_of(first)}
    uid = job()["metadata"]["uid"]

    stack.env = stopped
    assert changes(stack.up()).keys() == {"unchanged"}
    assert job()["metadata"]["uid"] == uid

    (code / "train.sh").write_text("echo two\n")
    second = image_in_preview()
    assert second != first
    stack.up()
    assert stack.output("torchx")["declared"]["roles"][0]["image"] == second
    assert printed(kubeconfig, stack.namespace, job()) == "two"
    uid, before = job()["metadata"]["uid"], uid
    assert uid != before

    (code / "Dockerfile.torchx").write_text("ARG IMAGE\nFROM $IMAGE\nRUN echo why; exit 7\nCOPY . .\n")
    text = stack.run("up", "--yes", "--skip-preview", fails=True)
    assert "RUN echo why; exit 7" in text
    assert job()["metadata"]["uid"] == uid

    backend = Path(stack.env["PULUMI_BACKEND_URL"].removeprefix("file://"))
    assert not [file for file in backend.rglob("*") if file.is_file() and TOKEN.encode() in file.read_bytes()]


def printed(kubeconfig: Path, namespace: str, job: dict[str, Any]) -> str:
    """Return the last line that the job's only pod printed."""
    from kubernetes import client, config

    api = client.CoreV1Api(config.new_client_from_config(str(kubeconfig)))
    name = f"{job['metadata']['name']}-trainer-0-0"

    def read() -> str:
        return str(api.read_namespaced_pod_log(name, namespace)).strip()

    return str(eventually(read)).splitlines()[-1]


def test_what_is_there_is_not_made_again_and_roles_are_made_together(
    env: dict[str, str], base: str, repository: str, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    options = [{"labels": {"role": str(number % 2)}, "builder": "docker"} for number in range(4)]
    plans = [plan_patch(base, str(workspace), repository, **each) for each in options]  # type: ignore[arg-type]
    assert len(build_plans(plans, told.append)) == 2
    assert sum("building on" in line for line in told) == 2
    assert {digest_of(plan.reference) for plan in plans} == set(build_plans(plans, told.append).values())
    monkeypatch.setenv("DOCKER_HOST", NOWHERE)
    again = patch_image(base, str(workspace), repository, labels={"role": "1"}, builder="docker")
    assert (again.reference, again.built, again.pushed) == (plans[1].reference, False, False)


def test_a_local_image_is_pushed_under_its_id(
    env: dict[str, str], base: str, repository: str, workspace: Path, daemon: str
) -> None:
    local = patch_image(base, str(workspace), None)
    assert (local.built, local.pushed) == (True, False)
    name, tag = plan_push(local.digest, repository)
    assert push_local({local.digest: (name, tag)}, print) == {f"{name}:{tag}": digest_of(f"{name}:{tag}")}


def test_the_image_is_for_the_platform_of_its_tag(env: dict[str, str], workspace: Path) -> None:
    import docker

    client = docker.from_env()
    base, (ours, other) = f"base-{os.getpid()}:1", ("amd64", "arm64") if is_amd64() else ("arm64", "amd64")
    made = []

    def patched(base: str, processor: str | None) -> str:
        made.append(patch_image(base, str(workspace), None, platform=processor and f"linux/{processor}").reference)
        return str(client.api.inspect_image(made[-1])["Architecture"])

    try:
        (workspace / "Dockerfile.torchx").write_text("FROM scratch\nCOPY . /\n")
        assert [patched("scratch", each) for each in (other, ours, None)] == [other, ours, ours]
        client.api.tag(made[0], *base.split(":"))
        (workspace / "Dockerfile.torchx").unlink()
        # A tag that names this machine's platform is given to nothing else.
        with pytest.raises(ImageError, match=f"only the daemon has it, for linux/{other}.*set platform"):
            patched(base, None)
        assert patched(base, other) == other
    finally:
        for image in (base, *made):
            with contextlib.suppress(docker.errors.ImageNotFound):
                client.images.remove(image, force=True)
        client.close()


def is_amd64() -> bool:
    return platform.machine().lower() in ("x86_64", "amd64")


KILLED = """
import os, signal, sys
from torchx_pulumi.images import patch_image
from torchx_pulumi.images.building import transfer
really = transfer.Layers.take
def take(layers, event):
    if event.get("id") and str(layers).startswith("pushing"):
        os.kill(os.getpid(), signal.SIGKILL)
    really(layers, event)
transfer.Layers.take = take
patch_image(*sys.argv[1:], builder="docker", tell=print)
"""


def test_after_a_kill_in_the_middle_of_a_push_the_next_run_succeeds(
    env: dict[str, str], e2e_env: dict[str, str], base: str, repository: str, workspace: Path
) -> None:
    (workspace / "big").write_bytes(os.urandom(30_000_000))
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, base, str(workspace), repository],
        env={**env, "PYTHONPATH": e2e_env["PYTHONPATH"]},
        check=False,
        timeout=240,
    )
    assert killed.returncode == -signal.SIGKILL
    made = patch_image(base, str(workspace), repository, builder="docker")
    assert (made.built, made.pushed) == (False, True)
    assert digest_of(made.reference) == made.digest


def test_what_goes_wrong_is_said_and_leaves_no_tag(
    env: dict[str, str], base: str, repository: str, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)

    def refused(base: str = base, repository: str = repository) -> str:
        with pytest.raises(ImageError) as caught:
            patch_image(base, str(workspace), repository, builder="docker")
        return str(caught.value)

    assert "does not have" in refused(base=f"{base}-absent")
    with closed_port() as port:
        host = f"127.0.0.1:{port}"
        assert f"registry {host}: cannot be reached" in refused(repository=f"{host}/app")
    (workspace / "Dockerfile.torchx").write_text("ARG IMAGE\nFROM $IMAGE\nRUN echo the reason; exit 7\nCOPY . .\n")
    text = refused()
    assert re.search(r"failed in step 3/\d+: RUN echo the reason; exit 7", text)
    assert "the reason" in text
    assert digest_of(plan_patch(base, str(workspace), repository).reference) is None


@pytest.fixture
def closed_registry(tmp_path: Path) -> Iterator[str]:
    """A registry of the test's own that wants a login."""
    with LocalRegistry(tmp_path / "closed", login=True) as made:
        yield made.address


def test_credentials_are_dockers_own(closed_registry: str, env: dict[str, str], base: str, workspace: Path) -> None:
    def log_in(password: str) -> Callable[[], PatchedImage]:
        secret = base64.b64encode(f"{USER}:{password}".encode()).decode()
        folder = Path(env["DOCKER_CONFIG"])
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps({"auths": {closed_registry: {"auth": secret}}}))
        return lambda: patch_image(base, str(workspace), f"{closed_registry}/team/app", builder="docker")

    with pytest.raises(ImageError, match=f"docker login {closed_registry}") as caught:
        log_in("wrong")()
    assert "wrong" not in str(caught.value)
    made = log_in(PASSWORD)()
    assert made.pushed
    assert RegistryClient(tries=2).digest(parse_reference(made.reference)) == made.digest


@pytest.fixture
def full_daemon(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A daemon whose disk has no room for the workspace."""
    if os.geteuid() != 0:
        pytest.skip("a small disk can be mounted by root only")
    folder = Path(tempfile.mkdtemp(prefix="txf-"))
    (folder / "data").mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", folder / "data"], check=False, capture_output=True
    )
    if mounted.returncode:
        shutil.rmtree(folder)
        pytest.skip("this machine lets nobody mount a disk")
    private = LocalDocker(folder)
    try:
        private.start()
        monkeypatch.setenv("DOCKER_HOST", private.host)
        yield
    finally:
        private.stop()
        subprocess.run(["umount", "--lazy", folder / "data"], check=True)
        private.remove()


@pytest.mark.extended
def test_a_full_disk_is_named(
    env: dict[str, str], full_daemon: None, base: str, repository: str, workspace: Path
) -> None:
    (workspace / "big").write_bytes(os.urandom(30_000_000))
    with pytest.raises(ImageError, match="the disk is full: `docker system prune`"):
        patch_image(base, str(workspace), repository, builder="docker")
    assert digest_of(plan_patch(base, str(workspace), repository).reference) is None
