from __future__ import annotations

import ipaddress
import socket

import pytest

from tools.local_cluster import addresses, network
from tools.local_cluster.errors import LocalClusterError


def test_every_listener_gets_a_port_of_its_own() -> None:
    ports = addresses.pick_ports(taken=())
    assert tuple(ports) == addresses.PORTS
    assert len(set(ports.values())) == len(addresses.PORTS)


def test_ports_of_other_clusters_and_ports_in_use_are_left_alone() -> None:
    free = addresses.pick_ports(taken=(), names=("a", "b"))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", free["a"]))
        listener.listen()
        allowed = {free["a"], free["b"]}
        taken = set(range(1024, 65536)) - allowed
        assert addresses.pick_ports(taken=taken, names=("x",)) == {"x": free["b"]}
        with pytest.raises(LocalClusterError, match=r"no free port on 127\.0\.0\.1 for y"):
            addresses.pick_ports(taken=taken, names=("x", "y"))


def test_ports_are_outside_the_range_that_the_kernel_gives_to_clients() -> None:
    first = addresses._first_ephemeral_port()
    if first <= addresses.LOWEST_PORT + 1001:
        pytest.skip("this machine gives nearly all ports to clients")
    assert max(addresses.pick_ports(taken=()).values()) < first


def test_pod_subnets_of_clusters_do_not_overlap() -> None:
    subnets = [str(subnet) for subnet in addresses.POD_RANGE.subnets(new_prefix=23)]
    left = subnets[77]
    assert addresses.pick_pod_subnet(s for s in subnets if s != left) == left
    with pytest.raises(LocalClusterError, match="take some clusters down"):
        addresses.pick_pod_subnet(subnets)


def test_a_subnet_is_a_private_23() -> None:
    subnet = ipaddress.ip_network(addresses.pick_pod_subnet(()))
    assert subnet.prefixlen == 23
    assert subnet.is_private


def test_a_port_is_taken_by_who_listens_on_it_at_that_address() -> None:
    with socket.create_server(("127.0.0.2", 0)) as listener:
        port = listener.getsockname()[1]
        assert network.can_listen("127.0.0.1", port)
        assert not network.can_listen("127.0.0.2", port)
    assert network.can_listen("127.0.0.2", port)
