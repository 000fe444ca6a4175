"""Images that no daemon builds: on bases of all kinds, run by the real node, and asked for again at almost no cost."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.images import ImagePlan, PatchedImage, patch_image, plan_patch
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.kube.kinds import POD

from bench._usage import measure
from tests.e2e.registry_images import (
    crane,
    crane_program,
    layer,
    manifest_of,
    put_image,
    put_index,
    validated,
    without_daemon,
)
from tests.e2e.torchx_cli import Said, TorchxCli
from tools.images.oci import architecture
from tools.local_registry import LocalRegistry, registry_program

pytestmark = pytest.mark.e2e

OTHER = "arm64" if architecture() == "amd64" else "amd64"
LARGE_BYTES = int(float(os.environ.get("TORCHX_PULUMI_LARGE_IMAGE_GB", "0.15")) * 1e9)
"""Size of the large file; `make e2e-extended` sets 6 GB."""
LIMIT_MB = 100.0
"""Memory that a push may take, whatever the size."""


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
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    (folder / "pkg").mkdir(parents=True)
    (folder / "train.py").write_text("print('one')\n")
    (folder / "pkg/model.py").write_text("layers = 3\n")
    return folder


BASE_LAYERS = [layer({"etc/base": b"of the base"}), layer({"app/train.py": b"old\n", "app/kept": b"kept"})]


def index_of_two(repository: str, kind: str) -> str:
    """Push an image of this machine and one of another, in one index."""
    there = put_image(repository, None, [layer({"etc/base": b"of the other"})], kind=kind, processor=OTHER)
    put_index(repository, "both", [there, put_image(repository, None, BASE_LAYERS, kind=kind)], kind=kind)
    return f"{repository}:both"


def pinned(repository: str, kind: str) -> str:
    """Push an image and name it by its digest."""
    return f"{repository}@{put_image(repository, '1', BASE_LAYERS, kind=kind)['digest']}"


def tagged(repository: str, kind: str) -> str:
    """Push an image and name it by its tag."""
    put_image(repository, "1", BASE_LAYERS, kind=kind)
    return f"{repository}:1"


@pytest.mark.parametrize("kind", ["oci", "docker"])
@pytest.mark.parametrize("make_base", [tagged, pinned, index_of_two])
def test_an_image_on_any_base_is_valid(
    kind: str, make_base: Callable[[str, str], str], registry: LocalRegistry, workspace: Path
) -> None:
    base = make_base(f"{registry.address}/base", kind)
    plan, made = patched(base, workspace, f"{registry.address}/team/app")
    assert made.reference == plan.pod_reference == f"{plan.reference}@{plan.digest}"
    assert (made.digest, made.pushed) == (plan.digest, True)
    files = validated(made.reference)
    assert files == {
        "etc/base": b"of the base",
        "app/kept": b"kept",
        "app/train.py": b"print('one')\n",
        "app/pkg/model.py": b"layers = 3\n",
        "app/Dockerfile.torchx": files["app/Dockerfile.torchx"],
    }
    manifest = manifest_of(made.reference)
    types = [
        manifest["mediaType"],
        manifest["config"]["mediaType"],
        *(each["mediaType"] for each in manifest["layers"]),
    ]
    assert all(("docker" in each) == (kind == "docker") for each in types)
    asked = [each for each in registry.requests() if each.agent.startswith("torchx-pulumi") or "mount=" in each.path]
    # Layers of the base are mounted: neither read nor sent.
    old = [each["digest"] for each in manifest["layers"][:2]]
    mounted = [each for each in asked if "mount=" in each.path]
    assert [each.status for each in mounted] == [201, 201]
    read = [each.path for each in registry.requests()[: registry.requests().index(mounted[-1])] if each.method == "GET"]
    assert not [path for path in read for digest in old if path.endswith(digest)]


def patched(base: str, workspace: Path, repository: str, **options: Any) -> tuple[ImagePlan, PatchedImage]:
    """Plan an image, then make it: the plan has its name and digest before anything is sent."""
    plan = plan_patch(base, str(workspace), repository, **options)
    return plan, patch_image(base, str(workspace), repository, **options)


@pytest.mark.parametrize("kind", ["oci", "docker"])
def test_a_base_in_another_registry_is_copied(
    kind: str, registry: LocalRegistry, workspace: Path, tmp_path: Path
) -> None:
    with LocalRegistry(tmp_path / "elsewhere") as elsewhere:
        base = index_of_two(f"{elsewhere.address}/base", kind)
        plan, made = patched(base, workspace, f"{registry.address}/app")
        # The image does not depend on where its base is.
        here, _ = patched(index_of_two(f"{registry.address}/base", kind), workspace, f"{registry.address}/app")
        assert (plan.pod_reference, made.reference) == (here.pod_reference, here.pod_reference)
    # The other registry is gone, and the image is whole.
    assert validated(made.reference)["etc/base"] == b"of the base"


def test_an_image_for_another_platform_is_taken_from_the_index(registry: LocalRegistry, workspace: Path) -> None:
    base = index_of_two(f"{registry.address}/base", "oci")
    _, made = patched(base, workspace, f"{registry.address}/app", platform=f"linux/{OTHER}")
    assert validated(made.reference)["etc/base"] == b"of the other"


OPENED = """
import os, sys
folder, opened = os.path.realpath(sys.argv[1]), []
def count(event, arguments):
    if event == "open" and str(arguments[0]).startswith(folder + "/"):
        opened.append(os.path.basename(arguments[0]))
sys.addaudithook(count)
from torchx.cli.main import main
main(sys.argv[2:])
print("opened:", *sorted(set(opened) - {".dockerignore", "Dockerfile.torchx"}))
"""
"""TorchX's command, which says in the end which files of a folder were opened."""


def test_the_node_runs_what_the_dry_run_named_and_an_unchanged_workspace_costs_two_requests(
    registry: LocalRegistry,
    workspace: Path,
    cluster: Any,
    pulumi_env: dict[str, str],
    env: dict[str, str],
    tmp_path: Path,
    kubeconfig: Path,
    namespace: str,
    look: KubernetesCluster,
) -> None:
    if not cluster.images:
        pytest.skip("the local cluster has no real node: no container can run")
    base = f"{registry.address}/busybox:1"
    crane("copy", str(cluster.images["busybox"]), base)
    cli = TorchxCli({**pulumi_env, **env}, tmp_path, kubeconfig)
    repository = f"{registry.address}/app"

    def words(*more: str) -> list[str]:
        options = f"queue=default,namespace={namespace},image_repo={repository}"
        return [
            *("run", "-s", "pulumi_volcano", "--workspace", f"file://{workspace}", *more, "-cfg", options),
            *("utils.sh", "--image", base, "sh", "/train.sh"),
        ]

    def image(said: Said) -> str:
        found = re.search(re.escape(repository) + r":patched-[0-9a-f]{40}@sha256:[0-9a-f]{64}", said.text)
        assert found, said.text
        return found[0]

    (workspace / "train.sh").write_text("echo an edit\nsleep 2\n")
    before = len(registry.requests())
    planned = image(cli.torchx(*words("--dryrun")))
    # Nothing was sent for that.
    assert {each.method for each in registry.requests()[before:]} <= {"GET", "HEAD"}
    said = cli.torchx(*words("--wait", "--log"))
    assert "an edit" in said.text
    assert image(said) == planned
    (pod,) = look.list(POD, namespace)
    assert pod["spec"]["containers"][0]["image"] == planned
    assert pod["status"]["containerStatuses"][0]["imageID"].endswith(planned.partition("@")[2])

    # Files that were written a moment before they were hashed are read once more; then none is.
    cli.torchx(*words("--dryrun"))
    before = len(registry.requests())
    done = subprocess.run(
        [sys.executable, "-c", OPENED, str(workspace), *words("--wait", "--log")],
        env=cli.env,
        cwd=tmp_path,
        text=True,
        capture_output=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert planned in done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "opened:"
    asked = [each for each in registry.requests()[before:] if not each.agent.startswith("containerd")]
    tag = planned.partition("@")[0].rpartition(":")[2]
    assert [(each.method, each.path) for each in asked] == [
        ("HEAD", "/v2/busybox/manifests/1"),
        ("HEAD", f"/v2/app/manifests/{tag}"),
    ]
    for handle in {said.handle, re.search(r"pulumi_volcano://\S+", done.stdout)[0]}:  # type: ignore[index]
        cli.ours("delete", handle)


def test_a_folder_that_would_hide_a_link_of_the_base_is_named_and_runs_in_a_folder_of_its_own(
    registry: LocalRegistry,
    workspace: Path,
    cluster: Any,
    pulumi_env: dict[str, str],
    env: dict[str, str],
    tmp_path: Path,
    kubeconfig: Path,
    namespace: str,
) -> None:
    if not cluster.images:
        pytest.skip("the local cluster has no real node: no container can run")
    base = f"{registry.address}/busybox:1"
    crane("copy", str(cluster.images["busybox"]), base)
    cli = TorchxCli({**pulumi_env, **env}, tmp_path, kubeconfig)
    (workspace / "lib").mkdir()
    (workspace / "lib/said.sh").write_text("echo from lib\nsleep 2\n")

    def run(builder: str, *words: str, code: int = 0) -> Said:
        options = f"queue=default,namespace={namespace},image_repo={registry.address}/app,builder={builder}"
        command = ("utils.sh", "--image", base, "sh", "lib/said.sh")
        workspace_words = ("--workspace", f"file://{workspace}")
        return cli.torchx("run", "-s", "pulumi_volcano", *workspace_words, *words, "-cfg", options, *command, code=code)

    hides = "puts 'lib' of the workspace in the place of /lib"
    assert hides in run("auto", "--dryrun").text
    refused = run("registry", code=1).text
    assert hides in refused
    assert "Traceback" not in refused
    (workspace / "Dockerfile.torchx").write_text("ARG IMAGE\nFROM $IMAGE\nWORKDIR /app\nCOPY . .\n")
    said = run("registry", "--wait", "--log")
    assert "from lib" in said.text
    cli.ours("delete", said.handle)


@pytest.mark.counted
def test_a_large_file_takes_little_memory(registry: LocalRegistry, workspace: Path, tmp_path: Path) -> None:
    put_image(f"{registry.address}/base", "1", BASE_LAYERS)
    with (workspace / "weights.bin").open("wb") as file:
        file.truncate(LARGE_BYTES)
    usage = measure(push, f"{registry.address}/base:1", str(workspace), f"{registry.address}/app")
    assert usage.memory_mb < LIMIT_MB
    assert manifest_of(usage.result)["layers"][-1]["size"] > LARGE_BYTES


def push(base: str, workspace: str, repository: str) -> str:
    """Make an image, in a process of its own."""
    return patch_image(base, workspace, repository).reference
