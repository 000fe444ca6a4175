"""`torchx-pulumi image plan | push` over a registry of the test's own."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.cli.image import read_build_args, read_workspaces
from torchx_pulumi.cli.main import main
from torchx_pulumi.images.reference import parse_reference
from torchx_pulumi.images.registry import RegistryClient, push_image
from torchx_pulumi.model.errors import Problem

from tests.layered_images import image_of, layer
from tests.unit.images.fake_registry import FakeRegistry

Ask = Callable[..., str]


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_CACHE_HOME", "DOCKER_CONFIG"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no.sock")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text("print('one')\n")


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    made = FakeRegistry()
    yield made
    made.close()


@pytest.fixture
def base(registry: FakeRegistry) -> str:
    """A base image in the registry."""
    name = f"{registry.host}/base:1"
    push_image(RegistryClient(), image_of([layer(5000)]), parse_reference(name), progress=lambda _: None)
    return name


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Ask:
    """Run a command; return what it printed."""

    def run(*words: str, code: int = 0) -> str:
        capsys.readouterr()
        found = main(["image", *words])
        printed = capsys.readouterr()
        assert found == code, printed.err
        assert "Traceback" not in printed.err
        return printed.out if code == 0 else printed.err

    return run


def patch(registry: FakeRegistry, base: str, *more: str) -> list[str]:
    return [base, "--workspace", "code", "--image-repo", f"{registry.host}/team/train", *more]


def test_plan_shows_what_is_built_and_pushes_nothing(registry: FakeRegistry, base: str, ask: Ask) -> None:
    asked = len(registry.asked)
    said = json.loads(ask("plan", *patch(registry, base), "--json"))
    assert not [each for each in registry.asked[asked:] if not each.startswith(("GET", "HEAD"))]
    assert re.fullmatch(rf"{registry.host}/team/train:patched-[0-9a-f]{{40}}@sha256:[0-9a-f]{{64}}", said["reference"])
    assert (said["is_pushed"], said["builder"], said["why_docker"]) == (False, "registry", None)
    assert [(each["image"], each["source"]) for each in said["bases"]] == [(base, "registry")]
    assert [(each["new"], each["known"]) for each in said["layers"]] == [(False, False), (True, False)]
    # The base's layer is mounted.
    assert said["layers"][1]["size"] < said["upload_bytes"] < 5000
    assert said["dockerfile"] is None
    text = ask("plan", *patch(registry, base))
    assert text.startswith(f"image      {said['reference']}\n           is not in the registry; a push uploads ")
    assert re.search(r"layer      sha256:[0-9a-f]{64} +\d\.\d kB new missing\n", text)
    assert "builder    registry\n" in text


def test_what_plan_says_is_what_push_uploads(registry: FakeRegistry, base: str, ask: Ask) -> None:
    planned = json.loads(ask("plan", *patch(registry, base), "--json"))
    before = registry.bodies
    assert ask("push", *patch(registry, base)) == f"{planned['reference']}\n"
    assert registry.bodies - before == planned["upload_bytes"]
    again = json.loads(ask("push", *patch(registry, base), "--json"))
    assert (again["reference"], again["digest"]) == (planned["reference"], planned["digest"])
    assert (again["built"], again["pushed"]) == (False, False)
    there = json.loads(ask("plan", *patch(registry, base), "--json"))
    assert (there["is_pushed"], there["upload_bytes"], there["digest"]) == (True, 0, planned["digest"])
    assert all(each["known"] for each in there["layers"])
    assert "is in the registry; nothing to build" in ask("plan", *patch(registry, base))


def test_a_base_of_another_registry_is_uploaded(base: str, ask: Ask, registry: FakeRegistry) -> None:
    other = FakeRegistry()
    try:
        words = [base, "--workspace", "code", "--image-repo", f"{other.host}/team/train"]
        said = json.loads(ask("plan", *words, "--json"))
        assert said["upload_bytes"] > 5000
        ask("push", *words)
        assert other.bodies == said["upload_bytes"]
    finally:
        other.close()


def test_a_dockerfile_that_needs_the_daemon_is_told(
    registry: FakeRegistry, base: str, ask: Ask, tmp_path: Path
) -> None:
    (tmp_path / "code" / "Dockerfile.torchx").write_text("ARG IMAGE\nFROM $IMAGE\nRUN make\n")
    said = json.loads(ask("plan", *patch(registry, base), "--json"))
    assert (said["builder"], said["layers"], said["upload_bytes"], said["digest"]) == ("docker", None, None, None)
    assert said["dockerfile"] == "Dockerfile.torchx"
    assert "line 3: RUN" in said["why_docker"]
    refused = ask("push", *patch(registry, base), "--builder", "registry", code=2)
    assert "line 3: RUN" in refused


def test_mistakes_are_said_at_once_without_values(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ABSENT", raising=False)
    words = ["--build-arg", "A=s3cr3t", "--build-arg", "A=other", "--build-arg", "ABSENT", "--workspace", "=x"]
    said = ask("plan", "base:1", "--image-repo", "r/x", *words, code=2)
    assert "--build-arg: gives A twice" in said
    assert "--build-arg: ABSENT has no value" in said
    assert "--workspace: is '=x'" in said
    assert "s3cr3t" not in said
    assert "builder is 'x', must be one of auto, registry, docker" in ask(
        "plan", "b", "--image-repo", "r/x", "--builder", "x", code=2
    )


def test_workspaces_and_arguments_are_read(tmp_path: Path) -> None:
    problems: list[Problem] = []
    (tmp_path / "a=b").mkdir()
    assert read_workspaces(["a=b"], problems) == "a=b"
    assert read_workspaces(["a=b", "s3://x/y=lib"], problems) == {"a=b": "", "s3://x/y": "lib"}
    environ: dict[str, Any] = {"T": "v"}
    assert read_build_args(["T", "U="], environ, problems) == {"T": "v", "U": ""}
    assert problems == []
