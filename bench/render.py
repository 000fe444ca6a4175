"""Plan and render, next to TorchX's `app_to_resource` plus serialisation, for the same AppDef in the same process.

Both sides start from the AppDef and end with the text that would be shown or sent. Wants: at least 5 times as fast at
1,000 replicas, each of them a task of its own as TorchX makes them; 10,000 replicas of one task in under 10 s and
1 GiB.
"""

from __future__ import annotations

import json
import multiprocessing
import resource
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

REPLICAS = 1_000
MANY_REPLICAS = 10_000
ROUNDS = 3
WANTED_RATIO = 5.0
WANTED_S = 10.0
WANTED_MIB = 1024


def main() -> int:
    """Measure, print a line per figure and one at the end; 1 where a want is missed."""
    app = training_app(REPLICAS, is_own_task=True)
    ratios = {}
    for form, torchx_text, our_text in (
        ("dict", torchx_dict, our_dict),
        ("JSON", lambda app: json.dumps(torchx_dict(app)), lambda app: json.dumps(our_dict(app))),
        ("YAML", torchx_yaml, our_yaml),
    ):
        theirs_s, ours_s = measure_s(torchx_text, app), measure_s(our_text, app)
        ratios[form] = theirs_s / ours_s
        print(
            f"render {REPLICAS} replicas to {form}: TorchX {theirs_s:.2f} s, ours {ours_s:.3f} s, {ratios[form]:.1f}x"
        )
    many_s, many_mib = measure_many()
    print(f"render {MANY_REPLICAS} replicas to YAML: ours {many_s:.2f} s, {many_mib:.0f} MiB")
    met = min(ratios.values()) >= WANTED_RATIO and many_s < WANTED_S and many_mib < WANTED_MIB
    listed = ", ".join(f"{form} {ratio:.1f}x" for form, ratio in ratios.items())
    verdict = "met" if met else "MISSED"
    print(
        f"bench render: {verdict}: {listed} (want {WANTED_RATIO:.0f}x); {MANY_REPLICAS} replicas in {many_s:.2f} s, "
        f"{many_mib:.0f} MiB (want {WANTED_S:.0f} s, {WANTED_MIB} MiB)"
    )
    return 0 if met else 1


def training_app(replicas: int, *, is_own_task: bool) -> Any:
    """Make an AppDef as people write them: macros, environment, GPUs, ports, mounts.

    Args:
        replicas: Replicas of its role.
        is_own_task: Each replica has values of its own, so that it needs its own task. The environment and the mounts
            are few then: 1,000 tasks must fit into one object of etcd.
    """
    from torchx.specs import AppDef, BindMount, Resource, Role, VolumeMount, macros

    host = f"$${{{macros.rank0_env}:=localhost}}" if is_own_task else "train-x1-trainer-0"
    own = {"REPLICA": macros.replica_id} if is_own_task else {f"SETTING_{i}": "value" for i in range(8)}
    volumes = [] if is_own_task else [VolumeMount("scratch", "/scratch")]
    role = Role(
        name="trainer",
        image="registry.example.com/team/train:1",
        entrypoint="bash",
        args=["-c", f"torchrun --rdzv_endpoint {host}:29500 --id {macros.app_id} train.py"],
        env={"LOGLEVEL": "INFO", **own},
        num_replicas=replicas,
        max_retries=3,
        resource=Resource(cpu=16, gpu=8, memMB=256_000, devices={"vpc.amazonaws.com/efa": 4}),
        port_map={"c10d": 29500},
        mounts=[BindMount("/data", "/data", read_only=True), *volumes],
    )
    return AppDef(name="train", roles=[role])


def measure_s(run: Callable[[Any], object], app: Any) -> float:
    """Take the median of a few runs, in seconds."""
    taken = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        run(app)
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def torchx_dict(app: Any) -> Any:
    """Render with TorchX, as plain data."""
    from torchx.schedulers.kubernetes_scheduler import app_to_resource, sanitize_for_serialization

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return sanitize_for_serialization(app_to_resource(app, "default", None))


def torchx_yaml(app: Any) -> str:
    """Render with TorchX, as the text its request shows."""
    from torchx.schedulers.kubernetes_scheduler import KubernetesJob, app_to_resource

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return str(KubernetesJob(images_to_push={}, resource=app_to_resource(app, "default", None)))


def our_dict(app: Any) -> Any:
    """Plan and render with ours, as plain data."""
    from torchx_pulumi import render

    return render(app, "volcano", {"queue": "default"}, app_id="train-x1")


def our_yaml(app: Any) -> str:
    """Plan and render with ours, as YAML."""
    from torchx_pulumi.kube.yaml_text import to_yaml

    return to_yaml(our_dict(app))


def measure_many() -> tuple[float, float]:
    """Render many replicas in a process of its own; return seconds and the most memory it had, in MiB."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(_render_many)


def _render_many() -> tuple[float, float]:
    app = training_app(MANY_REPLICAS, is_own_task=False)
    start = time.perf_counter()
    our_yaml(app)
    taken_s = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return taken_s, peak / 1024 if sys.platform != "darwin" else peak / 1024**2
