"""Running the checks side by side, each for as long as it may take and no longer."""

from __future__ import annotations

import contextlib
import importlib
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from torchx_pulumi.doctor import machine
from torchx_pulumi.doctor.in_cluster import cluster_checks
from torchx_pulumi.kube import KubernetesCluster, LiveCluster
from torchx_pulumi.model.errors import ClusterError, TorchxPulumiError
from torchx_pulumi.model.finding import Asked, Finding, problem, skipped
from torchx_pulumi.stack_state.backend import choose_backend, state_folder

LIMIT_S = 5.0
"""A check that takes longer is a problem by itself."""

Check = Callable[[], Finding]


def ping_docker() -> None:
    """Ask the Docker daemon whether it is there.

    Raises:
        ImageError: It does not answer.
    """
    from torchx_pulumi.images.building.daemon import Daemon, translated_errors

    daemon = Daemon.connect()
    try:
        with translated_errors("the daemon"):
            daemon.api.ping()
    finally:
        daemon.close()


def ask_registry(image_repo: str) -> None:
    """Ask a registry for an image of a repository; there need be none.

    Raises:
        ImageError: It does not answer, or refuses.
    """
    from torchx_pulumi.images.reference import parse_reference
    from torchx_pulumi.images.registry import RegistryClient

    RegistryClient().digest(parse_reference(f"{image_repo}:latest"))


def import_ahead() -> None:
    """Import what the checks use before there are threads.

    urllib3 1.26 imports while it holds Python's one import lock; another thread's import can block it for ever.
    """
    for name in ("urllib3", "requests", "docker"):
        # What is absent is said by the check that needs it.
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    importlib.import_module("torchx_pulumi.images.building.daemon")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seams:
    """Whom the doctor asks."""

    run: machine.Run = machine.run_program
    connect: Callable[[], LiveCluster] = KubernetesCluster.connect
    ping_docker: Callable[[], None] = ping_docker
    ask_registry: Callable[[str], None] = ask_registry
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    folder: Path = field(default_factory=state_folder)
    """The folder in which this machine keeps what it launched."""
    backend: str = field(default_factory=choose_backend)
    """URL of the Pulumi backend."""


def examine(asked: Asked, seams: Seams, *, limit_s: float = LIMIT_S) -> list[Finding]:
    """Run every check that concerns what is asked, all at the same time.

    Args:
        asked: For which launches.
        seams: Whom to ask.
        limit_s: Seconds that a check may take.
    """
    import_ahead()
    checks: list[tuple[str, Check]] = [
        ("pulumi", partial(machine.check_pulumi, seams.run)),
        ("kubernetes-provider", partial(machine.check_provider, seams.run)),
        ("state-folder", partial(machine.check_state_folder, seams.folder)),
        ("passphrase", partial(machine.check_passphrase, seams.folder, seams.environment, seams.backend)),
        ("docker", partial(machine.check_docker, seams.ping_docker, asked.image_repo)),
        ("registry", partial(machine.check_registry, seams.ask_registry, asked.image_repo)),
    ]
    wanted = cluster_checks(asked.scheduler)
    try:
        cluster = seams.connect()
    except ClusterError as error:
        found = run_all(checks, limit_s)
        first = problem("cluster", str(error), "name a kubeconfig with --kubeconfig or KUBECONFIG")
        return [*found, first, *(skipped(name, "no cluster") for name, _ in wanted if name != "cluster")]
    return run_all([*checks, *((name, partial(check, cluster, asked)) for name, check in wanted)], limit_s)


def run_all(checks: Sequence[tuple[str, Check]], limit_s: float) -> list[Finding]:
    """Run checks at the same time and return what each found, in their order."""
    found: dict[str, Finding] = {}

    def run(name: str, check: Check) -> None:
        try:
            found[name] = check()
        except TorchxPulumiError as error:
            found[name] = problem(name, str(error), "see the text")
        except Exception as error:  # noqa: BLE001 - one check that breaks must not hide what the others found
            found[name] = problem(name, f"the check broke: {type(error).__name__}: {error}", "report this")

    # Daemons: one that hangs keeps nobody from going on, or from ending.
    threads = [threading.Thread(target=run, args=each, daemon=True) for each in checks]
    for thread in threads:
        thread.start()
    ends_at = time.monotonic() + limit_s
    for thread in threads:
        thread.join(max(ends_at - time.monotonic(), 0))
    late = f"no answer in {limit_s:g} s"
    return [
        found.get(name) or problem(name, late, "see that it can be reached from here, then run again")
        for name, _ in checks
    ]
