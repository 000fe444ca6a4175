"""Servers that end soon."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import uvicorn.server


class _Quick:
    """asyncio, with short pauses."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    async def sleep(self, delay: float) -> None:
        await asyncio.sleep(min(delay, 0.005))


@pytest.fixture(autouse=True)
def quick_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    """uvicorn lets its connections end for 0.1 s."""
    monkeypatch.setattr(uvicorn.server, "asyncio", _Quick())
