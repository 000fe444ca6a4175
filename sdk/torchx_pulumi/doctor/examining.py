"""Runs the checks at the same time, with a time limit; and the checks of the cluster, which create nothing."""

from __future__ import annotations

import contextlib
import importlib
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from torchx_pulumi.doctor import machine
from torchx_pulumi.doctor.machine import provider_on_path
from torchx_pulumi.kube import Cluster, KubernetesCluster
from torchx_pulumi.kube.field_managers import set_by_others, written_edits
from torchx_pulumi.kube.kinds import NAMESPACE
from torchx_pulumi.model import labels
from torchx_pulumi.model.documentation import page
from torchx_pulumi.model.errors import ClusterError, TorchxPulumiError
from torchx_pulumi.model.finding import DoctorScope, Finding, Verdict, ok, problem, skipped
from torchx_pulumi.model.fleet_package import installed_versions
from torchx_pulumi.model.text import listed
from torchx_pulumi.model.versions import VERSIONS, provider_version, read_version, version_text
from torchx_pulumi.schedulers import find_backend, scheduler_names
from torchx_pulumi.schedulers.protocol import SchedulerBackend
from torchx_pulumi.stack_state.backend import choose_backend, state_folder

LIMIT_S = 5.0
"""Time limit of a check. A check that exceeds it counts as a problem."""

MAX_EDITS: Final = 8
"""Changes outside Pulumi that the doctor names at most."""

Check = Callable[[], Finding]


def check_version(cluster: Cluster) -> Finding:
    """Check that the API server answers, and check its version."""
    name, known = "cluster", VERSIONS["kubernetes"]
    try:
        printed = cluster.version()
    except ClusterError as error:
        return problem(
            name, str(error), "check that the cluster runs and that kubeconfig and context are the right ones"
        )
    version = read_version(printed)
    if version is not None and version < known.oldest:
        wanted = version_text(known.oldest)
        return problem(name, f"{cluster.api_server} is Kubernetes {printed}", f"use a cluster of {wanted} or later")
    return ok(name, f"{cluster.api_server}, Kubernetes {printed}", known.warning(version) if version else None)


def check_namespace(cluster: Cluster, scope: DoctorScope) -> Finding:
    """Check that the namespace exists and is not being deleted."""
    check = "namespace"
    try:
        found = cluster.get(NAMESPACE, None, scope.namespace)
    except ClusterError as error:
        return skipped(check, f"namespace {scope.namespace} cannot be read: {error}")
    if found is None:
        return problem(
            check, f"there is no namespace {scope.namespace!r}", f"kubectl create namespace {scope.namespace}"
        )
    if (found.get("status") or {}).get("phase") == "Terminating":
        return problem(
            check, f"namespace {scope.namespace!r} is being deleted", "wait until it is gone, or name another"
        )
    return ok(check, scope.namespace)


def check_permissions(cluster: Cluster, scope: DoctorScope) -> Finding:
    """Check that these credentials have the permissions to launch, read and end an app."""
    check = "permissions"
    backends = _backends(scope.scheduler)
    wanted = dict.fromkeys(permission for backend in backends for permission in backend.permissions(cluster))
    if not wanted:
        return skipped(check, "no scheduler to launch with")
    try:
        denied = [
            item
            for item in wanted
            if not cluster.allowed(item.verb, item.kind, None if item.everywhere else scope.namespace, item.part)
        ]
    except ClusterError as error:
        return skipped(check, f"the cluster does not say: {error}")
    if needed := [item for item in denied if not item.without]:
        return problem(
            check,
            f"in namespace {scope.namespace!r} these credentials may not: {', '.join(map(str, needed))}",
            f"ask for a Role with these verbs and resources, and a RoleBinding to it: {page('permissions')}",
        )
    found = f"{len(wanted) - len(denied)} of {len(wanted)} in namespace {scope.namespace}"
    lost = "; ".join(f"no {item}: {item.without}" for item in denied)
    return ok(check, f"{found}; {lost}" if lost else found)


def check_edits(cluster: Cluster, scope: DoctorScope) -> Finding:
    """Check whether others than Pulumi have set fields of the namespace's jobs, which a later `up` may run into."""
    check, edits = "edits", []
    kinds = {variant.job_object for backend in _backends(scope.scheduler) for variant in backend.variants.values()}
    for kind in sorted(kinds, key=lambda kind: kind.resource):
        try:
            found = cluster.list(kind, scope.namespace, {labels.LAUNCH: None}) if cluster.serves(kind) else []
        except ClusterError as error:
            return skipped(check, f"jobs of namespace {scope.namespace} cannot be read: {error}")
        for each in found:
            edits += [
                f"{kind.kind} {each['metadata']['name']}: {words}" for words in written_edits(set_by_others(each))
            ]
    if not edits:
        return ok(check, f"no job of namespace {scope.namespace} was changed outside Pulumi")
    return Finding(
        check=check,
        verdict=Verdict.OK,
        detail=f"{len(edits)} outside Pulumi in namespace {scope.namespace}: {listed(edits, MAX_EDITS)}",
        resolution="if the program sets such a field to another value, `up` after a refresh ends with a conflict: "
        f"{page('infra-teams')}",
    )


def _backends(scheduler: str | None) -> Sequence[SchedulerBackend[Any]]:
    return [find_backend(name) for name in scheduler_names() if scheduler in (None, name)]


def cluster_checks(scheduler: str | None) -> Sequence[tuple[str, Callable[[Cluster, DoctorScope], Finding]]]:
    """Return the checks of a cluster with their names, of one scheduler. None: of all schedulers."""
    backends = _backends(scheduler)
    return (
        ("cluster", lambda cluster, _: check_version(cluster)),
        ("namespace", check_namespace),
        *((backend.name, backend.check_installed) for backend in backends),
        *(check for backend in backends for check in backend.doctor_checks),
        ("permissions", check_permissions),
        ("edits", check_edits),
    )


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
    packages: Mapping[str, str] = field(default_factory=installed_versions)
    """Versions of the packages of this project, by their names."""
    sdk_version: str = field(default_factory=lambda: metadata.version("pulumi"))
    """Version of the Python package `pulumi`."""
    provider_version: str = field(default_factory=provider_version)
    """Version of the provider that a launch takes, unless one is on PATH."""
    connect: Callable[[], Cluster] = KubernetesCluster.connect
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
        ("packages", partial(machine.check_packages, clients.packages)),
        ("pulumi", partial(machine.check_pulumi, clients.run)),
        ("pulumi-sdk", partial(machine.check_sdk, clients.sdk_version)),
        (
            "kubernetes-provider",
            partial(machine.check_provider, clients.provider_version, clients.run, clients.provider_on_path),
        ),
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
            hidden = isinstance(error, ClusterError) and error.reason == "Forbidden"
            found[name] = problem(name, str(error), page("permissions") if hidden else "see the text")
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
