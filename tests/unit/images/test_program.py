"""Images in Pulumi programs: nothing is made in preview, all of it before the job in `up`, and no value is told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pulumi
import pytest
from torchx_pulumi.images import Builder, ImagePlan, plan_patch
from torchx_pulumi.images.reference import split_patched
from torchx_pulumi.images.registry import RegistryClient
from torchx_pulumi.model.errors import ImageError, InvalidJobError
from torchx_pulumi.model.job_spec import JobSpec, RoleSpec
from torchx_pulumi_components import images as component_images
from torchx_pulumi_components.images import patched_image
from torchx_pulumi_stacks import images as stack_images
from torchx_pulumi_stacks.config import StackConfig, read_config
from torchx_pulumi_stacks.images import ImageConfig, prepare_images

from tests.doc_blocks import block

BASE = "reg.example.com/base@sha256:" + "1" * 64
OTHER = "reg.example.com/other@sha256:" + "2" * 64
REPOSITORY = "reg.example.com/app"


def planned_as(monkeypatch: pytest.MonkeyPatch, builder: Builder, **found: Any) -> list[str]:
    """Let programs plan as with this builder, without a registry; return the options `builder` that they pass on."""
    asked: list[str] = []

    def plan(*args: Any, **options: Any) -> ImagePlan:
        asked.append(options.pop("builder", "auto"))
        return replace(plan_patch(*args, **options, builder="docker"), builder=builder, **found)

    monkeypatch.setattr(stack_images, "plan_patch", plan)
    monkeypatch.setattr(component_images, "plan_patch", plan)
    return asked


class Engine:
    """What a program does to images, and whether it is a preview."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.preview = False
        self.built: list[str] = []
        self.pushed: list[str] = []
        self.told: list[str] = []
        self.known: dict[str, str] = {}
        monkeypatch.setattr(pulumi.runtime, "is_dry_run", lambda: self.preview)
        monkeypatch.setattr(pulumi.log, "info", self.told.append)
        monkeypatch.setattr(pulumi.log, "warn", self.told.append)
        monkeypatch.setattr(component_images, "build_plans", self.build)
        monkeypatch.setattr(stack_images, "push_local", self.push)
        monkeypatch.setattr(stack_images, "known_digests", lambda _: self.known)
        planned_as(monkeypatch, Builder.DOCKER)

    def build(self, plans: Sequence[ImagePlan], tell: Any) -> Mapping[str, str]:
        self.built += [plan.reference for plan in plans]
        return {plan.reference: f"sha256:built-{plan.tag[:4]}" for plan in plans}

    def push(self, images: Mapping[str, tuple[str, str]], tell: Any) -> Mapping[str, str]:
        names = [":".join(target) for target in images.values()]
        self.pushed += names
        return dict.fromkeys(names, "sha256:pushed")


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    asyncio.set_event_loop(made)
    yield made
    asyncio.set_event_loop(None)
    made.close()


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    return Engine(monkeypatch)


def job(*images: str) -> JobSpec:
    roles = [RoleSpec(name=f"role-{index}", image=image, entrypoint="main") for index, image in enumerate(images)]
    return JobSpec(name="app", roles=roles)


def config(workspace: Path, **more: Any) -> ImageConfig:
    return ImageConfig(**{"workspace": {str(workspace): ""}, "image_repo": REPOSITORY, **more})


def test_up_builds_and_preview_shows_the_same_reference(engine: Engine, workspace: Path) -> None:
    engine.preview = True
    shown = patched_image(BASE, str(workspace), REPOSITORY)
    assert engine.built == []
    engine.preview = False
    assert patched_image(BASE, str(workspace), REPOSITORY) == shown
    assert engine.built == [shown]


def test_what_is_wrong_ends_a_program_without_a_traceback(engine: Engine, workspace: Path) -> None:
    with pytest.raises(pulumi.RunError, match="has a tag"):
        patched_image(BASE, str(workspace), f"{REPOSITORY}:1")


def test_every_role_is_patched_and_its_digest_noted(engine: Engine, workspace: Path) -> None:
    app = job(BASE, BASE, OTHER)
    made = prepare_images(app, config(workspace))
    names = [role.image for role in made.spec.roles]
    assert names[0] == names[1] != names[2]
    assert engine.built == [names[0], names[2]]
    assert list(json.loads(made.annotations()["torchx-pulumi/image-digests"])) == ["role-0", "role-1", "role-2"]
    assert app.roles[0].image == BASE


def test_a_preview_says_what_up_will_do(engine: Engine, workspace: Path) -> None:
    engine.preview = True
    (role,) = prepare_images(job(BASE), config(workspace)).spec.roles
    assert engine.told == [f"image {role.image}: is built and pushed by up"]
    engine.known = {role.image: "sha256:known"}
    assert prepare_images(job(BASE), config(workspace)).digests == engine.known
    assert engine.built == []


DIGEST = "sha256:" + "d" * 64


@pytest.mark.parametrize("preview", [True, False])
def test_pods_of_an_image_that_needs_no_daemon_name_its_digest(
    engine: Engine, workspace: Path, monkeypatch: pytest.MonkeyPatch, preview: bool
) -> None:
    engine.preview = preview
    asked = planned_as(monkeypatch, Builder.REGISTRY, digest=DIGEST)
    made = prepare_images(job(BASE), config(workspace, builder="registry"))
    (role,) = made.spec.roles
    assert role.pod_image == f"{role.image}@{DIGEST}"
    if preview:
        assert made.digests == {role.pod_image: DIGEST}
        assert engine.told == [f"image {role.pod_image}: is pushed by up, without a Docker daemon"]
        assert json.loads(made.annotations()["torchx-pulumi/image-digests"]) == {"role-0": DIGEST}
    program = patched_image(BASE, str(workspace), REPOSITORY, builder="registry")
    assert program == role.pod_image
    assert split_patched(program) == (role.image, DIGEST)
    assert asked == ["registry", "registry"]
    planned_as(monkeypatch, Builder.DOCKER)
    (plain,) = prepare_images(job(BASE), config(workspace)).spec.roles
    assert (plain.image, plain.image_digest) == (role.image, None)
    assert patched_image(BASE, str(workspace), REPOSITORY) == role.image


def test_a_preview_says_why_a_daemon_is_needed(
    engine: Engine, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.preview = True
    planned_as(monkeypatch, Builder.DOCKER, why_docker="line 2 has RUN")
    (role,) = prepare_images(job(BASE), config(workspace)).spec.roles
    assert engine.told == [f"image {role.image}: is built and pushed by up; a Docker daemon is needed: line 2 has RUN"]


def test_a_preview_says_that_the_registry_has_the_image(
    engine: Engine, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.preview = True
    planned_as(monkeypatch, Builder.REGISTRY, digest=DIGEST, found_at=1.0)
    (role,) = prepare_images(job(BASE), config(workspace)).spec.roles
    assert engine.told == [f"image {role.pod_image}: is in the registry, nothing to build"]


def test_the_builder_is_one_of_three_words(tmp_path: Path) -> None:
    assert read(tmp_path).images.builder == "auto"
    assert read(tmp_path, builder="registry").images.builder == "registry"
    with pytest.raises(InvalidJobError, match="torchx:builder: is 'podman', must be one of auto, registry, docker"):
        read(tmp_path, builder="podman")


def test_local_images_are_pushed(engine: Engine) -> None:
    local = "sha256:" + "5" * 64
    made = prepare_images(job(local), ImageConfig(image_repo=REPOSITORY))
    assert [role.image for role in made.spec.roles] == [f"{REPOSITORY}:{'5' * 64}"] == engine.pushed
    assert made.digests == {engine.pushed[0]: "sha256:pushed"}


def test_images_that_the_cluster_could_not_see_are_refused(engine: Engine, workspace: Path) -> None:
    with pytest.raises(ImageError, match="'sha256:abc': is not an id of an image"):
        prepare_images(job("sha256:abc"), ImageConfig(image_repo=REPOSITORY))
    with pytest.raises(ImageError, match="image_repo"):
        prepare_images(job("sha256:" + "5" * 64), ImageConfig())
    with pytest.raises(ImageError, match="set image_repo"):
        prepare_images(job(BASE), config(workspace, image_repo=None))
    assert engine.built == []
    assert prepare_images(job(BASE), config(workspace, image_repo=None, shared_daemon=True)).digests


def test_without_a_workspace_images_are_as_they_were(engine: Engine) -> None:
    made = prepare_images(job("busybox:1"), ImageConfig())
    assert (made.spec, made.digests, made.annotations()) == (job("busybox:1"), {}, {})


def test_all_roles_problems_are_in_one_message(engine: Engine, workspace: Path) -> None:
    with pytest.raises(ImageError, match=r"(?s)images cannot be prepared.*'A:1'.*'B:1'"):
        prepare_images(job("A:1", "B:1"), config(workspace))


def read(tmp_path: Path, **values: Any) -> StackConfig:
    (tmp_path / "app.yaml").write_text("name: a\nroles: [{name: r, image: 'i:1', entrypoint: e}]\n")
    given = {"appFile": "app.yaml", "options": {"queue": "default"}, **values}
    texts = {f"torchx:{key}": value if isinstance(value, str) else json.dumps(value) for key, value in given.items()}
    pulumi.runtime.set_all_config(texts, [])
    try:
        return read_config(pulumi.Config("torchx"), tmp_path)
    finally:
        pulumi.runtime.set_all_config({}, [])


def test_the_configuration_names_workspaces_from_the_projects_folder(tmp_path: Path) -> None:
    found = read(tmp_path, workspace="code", imageRepo=REPOSITORY, buildArgs={"TOKEN": "s3cret", "N": 1}).images
    assert found.workspace == {str(tmp_path / "code"): ""}
    assert found.build_args == {"TOKEN": "s3cret", "N": "1"}
    assert "s3cret" not in repr(found)
    several = read(tmp_path, workspace={"/code": None, "s3://bucket/x": "data"}, sharedDaemon="true").images
    assert several.workspace == {"/code": "", "s3://bucket/x": "data"}
    assert several.shared_daemon


def test_build_arguments_are_texts(tmp_path: Path) -> None:
    given = {"A": True, "B": False, "C": 1, "D": "None"}
    assert read(tmp_path, buildArgs=given).images.build_args == {"A": "true", "B": "false", "C": "1", "D": "None"}
    with pytest.raises(InvalidJobError) as caught:
        read(tmp_path, buildArgs={"A": None, "B": {"C": "s3cret"}, "D": ["s3cret"]})
    said = [f"{problem.path} {problem.message}" for problem in caught.value.problems]
    assert [text.partition(",")[0] for text in said] == [
        *("torchx:buildArgs.A is null", "torchx:buildArgs.B is a mapping", "torchx:buildArgs.D is a list"),
    ]
    assert "s3cret" not in str(caught.value)


def test_wrong_keys_are_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidJobError, match=r"(?s)imageRepos.*imageRepo.*ignoreRules"):
        read(tmp_path, imageRepos="x", ignoreRules="git")


def test_the_line_of_the_page_names_the_image(engine: Engine, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.preview = True
    monkeypatch.setattr(RegistryClient, "digest", lambda *_: "sha256:" + "1" * 64)
    monkeypatch.chdir(workspace)
    names: dict[str, Any] = {}
    exec(block("docs/images.md", "patched-image"), names)
    assert names["image"].startswith("registry.example.com/team/train:")
