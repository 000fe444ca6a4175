"""Secrets in a configuration are Outputs, and an Output wants a loop: each test has its own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from pulumi.runtime.stack import wait_for_rpcs


@pytest.fixture(autouse=True)
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield loop
    # Pulumi keeps a list of Outputs that it waits for: what is left in it would be waited for by the next test's loop.
    loop.run_until_complete(wait_for_rpcs())
    asyncio.set_event_loop(None)
    loop.close()
