from __future__ import annotations

import hashlib
import io
import platform
import tarfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

import pytest

from tests.loopback import LoopbackServer, closed_port
from tools.bootstrap.errors import BootstrapError
from tools.bootstrap.official import Https, NotReachable, OfficialReleases
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
    releases = OfficialReleases(fetch, folder / "downloads")
    releases.download(PART, SOURCE, releases.checksum(PART, SOURCE), folder, lambda: None)


def test_only_the_executables_are_taken(tmp_path: Path) -> None:
    download(internet(archive("cli/cli", "cli/cli-helper", "cli/LICENSE", "../../escape")), tmp_path)
    assert sorted(path.name for path in (tmp_path / "bin").iterdir()) == ["cli", "cli-helper"]
    assert list(tmp_path.parent.rglob("escape")) == []
    assert (tmp_path / "bin" / "cli").stat().st_mode & 0o111


def test_another_checksum_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BootstrapError, match="nothing was installed"):
        download(internet(archive("cli", "cli-helper"), checksum="1" * 64), tmp_path)
    assert not (tmp_path / "bin").exists()


def test_a_missing_executable_is_named(tmp_path: Path) -> None:
    with pytest.raises(BootstrapError, match="holds no cli-helper"):
        download(internet(archive("cli")), tmp_path)


def test_parts_of_the_same_archive_download_it_once(tmp_path: Path) -> None:
    fetch = internet(archive("cli", "cli-helper"))
    releases = OfficialReleases(fetch, tmp_path / "downloads")
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        releases.download(PART, SOURCE, releases.checksum(PART, SOURCE), tmp_path / name, lambda: None)
    assert fetch.asked.count("https://releases.example/cli-this.tar.gz") == 1
    assert (tmp_path / "two" / "bin" / "cli").read_text() == "cli"


def test_a_host_that_does_not_answer_is_asked_once(tmp_path: Path) -> None:
    fetch = FakeInternet({})
    releases = OfficialReleases(fetch, tmp_path)
    for _ in range(3):
        with pytest.raises(NotReachable, match=r"sums\.example: no answer"):
            releases.checksum(PART, SOURCE)
    assert fetch.asked == [SOURCE.checksums_url]


def test_a_release_without_this_machine_is_not_offered(tmp_path: Path) -> None:
    fetch = internet(b"")
    fetch.files[SOURCE.checksums_url] = b""
    with pytest.raises(NotReachable, match=r"cli 2 is not released as cli-this\.tar\.gz"):
        OfficialReleases(fetch, tmp_path).checksum(PART, SOURCE)
    with pytest.raises(NotReachable, match="no release for the processor"):
        OfficialReleases(fetch, tmp_path).checksum(PART, replace(SOURCE, processors=()))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sums.txt").write_text("abc")
    handler = partial(QuietHandler, directory=str(tmp_path / "site"))
    with LoopbackServer(handler) as site:
        serving = threading.Thread(target=site.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        yield f"http://127.0.0.1:{site.server_port}"
        site.shutdown()
        serving.join()


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


def test_a_file_comes_from_a_real_server(server: str, tmp_path: Path) -> None:
    ticks: list[int] = []
    Https().save(f"{server}/sums.txt", tmp_path / "saved", lambda: ticks.append(1))
    assert (tmp_path / "saved").read_text() == "abc"
    assert Https().read(f"{server}/sums.txt") == b"abc"
    assert ticks


def test_what_a_real_server_does_not_have_is_not_reachable(server: str, tmp_path: Path) -> None:
    with pytest.raises(NotReachable, match="404"):
        Https().read(f"{server}/other")
    with pytest.raises(NotReachable, match="404"):
        Https().save(f"{server}/other", tmp_path / "saved", lambda: None)


def test_a_closed_port_is_not_reachable() -> None:
    with closed_port() as port, pytest.raises(NotReachable, match="refused"):
        Https().read(f"http://127.0.0.1:{port}/sums.txt")
