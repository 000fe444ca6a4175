"""The component of an image for other languages: known in preview, pushed in `up` before what uses it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pulumi
import pytest
from pulumi.runtime.sync_await import _sync_await
from torchx_pulumi.images import Builder, ImagePlan, plan_patch
from torchx_pulumi.model.errors import ImageError
from torchx_pulumi_components import VolcanoTrainingJob
from torchx_pulumi_components import images as component_images
from torchx_pulumi_components import patched_image as module
from torchx_pulumi_components.patched_image import TOKEN, PatchedImage

from tests.components.test_volcano_training_job import JOB, args

BASE = "reg.example.com/base@sha256:" + "1" * 64
REPOSITORY = "reg.example.com/app"
DIGEST = "sha256:" + "d" * 64
UNKNOWN = pulumi.output.UNKNOWN


class Images:
    """What a program does to images."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, engine: Any) -> None:
        self.engine, self.builder, self.error = engine, Builder.REGISTRY, ""
        self.built: list[str] = []
        self.before: list[str] = []
        """Types of the resources that were registered before a build."""
        self.asked: list[Mapping[str, Any]] = []
        monkeypatch.setattr(module, "plan_patch", self.plan)
        monkeypatch.setattr(module, "known_digests", lambda _: {})
        monkeypatch.setattr(component_images, "build_plans", self.build)

    def plan(self, *given: Any, builder: str, **options: Any) -> ImagePlan:
        assert threading.current_thread() is not threading.main_thread()
        self.asked.append({"builder": builder, **options})
        plan = plan_patch(*given, **options, builder="docker")
        return replace(plan, builder=self.builder, digest=DIGEST if self.builder is Builder.REGISTRY else None)

    def build(self, plans: Sequence[ImagePlan], _say: Any) -> Mapping[str, str]:
        assert threading.current_thread() is not threading.main_thread()
        if self.error:
            raise ImageError(self.error)
        self.built += [plan.pod_reference for plan in plans]
        self.before += [resource.typ for resource in self.engine.mocks.resources]
        return {plan.pod_reference: DIGEST for plan in plans}


@pytest.fixture
def images(monkeypatch: pytest.MonkeyPatch, engine: Any) -> Images:
    return Images(monkeypatch, engine)


@pytest.fixture
def given(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "train.py").write_text("print('one')\n")
    return {"base": BASE, "workspace": str(tmp_path), "repository": REPOSITORY}


def run(engine: Any, program: Callable[[], Any], *, preview: bool = False) -> Any:
    return engine.run(program, preview=preview)


@pytest.mark.parametrize("preview", [True, False])
def test_several_jobs_use_one_image_and_up_pushes_it_before_them(
    engine: Any, images: Images, given: Any, preview: bool
) -> None:
    def program() -> Any:
        image = PatchedImage("image", given)
        jobs = [VolcanoTrainingJob(name, args(role={"image": image.reference})) for name in ("one", "two")]
        return image, jobs

    image, jobs = run(engine, program, preview=preview)
    reference = engine.value(image.reference)
    name, _, digest = reference.partition("@")
    assert digest == DIGEST == engine.value(image.digest)
    assert images.built == ([] if preview else [reference])
    assert JOB not in images.before
    assert engine.mocks.one(TOKEN).name == "image"
    assert [engine.value(job.images) for job in jobs] == [{"trainer": reference}] * 2
    hashes = [engine.record(name)["hash"] for name in ("one", "two")]
    records = [engine.record(name) for name in ("one", "two")]
    assert [record["image_digests"] for record in records] == [{"trainer": DIGEST}] * 2
    run(engine, lambda: VolcanoTrainingJob("one", args(role={"image": name})))
    assert hashes == [engine.record()["hash"]] * 2


def test_the_builder_is_no_part_of_a_jobs_identity(engine: Any, images: Images, given: Any) -> None:
    names = []
    for builder in Builder:
        images.builder = builder

        def program() -> Any:
            image = PatchedImage("image", {**given, "builder": "auto"})  # type: ignore[typeddict-item]
            return VolcanoTrainingJob("train", args(role={"image": image.reference}))

        names.append(engine.value(run(engine, program).job_name))
    assert names[0] == names[1]


def test_a_digest_that_only_the_daemon_will_know_is_unknown_in_preview(engine: Any, images: Images, given: Any) -> None:
    images.builder = Builder.DOCKER
    image = run(engine, lambda: PatchedImage("image", given), preview=True)
    assert engine.loop.run_until_complete(image.reference.is_known())
    assert not engine.loop.run_until_complete(image.digest.is_known())


def test_a_base_that_is_not_known_in_preview_leaves_the_name_open(engine: Any, images: Images, given: Any) -> None:
    def program() -> Any:
        image = PatchedImage("image", {**given, "base": pulumi.Output.from_input(UNKNOWN)})
        return image, VolcanoTrainingJob("train", args(role={"image": image.reference}))

    image, job = run(engine, program, preview=True)
    assert images.asked == []
    assert not engine.loop.run_until_complete(image.reference.is_known())
    assert not engine.loop.run_until_complete(job.job_name.is_known())


def test_values_of_build_arguments_are_texts_and_in_no_state(
    engine: Any, plugin: Any, images: Images, given: Any
) -> None:
    build_args = {"TOKEN": pulumi.Output.secret("hunter22"), "DEBUG": True, "N": 1.0}
    inputs = {**given, "buildArgs": build_args, "ignoreRules": "torchx"}
    result = run(engine, lambda: plugin.construct("image", TOKEN, inputs))
    assert images.asked[0]["build_args"] == {"TOKEN": "hunter22", "DEBUG": "true", "N": "1"}
    assert (images.asked[0]["ignore_rules"], images.asked[0]["builder"]) == ("torchx", "auto")
    assert not engine.loop.run_until_complete(result.state["reference"].is_secret())
    assert "hunter22" not in repr([item.inputs for item in engine.mocks.resources])


@pytest.mark.parametrize("preview", [True, False])
def test_a_secret_repository_is_secret_in_the_name_of_the_image_and_in_no_line(
    engine: Any, images: Images, given: Any, monkeypatch: pytest.MonkeyPatch, preview: bool
) -> None:
    said: list[str] = []
    monkeypatch.setattr(pulumi.log, "info", lambda text, *_: said.append(text))
    inputs = {**given, "repository": pulumi.Output.secret(REPOSITORY)}
    image = run(engine, lambda: PatchedImage("image", inputs), preview=preview)
    assert engine.value(image.reference).startswith(REPOSITORY)
    assert engine.loop.run_until_complete(image.reference.is_secret())
    assert not engine.loop.run_until_complete(image.digest.is_secret())
    assert REPOSITORY not in "".join(said)


def test_several_folders_have_places(engine: Any, images: Images, given: Any, tmp_path: Path) -> None:
    alone = engine.value(run(engine, lambda: PatchedImage("image", given)).reference)
    placed = {**given, "workspace": {str(tmp_path): None}}
    assert engine.value(run(engine, lambda: PatchedImage("image", placed)).reference) == alone  # type: ignore[arg-type]
    placed = {**given, "workspace": {str(tmp_path): "code"}}
    assert engine.value(run(engine, lambda: PatchedImage("image", placed)).reference) != alone  # type: ignore[arg-type]


MISTAKES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "types": (
        {"workspace": 3, "base": ["x"], "buildArgs": {"A": {"B": "s3cret"}}},
        ["base: ", "build_args[", "image 'image': the arguments have problems"],
    ),
    "workspace": ({"workspace": "/no/such/folder"}, ["/no/such/folder"]),
    "repository": ({"repository": f"{REPOSITORY}:1"}, ["has a tag"]),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_message_without_traceback(
    engine: Any, plugin: Any, images: Images, given: Any, mistake: str
) -> None:
    changed, parts = MISTAKES[mistake]

    def program() -> Any:
        result = plugin.construct("image", TOKEN, {**given, **changed})
        with pytest.raises(pulumi.InputPropertiesError) as caught:
            _sync_await(result.urn)
        return caught

    told = []
    with pytest.raises(pulumi.RunError):
        engine.run(lambda: told.append(program()))
    (caught,) = told
    text = str(caught.value)
    assert [part for part in parts if part not in text] == []
    assert "s3cret" not in text
    assert engine.mocks.resources == []


def test_an_image_that_cannot_be_pushed_keeps_its_jobs_from_being_registered(
    engine: Any, images: Images, given: Any
) -> None:
    images.error = "the registry says no"

    def program() -> Any:
        image = PatchedImage("image", given)
        VolcanoTrainingJob("train", args(role={"image": image.reference}))
        VolcanoTrainingJob("other", args())

    with pytest.raises(pulumi.RunError, match="image 'image': the registry says no") as caught:
        engine.run(program)
    assert "job 'train': nothing was changed, because it depends on image 'image'" in str(caught.value)
    assert [item.name for item in engine.mocks.of_type(JOB)] == ["other"]


def test_an_image_that_depends_on_a_refused_job_is_not_built(engine: Any, images: Images, given: Any) -> None:
    def program() -> Any:
        job = VolcanoTrainingJob("train", args(queue="no queue"))
        PatchedImage("image", {**given, "labels": {"job": job.job_name}})

    with pytest.raises(pulumi.RunError) as caught:
        engine.run(program)
    assert "image 'image': nothing was built, because it depends on job 'train'" in str(caught.value)
    assert str(caught.value).count("no queue") == 1
    assert images.built == []
