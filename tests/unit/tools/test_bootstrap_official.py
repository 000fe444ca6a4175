from __future__ import annotations

import hashlib
import io
import platform
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tools.bootstrap.errors import BootstrapError
from tools.bootstrap.official import NotReachable, OfficialReleases
from tools.bootstrap.part import OfficialSource, Part

SOURCE = OfficialSource(
    archive_url="https://releases.example/cli-{processor}.tar.gz",
    checksums_url="https://sums.example/cli.txt",
    processors=((platform.machine().lower(), "this"),),
    executables=("cli", "cli-helper"),
)
PART = Part(name="cli", version="2", expected_s=1, source=SOURCE)


def archive(*names: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as content:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = len(name)
            content.addfile(member, io.BytesIO(name.encode()))
    return buffer.getvalue()


class FakeInternet:
    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.asked: list[str] = []

    def read(self, url: str) -> bytes:
        self.asked.append(url)
        if url not in self.files:
            raise NotReachable("no answer")
        return self.files[url]

    def save(self, url: str, to: Path, tick: Callable[[], None]) -> None:
        to.write_bytes(self.read(url))


def internet(content: bytes, *, checksum: str | None = None) -> FakeInternet:
    stated = checksum or hashlib.sha256(content).hexdigest()
    return FakeInternet(
        {
            SOURCE.checksums_url: f"{'0' * 64}  cli-other.tar.gz\n{stated}  cli-this.tar.gz\n".encode(),
            "https://releases.example/cli-this.tar.gz": content,
        }
    )


def download(fetch: FakeInternet, folder: Path) -> None:
    releases = OfficialReleases(fetch)
    releases.download(PART, SOURCE, releases.checksum(PART, SOURCE), folder, lambda: None)


def test_only_the_executables_are_taken(tmp_path: Path) -> None:
    download(internet(archive("cli/cli", "cli/cli-helper", "cli/LICENSE", "../../escape")), tmp_path)
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == [
        "bin",
        "bin/cli",
        "bin/cli-helper",
    ]
    assert (tmp_path / "bin" / "cli").stat().st_mode & 0o111


def test_another_checksum_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BootstrapError, match="nothing was installed"):
        download(internet(archive("cli", "cli-helper"), checksum="1" * 64), tmp_path)
    assert not (tmp_path / "bin").exists()


def test_a_missing_executable_is_named(tmp_path: Path) -> None:
    with pytest.raises(BootstrapError, match="holds no cli-helper"):
        download(internet(archive("cli")), tmp_path)


def test_a_host_that_does_not_answer_is_asked_once() -> None:
    fetch = FakeInternet({})
    releases = OfficialReleases(fetch)
    for _ in range(3):
        with pytest.raises(NotReachable, match=r"sums\.example: no answer"):
            releases.checksum(PART, SOURCE)
    assert fetch.asked == [SOURCE.checksums_url]


def test_a_release_without_this_machine_is_not_offered() -> None:
    fetch = internet(b"")
    fetch.files[SOURCE.checksums_url] = b""
    with pytest.raises(NotReachable, match=r"cli 2 is not released as cli-this\.tar\.gz"):
        OfficialReleases(fetch).checksum(PART, SOURCE)
    with pytest.raises(NotReachable, match="no release for the processor"):
        OfficialReleases(fetch).checksum(PART, replace(SOURCE, processors=()))
