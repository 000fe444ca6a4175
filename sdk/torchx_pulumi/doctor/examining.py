"""Runs the checks at the same time, with a time limit."""

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
from torchx_pulumi.doctor.provider_on_path import provider_on_path
from torchx_pulumi.kube import KubernetesCluster, LiveCluster
from torchx_pulumi.model.errors import ClusterError, TorchxPulumiError
from torchx_pulumi.model.finding import DoctorScope, Finding, problem, skipped
from torchx_pulumi.stack_state.backend import choose_backend, state_folder

LIMIT_S = 5.0
"""Time limit of a check. A check that exceeds it counts as a problem."""

Check = Callable[[], Finding]


def ping_docker() -> None:
    """Send a ping to the Docker daemon.

    Raises:
        ImageError: The daemon does not answer.
    """
    from torchx_pulumi.images.building.daemon import Daemon, translated_errors

    daemon = Daemon.connect()
    try:
        with translated_errors("the daemon"):
            daemon.api.ping()
    finally:
        daemon.close()


def ask_registry(image_repo: str) -> None:
    """Ask a registry for an image of a repository. The image may be missing.

    Raises:
        ImageError: The registry does not answer, or denies access.
    """
    from torchx_pulumi.images.reference import parse_reference
    from torchx_pulumi.images.registry import RegistryClient

    with contextlib.closing(RegistryClient()) as registry:
        registry.digest(parse_reference(f"{image_repo}:latest"))


def import_ahead() -> None:
    """Import the packages of the checks before threads start.

    urllib3 1.26 imports modules while it holds the import lock, which can block imports of other threads.
    """
    for name in ("urllib3", "requests", "docker"):
        # The check that needs a package reports that it is missing.
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    importlib.import_module("torchx_pulumi.images.building.daemon")


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorClients:
    """Programs and services that the checks use."""

    run: machine.Run = machine.run_program
    provider_on_path: Callable[[], str | None] = provider_on_path
    connect: Callable[[], LiveCluster] = KubernetesCluster.connect
    ping_docker: Callable[[], None] = ping_docker
    ask_registry: Callable[[str], None] = ask_registry
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    folder: Path = field(default_factory=state_folder)
    """Folder with the records of this machine's launches."""
    backend: str = field(default_factory=choose_backend)
    """URL of the Pulumi backend."""


def examine(scope: DoctorScope, clients: DoctorClients, *, limit_s: float = LIMIT_S) -> list[Finding]:
    """Run all checks of a scope at the same time.

    Args:
        scope: The launches to check for.
        clients: Programs and services to use.
        limit_s: Time limit of a check.
    """
    import_ahead()
    checks: list[tuple[str, Check]] = [
        ("pulumi", partial(machine.check_pulumi, clients.run)),
        ("kubernetes-provider", partial(machine.check_provider, clients.run, clients.provider_on_path)),
        ("state-folder", partial(machine.check_state_folder, clients.folder)),
        ("passphrase", partial(machine.check_passphrase, clients.folder, clients.environment, clients.backend)),
        ("docker", partial(machine.check_docker, clients.ping_docker)),
        ("registry", partial(machine.check_registry, clients.ask_registry, scope.image_repo)),
    ]
    wanted = cluster_checks(scope.scheduler)
    try:
        cluster = clients.connect()
    except ClusterError as error:
        found = run_all(checks, limit_s)
        first = problem("cluster", str(error), "name a kubeconfig with --kubeconfig or KUBECONFIG")
        return [*found, first, *(skipped(name, "no cluster") for name, _ in wanted if name != "cluster")]
    return run_all([*checks, *((name, partial(check, cluster, scope)) for name, check in wanted)], limit_s)


def run_all(checks: Sequence[tuple[str, Check]], limit_s: float) -> list[Finding]:
    """Run checks at the same time and return their findings in order."""
    found: dict[str, Finding] = {}

    def run(name: str, check: Check) -> None:
        try:
            found[name] = check()
        except TorchxPulumiError as error:
            found[name] = problem(name, str(error), "see the text")
        except Exception as error:  # noqa: BLE001 - an error of one check must not hide the findings of the others
            found[name] = problem(name, f"the check failed: {type(error).__name__}: {error}", "report this")

    # Daemon threads: a check that hangs does not delay the end of the process.
    threads = [threading.Thread(target=run, args=each, daemon=True) for each in checks]
    for thread in threads:
        thread.start()
    ends_at = time.monotonic() + limit_s
    for thread in threads:
        thread.join(max(ends_at - time.monotonic(), 0))
    late = f"no answer in {limit_s:g} s"
    return [
        found.get(name) or problem(name, late, "check that it can be reached from here, then run again")
        for name, _ in checks
    ]
