"""Which images of a repository nothing references: a mistake here deletes an image that a job needs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.fleet.unused_images import TagReport, find_unused
from torchx_pulumi.images.oci import OCI_CONFIG, OCI_MANIFEST, Descriptor, Manifest
from torchx_pulumi.images.plan import CONTENT_LABEL
from torchx_pulumi.images.reference import Reference
from torchx_pulumi.model.errors import DeployError, ImageError
from torchx_pulumi.model.run_record import RunRecord, write_record
from torchx_pulumi.runs.identity import digest
from torchx_pulumi.runs.index import RunIndex

from tests.unit.fleet.collect.states import checkpoint, output, write_stack
from tests.unit.runs.test_index import entry

REPOSITORY = "registry.example.com/team/train"
RECORD = RunRecord(
    app_id="default:train-x1",
    job_name="train-x1",
    namespace="default",
    hash="h",
    digests={},
    launched={"trainer": 1},
    replicas={"trainer": 1},
    attempt=1,
    launched_at="2026-01-01T00:00:00Z",
)


def tag(number: int) -> str:
    return f"{number:040x}"


def sha(number: int) -> str:
    return f"sha256:{number:064x}"


class Tags:
    """A registry of one repository."""

    def __init__(self, digests: Mapping[str, str | None]) -> None:
        self.digests = digests

    def tags(self, repository: Reference) -> Sequence[str]:
        return list(self.digests)

    def digest(self, reference: Reference) -> str | None:
        assert reference.tag is not None
        return self.digests[reference.tag]

    def manifest(self, reference: Reference) -> Manifest:
        (tag,) = [tag for tag, found in self.digests.items() if found == reference.digest][:1]
        config = {"mediaType": OCI_CONFIG, "digest": f"sha256:{tag.ljust(64, '0')}", "size": 1}
        return Manifest(media_type=OCI_MANIFEST, content=json.dumps({"config": config}).encode())

    def read_blob(self, repository: Reference, descriptor: Descriptor) -> bytes:
        """Return a configuration whose label begins with the first tag of its image."""
        return json.dumps({"config": {"Labels": {CONTENT_LABEL: descriptor.digest[7:]}}}).encode()


@pytest.fixture
def backend(tmp_path: Path) -> Path:
    folder = tmp_path / "backend"
    write_stack(folder, "empty", checkpoint())
    return folder


@pytest.fixture
def index(tmp_path: Path) -> RunIndex:
    return RunIndex(tmp_path / "runs")


def look(
    backend: Path, index: RunIndex, digests: Mapping[str, str | None] | None = None, repository: str = REPOSITORY
) -> TagReport:
    found = {tag(1): sha(1), tag(2): sha(2)} if digests is None else digests
    return find_unused(repository, [f"file://{backend}"], Tags(found), index=index)


def unused(report: TagReport) -> list[str]:
    return [each for image in report.unused for each in image.tags]


def test_what_nothing_references_is_unused_and_other_tags_are_left(backend: Path, index: RunIndex) -> None:
    report = look(backend, index, {tag(1): sha(1), "latest": sha(7), "a" * 64: sha(8), tag(3): None})
    assert unused(report) == [tag(1)]
    assert (report.others, report.stacks) == (["a" * 64, "latest"], 1)


@pytest.mark.parametrize(
    "state",
    [
        pytest.param(checkpoint(output(declared={"roles": [{"image": f"{REPOSITORY}:{tag(1)}"}]})), id="output"),
        pytest.param(checkpoint(image=f"{REPOSITORY}:{tag(1)}@{sha(9)}"), id="another digest"),
        pytest.param(checkpoint(image=f"{REPOSITORY}@{sha(1)}"), id="digest alone"),
        pytest.param(checkpoint(note=json.dumps({"trainer": sha(1)})), id="annotation"),
        pytest.param(
            checkpoint(record=replace(RECORD, digests={"roles[a].image": digest(f"{REPOSITORY}:{tag(1)}")})),
            id="record",
        ),
        pytest.param(
            checkpoint(record=replace(RECORD, digests={"roles[a].image": digest(f"{REPOSITORY}:{tag(1)}@{sha(1)}")})),
            id="record of an image that the user pinned",
        ),
    ],
)
def test_every_reference_in_a_state_counts(backend: Path, index: RunIndex, state: Any) -> None:
    write_stack(backend, "train", state, project="program")
    report = look(backend, index)
    assert unused(report) == [tag(2)]
    assert report.images[0].used_by == "stack program/train"


@pytest.mark.parametrize("written", ["team/train", "docker.io/team/train", "index.docker.io/team/train"])
@pytest.mark.parametrize("asked", ["team/train", "docker.io/team/train"])
def test_a_record_counts_however_the_repository_was_written(
    backend: Path, index: RunIndex, written: str, asked: str
) -> None:
    record = replace(RECORD, digests={"roles[a].image": digest(f"{written}:{tag(1)}")})
    write_stack(backend, "train", checkpoint(record=record))
    assert unused(look(backend, index, repository=asked)) == [tag(2)]


def test_objects_of_a_pending_launch_count(backend: Path, index: RunIndex) -> None:
    state = checkpoint()
    pod = {"type": "kubernetes:core/v1:Pod", "inputs": {"image": f"{REPOSITORY}:{tag(2)}"}}
    state["checkpoint"]["latest"]["pending_operations"] = [{"type": "creating", "resource": pod}]
    write_stack(backend, "train", state)
    assert unused(look(backend, index)) == [tag(1)]


def test_apps_of_this_machine_count_whatever_their_backend_is(backend: Path, index: RunIndex) -> None:
    index.add(replace(entry(), app={"name": "a", "roles": [{"name": "r", "image": f"{REPOSITORY}:{tag(2)}"}]}))
    report = look(backend, index)
    assert unused(report) == [tag(1)]
    assert report.images[1].used_by == f"app {entry().app_id} of this machine"


def test_a_manifest_with_a_referenced_tag_is_kept_under_all_its_tags(backend: Path, index: RunIndex) -> None:
    write_stack(backend, "train", checkpoint(image=f"{REPOSITORY}:{tag(1)}"))
    digests = {tag(1): sha(1), tag(2): sha(1), tag(3): sha(3), "release": sha(3), tag(4): sha(4), tag(5): sha(4)}
    report = look(backend, index, digests)
    assert unused(report) == [tag(4), tag(5)]
    assert [image.used_by for image in report.images] == ["stack torchx/train", "tag release", None]


def test_all_stacks_that_cannot_be_read_are_named(backend: Path, index: RunIndex) -> None:
    write_stack(backend, "cut", '{"version": 3, "checkpoint": {')
    write_stack(backend, "gone", "")
    newer = checkpoint(record=RECORD)
    newer["checkpoint"]["latest"]["resources"][1]["inputs"]["input"] = {**write_record(RECORD), "version": 99}
    write_stack(backend, "newer", newer)
    secret = checkpoint(record=RECORD)
    secret["checkpoint"]["latest"]["resources"][1]["inputs"]["input"] = {
        "4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270", "ciphertext": "x",
    }  # fmt: skip
    write_stack(backend, "secret", secret)
    with pytest.raises(DeployError, match="nothing was deleted") as refused:
        look(backend, index)
    for stack in ("cut", "gone", "newer", "secret"):
        assert f"stack torchx/{stack}: " in str(refused.value)


def test_a_stack_that_is_being_updated_is_not_known(backend: Path, index: RunIndex) -> None:
    lock = backend / ".pulumi/locks/organization/torchx/empty/1.json"
    lock.parent.mkdir(parents=True)
    lock.write_text("{}")
    with pytest.raises(DeployError, match="stack torchx/empty: is being updated"):
        look(backend, index)


def test_a_backend_without_stacks_is_a_mistake(tmp_path: Path, index: RunIndex) -> None:
    with pytest.raises(DeployError, match=r"folder .* is not there"):
        look(tmp_path / "absent", index)
    (tmp_path / "new" / ".pulumi").mkdir(parents=True)
    with pytest.raises(DeployError, match="has no stacks"):
        look(tmp_path / "new", index)


def test_several_backends_are_read(backend: Path, tmp_path: Path, index: RunIndex) -> None:
    write_stack(tmp_path / "other", "b", checkpoint(image=f"{REPOSITORY}:{tag(1)}"))
    write_stack(backend, "a", checkpoint(image=f"{REPOSITORY}:{tag(2)}"))
    report = find_unused(
        REPOSITORY,
        [f"file://{backend}", f"file://{tmp_path / 'other'}"],
        Tags({tag(1): sha(1), tag(2): sha(2), tag(3): sha(3)}),
        index=index,
    )
    assert (unused(report), report.stacks) == ([tag(3)], 3)


def test_a_damaged_entry_of_this_machine_is_named(backend: Path, index: RunIndex, tmp_path: Path) -> None:
    index.add(entry())
    (file,) = [path for path in (tmp_path / "runs").rglob("*.json") if "@" in path.name]
    file.write_text("{}")
    with pytest.raises(DeployError, match="an app is left out"):
        look(backend, index)


def test_a_registry_with_other_digests_is_refused(backend: Path, index: RunIndex) -> None:
    with pytest.raises(ImageError, match="must be sha256:"):
        look(backend, index, {tag(1): "sha512:abc"})
