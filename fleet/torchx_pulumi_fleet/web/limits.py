"""Limits of the server, as in docs/controller-access.md. Beyond a number, a request gets 503 and `Retry-After`."""

from __future__ import annotations

CONNECTIONS = 512
"""Connections. Beyond it, the one that has waited longest without a request makes room for a new one."""
REQUESTS = 64
"""Requests that are answered at the same time, without streams and logs."""
LOGINS = 8
"""Requests of `/login` at the same time."""
STREAMS = 256
"""Open streams of changes: one for each page that somebody looks at."""
LOGS = 32
"""Logs that are read at the same time, followed or not; each has a thread."""
THREADS = 8
"""Requests whose answers are computed at the same time; others wait."""

HEAD_BYTES = 16 << 10
"""Most bytes of a request's first line and headers."""
BODY_BYTES = 4 << 10
"""Most bytes of the form of `/login`. No other request has a body."""
PART_BYTES = 64 << 10
"""Most bytes of a response that are handed to a connection at once, and most that wait for a log's reader."""
SOCKET_BYTES = 128 << 10
"""Buffer of the kernel for a connection that does not read; by itself it grows to megabytes."""

HEAD_S = 10.0
"""Longest time without a complete request: after the connection was made, or after the last response."""
BODY_S = 10.0
"""Longest time for the form of `/login`."""
SEND_S = 20.0
"""Longest time for a part of a response. A client that does not read it is disconnected."""
SHARED_S = 1.0
"""Time for which the page and the metrics, once made, are sent to all who ask."""
PING_S = 15.0
"""Longest silence of a stream. The permission of its reader is checked as often."""
FRAME_S = 0.25
"""Shortest time between two messages of a stream."""
PROBLEMS_S = 2.0
"""Time between two looks at the problems, for the stream."""
STOP_S = 1.0
"""Longest time in which open responses end after a stop."""

RETRY_AFTER_S = 5
"""What `Retry-After` says."""
