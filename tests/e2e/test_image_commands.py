"""`torchx-pulumi image plan | push` with Debian's registry and no Docker daemon."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from torchx_pulumi.images.reference import parse_reference
from torchx_pulumi.images.registry import RegistryClient, push_image

from tests.doc_blocks import commands
from tests.e2e.torchx_cli import Said, TorchxCli
from tests.layered_images import image_of, layer
from tools.bootstrap import ensure
from tools.local_registry import LocalRegistry

pytestmark = pytest.mark.e2e


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
    }
    made.env.update(here)
    return made


def test_the_commands_of_the_page(registry: LocalRegistry, cli: TorchxCli, tmp_path: Path) -> None:
    base, repository = f"{registry.address}/base:1", f"{registry.address}/team/train"
    push_image(RegistryClient(), image_of([layer(5000)]), parse_reference(base), progress=lambda _: None)
    values = {"registry.example.com/team/train": repository, "python:3.12": base, "--workspace .": "--workspace code"}
    plan, push = (shlex.split(line)[1:] for line in commands("docs/images.md", "first", values))
    code = tmp_path / "code"
    code.mkdir()

    def edit(text: str) -> Said:
        (code / "train.py").write_text(text)
        return cli.ours(*push)

    first = edit("print('one')\n").out.strip()
    second = edit("print('two')\n").out.strip()
    assert f"image      {second}\n           is in the registry; nothing to build" in cli.ours(*plan).out
    crane = ensure(["crane"])["crane"] / "crane"
    for image in (first, second):
        subprocess.run([crane, "validate", "--remote", image], check=True, capture_output=True)
