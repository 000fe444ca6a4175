"""A world of clusters, stacks and a controller, each test with one of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fleet.writer.world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    (tmp_path / "backend/.pulumi").mkdir(parents=True)
    return World(root=tmp_path)
