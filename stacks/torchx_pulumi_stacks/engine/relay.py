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
        self._guard = threading.Lock()
        self._ends: list[socket.socket] = []
        """Both ends of all connections."""
        self._is_closed = False
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
        _shut(self._listener)
        self._listener.close()
        with self._guard:
            self._is_closed = True
            _shut(*self._ends)
        # Threads that end may have started others, which are at the end of the list.
        for thread in self._threads:
            thread.join()
        for end in self._ends:
            end.close()

    def _accept(self) -> None:
        while True:
            try:
                engine, _ = self._listener.accept()
            except OSError:
                return
            self._add(engine)
            self._start(self._connect, engine)

    def _add(self, end: socket.socket) -> None:
        """Note a connection. It is shut down at once if it was made while the relay was closed."""
        with self._guard:
            self._ends.append(end)
            if self._is_closed:
                _shut(end)

    def _connect(self, engine: socket.socket) -> None:
        self._known.wait()
        if self._target is None:
            return
        try:
            program = socket.create_connection(("127.0.0.1", self._target))
        except OSError:
            _shut(engine)
            return
        self._add(program)
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
    _shut(source, target)


def _shut(*ends: socket.socket) -> None:
    """End what waits for the sockets, also in other threads."""
    for end in ends:
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
