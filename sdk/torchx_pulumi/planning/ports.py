"""Ports: what may be one, and which one the Service of an AppWrapper has. Numbers only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

DEFAULT_PORT = 29500
"""Port of PyTorch's rendezvous, where no role names one."""


def is_port(number: int) -> bool:
    """Tell whether a number can be a TCP port.

    >>> is_port(1), is_port(65535), is_port(0), is_port(65536)
    (True, True, False, False)
    """
    return 1 <= number <= 65535


def service_port(port_maps: Iterable[Mapping[str, int]]) -> int:
    """Choose the Service's port as TorchX does: the last of the last role that has any; the default if it is none.

    >>> service_port([{"a": 1, "b": 2}, {"c": 3}, {}]), service_port([{}]), service_port([{"a": 8080}, {"b": 70000}])
    (3, 29500, 29500)
    """
    ports = [port for ports in port_maps for port in ports.values()]
    return ports[-1] if ports and is_port(ports[-1]) else DEFAULT_PORT
