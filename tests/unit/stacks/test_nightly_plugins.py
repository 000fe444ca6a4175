"""What TorchX offers with this package installed: alone, next to another one, and wherever plugins are looked for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from torchx.schedulers import DEFAULT_SCHEDULER_MODULES
from torchx_pulumi_stacks.nightly_plugins import DEFAULT, SOURCES

ROOT = Path(__file__).resolve().parents[3]
NIGHTLY = "kubernetes_mcad" not in DEFAULT_SCHEDULER_MODULES
OURS = {"pulumi_mcad", "pulumi_volcano"}
REMOVED = {"kubernetes_mcad", "aws_batch", "aws_sagemaker", "gcp_batch", "ray", "lsf"}
OWN = set(DEFAULT_SCHEDULER_MODULES)
THEIRS = {"local_cwd", "local_docker", "slurm", "theirs_a", "theirs_b", "theirs_c", "theirs_d", "theirs_e"}

LIST = """
import json, os, sys
import torchx.schedulers
from torchx.schedulers import get_default_scheduler_name, get_scheduler_factories

def say():
    factories = get_scheduler_factories()
    made = {}
    for name in ("local_cwd", "local_docker", "kubernetes", "aws_batch", "pulumi_volcano"):
        try:
            made[name] = type(factories[name]("s")).__module__ if name in factories else None
        except Exception as error:
            made[name] = type(error).__name__
    said = {"names": sorted(factories), "default": get_default_scheduler_name(), "made": made, "errors": []}
    try:
        from torchx.plugins import PluginType, registry
    except ImportError:
        pass
    else:
        said["errors"] = [str(error) for error in registry().load_errors()]
        said["handlers"] = sorted(registry().get(PluginType.EVENT_HANDLER))
    from importlib import metadata
    said["version"] = metadata.version("torchx_pulumi")
    print(json.dumps(said), flush=True)

for source in sys.argv[1:]:
    child = os.fork()
    if child == 0:
        os.environ["TORCHX_PLUGINS_SOURCE"] = source
        say()
        os._exit(0)
    os.waitpid(child, 0)
"""


def offered(folder: Path | None = None, *, last: bool = False) -> Mapping[str, Any]:
    """Return the schedulers that TorchX offers, by the value of `TORCHX_PLUGINS_SOURCE`."""
    sources = ["0", "1", "2", "3"] if NIGHTLY else ["3"]
    env = {name: value for name, value in os.environ.items() if name != SOURCES}
    env["PYTHONPATH"] = os.pathsep.join(
        [*([str(folder)] if folder and not last else []), str(ROOT / "sdk"), str(ROOT / "stacks")]
    )
    code = f"import sys; sys.path.append({str(folder)!r})\n{LIST}" if folder and last else LIST
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, *sources], capture_output=True, text=True, check=True, env=env
    )
    assert "failed to import" not in done.stderr
    return dict(zip(sources, map(json.loads, done.stdout.splitlines()), strict=True))


def distribution(folder: Path, name: str, entry_points: str) -> Path:
    """Install a distribution into a folder of its own."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entry_points)
    return folder


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """A package that registers eight schedulers, three of them under names of TorchX's."""
    (tmp_path / "theirs.py").write_text(
        "class Theirs:\n    pass\n\ndef create(session_name, **kwargs):\n    return Theirs()\n"
    )
    lines = "".join(f"{name} = theirs:create\n" for name in sorted(THEIRS))
    return distribution(tmp_path, "theirs", f"[torchx.schedulers]\n{lines}")


def test_the_default_of_torchx_is_the_one_that_is_kept() -> None:
    assert next(iter(DEFAULT_SCHEDULER_MODULES)) == DEFAULT


def test_alone_torchx_has_what_it_had_and_ours() -> None:
    found = offered()
    own = {
        "local_cwd": "torchx.schedulers.local_scheduler",
        "local_docker": "torchx.schedulers.docker_scheduler",
        "kubernetes": "torchx.schedulers.kubernetes_scheduler",
    }
    for source, said in found.items():
        ours = OURS if source != "0" else set()
        # Nothing of ours runs before TorchX lists entry points where it reads nothing else.
        dead = REMOVED if NIGHTLY and source == "2" else set()
        assert set(said["names"]) == OWN | ours | dead, source
        assert said["default"] == DEFAULT
        assert {name: said["made"][name] for name in own} == own
        assert (said["made"]["pulumi_volcano"] or "").startswith("torchx_pulumi.") is bool(ours)
        assert said["errors"] == []
        assert said.get("handlers", []) == []
        assert said["version"] == metadata.version("torchx-pulumi")
    if NIGHTLY:
        assert [found[source]["made"]["aws_batch"] for source in "0123"] == [None, None, "ModuleNotFoundError", None]


@pytest.mark.parametrize("last", [False, True])
def test_another_package_keeps_its_schedulers_and_torchx_its_own(other: Path, last: bool) -> None:
    for source, said in offered(other, last=last).items():
        theirs = THEIRS if source in "23" else set()
        dead = REMOVED if NIGHTLY and source == "2" else set()
        assert set(said["names"]) == OWN | (OURS if source != "0" else set()) | theirs | dead, source
        assert said["made"]["local_cwd"] == ("theirs" if theirs else "torchx.schedulers.local_scheduler")
        assert said["made"]["local_docker"] == ("theirs" if theirs else "torchx.schedulers.docker_scheduler")
        assert said["errors"] == []


@pytest.mark.skipif(not NIGHTLY, reason="TorchX 0.7.0 has entry points only")
def test_another_plugin_for_kubernetes_is_not_hidden(tmp_path: Path) -> None:
    module = tmp_path / "torchx_plugins" / "schedulers" / "theirs.py"
    module.parent.mkdir(parents=True)
    module.write_text(
        "from torchx.plugins import register\n\nclass Theirs:\n    pass\n\n"
        "@register.scheduler(name='kubernetes')\ndef theirs(session_name, **kwargs):\n    return Theirs()\n"
    )
    for source, said in offered(tmp_path).items():
        if source in "13":
            assert said["made"]["kubernetes"] == "torchx_plugins.schedulers.theirs", source
        assert said["errors"] == [], source
        assert set(said["names"]) >= OURS or source == "0"


def test_another_entry_point_for_kubernetes_is_not_hidden(tmp_path: Path) -> None:
    (tmp_path / "theirs.py").write_text(
        "class Theirs:\n    pass\n\ndef create(session_name, **kwargs):\n    return Theirs()\n"
    )
    there = distribution(tmp_path, "theirs", "[torchx.schedulers]\nkubernetes = theirs:create\n")
    found = offered(there)
    assert {found[source]["made"]["kubernetes"] for source in found if source in "23"} == {"theirs"}
    assert all(said["errors"] == [] for said in found.values())


@pytest.mark.skipif(not NIGHTLY, reason="TorchX 0.7.0 has entry points only")
def test_without_entry_points_of_ours_the_namespace_package_registers(tmp_path: Path) -> None:
    hidden = distribution(tmp_path, "torchx_pulumi", "")
    for source, said in offered(hidden).items():
        assert set(said["names"]) == OWN | (OURS if source in "13" else set()), source
        assert (said["default"], said["errors"]) == (DEFAULT, [])


def test_the_wheel_has_the_namespace_package_and_no_more(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT, check=True, capture_output=True,
    )  # fmt: skip
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as read:
        names = [name for name in read.namelist() if name.startswith("torchx_plugins/")]
    # A package of this name would hide the plugins of all others.
    assert names == ["torchx_plugins/schedulers/torchx_pulumi.py"]
