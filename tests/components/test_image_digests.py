"""Digests that pods name after the tags of planned images: never a part of the identity, and kept with the run."""

from __future__ import annotations

import copy
import json
from typing import Any

import pulumi
import pytest
from torchx_pulumi.model.labels import IMAGE_DIGESTS
from torchx_pulumi.testing import cluster_for_tests
from torchx_pulumi_components import VolcanoTrainingJob, stack_outputs

from tests.components.test_volcano_training_job import (
    JOB,
    POD,
    args,
    cluster,
    remember_all,
    shown,
    stashed,
)
from tests.components.test_volcano_training_job import remember as remember_run

ONE, TWO = (f"sha256:{digit * 64}" for digit in "12")
TAG = "registry.example/team/train:patched-" + "a" * 40
UNPATCHED = "registry.example/team/train:" + "a" * 40
STRINGS = {"docker": TAG, "registry": f"{TAG}@{ONE}", "pushed by another builder": f"{TAG}@{TWO}"}
"""Names that planning gives to the image of one workspace."""

CHANGES = [(first, then) for first in STRINGS for then in STRINGS if first != then]


def up(engine: Any, image: Any, *objects: Any, preview: bool = False, **given: Any) -> Any:
    role = {"image": image, **given.pop("role", {})}
    opts = given.pop("opts", None)
    with cluster_for_tests(cluster(*objects)):
        return engine.run(lambda: VolcanoTrainingJob("train", args(role=role, **given), opts), preview=preview)


def pod_image(engine: Any) -> str:
    """Return the image of the pods, which is in their environment as well."""
    job = engine.mocks.of_type(JOB)
    pod = job[0].inputs["spec"]["tasks"][0]["template"] if job else engine.mocks.of_type(POD)[0].inputs
    (container,) = pod["spec"]["containers"]
    (named,) = [item["value"] for item in container["env"] if item["name"] == "TORCHX_IMAGE"]
    assert container["image"] == named
    return str(named)


def registered(engine: Any) -> dict[tuple[str, str], Any]:
    return {(item.typ, item.name): item.inputs for item in engine.mocks.resources}


def test_one_run_whatever_builds_its_image_and_whatever_digest_it_has(engine: Any) -> None:
    found = []
    for image in STRINGS.values():
        job = up(engine, image)
        record = engine.record()
        assert pod_image(engine) == image
        assert engine.value(job.images) == {"trainer": image}
        (role,) = engine.value(job.declared)["roles"]
        digest = image.partition("@")[2] or None
        assert (role["image"], role["digest"]) == (image, digest)
        assert record.get("image_digests") == ({"trainer": digest} if digest else None)
        assert record["version"] == (2 if digest else 1)
        assert stashed(engine, "-intent").get("image_digests") == record.get("image_digests")
        found.append({key: record[key] for key in ("hash", "digests", "job_name", "launched", "replicas")})
    assert found[0] == found[1] == found[2]


def test_a_digest_that_the_user_wrote_is_a_part_of_the_identity(engine: Any) -> None:
    names = []
    for image in (UNPATCHED, f"{UNPATCHED}@{ONE}", f"{UNPATCHED}@{TWO}"):
        up(engine, image)
        assert pod_image(engine) == image
        assert engine.record()["version"] == 1
        names.append(engine.record()["job_name"])
    assert len(set(names)) == 3
    live = remember_run(engine)
    with pytest.raises(pulumi.RunError, match=r"changing roles\[trainer\].image would relaunch"):
        up(engine, f"{UNPATCHED}@{ONE}", live)


@pytest.mark.parametrize("gang", ["job", "pods"])
@pytest.mark.parametrize(("first", "then"), CHANGES)
def test_a_run_that_is_kept_keeps_the_name_of_its_image(engine: Any, first: str, then: str, gang: str) -> None:
    launched = up(engine, STRINGS[first], gang=gang)
    outputs, before = shown(engine, launched), registered(engine)
    live = remember_all(engine, launched)
    for preview in (True, False):
        job = up(engine, STRINGS[then], *live, gang=gang, preview=preview)
        assert shown(engine, job) == outputs
        assert registered(engine) == before
    # A run that changes in place is rendered as before.
    up(engine, STRINGS[then], *live, gang=gang, priority_class=None, labels={"team": "a"})
    assert pod_image(engine) == STRINGS[first]
    # A new run has the name of its time.
    up(engine, STRINGS[then], *live, gang=gang, rerun="2", on_running_change="replace")
    assert pod_image(engine) == STRINGS[then]


@pytest.mark.parametrize("then", STRINGS)
def test_a_launch_that_was_killed_before_its_record_keeps_the_digest(engine: Any, then: str) -> None:
    up(engine, STRINGS["registry"])
    live = remember_run(engine, intent_only=True)
    up(engine, STRINGS[then], live)
    assert pod_image(engine) == STRINGS["registry"]
    assert engine.record()["image_digests"] == {"trainer": ONE}


@pytest.mark.parametrize("then", STRINGS)
def test_a_launch_of_which_nothing_was_created_has_the_digest_of_its_time(engine: Any, then: str) -> None:
    up(engine, STRINGS["registry"])
    remember_run(engine, intent_only=True)
    up(engine, STRINGS[then])
    assert pod_image(engine) == STRINGS[then]


@pytest.mark.parametrize("imported", [False, True])
@pytest.mark.parametrize(("first", "then"), CHANGES)
def test_a_job_without_a_record_has_the_digest_of_its_objects(
    engine: Any, first: str, then: str, imported: bool
) -> None:
    named = {"job_name": "mine"} if imported else {}
    up(engine, STRINGS[first], **named)
    live: Any = copy.deepcopy(engine.mocks.one(JOB).inputs)
    live["metadata"] |= {"uid": "theirs", "creationTimestamp": "2026-01-01T00:00:00Z"}
    opts = pulumi.ResourceOptions(import_="default/mine") if imported else None
    engine.mocks.state = {}
    job = up(engine, STRINGS[then], live, opts=opts, **named)
    assert pod_image(engine) == STRINGS[first]
    assert engine.value(job.images) == {"trainer": STRINGS[first]}
    digest = STRINGS[first].partition("@")[2]
    assert engine.record().get("image_digests") == ({"trainer": digest} if digest else None)


def test_pods_of_a_job_without_a_record_have_the_digest_of_its_pods(engine: Any) -> None:
    launched = up(engine, STRINGS["registry"], gang="pods")
    live = remember_all(engine, launched)
    engine.mocks.state = {}
    up(engine, TAG, *live, gang="pods")
    assert pod_image(engine) == STRINGS["registry"]
    assert engine.record()["image_digests"] == {"trainer": ONE}


@pytest.mark.parametrize("then", STRINGS)
def test_the_annotation_of_a_run_that_is_kept_names_the_digest_of_its_pods(engine: Any, then: str) -> None:
    def note(digest: str) -> dict[str, str]:
        return {IMAGE_DIGESTS: json.dumps({"trainer": digest}), "mine": "kept"}

    up(engine, STRINGS["registry"], annotations=note(ONE))
    before, record = registered(engine), engine.record()
    live = remember_run(engine)
    up(engine, STRINGS[then], live, annotations=note(STRINGS[then].partition("@")[2] or TWO))
    assert registered(engine)[JOB, "train"] == before[JOB, "train"]
    assert engine.record() == record
    up(engine, TAG, live, annotations={IMAGE_DIGESTS: "the user's own"})
    assert engine.mocks.one(JOB).inputs["metadata"]["annotations"][IMAGE_DIGESTS] == "the user's own"


@pytest.mark.parametrize("then", STRINGS)
def test_a_run_that_is_over_and_gone_keeps_its_outputs(engine: Any, then: str) -> None:
    launched = up(engine, STRINGS["registry"])
    outputs = shown(engine, launched)
    remember_all(engine, launched)
    component = next(value for value in engine.mocks.state.values() if "declared" in value)
    component["observed"] |= {"state": "SUCCEEDED"}
    job = up(engine, STRINGS[then])
    assert shown(engine, job) == outputs
    assert engine.mocks.of_type(JOB) == []
    assert engine.record()["image_digests"] == {"trainer": ONE}


def test_a_change_that_is_ignored_keeps_the_name_in_the_outputs(engine: Any) -> None:
    launched = up(engine, STRINGS["registry"])
    outputs = shown(engine, launched)
    live = remember_all(engine, launched)
    job = up(engine, TAG, *live, role={"entrypoint": "other"}, on_running_change="ignore")
    assert shown(engine, job) == outputs
    assert engine.record()["image_digests"] == {"trainer": ONE}


@pytest.mark.parametrize("then", STRINGS)
def test_a_run_that_is_kept_shows_its_name_next_to_values_that_are_secret_or_unknown(engine: Any, then: str) -> None:
    env = {"TOKEN": pulumi.Output.secret("hunter22"), "LATER": pulumi.Output.from_input("known")}
    up(engine, STRINGS["registry"], role={"env": env})
    live = remember_run(engine)
    env["LATER"] = pulumi.Output.from_input(pulumi.output.UNKNOWN)
    job = up(engine, STRINGS[then], live, role={"env": env}, preview=True)
    assert engine.value(job.images) == {"trainer": STRINGS["registry"]}
    for found in (job.images, job.declared):
        assert engine.loop.run_until_complete(found.is_known())
        assert not engine.loop.run_until_complete(found.is_secret())


def test_a_name_that_is_not_known_in_preview_keeps_a_running_job(engine: Any) -> None:
    up(engine, STRINGS["registry"])
    live = remember_run(engine)
    unknown = pulumi.Output.from_input(pulumi.output.UNKNOWN)
    up(engine, unknown, live, preview=True)
    assert "unknown-leaf" not in repr(engine.mocks.one(JOB).inputs)
    assert engine.record()["image_digests"] == {"trainer": ONE}


def test_digests_of_builds_are_found_by_the_name_that_a_kept_run_has(engine: Any) -> None:
    def outputs(image: str, *live: Any) -> Any:
        def program() -> Any:
            job = VolcanoTrainingJob("train", args(role={"image": image}))
            return stack_outputs(job, digests={f"{TAG}@{TWO}": TWO})["torchx"]

        with cluster_for_tests(cluster(*live)):
            (role,) = engine.value(engine.run(program))["declared"]["roles"]
        return role["image"], role["digest"]

    assert outputs(STRINGS["registry"]) == (STRINGS["registry"], ONE)
    assert outputs(TAG) == (TAG, TWO)
    live = remember_run(engine)
    assert outputs(f"{TAG}@{TWO}", live) == (TAG, TWO)
