"""The code blocks of docs/adding-a-scheduler.md are regions of the files of the third scheduler."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.doc_blocks import block

HERE = Path(__file__).parent

BLOCKS = {
    ("indexed_job/options.py", "options"): block("docs/adding-a-scheduler.md", "options"),
    ("indexed_job/checks.py", "checks"): block("docs/adding-a-scheduler.md", "checks"),
    ("indexed_job/manifests.py", "render"): block("docs/adding-a-scheduler.md", "render"),
    ("indexed_job/observe.py", "observe"): block("docs/adding-a-scheduler.md", "observe"),
    ("indexed_job/observe.py", "status"): block("docs/adding-a-scheduler.md", "status"),
    ("indexed_job/cluster_checks.py", "cluster"): block("docs/adding-a-scheduler.md", "cluster"),
    ("indexed_job/backend.py", "backend"): block("docs/adding-a-scheduler.md", "backend"),
    ("conftest.py", "register"): block("docs/adding-a-scheduler.md", "register"),
}
"""File and region to the block of the page that shows it."""


@pytest.mark.parametrize(("file", "region"), BLOCKS)
def test_a_block_of_the_page_is_a_region_of_the_package(file: str, region: str) -> None:
    text = (HERE / file).read_text()
    found = re.search(rf"^# region {region}\n(.*?)\n*^# endregion$", text, re.DOTALL | re.MULTILINE)
    assert found, f"{file} has no region {region}"
    assert BLOCKS[file, region].rstrip("\n") == found[1]
