"""The relay between the engine and the program of a launch."""

from __future__ import annotations

import gc
import socket
import threading
import warnings
from typing import Any

import pytest
from torchx_pulumi_stacks.engine.relay import Relay


def test_a_connection_that_is_made_while_the_relay_closes_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    connect, connects, closes = socket.create_connection, threading.Event(), threading.Event()

    def connect_late(*arguments: Any) -> socket.socket:
        connects.set()
        assert closes.wait(10)
        return connect(*arguments)

    monkeypatch.setattr(socket, "create_connection", connect_late)
    relay = Relay()
    with socket.create_server(("127.0.0.1", 0)) as program, connect(("127.0.0.1", relay.port), 10) as engine:
        relay.pass_on_to(program.getsockname()[1])
        assert connects.wait(10)
        closing = threading.Thread(target=relay.close)
        closing.start()
        assert engine.recv(1) == b""
        closes.set()
        closing.join(10)
        assert not closing.is_alive()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del relay, closing
        gc.collect(1)  # what this test made is young
    assert not caught
