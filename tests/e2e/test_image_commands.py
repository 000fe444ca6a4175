"""`torchx-pulumi image plan | push | prune` with Debian's registry, real stacks, and no Docker daemon."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.images.reference import parse_reference
from torchx_pulumi.images.registry import RegistryClient, push_image

from tests.doc_blocks import commands
from tests.e2e.torchx_cli import Said, TorchxCli
from tests.layered_images import image_of, layer
from tests.unit.fleet.collect.states import checkpoint, write_stack
from tools.bootstrap import ensure
from tools.local_registry import LocalRegistry

pytestmark = pytest.mark.e2e

ECHO = ("utils.echo", "--msg", "hello")


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalRegistry]:
    with LocalRegistry(tmp_path_factory.mktemp("registry")) as found:
        yield found


@pytest.fixture
def cli(tmp_path: Path) -> TorchxCli:
    made = TorchxCli(dict(os.environ), tmp_path, tmp_path / "no-kubeconfig")
    here = {
        "DOCKER_HOST": f"unix://{tmp_path}/no.sock",
        "DOCKER_CONFIG": str(tmp_path / "docker"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "PULUMI_BACKEND_URL": f"file://{tmp_path}/backend",
    }
    made.env.update(here)
    return made


def test_the_commands_of_the_page(registry: LocalRegistry, cli: TorchxCli, tmp_path: Path) -> None:
    base, repository = f"{registry.address}/base:1", f"{registry.address}/team/train"
    push_image(RegistryClient(), image_of([layer(5000)]), parse_reference(base), progress=lambda _: None)
    values = {"registry.example.com/team/train": repository, "python:3.12": base, "--workspace .": "--workspace code"}
    plan, push, prune = (shlex.split(line)[1:] for line in commands("docs/images.md", "image-commands", values))
    code = tmp_path / "code"
    code.mkdir()

    def edit(text: str) -> Said:
        (code / "train.py").write_text(text)
        return cli.ours(*push)

    first = edit("print('one')\n").out.strip()
    second = edit("print('two')\n").out.strip()
    assert f"image      {second}\n           is in the registry; nothing to build" in cli.ours(*plan).out
    assert f"since {parse_reference(first).tag}:\n             changed train.py\n" in cli.ours(*plan).out
    crane = ensure(["crane"])["crane"] / "crane"
    for image in (first, second):
        subprocess.run([crane, "validate", "--remote", image], check=True, capture_output=True)
    write_stack(tmp_path / "backend", "a", checkpoint(image=second))
    assert f"unused  {parse_reference(first).tag} " in cli.ours(*prune).out
    assert "1 of 2 images deleted" in cli.ours(*prune, "--yes").out
    client = RegistryClient()
    assert client.digest(parse_reference(first.partition("@")[0])) is None
    assert client.digest(parse_reference(second)) is not None
    # What was deleted is pushed again, with the same digest.
    assert edit("print('one')\n").out.strip() == first
    assert client.digest(parse_reference(first)) is not None


def test_images_of_launched_apps_are_kept(
    cluster: Any, image: str, pulumi_env: dict[str, str], tmp_path: Path, kubeconfig: Path, namespace: str
) -> None:
    none = {"DOCKER_HOST": "unix:///nonexistent", "DOCKER_CONFIG": str(tmp_path / "docker")}
    cli = TorchxCli({**pulumi_env, **none}, tmp_path, kubeconfig)
    repository = f"{cluster.registry}/{namespace}"
    (tmp_path / "code").mkdir()

    def edit(text: str) -> None:
        (tmp_path / "code" / "train.sh").write_text(f"echo {text}\n")

    def push() -> str:
        return cli.ours("image", "push", image, "--workspace", "code", "--image-repo", repository).out.strip()

    def unused() -> list[str]:
        said = json.loads(cli.ours("image", "prune", "--image-repo", repository, "--json").out)
        return [tag for each in said["unused"] for tag in each["tags"]]

    edit("launched")
    options = f"queue=default,namespace={namespace},image_repo={repository},wait_for=completed"
    run = ("run", "-s", "pulumi_volcano", "-cfg", options, "--workspace", f"file://{tmp_path}/code")
    handle = cli.torchx(*run, "utils.sh", "--image", image, "sh", "/train.sh").handle
    launched = parse_reference(push()).tag
    edit("pushed-only")
    pushed = parse_reference(push()).tag
    assert launched != pushed
    assert unused() == [pushed]
    # The stack of another app keeps the backend from being empty.
    other = cli.torchx(
        "run", "-s", "pulumi_volcano", "-cfg", options, "--workspace", "", *ECHO, "--image", image
    ).handle
    cli.ours("delete", handle)
    assert sorted(unused()) == sorted(str(tag) for tag in (launched, pushed))
    assert "2 of 2 images deleted" in cli.ours("image", "prune", "--image-repo", repository, "--yes").out
    cli.ours("delete", other)
    said = cli.ours("image", "prune", "--image-repo", repository, code=2)
    assert "has no stacks" in said.err
