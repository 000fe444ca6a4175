"""Commands of other packages: what a broken, an absent and a doubled one does, and that the core's own never ask."""

from __future__ import annotations

import importlib.metadata
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest
from torchx_pulumi.cli.main import main
from torchx_pulumi.model.fleet_package import FLEET_COMMANDS, INSTALL_FLEET

OWN = ("cancel", "delete", "doctor", "image", "log", "program", "render", "resume")
ROOT = Path(__file__).resolve().parents[3]
SITE = ("site-packages", "dist-packages")

WORKING = """
def add(commands):
    parser = commands.add_parser("{name}", help="{says}")
    parser.set_defaults(command=lambda _: print("{says}") or 0)
"""

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install a package with one command, by its metadata; only those that a test installs are there."""
    monkeypatch.setenv("COLUMNS", "500")  # argparse breaks lines at hyphens
    paths = [path for path in sys.path if not any(name in path for name in SITE)]
    monkeypatch.setattr(sys, "path", [str(tmp_path), *paths])
    before = {*sys.modules}

    def add(package: str, command: str, source: str | None = None, says: str = "works") -> None:
        module = f"plugin_{re.sub('[^a-z]', '_', package)}"
        source = WORKING.format(name=command, says=says) if source is None else source
        (tmp_path / f"{module}.py").write_text(source)
        info = tmp_path / f"{package.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[torchx_pulumi.commands]\n{command} = {module}:add\n")

    yield add
    for name in {*sys.modules} - before:
        if name.startswith("plugin_"):
            del sys.modules[name]


def help_lines(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """Print the help; return what it says of each command."""
    assert main(["--help"]) == 0
    shown = capsys.readouterr()
    assert "Traceback" not in shown.out + shown.err
    rows = re.split(r"\n    (?=\w)", shown.out.partition("  COMMAND\n")[2].lstrip("\n "))
    return {words[0]: " ".join(words[1:]) for words in map(str.split, rows)}


@pytest.mark.usefixtures("install")
@pytest.mark.parametrize(("option", "shows"), [("--version", "torchx-pulumi ("), ("--help", "usage: torchx-pulumi ")])
def test_an_option_before_an_absent_command_counts(option: str, shows: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([option, "fleet"]) == 0
    assert capsys.readouterr().out.startswith(shows)


@pytest.mark.usefixtures("install")
@pytest.mark.parametrize("name", FLEET_COMMANDS)
def test_an_absent_command_says_how_to_install_it(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--anything"]) == 2
    *_, said = capsys.readouterr().err.splitlines()
    why = f"is a command of torchx-pulumi-fleet, which is not installed; run: {INSTALL_FLEET}"
    assert said == f"torchx-pulumi: error: {name} {why}"
    assert help_lines(capsys)[name] == f"{FLEET_COMMANDS[name]}; needs {INSTALL_FLEET}"


def test_the_command_that_installs_the_package_names_its_extra() -> None:
    assert INSTALL_FLEET == "pip install 'torchx-pulumi[fleet]'"


def test_the_table_has_the_commands_of_the_package() -> None:
    text = (ROOT / "fleet" / "pyproject.toml").read_text(encoding="utf-8")
    section = re.search(r'\[project.entry-points."torchx_pulumi.commands"\]\n((?:.+\n)+)', text)
    assert section is not None
    assert set(re.findall(r"(?m)^(\w+) =", section[1])) == {*FLEET_COMMANDS}


def test_a_command_that_no_package_has_is_refused_with_those_there_are(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install("other", "extra")
    assert main(["flet"]) == 2
    *_, said = capsys.readouterr().err.splitlines()
    there = ", ".join(sorted({*OWN, *FLEET_COMMANDS, "extra"}))
    assert said == f"torchx-pulumi: error: flet is not a command; allowed are {there}"


def test_a_command_of_an_installed_package_runs(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install("torchx-pulumi-fleet", "fleet", says="lists apps")
    assert main(["fleet"]) == 0
    assert capsys.readouterr().out == "lists apps\n"
    assert help_lines(capsys)["fleet"] == "lists apps"


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("raise ImportError('needs 100% of\\n  another module')", "which does not work: needs 100% of another module"),
        ("raise ValueError", "which does not work: ValueError"),
        ("", "which does not work: module 'plugin_other' has no attribute 'add'"),
        ("def add(commands): raise KeyError('x')", "which does not work: 'x'"),
        ("def add(commands): pass", "which did not add it"),
        (
            "def add(commands): [commands.add_parser(name) for name in ('extra', 'render')]",
            "which also adds render: that name is taken",
        ),
        ("raise SystemExit(3)", "which does not work: SystemExit: 3"),
        ("raise BaseException('lost')", "which does not work: BaseException: lost"),
        (
            "def add(commands): commands.add_parser('extra', help='100% new', description='')",
            "which does not work: unsupported format character 'n' (0x6e) at index 5",
        ),
    ],
)
def test_a_broken_package_is_one_line(
    install: Install, capsys: pytest.CaptureFixture[str], source: str, why: str
) -> None:
    install("other", "extra", source)
    install("working", "more")
    lines = help_lines(capsys)
    assert lines["extra"] == f"is a command of other, {why}"
    assert lines["more"] == "works"
    assert {*OWN} < lines.keys()
    assert main(["extra"]) == 2
    usage, said = capsys.readouterr().err.splitlines()
    assert usage.startswith("usage: torchx-pulumi ")
    assert said == f"torchx-pulumi: error: extra is a command of other, {why}"


def test_an_entry_point_that_names_no_object_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # The standard library lists it; the package `importlib_metadata`, if it is imported, does not.
    wrong = importlib.metadata.EntryPoint("extra", "plug-in:add", "torchx_pulumi.commands")
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: [wrong])
    assert main(["extra"]) == 2
    why = "its entry point extra is 'plug-in:add', must be MODULE:NAME"
    assert f"is a command of plug-in:add, which does not work: {why}\n" in capsys.readouterr().err


def test_a_package_that_fails_after_it_added_its_command_leaves_the_help(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install("other", "extra", "def add(commands):\n    commands.add_parser('extra', help='half')\n    raise OSError(5)")
    lines = help_lines(capsys)
    assert {"extra", *OWN} < lines.keys()
    assert lines["extra"] == "is a command of other, which does not work: 5"
    assert main(["extra"]) == 2
    assert "is a command of other, which does not work: 5\n" in capsys.readouterr().err


def test_a_command_without_a_function_is_named(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install("other", "extra", "def add(commands): commands.add_parser('extra')")
    assert main(["extra"]) == 2
    assert capsys.readouterr().err == (
        "torchx-pulumi: the package of the command extra does not say what it runs; ask its authors\n"
    )


def test_an_unknown_argument_is_a_mistake_of_its_command(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install("other", "extra")
    assert main(["extra", "--gone", "3d"]) == 2
    assert capsys.readouterr().err == (
        "usage: torchx-pulumi extra [-h]\ntorchx-pulumi extra: error: unrecognized arguments: --gone 3d\n"
    )


def test_a_command_whose_package_lacks_a_library_says_what_installs_it(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    source = """
        def run(_):
            import absent_library

        def add(commands):
            commands.add_parser("extra").set_defaults(command=run)
    """
    install("other", "extra", dedent(source))
    assert main(["extra"]) == 2
    assert capsys.readouterr().err == (
        "torchx-pulumi: other is installed without what the command extra needs: No module named 'absent_library'; "
        "run: pip install other\n"
    )


def test_an_interrupt_is_no_mistake_of_a_package(install: Install) -> None:
    install("other", "extra", "raise KeyboardInterrupt")
    assert main(["extra"]) == 130


@pytest.mark.parametrize("text", ["[torchx_pulumi.commands]\nno sign", "\udcff"])
def test_a_package_whose_entry_points_cannot_be_read_is_named_and_the_others_work(
    install: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    install("working", "more")
    install("cut-off", "extra")
    (tmp_path / "cut_off-1.0.dist-info" / "entry_points.txt").write_bytes(text.encode(errors="surrogateescape"))
    assert main(["more"]) == 0
    shown = capsys.readouterr()
    assert shown.out == "works\n"
    assert shown.err.startswith(
        "torchx-pulumi: warning: the entry points of the package cut-off cannot be read; install it again: "
    )
    assert help_lines(capsys)["more"] == "works"


def test_packages_without_a_name_are_named_by_what_they_bring(
    install: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("one", "two"):
        install(name, "extra")
        (tmp_path / f"{name}-1.0.dist-info" / "METADATA").unlink()
    assert main(["extra"]) == 0
    assert "the command extra is of plugin_one:add; that of plugin_two:add is not used" in capsys.readouterr().err


def test_of_two_packages_with_one_command_the_first_by_name_counts(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install("Zebra", "extra", says="of Zebra")
    install("aardvark", "extra", says="of aardvark")
    assert main(["extra"]) == 0
    shown = capsys.readouterr()
    assert shown.out == "of aardvark\n"
    assert shown.err == "torchx-pulumi: warning: the command extra is of aardvark; that of Zebra is not used\n"


def test_a_package_cannot_replace_a_command_of_the_core(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install("other", "render", says="taken over")
    assert main(["render", "--help"]) == 0
    assert "AppDef file" in capsys.readouterr().out
    assert help_lines(capsys)["render"] == "print the manifest of an AppDef file as YAML"


class Read(Exception):
    """Entry points were read."""


def _refuse() -> None:
    raise Read


@pytest.mark.parametrize("words", [[], ["--version"], ["--nope"], *([name, "--help"] for name in OWN), ["render"]])
def test_commands_of_the_core_read_no_entry_points(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "distributions", _refuse)
    assert main(words) in (0, 2)


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["--help", "render"], ["fleet"], ["nothing"]])
def test_the_help_and_other_commands_read_entry_points(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "distributions", _refuse)
    with pytest.raises(Read):
        main(words)


def test_the_versions_of_both_packages_are_printed(
    install: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == "torchx-pulumi (a checkout that is not installed)\n"
    install("torchx-pulumi", "one")
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == "torchx-pulumi 1.0\n"
    install("torchx-pulumi-fleet", "two")
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == "torchx-pulumi 1.0\ntorchx-pulumi-fleet 1.0\n"
