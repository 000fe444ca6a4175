"""What `.dockerignore` lets through, next to the docker command itself: the same files in both images."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.images import patch_image

from tests.e2e.docker_daemon import docker_environment, docker_host

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(shutil.which("docker") is None, reason="there is no docker command to compare with"),
]

FILES = (
    *("train.py", "notes.md", "README.md", "README-secret.md", "a.log", "deep/b.log", "deep/keep.log", "deep/er/c.log"),
    *("build/out.o", "build/keep/me", "docs/index.md", "docs/keep.md", "data/x.bin", "data/sub/y.bin", "vendor/lib.py"),
    *("[odd]/file", "tmp-1/x", "tmp-2/x", "Dockerfile.torchx", "sub/Dockerfile.torchx", "sub/.dockerignore"),
)
RULES = {
    "folders and wildcards": "**/*.log\n/build/\ntmp-?\ndata/**/*.bin\n",
    "exceptions": "*\n!train.py\n!docs\ndocs/index.md\n!build/keep\n",
    "last match wins": "*.md\n!README*.md\nREADME-secret.md\n\n# deep\n!deep/keep.log\n",
    "own files": ".dockerignore\nDockerfile.torchx\n**/Dockerfile.torchx\n",
    "classes and escapes": "tmp-[2-9]\n\\[odd\\]\nd[^o]*\n./vendor/../vendor/lib.py\n",
    "everything back": "**\n!**/keep*\n",
}


@pytest.fixture(scope="module")
def daemon() -> Iterator[str]:
    with docker_host() as host:
        yield host


def exported(client: Any, image: str) -> set[str]:
    """Return the files of an image."""
    container = client.containers.create(image, ["none"])
    try:
        whole = io.BytesIO(b"".join(container.export()))
    finally:
        container.remove()
    made_by_docker = (".dockerenv", "dev", "etc", "proc", "sys")
    with tarfile.open(fileobj=whole) as tar:
        return {info.name for info in tar if info.isfile() and info.name.split("/")[0] not in made_by_docker}


@pytest.mark.parametrize(
    "rules",
    [
        pytest.param(text, id=name, marks=[] if name == "last match wins" else [pytest.mark.extended])
        for name, text in RULES.items()
    ],
)
def test_the_same_files_as_by_the_docker_command(
    rules: str, daemon: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import docker

    env = {**docker_environment(daemon, tmp_path / "own"), "DOCKER_BUILDKIT": "0"}
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    code = tmp_path / "code"
    for name in FILES:
        (code / name).parent.mkdir(parents=True, exist_ok=True)
        (code / name).write_text(name)
    (code / "Dockerfile.torchx").write_text("FROM scratch\nCOPY . /\n")
    (code / ".dockerignore").write_text(rules)
    built = subprocess.run(
        ["docker", "build", "--quiet", "--no-cache", "--file", code / "Dockerfile.torchx", code],
        env={**os.environ, **env},
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    theirs = built.stdout.split()[-1]
    client = docker.from_env()
    try:
        ours = patch_image("scratch", str(code), None).reference
        assert exported(client, ours) == exported(client, theirs)
        for image in (ours, theirs):
            # One may stand on the layers of the other, and go with it.
            with contextlib.suppress(docker.errors.ImageNotFound):
                client.images.remove(image, force=True)
    finally:
        client.close()
