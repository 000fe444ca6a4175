"""Where the demo runs: on a local cluster of its own, or where the current kube context points."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tools.demo.errors import DemoError
from tools.demo.pulumi_cli import MCAD_STACK, ROOT, STACK
from tools.demo.telling import say

CLUSTER_NAME: Final = "demo"
SCRIPT: Final = "/opt/demo/my-train.py"
"""The training script in the image. Its name has a hyphen on purpose: the role is called after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job of the demo."""

    stack: str
    scheduler: str
    options: Mapping[str, Any]
    """Run options of the job."""
    prepare: Callable[[], Any] = lambda: None
    """Gives the cluster what this job needs beside the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A cluster and an image in reach of it."""

    image: str
    jobs: Sequence[Job]
    """Run one after the other; each stays in its stack until the end."""
    create_namespace: bool
    kubeconfig: Path | None = None
    """None: the ambient one."""
    local: Any = field(default=None)
    """The local cluster. None: the cluster is not ours."""

    def down(self) -> None:
        """Take the cluster down, if it is ours."""
        if self.local is not None:
            say(f"taking cluster {CLUSTER_NAME!r} down")
            self.local.down()


def local_target() -> Target:
    """Bring the local cluster up and put PyTorch and the training script into its registry.

    Raises:
        DemoError: This machine cannot run containers.
    """
    from tools import images
    from tools.bootstrap import pulumi_environment
    from tools.local_cluster import Cluster

    with made_meanwhile("pytorch"):
        say("tools: Pulumi, its Python host, the Kubernetes provider; meanwhile an image with PyTorch")
        pulumi_environment()
        say("local cluster: etcd, API server, Volcano with webhooks, one real node, registry, DNS")
        cluster = Cluster.up(CLUSTER_NAME, kwok_nodes=0, images=("busybox", "pytorch"), features=("volcano",))
    if "pytorch" not in cluster.images or not cluster.registry:
        why = cluster.status().get("why_no_real_node") or "it has no registry"
        cluster.down()
        raise DemoError(
            f"this machine can run no containers: {why}; run as root where containerd can be had, "
            "or use a cluster of yours: make demo CLUSTER=current"
        )
    image = f"{cluster.registry}/torchx-demo:1"
    script = ROOT / "examples" / "ddp" / "my-train.py"
    digest = images.add_layer(cluster.images["pytorch"], {SCRIPT: script}, image)
    say(f"image {image}: PyTorch and {script.relative_to(ROOT)} ({digest[:19]})")

    def add_mcad() -> None:
        say("local cluster: MCAD, and the default scheduler, which binds its pods")
        Cluster.up(CLUSTER_NAME, kwok_nodes=0, features=("volcano", "mcad"))

    return Target(
        image=image,
        jobs=(
            Job(stack=STACK, scheduler="volcano", options={"queue": "default", "namespace": "torchx-demo"}),
            # What is shown first waits for nothing that only this one needs.
            Job(stack=MCAD_STACK, scheduler="mcad", options={"namespace": "torchx-demo-mcad"}, prepare=add_mcad),
        ),
        create_namespace=True,
        kubeconfig=cluster.kubeconfig,
        local=cluster,
    )


@contextmanager
def made_meanwhile(image: str) -> Iterator[None]:
    """Make an image in a process of its own, beside what the block builds; who needs the image waits for it.

    One core unpacks Debian packages, and Go leaves one free now and then. If it fails, who needs the image tries again,
    and says why.
    """
    command = [sys.executable, "-m", "tools.images", image]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
        process.wait()


def current_target(image: str | None, namespace: str, queue: str) -> Target:
    """Take the cluster of the current kube context.

    Raises:
        DemoError: No image was named.
        ClusterError: There is no such cluster, or no Volcano on it.
    """
    from torchx_pulumi.kube import KubernetesCluster
    from torchx_pulumi.schedulers.appwrapper.objects import APP_WRAPPER
    from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB

    if not image:
        raise DemoError(
            "a cluster of yours needs an image of yours: examples/ddp/Dockerfile makes one; then "
            'make demo CLUSTER=current ARGS="--image REGISTRY/NAME"'
        )
    cluster = KubernetesCluster.connect()
    if not cluster.serves(VOLCANO_JOB):
        raise DemoError(
            "the cluster of the current context has no Volcano: install it there, or choose another context"
        )
    jobs = [Job(stack=STACK, scheduler="volcano", options={"queue": queue, "namespace": namespace})]
    if cluster.serves(APP_WRAPPER):
        jobs.append(Job(stack=MCAD_STACK, scheduler="mcad", options={"namespace": namespace}))
    return Target(image=image, jobs=jobs, create_namespace=False)
