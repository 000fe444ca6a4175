"""The builder of a planned image, the digest before the push, and what is asked and pushed, over a registry."""

from __future__ import annotations

import gzip
import json
import pickle
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.images import (
    Builder,
    ImagePlan,
    build_plans,
    patch_image,
    patching,
    plan_patch,
    refuse_unplanned,
)
from torchx_pulumi.images.content.files import LocalSource
from torchx_pulumi.images.oci import DOCKER_CONFIG, DOCKER_LAYER, DOCKER_MANIFEST, sha256_digest
from torchx_pulumi.images.patching import FOUND_FOR_S
from torchx_pulumi.images.reference import split_patched
from torchx_pulumi.model.errors import ImageError

from tests.unit.images.fake_docker import FakeDocker
from tests.unit.images.fake_registry import FakeRegistry


def push_base(registry: FakeRegistry, path: str = "base", tag: str = "1", **config: Any) -> str:
    """Put a base image of one layer into a registry and return its name."""
    stored = registry.repository(path)
    layer = gzip.compress(b"layer of the base", mtime=0)
    written = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Env": ["PATH=/bin"], "WorkingDir": "/app", **config},
        "rootfs": {"type": "layers", "diff_ids": [sha256_digest(b"layer of the base")]},
        "history": [{"created_by": "base"}],
    }
    content = json.dumps(written).encode()
    for blob in (layer, content):
        stored.blobs[sha256_digest(blob)] = blob
    manifest = {
        "schemaVersion": 2,
        "mediaType": DOCKER_MANIFEST,
        "config": {"mediaType": DOCKER_CONFIG, "digest": sha256_digest(content), "size": len(content)},
        "layers": [{"mediaType": DOCKER_LAYER, "digest": sha256_digest(layer), "size": len(layer)}],
    }
    body = json.dumps(manifest).encode()
    stored.manifests[sha256_digest(body)] = (DOCKER_MANIFEST, body)
    stored.tags[tag] = sha256_digest(body)
    return f"{registry.host}/{path}:{tag}"


@pytest.fixture
def base(registry: FakeRegistry) -> str:
    return push_base(registry)


def plan(registry: FakeRegistry, base: str, workspace: Path, **given: Any) -> ImagePlan:
    return plan_patch(base, str(workspace), f"{registry.host}/app", **{"platform": "linux/amd64", **given})


def quiet(_: str) -> None:
    """Report nothing."""


def test_the_digest_that_is_planned_is_the_digest_that_is_pushed(
    registry: FakeRegistry, base: str, workspace: Path
) -> None:
    made = plan(registry, base, workspace)
    assert made.builder is Builder.REGISTRY
    assert made.pod_reference == f"{made.reference}@{made.digest}"
    assert registry.repository("app").tags == {}
    assert build_plans([made], quiet) == {made.pod_reference: made.digest}
    assert registry.repository("app").tags == {made.tag: made.digest}


def test_the_tag_is_the_same_for_every_builder(
    registry: FakeRegistry, base: str, workspace: Path, docker: FakeDocker
) -> None:
    ours, theirs = plan(registry, base, workspace), plan(registry, base, workspace, builder="docker")
    assert ours.reference == theirs.reference == theirs.pod_reference
    assert (theirs.builder, theirs.digest, theirs.why_docker) == (Builder.DOCKER, None, "")


def test_a_plan_that_travelled_is_pushed_elsewhere(registry: FakeRegistry, base: str, workspace: Path) -> None:
    made = plan(registry, base, workspace)
    build_plans([pickle.loads(pickle.dumps(made))], quiet)
    assert registry.repository("app").tags == {made.tag: made.digest}


@pytest.mark.parametrize("rules", ["", ".dockerignore\n"])
def test_an_unchanged_workspace_costs_two_requests_and_reads_no_file(
    registry: FakeRegistry, base: str, workspace: Path, monkeypatch: pytest.MonkeyPatch, rules: str
) -> None:
    (workspace / ".dockerignore").write_text(rules)
    patch_image(base, str(workspace), f"{registry.host}/app", platform="linux/amd64")
    registry.asked.clear()
    opened: list[str] = []
    really = LocalSource.open
    monkeypatch.setattr(LocalSource, "open", lambda self, path: (opened.append(path), really(self, path))[1])
    # The clock's tick, in which a file may change again without a mark, is over.
    time.sleep(0.05)
    patch_image(base, str(workspace), f"{registry.host}/app", platform="linux/amd64")
    opened.clear()
    registry.asked.clear()
    again = patch_image(base, str(workspace), f"{registry.host}/app", platform="linux/amd64")
    assert [line.split("/manifests/")[0] for line in registry.asked] == ["HEAD /v2/base", "HEAD /v2/app"]
    assert [path for path in opened if path != ".dockerignore"] == []
    assert (again.built, again.pushed) == (False, False)
    assert again.reference.endswith(f"@{again.digest}")


def test_an_image_that_was_found_long_ago_is_asked_for_again(
    registry: FakeRegistry, base: str, workspace: Path
) -> None:
    build_plans([plan(registry, base, workspace)], quiet)
    found = plan(registry, base, workspace)
    assert found.found_at is not None
    stored = registry.repository("app")
    stored.tags.clear()
    stored.manifests.clear()
    assert build_plans([found], quiet) == {found.pod_reference: found.digest}
    old = replace(found, found_at=found.found_at - FOUND_FOR_S - 1)
    assert stored.tags == {}
    build_plans([old], quiet)
    assert stored.tags == {found.tag: found.digest}


OTHER = "sha256:" + "a" * 64


def test_a_tag_with_another_digest_is_not_believed(registry: FakeRegistry, base: str, workspace: Path) -> None:
    first = plan(registry, base, workspace)
    stored = registry.repository("app")
    stored.manifests[OTHER] = (DOCKER_MANIFEST, b"{}")
    stored.tags[first.tag] = OTHER
    second = plan(registry, base, workspace)
    assert (second.digest, second.found_at) == (first.digest, None)
    (warning,) = second.warnings
    assert OTHER in warning
    assert str(first.digest) in warning
    # The pods of the other builder name the tag, so that it stays. The image gets a tag by which it is kept.
    assert build_plans([first], quiet) == {first.pod_reference: first.digest}
    assert stored.tags == {first.tag: OTHER, f"{first.tag}-{str(first.digest)[7:19]}": first.digest}
    assert plan(registry, base, workspace).found_at is not None


def test_a_role_image_whose_name_gets_into_the_image_is_a_part_of_the_tag(
    registry: FakeRegistry, base: str, workspace: Path
) -> None:
    mirror = push_base(registry, "mirror/base")
    assert len({plan(registry, image, workspace).tag for image in (base, mirror)}) == 1
    for text in ("FROM $IMAGE\nARG IMAGE\nENV ON=$IMAGE", f"ARG X=$IMAGE\nFROM {base}\nARG X\nENV ON=$X"):
        (workspace / "Dockerfile.torchx").write_text(f"ARG IMAGE\n{text}\nCOPY . .\n")
        for builder in ("docker", "registry"):
            plans = [plan(registry, image, workspace, builder=builder) for image in (base, mirror)]
            assert len({each.tag for each in plans}) == 2
            assert builder == "docker" or len({each.digest for each in plans}) == 2


@pytest.mark.parametrize(
    "platforms", [("linux/arm64", "linux/arm64/v8", "linux/aarch64"), ("linux/x86_64", "Linux/AMD64")]
)
def test_names_of_one_platform_make_one_tag(
    registry: FakeRegistry, base: str, workspace: Path, platforms: tuple[str, ...]
) -> None:
    plans = [plan(registry, base, workspace, platform=each, builder="docker") for each in platforms]
    assert len({(each.tag, each.platform) for each in plans}) == 1


def test_what_the_rules_take_out_of_the_image_is_not_behind_one_tag(
    registry: FakeRegistry, base: str, workspace: Path
) -> None:
    (workspace / "Dockerfile.torchx").write_text("ARG IMAGE\nFROM $IMAGE\nCOPY . .\n")
    found = set()
    for rules in (".dockerignore\n", ".dockerignore\nDockerfile.torchx\n"):
        (workspace / ".dockerignore").write_text(rules)
        made = plan(registry, base, workspace, ignore_rules="torchx")
        found.add((made.tag, made.digest))
    assert len({tag for tag, _ in found}) == len({digest for _, digest in found}) == 2


def test_a_tag_that_another_push_moves_meanwhile_is_no_change_of_the_registry(
    registry: FakeRegistry, base: str, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = plan(registry, base, workspace)
    push = patching.push_image

    def push_and_move(*args: Any, **given: Any) -> str:
        push(*args, **given)
        return "sha256:" + "a" * 64

    monkeypatch.setattr(patching, "push_image", push_and_move)
    assert build_plans([made], quiet) == {made.pod_reference: made.digest}


def test_a_registry_that_changes_manifests_is_noticed_before_the_launch(
    registry: FakeRegistry, base: str, workspace: Path
) -> None:
    registry.recompresses = True
    with pytest.raises(ImageError, match="the registry changes what is pushed") as caught:
        build_plans([plan(registry, base, workspace)], quiet)
    assert "set the option builder to `docker`" in str(caught.value)


@pytest.mark.parametrize(
    ("dockerfile", "reason"),
    [("FROM $IMAGE\nRUN true\n", "RUN"), ("ARG IMAGE\nFROM $IMAGE AS a\nFROM a\nCOPY . .\n", "stage")],
)
def test_other_dockerfiles_use_the_daemon_or_are_refused_with_the_reason(
    registry: FakeRegistry, base: str, workspace: Path, dockerfile: str, reason: str
) -> None:
    (workspace / "Dockerfile.torchx").write_text("ARG IMAGE\n" + dockerfile)
    made = plan(registry, base, workspace)
    assert (made.builder, made.digest) == (Builder.DOCKER, None)
    assert reason in made.why_docker
    with pytest.raises(ImageError, match="the builder `registry` cannot build it") as caught:
        plan(registry, base, workspace, builder="registry")
    assert reason in str(caught.value)
    assert "set the option builder to `docker` or `auto`" in str(caught.value)
    # The message of a missing daemon says why it is needed.
    with pytest.raises(ImageError, match="Docker daemon cannot be reached") as caught:
        build_plans([made], quiet)
    assert reason in str(caught.value)


def test_a_folder_that_hides_a_link_of_the_base_is_named_in_a_warning(registry: FakeRegistry, workspace: Path) -> None:
    (workspace / "lib").mkdir()
    made = plan(registry, push_base(registry, WorkingDir=""), workspace)
    (warning,) = made.warnings
    assert made.builder is Builder.DOCKER
    assert "puts 'lib' of the workspace in the place of /lib" in warning
    assert warning.endswith("The builder docker replaces such a link as well")


def test_triggers_of_the_base_use_the_daemon(registry: FakeRegistry, workspace: Path) -> None:
    made = plan(registry, push_base(registry, OnBuild=["RUN true"]), workspace)
    assert made.builder is Builder.DOCKER
    assert "ONBUILD" in made.why_docker


def test_triggers_of_the_base_that_use_the_role_image_are_a_part_of_the_tag(
    registry: FakeRegistry, workspace: Path
) -> None:
    def tags(dockerfile: str, on_build: list[str]) -> set[str]:
        (workspace / "Dockerfile.torchx").write_text(f"ARG IMAGE\n{dockerfile}")
        bases = [push_base(registry, path, OnBuild=on_build) for path in ("base", "mirror/base")]
        return {plan(registry, base, workspace, builder=each).tag for base in bases for each in ("auto", "docker")}

    for dockerfile in ("FROM $IMAGE\nCOPY . .\n", "FROM scratch AS one\nFROM $IMAGE\n"):
        assert len(tags(dockerfile, ["ARG IMAGE", "ENV ON=$IMAGE"])) == 2
        assert len(tags(dockerfile, ["ARG IMAGES", "ENV ON=$IMAGES"])) == 1


def test_an_image_without_a_repository_is_built_by_the_daemon(
    registry: FakeRegistry, base: str, workspace: Path
) -> None:
    made = plan_patch(base, str(workspace), None, platform="linux/amd64")
    assert made.builder is Builder.DOCKER
    assert "image_repo" in made.why_docker
    with pytest.raises(ImageError, match="image_repo"):
        plan_patch(base, str(workspace), None, platform="linux/amd64", builder="registry")


def test_another_value_of_the_option_is_refused(registry: FakeRegistry, base: str, workspace: Path) -> None:
    with pytest.raises(ImageError, match="builder is 'kaniko', must be one of auto, registry, docker"):
        plan(registry, base, workspace, builder="kaniko")


def test_only_digests_of_patched_images_are_left_out_of_the_identity(
    registry: FakeRegistry, base: str, workspace: Path
) -> None:
    made = plan(registry, base, workspace)
    assert split_patched(made.pod_reference) == (made.reference, made.digest)
    assert split_patched(made.reference) == (made.reference, None)
    # A commit's hash is the tag of an image of the user's own.
    for image in (f"busybox:1@{made.digest}", f"{registry.host}/app:{'ab' * 20}@{made.digest}"):
        assert split_patched(image) == (image, None)


def test_a_pinned_image_must_be_in_its_registry(registry: FakeRegistry, base: str, workspace: Path) -> None:
    made = plan(registry, base, workspace)
    with pytest.raises(ImageError, match="no registry has it"):
        refuse_unplanned([made.pod_reference])
    build_plans([made], quiet)
    assert list(refuse_unplanned([made.pod_reference])) == []
