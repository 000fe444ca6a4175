"""The pods' bridge and the firewall rules that let their packets pass. The kernel is asked directly: no `ip` needed."""

from __future__ import annotations

import errno
import fcntl
import ipaddress
import shutil
import socket
import struct
import subprocess
from pathlib import Path
from typing import Final

from tools.local_cluster.addresses import API_PORT
from tools.local_cluster.errors import LocalClusterError

# linux/sockios.h, linux/if.h
_ADD_BRIDGE: Final = 0x89A0
_DELETE_BRIDGE: Final = 0x89A1
_SET_FLAGS: Final = 0x8914
_SET_ADDRESS: Final = 0x8916
_SET_NETMASK: Final = 0x891C
_SET_HARDWARE_ADDRESS: Final = 0x8924
_UP_RUNNING: Final = 0x1 | 0x40
# linux/if_arp.h
_ETHERNET: Final = 1


def create_bridge(name: str, subnet: str) -> None:
    """Make a bridge that has the first address of `subnet` and a hardware address of its own, and set it up.

    Without a hardware address a bridge takes one of its ports, and another one whenever a pod comes or goes: the other
    pods then send to an address that is gone, and reach neither the name service nor the API server for a minute.

    Raises:
        OSError: not allowed, or the kernel has no bridges.
    """
    network = ipaddress.ip_network(subnet)
    if not bridge_exists(name):
        _control(_ADD_BRIDGE, name.encode())
    address = next(network.hosts())
    _control(_SET_HARDWARE_ADDRESS, struct.pack("16sH14s", name.encode(), _ETHERNET, hardware_address(str(address))))
    _control(_SET_ADDRESS, _address_request(name, str(address)))
    _control(_SET_NETMASK, _address_request(name, str(network.netmask)))
    _control(_SET_FLAGS, struct.pack("16sh14x", name.encode(), _UP_RUNNING))


def hardware_address(address: str) -> bytes:
    """Return the locally administered hardware address of an IPv4 address, six bytes.

    >>> hardware_address("10.1.2.3").hex(":")
    '0a:58:0a:01:02:03'
    """
    return b"\x0a\x58" + socket.inet_aton(address)


def delete_bridge(name: str) -> None:
    """Remove a bridge; one that is not there is fine."""
    if bridge_exists(name):
        _control(_SET_FLAGS, struct.pack("16sh14x", name.encode(), 0))
        _control(_DELETE_BRIDGE, name.encode())


def bridge_exists(name: str) -> bool:
    """Whether there is such a network interface."""
    return Path("/sys/class/net", name).exists()


def can_listen(address: str, port: int) -> bool:
    """Whether a program can listen on a port of an address of this machine. False: another one does."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((address, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            return False
    return True


def iptables_program(part: Path | None) -> str | None:
    """Return the `iptables` to use: the machine's own, which dockerd uses as well, else the part's. None: neither."""
    found = shutil.which("iptables") or shutil.which("iptables", path="/usr/sbin:/sbin")
    if found is None and part is not None and (part / "iptables").exists():
        found = str(part / "iptables")
    return found


def accept_traffic(iptables: str, bridge: str) -> None:
    """Let packets pass from pod to pod, and from pods to the name service and the API server.

    Raises:
        LocalClusterError: iptables failed.
    """
    for rule in _rules(bridge):
        if _iptables(iptables, "-C", rule) is None:
            continue
        if (trouble := _iptables(iptables, "-I", rule)) is not None:
            raise LocalClusterError(f"{iptables} could not add the rule {' '.join(rule)}: {trouble}")


def forget_traffic(iptables: str, bridge: str) -> None:
    """Remove the rules of `accept_traffic`, however many there are."""
    for rule in _rules(bridge):
        while _iptables(iptables, "-D", rule) is None:
            continue


def _rules(bridge: str) -> list[list[str]]:
    return [
        # Forwarded packets to the kernel where `bridge-nf-call-iptables` is on; dockerd drops those by default.
        ["FORWARD", "-i", bridge, "-o", bridge, "-j", "ACCEPT"],
        # Incoming packets, which a firewall may drop by default.
        *(
            ["INPUT", "-i", bridge, "-p", kind, "--dport", port, "-j", "ACCEPT"]
            for kind, port in (("udp", "53"), ("tcp", "53"), ("tcp", str(API_PORT)))
        ),
    ]


def _iptables(program: str, action: str, rule: list[str]) -> str | None:
    """Run one action on a rule. None: it worked."""
    command = [program, "-w", "5", action, *rule]
    done = subprocess.run(command, check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return None if done.returncode == 0 else done.stderr.strip() or f"exit code {done.returncode}"


def _address_request(name: str, address: str) -> bytes:
    return struct.pack("16sH2x4s16x", name.encode(), socket.AF_INET, socket.inet_aton(address))


def _control(request: int, argument: bytes) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, request, argument.ljust(40, b"\0"))
