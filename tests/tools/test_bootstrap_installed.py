from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tools.bootstrap.errors import BootstrapError
from tools.bootstrap.installed import Machine, link
from tools.bootstrap.part import DebianLink, DebianSource, Installed, Part
from tools.bootstrap.parts import part_named

TOOL = Part(
    name="tool",
    version="debian",
    expected_s=1,
    source=DebianSource(
        packages=("tool",),
        links=(DebianLink(executable="tool", path="bin/tool"), DebianLink(executable="tool-helper", path="bin/helper")),
    ),
    installed=Installed(probe=("--version",), at_least=(3, 4), below=(5,)),
)


def program(folder: Path, name: str, prints: str = "", *, code: int = 0) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{prints}'\nexit {code}\n")
    path.chmod(0o755)
    return path


def machine(tmp_path: Path, **environment: str) -> Machine:
    return Machine(
        path=f"{tmp_path / 'first'}:{tmp_path / 'second'}:relative:",
        pulumi_home=tmp_path / "pulumi",
        cache=tmp_path / "cache",
        environment=environment,
    )


@pytest.mark.parametrize("says", ["tool 3.4.0", "Tool v3.5.1+deb12", "4.99"])
def test_a_version_in_range_is_taken(tmp_path: Path, says: str) -> None:
    program(tmp_path / "first", "tool", says)
    program(tmp_path / "second", "tool-helper")
    found = machine(tmp_path).find(TOOL)
    assert found is not None
    assert dict(found.programs) == {
        "tool": tmp_path / "first" / "tool",
        "tool-helper": tmp_path / "second" / "tool-helper",
    }


@pytest.mark.parametrize("says", ["tool 3.3.9", "tool 5.0.0", "no number", ""])
def test_another_version_is_not(tmp_path: Path, says: str) -> None:
    program(tmp_path / "first", "tool", says)
    program(tmp_path / "first", "tool-helper")
    assert machine(tmp_path).find(TOOL) is None


def test_a_program_that_fails_to_say_its_version_is_not_taken(tmp_path: Path) -> None:
    program(tmp_path / "first", "tool", "tool 3.4.0", code=1)
    program(tmp_path / "first", "tool-helper")
    assert machine(tmp_path).find(TOOL) is None


def test_an_old_one_in_front_does_not_hide_a_good_one_behind(tmp_path: Path) -> None:
    program(tmp_path / "first", "tool", "tool 1.0.0")
    program(tmp_path / "second", "tool", "tool 4.0.0")
    program(tmp_path / "second", "tool-helper")
    found = machine(tmp_path).find(TOOL)
    assert found is not None
    assert found.origin == f"already installed, 4.0.0, {tmp_path / 'second' / 'tool'}"


def test_a_part_of_the_part_is_not_enough(tmp_path: Path) -> None:
    program(tmp_path / "first", "tool", "tool 4.0.0")
    assert machine(tmp_path).find(TOOL) is None


def test_what_is_in_the_cache_is_not_installed(tmp_path: Path) -> None:
    real = program(tmp_path / "cache" / "parts" / "x" / "bin", "crane")
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "crane").symlink_to(real)
    assert machine(tmp_path).find(part_named("crane")) is None


@pytest.mark.parametrize(
    ("version", "taken"), [("4.33.0", True), ("4.29.0", True), ("4.28.1", False), ("2.0.0", False)]
)
def test_the_providers_version_is_in_its_plugin_folder(tmp_path: Path, version: str, taken: bool) -> None:
    program(tmp_path / "pulumi" / "plugins" / f"resource-kubernetes-v{version}", "pulumi-resource-kubernetes")
    found = machine(tmp_path).find(part_named("kubernetes-provider"))
    assert (found is not None) is taken


def test_the_newest_plugin_is_taken(tmp_path: Path) -> None:
    for version in ("4.9.0", "4.33.0", "4.3.0"):
        program(tmp_path / "pulumi" / "plugins" / f"resource-kubernetes-v{version}", "pulumi-resource-kubernetes")
    found = machine(tmp_path).find(part_named("kubernetes-provider"))
    assert found is not None
    assert found.version == "4.33.0"


def test_a_folder_that_is_named_comes_first_with_whatever_is_in_it(tmp_path: Path) -> None:
    program(tmp_path / "first", "pulumi-resource-kubernetes")
    named = program(tmp_path / "named", "pulumi-resource-kubernetes", "path\ttorchx-pulumi/kubernetes-provider")
    found = machine(tmp_path, TORCHX_PULUMI_KUBERNETES_PROVIDER=str(named.parent)).find(
        part_named("kubernetes-provider")
    )
    assert found is not None
    assert dict(found.programs) == {named.name: named}
    assert found.origin == f"{named}, named by TORCHX_PULUMI_KUBERNETES_PROVIDER"


def test_a_folder_that_is_named_must_have_it(tmp_path: Path) -> None:
    (tmp_path / "pulumi-resource-kubernetes").write_text("not executable")
    named = machine(tmp_path, TORCHX_PULUMI_KUBERNETES_PROVIDER=str(tmp_path))
    expected = f"PROVIDER names {tmp_path}, which has no executable pulumi-resource-kubernetes; next: name a folder"
    with pytest.raises(BootstrapError, match=expected):
        named.find(part_named("kubernetes-provider"))
    assert machine(tmp_path, TORCHX_PULUMI_KUBERNETES_PROVIDER="").find(part_named("kubernetes-provider")) is None


def test_a_copy_of_the_stand_in_is_not_an_installed_provider(tmp_path: Path) -> None:
    copy = program(tmp_path / "first", "pulumi-resource-kubernetes", "serves")
    assert machine(tmp_path).find(part_named("kubernetes-provider")) is not None
    copy.write_bytes(copy.read_bytes() + b"\0" * 100_000 + b"path\ttorchx-pulumi/kubernetes-provider\n")
    assert machine(tmp_path).find(part_named("kubernetes-provider")) is None


@pytest.mark.parametrize(
    ("head", "taken"), [(b"\x7fELF static", True), (b"\x7fELF /lib64/ld-linux-x86-64.so.2", False)]
)
def test_busybox_must_not_need_libraries(tmp_path: Path, head: bytes, taken: bool) -> None:
    program(tmp_path / "first", "busybox").write_bytes(head)
    assert (machine(tmp_path).find(part_named("busybox")) is not None) is taken


def test_an_official_language_host_needs_no_launcher(tmp_path: Path) -> None:
    for name in ("pulumi-language-python", "pulumi-language-python-exec", "pulumi-resource-pulumi-python"):
        program(tmp_path / "first", name)
    assert machine(tmp_path).find(part_named("pulumi-language-python")) is not None


def test_links_show_the_part_and_nothing_beside_it(tmp_path: Path) -> None:
    program(tmp_path / "first", "tool", "tool 4.0.0")
    program(tmp_path / "first", "tool-helper")
    program(tmp_path / "first", "python")
    found = machine(tmp_path).find(TOOL)
    assert found is not None
    folder = link(found, TOOL, tmp_path / "links")
    assert link(found, TOOL, tmp_path / "links") == folder
    assert sorted(path.name for path in folder.iterdir()) == ["tool", "tool-helper"]


def test_a_part_that_must_fit_the_others_is_never_looked_for(tmp_path: Path) -> None:
    program(tmp_path / "first", "tool", "tool 4.0.0")
    program(tmp_path / "first", "tool-helper")
    assert machine(tmp_path).find(replace(TOOL, installed=None)) is None
