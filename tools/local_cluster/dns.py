"""The pods' name service: CoreDNS on the bridge's own address, so that replicas find each other by name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tools.local_cluster.addresses import CLUSTER_DOMAIN
from tools.local_cluster.layout import Layout
from tools.local_cluster.probes import http_ok
from tools.local_cluster.settings import Settings
from tools.local_cluster.startup import Component, Unit

# Two blocks: within one, `template` would answer before `kubernetes` is asked.
_COREFILE: Final = """\
{domain} {{
    bind {gateway}
    errors
    ready 127.0.0.1:{ready}
    kubernetes {domain} {{
        kubeconfig {kubeconfig}
        ttl 1
    }}
}}
. {{
    bind {gateway}
    template ANY ANY {{
        rcode NXDOMAIN
    }}
}}
"""


def dns(layout: Layout, settings: Settings) -> Iterator[Unit]:
    """Yield the name service, if there are real pods to use it."""
    if not settings.real_node:
        return
    ready = settings.ports["coredns-ready"]
    text = _COREFILE.format(gateway=settings.gateway, ready=ready, domain=CLUSTER_DOMAIN, kubeconfig=layout.kubeconfig)
    file = layout.write_config("coredns", "Corefile", text)
    yield Component(
        name="coredns",
        command=(settings.program("coredns"), "-conf", str(file)),
        ready=lambda: http_ok(f"http://127.0.0.1:{ready}/ready"),
        needs=("kube-apiserver", "pods-network"),
    )
