"""What is used of Pulumi's SDK besides its public interface: refused by name where it was not tested."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pulumi
import pytest
from torchx_pulumi_components import VolcanoTrainingJob, pulumi_runtime

from tests.components.test_volcano_training_job import args


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Let the SDK be looked at again."""
    pulumi_runtime._private.cache_clear()
    yield
    pulumi_runtime._private.cache_clear()


def installed(version: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = folder / f"pulumi-{version}.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: pulumi\nVersion: {version}\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(folder))


@pytest.mark.parametrize("version", ["3.259.0", "3.265.1", "3.272.9"])
def test_tested_versions_are_taken(engine: Any, version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(version, tmp_path, monkeypatch)
    engine.run(lambda: VolcanoTrainingJob("train", args()))
    assert engine.mocks.resources


@pytest.mark.parametrize("version", ["3.258.9", "3.273.0", "4.0.0", "2.0", "unreadable"])
def test_other_versions_are_refused_by_name_before_anything_is_registered(
    engine: Any, version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(version, tmp_path, monkeypatch)
    with pytest.raises(pulumi.RunError) as caught:
        engine.run(lambda: VolcanoTrainingJob("train", args()))
    assert str(caught.value) == (
        f"the Python package pulumi {version} was not tested with torchx-pulumi, only 3.259 to 3.272, and jobs in a "
        "program need parts of it that may change; nothing was changed; run `pip install 'pulumi>=3.259,<3.273'`, or "
        "install a newer torchx-pulumi"
    )
    assert engine.mocks.resources == []


def test_a_name_that_the_sdk_lacks_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("pulumi.runtime.mocks.MockMonitor")
    with pytest.raises(pulumi.RunError, match=r"lacks pulumi\.runtime\.mocks\.MockMonitor.*install it again"):
        pulumi_runtime.is_mocked()
