"""The programs with which pages begin."""

from __future__ import annotations

import pytest

from tests.components.conftest import Engine
from tests.doc_blocks import FIRST, PAGES, blocks

PROGRAMS = [
    pytest.param(text, id=page.stem)
    for page in PAGES
    for language, name, text in blocks(page)
    if (language, name) == ("python", FIRST)
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_with_which_a_page_begins_registers_its_job(engine: Engine, program: str) -> None:
    role = {"name": "trainer", "image": "app:1", "entrypoint": "python"}
    engine.run(lambda: exec(program, {"args": {"queue": "default", "roles": [role]}}), preview=True)
    engine.mocks.one("kubernetes:batch.volcano.sh/v1alpha1:Job")
