"""What is watched carries the labels by which it is selected, and is small in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from torchx_pulumi.kube import Selector
from torchx_pulumi.kube.kinds import EVENT, POD, Kind
from torchx_pulumi.kube.protocol import matches
from torchx_pulumi.kube.trimming import trim
from torchx_pulumi.model import labels
from torchx_pulumi.schedulers import find_backend, scheduler_names
from torchx_pulumi.schedulers.diagnosis.evidence import ObservedObjects
from torchx_pulumi.schedulers.pods.observe import has_secrets
from torchx_pulumi_fleet.watch.watching import watch_list

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
FILES = sorted(GOLDEN.glob("*/*.yaml"))


def inner(found: Any) -> Iterator[dict[str, Any]]:
    """Yield objects and templates of a rendered manifest, at any depth."""
    if isinstance(found, dict):
        if "metadata" in found and ("kind" in found or "spec" in found):
            yield found
        for value in found.values():
            yield from inner(value)
    elif isinstance(found, list):
        for value in found:
            yield from inner(value)


def selector_of(found: dict[str, Any]) -> tuple[Kind, Selector | None] | None:
    # Templates of pods have no kind.
    name = (found.get("apiVersion", "v1"), found.get("kind", "Pod"))
    return next(((kind, one) for kind, one in watch_list() if (kind.api_version, kind.kind) == name), None)


def test_each_kind_is_watched_once_and_the_kinds_of_all_schedulers_are() -> None:
    watched = dict(watch_list())
    assert len(watched) == len(watch_list())
    assert watched[POD] == {labels.ORGANIZATION: labels.ORGANIZATION_VALUE}
    assert watched[EVENT] is None
    for scheduler in scheduler_names():
        backend = find_backend(scheduler)
        for variant in backend.variants.values():
            assert watched[variant.job_object] == {labels.LAUNCH: None}
        assert {kind for kind, _ in backend.explaining_kinds} <= watched.keys()


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_rendered_objects_have_the_labels_by_which_they_are_watched(path: Path) -> None:
    manifest = yaml.safe_load(path.read_text())
    items = manifest["items"] if manifest["kind"] == "List" else [manifest]
    seen = set()
    for found in inner(manifest):
        selected = selector_of(found)
        if selected is None:
            continue
        kind, selector = selected
        seen.add(kind.kind)
        if found is items[0]:
            # A launch adds the label to the job object.
            assert selector == {labels.LAUNCH: None}
        else:
            assert matches(found, selector), found["metadata"]
    assert "Pod" in seen


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_trimmed_manifest_has_the_same_status_and_the_same_secrets(path: Path) -> None:
    manifest = yaml.safe_load(path.read_text())
    items = manifest["items"] if manifest["kind"] == "List" else [manifest]
    before = json.dumps(items)
    backend = find_backend(path.parent.name)
    variant = next(one for one in backend.variants.values() if one.job_object.api_version == items[0]["apiVersion"])
    # The fixture of this folder compares it with that of the trimmed objects.
    status = variant.read_status(ObservedObjects(job_object=items[0], pods=[]))
    assert status.state
    for found in inner(items):
        if "containers" in found.get("spec", {}):
            assert has_secrets(trim(found)) == has_secrets(found)
    assert json.dumps(items) == before
    assert len(json.dumps([trim(item) for item in items])) < 0.9 * len(before)
