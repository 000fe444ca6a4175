from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tools.bootstrap.debian import link_program, parse_packages
from tools.bootstrap.errors import BootstrapError
from tools.bootstrap.part import DebianLink

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
