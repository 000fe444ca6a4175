"""Pages begin with lines to try, and the command lines of all pages are those that the commands take."""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path

import pytest
from torchx.cli.argparse_util import ArgOnceAction, torchxconfig
from torchx.cli.main import create_parser, get_default_sub_cmds
from torchx_pulumi.cli.main import _parser

from tests.doc_blocks import FIRST, PAGES, ROOT, blocks, command_lines
from tests.unit.torchx_adapter.run_options import run_options

BEGINNING = re.compile(r"# .+\n\n(?![#|]|```)(.+(?:\n.+)*)\n\nFirst try this[^\n]*:\n\n```(?:sh|python) first\n")
"""A title, a paragraph, and the block."""

ELSEWHERE = {"pip", "pulumi", "python", "pytest", "kubectl", "docker", "export", "mkdir", "(umask"}
"""Programs of first blocks that have no parser here."""

TORCHX = create_parser(get_default_sub_cmds())

EXEMPT = {
    "README": "the index",
    "_index": "of the Pulumi registry, in its form",
    "installation-configuration": "of the Pulumi registry, in its form",
    "languages": "begins with a program for each language",
    "operator": "its lines need an operator, which no test runs",
    "adding-a-scheduler": "begins with the files of a scheduler",
    "architecture": "for reference",
    "glossary": "for reference",
    "outputs": "for reference",
    "torchx-issues": "for reference",
}
"""Pages of docs that need not begin with lines to try, and why. Decisions do not either."""

USED = [page for page in PAGES if page.parent == ROOT / "docs" and page.stem not in EXEMPT]
"""Pages that somebody opens in order to do something."""


@pytest.mark.parametrize("page", USED, ids=lambda page: page.stem)
def test_a_page_has_its_subject_in_one_sentence_and_then_at_most_three_lines_to_try(page: Path) -> None:
    found = BEGINNING.match(page.read_text())
    assert found
    assert len(re.findall(r"[.?!](?= [A-Z]|$)", found[1])) == 1, found[1]
    (text,) = (text for _, name, text in blocks(page) if name == FIRST)
    assert 1 <= len([line for line in text.splitlines() if line]) <= 3


def test_exempt_pages_exist() -> None:
    assert [name for name in EXEMPT if not (ROOT / "docs" / f"{name}.md").exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_and_their_options_exist(page: Path) -> None:
    for name, line in command_lines(page):
        program = line.split()[0]
        if program in ("torchx-pulumi", "torchx"):
            words = shlex.split(re.split(r" (?:[|&]|>+)", line)[0], comments=True)[1:]
            check_torchx(words) if program == "torchx" else parse(_parser(words), words)
        elif name == FIRST:
            assert program in ELSEWHERE, line


def check_torchx(words: list[str]) -> None:
    ArgOnceAction.called_args.clear()  # TorchX has them for one command line of the process
    torchxconfig.called_args.clear()
    given = parse(TORCHX, words)
    scheduler = getattr(given, "scheduler", None) or ""
    if words[0] == "run" and scheduler.startswith("pulumi_"):
        options = run_options(scheduler.removeprefix("pulumi_"))
        options.resolve(options.cfg_from_str(given.scheduler_args))


def parse(parser: argparse.ArgumentParser, words: list[str]) -> argparse.Namespace:
    try:
        return parser.parse_args(words)
    except SystemExit as refused:
        if refused.code:
            raise AssertionError(f"{words} is refused") from refused
        return argparse.Namespace()
