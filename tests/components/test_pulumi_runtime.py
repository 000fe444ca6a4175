"""What is used of Pulumi's SDK besides its public interface: what an untested release changed is told by name."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pulumi
import pytest
from torchx_pulumi.model import pulumi_pieces
from torchx_pulumi_components import VolcanoTrainingJob, pulumi_runtime
from torchx_pulumi_components.resources import KubernetesObject

from tests.components.test_volcano_training_job import args


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Let the SDK be looked at again."""
    looks = (pulumi_runtime._private, pulumi_runtime._checked_version, pulumi_pieces.examine_sdk)
    for look in looks:
        look.cache_clear()
    yield
    for look in looks:
        look.cache_clear()


def installed(version: str, folder: Path, monkeypatch: pytest.MonkeyPatch, altered: str = "", text: str = "") -> None:
    """Let the SDK have a version, and one of its names another text in its sources."""
    metadata = folder / f"pulumi-{version}.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: pulumi\nVersion: {version}\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(folder))
    if altered:
        shutil.copytree(Path(pulumi.__file__).parent, folder / "sdk", ignore=shutil.ignore_patterns("__pycache__"))
        path = folder / "sdk" / "runtime" / "stack.py"
        path.write_text(re.sub(rf"\b{altered}\b", text, path.read_text(encoding="utf-8")), encoding="utf-8")
        monkeypatch.setattr(pulumi_pieces, "_sdk_folder", lambda: folder / "sdk")


@pytest.mark.parametrize("version", ["3.259.0", "3.265.1", "3.272.9", "3.999.0"])
def test_releases_without_a_change_are_taken_in_silence(
    engine: Any, version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    installed(version, tmp_path, monkeypatch)
    engine.run(lambda: VolcanoTrainingJob("train", args()))
    assert engine.mocks.resources
    assert "pulumi" not in caplog.text


def test_a_release_with_a_change_is_warned_about_once(
    engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    installed("3.999.0", tmp_path, monkeypatch, "await_all_outstanding_tasks", "await_all")
    engine.run(lambda: [VolcanoTrainingJob(name, args()) for name in ("a", "b")])
    assert engine.mocks.resources
    assert [each.message for each in caplog.records if "pulumi" in each.message] == [
        "the Python package pulumi 3.999.0 was not tested with torchx-pulumi, only 3.259 to 3.272; of what jobs in a "
        "program need, it changed pulumi.runtime.stack.wait_for_rpcs; read previews with care, or run "
        "`pip install 'pulumi>=3.259,<3.273'`, or install a newer torchx-pulumi"
    ]


@pytest.mark.parametrize(
    ("version", "altered", "said"),
    [
        ("3.258.9", "", "is not supported, only 3.259 or newer below 4"),
        ("4.0.0", "", "is not supported, only 3.259 or newer below 4"),
        (
            "3.999.0",
            "wait_for_rpcs",
            "was not tested with torchx-pulumi, only 3.259 to 3.272, and lacks pulumi.runtime.stack.wait_for_rpcs, "
            "which jobs in a program need",
        ),
    ],
)
def test_other_releases_are_refused_by_name_before_anything_is_registered(
    engine: Any, version: str, altered: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(version, tmp_path, monkeypatch, altered, "another")
    with pytest.raises(pulumi.RunError) as caught:
        engine.run(lambda: VolcanoTrainingJob("train", args()))
    assert str(caught.value) == (
        f"the Python package pulumi {version} {said}; nothing was changed; "
        "run `pip install 'pulumi>=3.259,<3.273'`, or install a newer torchx-pulumi"
    )
    assert engine.mocks.resources == []


def test_a_name_that_the_sdk_lacks_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("pulumi.runtime.mocks.MockMonitor")
    with pytest.raises(pulumi.RunError, match=r"lacks pulumi\.runtime\.mocks\.MockMonitor.*install it again"):
        pulumi_runtime.is_mocked()


VALUE = {"tasks": [{"name": "trainer-0", "replicas": 1, "share": 0.5, "wait": False, "ports": []}], "policies": {}}


def registered(engine: Any, *, bypass: bool) -> tuple[dict[str, Any], str]:
    """Register an object; return what the engine is given, and the uid that the program reads from its answer."""

    def program() -> KubernetesObject:
        spec = {} if bypass and pulumi_runtime.bypass_conversion("train", "spec", VALUE) else VALUE
        manifest = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train-1"}, "spec": spec}
        return KubernetesObject.register("train", manifest, pulumi.ResourceOptions())

    made = engine.run(program)
    uid: str = engine.loop.run_until_complete(made.uid.future())
    return engine.mocks.one("kubernetes:batch/v1:Job").inputs, uid


def test_a_property_beside_the_sdk_is_given_to_the_engine_as_through_it(engine: Any) -> None:
    assert registered(engine, bypass=True) == registered(engine, bypass=False)


def test_of_an_untested_release_nothing_goes_beside_the_sdk(
    engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs, _ = registered(engine, bypass=False)
    installed("3.999.0", tmp_path, monkeypatch)
    assert not pulumi_runtime.bypass_conversion("train", "spec", VALUE)
    assert registered(engine, bypass=True)[0] == inputs
