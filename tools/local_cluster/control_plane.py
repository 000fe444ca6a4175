"""etcd, kube-apiserver and kube-controller-manager: their commands and how to see that they serve."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

from tools.local_cluster.api import Api, server_address
from tools.local_cluster.certificates import Credentials
from tools.local_cluster.layout import Layout, write_private
from tools.local_cluster.probes import http_ok
from tools.local_cluster.settings import Settings
from tools.local_cluster.startup import Component, Step, Unit


def control_plane(layout: Layout, settings: Settings) -> Iterator[Unit]:
    """Yield the parts of a plain Kubernetes."""
    made = Credentials.of(layout)
    api = Api.of(layout, settings)
    yield _etcd(layout, settings, made)
    yield Component(
        name="kube-apiserver",
        command=(settings.program("kube-apiserver"), *_apiserver_flags(settings, made)),
        ready=api.ready,
        needs=("etcd",),
    )
    yield Step(
        name="namespaces",
        # What pods need before they can be created; the API server and the controllers make them in their own time.
        run=lambda: None,
        until=lambda: api.get("/api/v1/namespaces/default/serviceaccounts/default") is not None,
        needs=("kube-controller-manager",),
    )
    yield _controller_manager(layout, settings, made)


def write_kubeconfig(layout: Layout, settings: Settings) -> None:
    """Write the administrator's kubeconfig, which the components use as well."""
    made = Credentials.of(layout)
    name = f"torchx-pulumi-{layout.name}"
    authority = base64.b64encode(made.ca.read_bytes()).decode()
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": name,
                "cluster": {"server": server_address(settings), "certificate-authority-data": authority},
            }
        ],
        "users": [{"name": name, "user": {"token": made.token.read_text("utf-8")}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": "default"}}],
        "current-context": name,
    }
    write_private(layout.kubeconfig, json.dumps(content, indent=2) + "\n")


def _etcd(layout: Layout, settings: Settings, made: Credentials) -> Component:
    client = f"https://127.0.0.1:{settings.ports['etcd']}"
    peer = f"https://127.0.0.1:{settings.ports['etcd-peer']}"
    command = [settings.program("etcd"), "--name=only", f"--data-dir={layout.data / 'etcd'}"]
    command += [f"--listen-client-urls={client}", f"--advertise-client-urls={client}"]
    command += [f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=only={peer}"]
    for prefix in ("", "peer-"):  # loopback is shared with all users of the machine, so clients must show a certificate
        command += [f"--{prefix}client-cert-auth", f"--{prefix}trusted-ca-file={made.ca}"]
        command += [f"--{prefix}cert-file={made.certificate}", f"--{prefix}key-file={made.key}"]
    # The tick must not be long: an election of one takes an election timeout.
    command += ["--heartbeat-interval=50", "--election-timeout=500", "--snapshot-count=10000", "--logger=zap"]
    return Component(name="etcd", command=tuple(command), ready=lambda: http_ok(f"{client}/health", made))


def _apiserver_flags(settings: Settings, made: Credentials) -> Iterator[str]:
    yield "--bind-address=127.0.0.1"
    yield "--advertise-address=127.0.0.1"
    yield "--endpoint-reconciler-type=none"
    yield f"--secure-port={settings.ports['kube-apiserver']}"
    yield f"--tls-cert-file={made.certificate}"
    yield f"--tls-private-key-file={made.key}"
    yield f"--etcd-servers=https://127.0.0.1:{settings.ports['etcd']}"
    yield f"--etcd-cafile={made.ca}"
    yield f"--etcd-certfile={made.certificate}"
    yield f"--etcd-keyfile={made.key}"
    yield f"--token-auth-file={made.tokens}"
    yield "--authorization-mode=Node,RBAC"
    yield "--allow-privileged=true"
    yield f"--service-cluster-ip-range={settings.service_range}"
    yield "--service-account-issuer=https://kubernetes.default.svc"
    yield f"--service-account-key-file={made.service_account_key}"
    yield f"--service-account-signing-key-file={made.service_account_key}"
    yield f"--kubelet-certificate-authority={made.ca}"
    yield f"--kubelet-client-certificate={made.certificate}"
    yield f"--kubelet-client-key={made.key}"
    yield "--kubelet-preferred-address-types=Hostname"
    # etcd 3.4 cannot report the progress that this feature waits for; clients would retry for ever.
    yield "--feature-gates=WatchList=false"
    yield "--enable-priority-and-fairness=false"
    yield "--profiling=false"


def _controller_manager(layout: Layout, settings: Settings, made: Credentials) -> Component:
    port = settings.ports["kube-controller-manager"]
    command = (
        settings.program("kube-controller-manager"),
        f"--kubeconfig={layout.kubeconfig}",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--tls-cert-file={made.certificate}",
        f"--tls-private-key-file={made.key}",
        f"--service-account-private-key-file={made.service_account_key}",
        f"--root-ca-file={made.ca}",
        # It creates this folder, by default one of the machine's.
        f"--flex-volume-plugin-dir={layout.data / 'volume-plugins'}",
        "--kube-api-qps=200",
        "--kube-api-burst=400",
        "--profiling=false",
    )
    return Component(
        name="kube-controller-manager",
        command=command,
        ready=lambda: http_ok(f"https://127.0.0.1:{port}/healthz", made),
        # The garbage collector looks for kinds every 30 s only: those of the components must be there before it.
        needs=("custom-resources",),
    )
