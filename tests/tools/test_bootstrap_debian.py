from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tools.bootstrap.debian import DebianPackages, link_program, parse_packages
from tools.bootstrap.errors import BootstrapError
from tools.bootstrap.part import DebianLink, DebianSource, Part

PRINTED = """\
Reading package lists...
'http://deb.example/pool/r/runc_1.1.5%2bds1-1_amd64.deb' runc_1.1.5+ds1-1_amd64.deb 2709960 MD5Sum:55
'http://deb.example/pool/b/busybox-static_1.35.0-4_amd64.deb' busybox-static_1%3a1.35.0-4_amd64.deb 90 SHA256:aa
"""


def unpacked(folder: Path, path: str) -> Path:
    program = folder / "root" / path
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\necho "$TOOL_DIR" "$@"\n')
    program.chmod(0o755)
    (folder / "bin").mkdir()
    return program


def test_versions_are_read_with_their_epoch() -> None:
    assert parse_packages(PRINTED) == ["runc=1.1.5+ds1-1", "busybox-static=1:1.35.0-4"]


def test_output_without_files_names_none() -> None:
    assert parse_packages("E: Unable to locate package nonsense\n") == []


def test_a_plain_program_is_linked_and_the_folder_may_move(tmp_path: Path) -> None:
    unpacked(tmp_path / "unfinished", "usr/bin/tool")
    link_program(DebianLink(executable="tool", path="usr/bin/tool"), tmp_path / "unfinished")
    final = (tmp_path / "unfinished").rename(tmp_path / "final")
    assert (final / "bin" / "tool").resolve() == final / "root" / "usr" / "bin" / "tool"


def test_a_program_that_needs_its_files_gets_them_wherever_the_folder_is(tmp_path: Path) -> None:
    unpacked(tmp_path / "unfinished", "usr/sbin/multi")
    (tmp_path / "unfinished" / "root" / "usr" / "lib" / "x86_64-linux-gnu").mkdir(parents=True)
    link = DebianLink(
        executable="tool",
        path="usr/sbin/multi",
        variables=(("TOOL_DIR", "{root}/usr/lib/*-linux-gnu"),),
        arguments=("tool",),
    )
    link_program(link, tmp_path / "unfinished")
    final = (tmp_path / "unfinished").rename(tmp_path / "final")
    (tmp_path / "elsewhere").symlink_to(final / "bin" / "tool")
    answer = subprocess.run([tmp_path / "elsewhere", "-L", "a b"], capture_output=True, text=True, check=True).stdout
    folder, *arguments = answer.split(maxsplit=1)
    assert Path(folder).resolve() == final / "root" / "usr" / "lib" / "x86_64-linux-gnu"
    assert arguments == ["tool -L a b\n"]


def test_a_package_without_the_program_is_an_error(tmp_path: Path) -> None:
    unpacked(tmp_path, "usr/bin/other")
    with pytest.raises(BootstrapError, match="hold no usr/bin/tool"):
        link_program(DebianLink(executable="tool", path="usr/bin/tool"), tmp_path)


def test_folders_that_the_distribution_does_not_have_are_left_out_of_a_list(tmp_path: Path) -> None:
    unpacked(tmp_path, "lib/x86_64-linux-gnu/tool")
    listed = "{root}/usr/lib/*-linux-gnu:{root}/lib/*-linux-gnu:/opt/own"
    link = DebianLink(executable="tool", path="lib/*-linux-gnu/tool", variables=(("TOOL_DIR", listed),))
    link_program(link, tmp_path)
    said = subprocess.run([tmp_path / "bin" / "tool"], capture_output=True, text=True, check=True).stdout.strip()
    assert said == f"{tmp_path}/bin/../root/lib/x86_64-linux-gnu:/opt/own"
    with pytest.raises(BootstrapError, match=r"hold no \{root\}/etc/fonts"):
        link_program(replace(link, variables=(("FONTS", "{root}/etc/fonts"),)), tmp_path)


DEPENDS = {
    "tool": "libtool-own, desktop, base",
    "libtool-own": "libbase",
    "desktop": "libdesktop, libtool-own",
    "libdesktop": "",
    "base": "libbase",
    "libbase": "",
}
"""What each package of the mirror needs. Only `base` is essential; no program of `tool` uses `desktop`."""

TOOL = DebianSource(
    packages=("tool",), links=(DebianLink(executable="tool", path="usr/share/tool/program"),), unused=("desktop",)
)


def control_of(name: str, version: str = "2") -> str:
    needs = f"Depends: {DEPENDS[name]}\n" if DEPENDS[name] else ""
    essential = "Essential: yes\n" if name == "base" else ""
    return f"Package: {name}\nVersion: {version}\nArchitecture: all\nMaintainer: x\nDescription: x\n{needs}{essential}"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a mirror of Debian packages and a machine whose apt uses it; return the machine's list of the installed."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        pytest.skip("no apt-get or dpkg-deb: this is no Debian")
    mirror, index = tmp_path / "mirror", []
    mirror.mkdir()
    for name in DEPENDS:
        tree, archive = tmp_path / "trees" / name, mirror / f"{name}_2_all.deb"
        for path, text in (("DEBIAN/control", control_of(name)), (f"usr/share/{name}/program", "#!/bin/sh\n")):
            (tree / path).parent.mkdir(parents=True)
            (tree / path).write_text(text)
            (tree / path).chmod(0o755)
        subprocess.run(["dpkg-deb", "--root-owner-group", "--build", tree, archive], check=True, capture_output=True)
        content = archive.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        index.append(f"{control_of(name)}Filename: ./{archive.name}\nSize: {len(content)}\nSHA256: {digest}\n")
    (mirror / "Packages").write_text("\n".join(index))
    (tmp_path / "sources.list").write_text(f"deb [trusted=yes] file:{mirror} ./\n")
    installed = tmp_path / "status"
    installed.touch()
    settings = {
        "Dir::Etc::main": "/dev/null",
        "Dir::Etc::parts": "/dev/null",
        "Dir::Etc::sourcelist": tmp_path / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State": tmp_path / "state",
        "Dir::State::status": installed,
        "Dir::Cache": tmp_path / "cache",
    }
    (tmp_path / "apt.conf").write_text("".join(f'{name} "{value}";\n' for name, value in settings.items()))
    monkeypatch.setenv("APT_CONFIG", str(tmp_path / "apt.conf"))
    return installed


@pytest.mark.parametrize(
    ("installed", "version", "self_contained", "expected"),
    [
        ((), "2", False, ["libtool-own", "tool"]),
        (["libtool-own"], "2", False, ["libtool-own", "tool"]),
        (["libtool-own", "libbase"], "1", False, ["libtool-own", "tool"]),
        (list(DEPENDS), "2", False, ["libtool-own", "tool"]),
        (list(DEPENDS), "2", True, ["base", "libbase", "libtool-own", "tool"]),
    ],
    ids=["nothing", "a dependency", "an older one", "all", "all, for an image"],
)
def test_what_is_unpacked_does_not_depend_on_what_is_installed(
    machine: Path, tmp_path: Path, installed: Sequence[str], version: str, self_contained: bool, expected: list[str]
) -> None:
    machine.write_text("".join(f"{control_of(name, version)}Status: install ok installed\n\n" for name in installed))
    source = replace(TOOL, self_contained=self_contained)
    (tmp_path / "part").mkdir()
    part = Part(name="tool", version="debian", expected_s=1, source=source)
    DebianPackages(tmp_path / "lists").unpack(part, source, tmp_path / "part", lambda: None)
    assert sorted(path.name for path in (tmp_path / "part/root/usr/share").iterdir()) == expected
    assert sorted(path.name for path in (tmp_path / "part").iterdir()) == ["bin", "root"]
    subprocess.run([tmp_path / "part/bin/tool"], check=True)
