from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tools.bootstrap.cache import PartCache
from tools.bootstrap.errors import BootstrapError
from tools.bootstrap.installed import Found
from tools.bootstrap.part import DebianLink, DebianSource, GoSource, GoTarget, OfficialSource, Part
from tools.bootstrap.progress import Progress
from tools.bootstrap.provision import Makers, NotOffered, Provisioner, Tick

OFFICIAL = Part(
    name="cli",
    version="2",
    expected_s=3,
    source=OfficialSource(archive_url="", checksums_url="", processors=(), executables=("cli",)),
)
DEBIAN = Part(
    name="etcd",
    version="debian",
    expected_s=5,
    source=DebianSource(packages=("etcd-server",), links=(DebianLink(executable="etcd", path="usr/bin/etcd"),)),
)


class FakeMachine:
    def __init__(self, programs: Mapping[str, Path]) -> None:
        self.programs = programs

    def find(self, part: Part) -> Found | None:
        program = self.programs.get(part.name)
        return None if program is None else Found(programs={program.name: program}, version="3.1")


class Shop:
    """A provisioner with fake ways of getting parts that note what they were asked for."""

    def __init__(self, tmp_path: Path, *, installed: Mapping[str, Path] | None = None, internet: bool = True) -> None:
        self.asked: list[str] = []
        self.output = io.StringIO()
        self.internet = internet
        (tmp_path / "cli").mkdir(exist_ok=True)
        (tmp_path / "cli" / "go.mod").write_text("module m\n")
        go = GoSource(folder=tmp_path / "cli", module="m", targets=(GoTarget(executable="cli", package="."),))
        self.cli = Part(name="cli", version="1", expected_s=7, source=go, official=OFFICIAL)
        progress = Progress(self.output, terminal=False, now=lambda: 0.0)
        self.provisioner = Provisioner(
            PartCache(tmp_path / "cache", say=progress.say),
            FakeMachine(installed or {}),
            Makers(official=self._official, go=self._maker("go"), debian=self._maker("debian")),
            progress,
        )

    def _maker(self, way: str) -> Callable[[Part, object, Path, Tick], None]:
        def make(part: Part, source: object, folder: Path, tick: Tick) -> None:
            self.asked.append(f"{way} {part.name}")
            (folder / "bin").mkdir()
            for name in part.executables:
                (folder / "bin" / name).write_text(way)

        return make

    def _official(self, part: Part, source: object, folder: Path, tick: Tick) -> None:
        if not self.internet:
            raise NotOffered("example.com: no answer")
        self._maker("official")(part, source, folder, tick)


def test_an_installed_part_comes_first(tmp_path: Path) -> None:
    program = tmp_path / "cli-3"
    program.write_text("")
    shop = Shop(tmp_path, installed={"cli": program})
    folder = shop.provisioner.ensure([shop.cli])["cli"]
    assert (folder / "cli-3").resolve() == program
    assert shop.asked == []
    assert shop.output.getvalue() == f"bootstrap: cli: already installed, 3.1, {program}\n"


def test_the_official_release_comes_before_a_build(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    folder = shop.provisioner.ensure([shop.cli])["cli"]
    assert (folder / "cli").read_text() == "official"
    assert shop.asked == ["official cli"]


def test_without_the_internet_it_is_built_and_the_reason_said(tmp_path: Path) -> None:
    shop = Shop(tmp_path, internet=False)
    folder = shop.provisioner.ensure([shop.cli])["cli"]
    assert (folder / "cli").read_text() == "go"
    assert "cli: no official release 2 (example.com: no answer)" in shop.output.getvalue()
    assert "cli: 1, built from Go modules" in shop.output.getvalue()


def test_a_part_in_the_cache_asks_nobody(tmp_path: Path) -> None:
    Shop(tmp_path, internet=False).provisioner.ensure([Shop(tmp_path).cli])
    later = Shop(tmp_path, internet=True)
    folder = later.provisioner.ensure([later.cli])["cli"]
    assert (folder / "cli").read_text() == "go"
    assert later.asked == []


def test_each_choice_is_said_once(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    for _ in range(3):
        shop.provisioner.ensure([shop.cli])
    assert shop.output.getvalue().count("in the cache") == 1


def test_looking_makes_nothing(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    choice = shop.provisioner.choose(shop.cli)
    assert choice.folder is None
    assert choice.origin == "1, not here yet: official release 2, else built from Go modules"
    assert shop.asked == []


def test_several_parts_in_the_order_they_were_asked_for(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    assert list(shop.provisioner.ensure([DEBIAN, shop.cli])) == ["etcd", "cli"]
    assert shop.asked == ["debian etcd", "official cli"]


def test_a_part_that_cannot_be_had_is_an_error_and_leaves_the_others(tmp_path: Path) -> None:
    shop = Shop(tmp_path)

    def fail(part: Part, source: object, folder: Path, tick: Tick) -> None:
        raise BootstrapError("no mirror; next: mend the network")

    broken = Provisioner(
        PartCache(tmp_path / "cache", say=lambda text: None),
        FakeMachine({}),
        Makers(official=shop._official, go=fail, debian=fail),
        Progress(shop.output, terminal=False),
    )
    with pytest.raises(BootstrapError, match="next: mend the network"):
        broken.ensure([shop.cli, DEBIAN])
    assert broken.choose(shop.cli).folder is not None
    assert broken.choose(DEBIAN).folder is None
