"""TCP relay that lets the engine start before the program's gRPC server is ready.

The engine connects to the relay at once. Its data waits until the server's port is known, and is then copied in both
directions. Only the few calls that start and end the program use the relay.
"""

from __future__ import annotations

import contextlib
import socket
import threading


class Relay:
    """Forwards connections to a port that is set later."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._target: int | None = None
        self._known = threading.Event()
        self._open: list[socket.socket] = [self._listener]
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    @property
    def port(self) -> int:
        """Return the port that the engine connects to."""
        return int(self._listener.getsockname()[1])

    def pass_on_to(self, port: int) -> None:
        """Set the port of the server and forward waiting connections."""
        self._target = port
        self._known.set()

    def close(self) -> None:
        """Close all connections and end all threads. May be called again."""
        self._known.set()
        for each in [*self._open]:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in [*self._threads]:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                engine, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(engine)
            self._start(self._connect, engine)

    def _connect(self, engine: socket.socket) -> None:
        self._known.wait()
        if self._target is None:
            return
        try:
            program = socket.create_connection(("127.0.0.1", self._target))
        except OSError:
            with contextlib.suppress(OSError):
                engine.shutdown(socket.SHUT_RDWR)
            return
        self._open.append(program)
        self._start(_copy, program, engine)
        _copy(engine, program)

    def _start(self, run: object, *args: object) -> None:
        thread = threading.Thread(target=run, args=args, daemon=True, name="torchx-pulumi-relay")  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        # Small messages are sent at once.
        target.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while data := source.recv(65536):
            target.sendall(data)
    for each in (source, target):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
