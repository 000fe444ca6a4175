"""`torchx-pulumi image plan | push | prune` over a registry of the test's own."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.cli.image import read_build_args, read_workspaces
from torchx_pulumi.cli.main import main
from torchx_pulumi.images.plan import CONTENT_LABEL
from torchx_pulumi.images.reference import parse_reference
from torchx_pulumi.images.registry import RegistryClient, push_image
from torchx_pulumi.model.errors import Problem

from tests.layered_images import image_of, layer
from tests.unit.fleet.collect.states import checkpoint, write_stack
from tests.unit.images.fake_registry import FakeRegistry

Ask = Callable[..., str]


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME", "DOCKER_CONFIG"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no.sock")
    monkeypatch.setenv("PULUMI_BACKEND_URL", f"file://{tmp_path}/backend")
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


@pytest.fixture
def stored(registry: FakeRegistry, tmp_path: Path) -> list[str]:
    """Two images with content tags and one with another tag; a stack references the first one."""
    tags = ["1" * 40, "2" * 40, "release"]
    for number, tag in enumerate(tags):
        target = parse_reference(f"{registry.host}/team/train:{tag}")
        image = image_of([layer(100, number)], labels={CONTENT_LABEL: tag.ljust(64, "0")})
        push_image(RegistryClient(), image, target, progress=lambda _: None)
    write_stack(tmp_path / "backend", "a", checkpoint(image=f"{registry.host}/team/train:{tags[0]}"))
    return tags


def test_prune_lists_and_deletes_what_no_stack_references(registry: FakeRegistry, stored: list[str], ask: Ask) -> None:
    words = ["prune", "--image-repo", f"{registry.host}/team/train"]
    said = json.loads(ask(*words, "--json"))
    assert [each["tags"] for each in said["unused"]] == [[stored[1]]]
    assert [(each["tags"], each["by"]) for each in said["used"]] == [([stored[0]], "stack torchx/a")]
    assert (said["others"], said["stacks"], said["deleted"]) == (["release"], 1, False)
    assert f"unused  {stored[1]} sha256:" in ask(*words)
    assert sorted(registry.repository("team/train").tags) == sorted(stored)
    said_again = ask(*words, "--yes")
    assert f"deleted {stored[1]} sha256:" in said_again
    assert "1 of 2 images deleted" in said_again
    assert sorted(registry.repository("team/train").tags) == [stored[0], stored[2]]
    assert "0 of 1 images are not referenced\n" in ask(*words)


def test_prune_leaves_images_of_other_tools_with_a_commit_as_a_tag(
    registry: FakeRegistry, stored: list[str], ask: Ask
) -> None:
    # Built on a patched image, it has the label of that one.
    inherited = {CONTENT_LABEL: stored[0].ljust(64, "0")}
    for number, (commit, labels) in enumerate({"c" * 40: {}, "d" * 40: inherited}.items()):
        target = parse_reference(f"{registry.host}/team/train:{commit}")
        image = image_of([layer(100, 10 + number)], labels=labels)
        push_image(RegistryClient(), image, target, progress=lambda _: None)
    words = ["prune", "--image-repo", f"{registry.host}/team/train", "--json", "--yes"]
    said = json.loads(ask(*words))
    assert said["others"] == ["c" * 40, "d" * 40, "release"]
    assert [each["tags"] for each in said["unused"]] == [[stored[1]]]
    assert sorted(registry.repository("team/train").tags) == sorted([stored[0], "c" * 40, "d" * 40, "release"])


def test_prune_deletes_nothing_where_a_stack_cannot_be_read(
    registry: FakeRegistry, stored: list[str], ask: Ask, tmp_path: Path
) -> None:
    write_stack(tmp_path / "backend", "cut", '{"version": 3, "checkpoint": {')
    said = ask("prune", "--image-repo", f"{registry.host}/team/train", "--yes", code=2)
    assert "stack torchx/cut: its checkpoint is not valid JSON" in said
    assert sorted(registry.repository("team/train").tags) == sorted(stored)
    assert not [each for each in registry.asked if each.startswith("DELETE")]


def test_prune_says_that_a_registry_allows_no_deletes(registry: FakeRegistry, stored: list[str], ask: Ask) -> None:
    registry.deletes = False
    said = ask("prune", "--image-repo", f"{registry.host}/team/train", "--yes", code=2)
    assert "does not allow deletes" in said


def test_prune_reads_the_backends_that_are_named(
    registry: FakeRegistry, stored: list[str], ask: Ask, tmp_path: Path
) -> None:
    write_stack(tmp_path / "other", "b", checkpoint(image=f"{registry.host}/team/train:{stored[1]}"))
    words = ["prune", "--image-repo", f"{registry.host}/team/train", "--json"]
    both = [f"--backend=file://{tmp_path}/{name}" for name in ("backend", "other")]
    assert json.loads(ask(*words, *both))["unused"] == []
    assert len(json.loads(ask(*words, both[1]))["unused"]) == 1


def test_plan_shows_what_is_built_and_pushes_nothing(registry: FakeRegistry, base: str, ask: Ask) -> None:
    asked = len(registry.asked)
    said = json.loads(ask("plan", *patch(registry, base), "--json"))
    assert not [each for each in registry.asked[asked:] if not each.startswith(("GET", "HEAD"))]
    assert re.fullmatch(rf"{registry.host}/team/train:[0-9a-f]{{40}}@sha256:[0-9a-f]{{64}}", said["reference"])
    assert (said["is_pushed"], said["builder"], said["why_docker"]) == (False, "registry", None)
    assert [(each["image"], each["source"]) for each in said["bases"]] == [(base, "registry")]
    assert [(each["new"], each["known"]) for each in said["layers"]] == [(False, False), (True, False)]
    # The base's layer is mounted.
    assert said["layers"][1]["size"] < said["upload_bytes"] < 5000
    assert (said["dockerfile"], said["changes"]) == (None, None)
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


def test_plan_names_the_files_that_changed_the_tag(registry: FakeRegistry, base: str, ask: Ask, tmp_path: Path) -> None:
    first = json.loads(ask("plan", *patch(registry, base), "--json"))
    (tmp_path / "code" / "train.py").write_text("print('two')\n")
    (tmp_path / "code" / "new\n.py").write_text("")
    words = patch(registry, base, "--platform", first["platform"], "--build-arg", "TOKEN=s3cr3t")
    said = json.loads(ask("plan", *words, "--json"))["changes"]
    assert first["tag_reference"].endswith(said["tag"])
    assert (said["changed"], said["added"], said["build_args"]) == (["train.py"], ["'new\\n.py'"], ["TOKEN"])
    text = ask("plan", *words)
    assert (
        f"changed    since {said['tag']}:\n             build argument TOKEN\n             added 'new\\n.py'\n" in text
    )
    assert "s3cr3t" not in text


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
    assert "must be one of auto, registry, docker" in ask("plan", "b", "--image-repo", "r/x", "--builder", "x", code=2)


def test_workspaces_and_arguments_are_read(tmp_path: Path) -> None:
    problems: list[Problem] = []
    (tmp_path / "a=b").mkdir()
    assert read_workspaces(["a=b"], problems) == "a=b"
    assert read_workspaces(["a=b", "s3://x/y=lib"], problems) == {"a=b": "", "s3://x/y": "lib"}
    environ: dict[str, Any] = {"T": "v"}
    assert read_build_args(["T", "U="], environ, problems) == {"T": "v", "U": ""}
    assert problems == []
