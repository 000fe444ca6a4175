"""Checks of a launch against its cluster, before anything is registered."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Set
from typing import Final

from torchx_pulumi.kube import Reader
from torchx_pulumi.kube.kinds import SECRET
from torchx_pulumi.model.errors import ClusterError, Problem
from torchx_pulumi.model.job_plan import JobPlan
from torchx_pulumi.model.options import Options
from torchx_pulumi.schedulers.protocol import NamedObject
from torchx_pulumi.schedulers.registry import backend_of

QUEUE_OPTIONS: Final = frozenset({"namespace", "local_queue"})
"""Options without whose objects nothing can be said about the quota of a job."""


def preflight(
    cluster: Reader,
    options: Options,
    *,
    plan: JobPlan | None = None,
    may_come: Set[str] = frozenset(),
    unknown: Set[str] = frozenset(),
) -> tuple[list[Problem], list[str]]:
    """Check that a job can be launched, before anything is registered.

    Args:
        cluster: The cluster of the launch.
        options: Options of the job.
        plan: The planned job. None: whether its queue can let it in is not checked.
        may_come: Names of options whose object the same deployment may create; these objects are not checked.
        unknown: Names of arguments that only `up` knows; their objects, and all in an unknown namespace, are not
            checked, nor whether a queue can admit the job.

    Returns:
        Problems that prevent the launch, and warnings.

    Raises:
        ClusterError: The cluster does not answer.
    """
    backend = backend_of(options)
    absent = backend.absent(cluster, options)
    if absent:
        return absent, []
    problems: list[Problem] = []
    warnings: list[str] = []
    for item in backend.named_objects(options):
        is_unknown = item.option in unknown or (item.kind.namespaced and "namespace" in unknown)
        if item.name is not None and item.option not in may_come and not is_unknown:
            found = _look_for(cluster, item, item.name, options.namespace)
            if isinstance(found, Problem):
                problems.append(found)
            elif found is not None:
                warnings.append(found)
    if plan is not None and not unknown and not QUEUE_OPTIONS & may_come:
        never, hints = backend.check_admission(cluster, plan)
        problems, warnings = [*problems, *never], [*warnings, *hints]
    return problems, warnings


def discover(cluster: Reader | None, options: Options, unset: Collection[str]) -> Options:
    """Return options in which unset ones have the values that the scheduler reads from the cluster.

    Raises:
        ClusterError: The cluster does not answer.
    """
    found: Options = options if cluster is None else backend_of(options).discover(cluster, options, unset)
    return found


def _look_for(cluster: Reader, needed: NamedObject, name: str, default_namespace: str) -> Problem | str | None:
    """Return the problem of a named object, or a warning about it, or None if it is as needed."""
    kind, option = needed.kind, needed.option
    namespace = default_namespace if kind.namespaced else None
    try:
        found = cluster.get(kind, namespace, name)
        # Secrets are not listed: that would read them all.
        known = found is not None or kind is SECRET
        listed = [] if known else cluster.list(kind, namespace)
        others = [item["metadata"]["name"] for item in listed if not needed.check(item)]
    except ClusterError as error:
        if error.retryable:
            raise
        return f"{option} {name!r} could not be checked: {error}"
    if found is not None:
        text = needed.check(found)
        return Problem(option, f"{name!r} {text}") if text else None
    if kind is SECRET:
        return Problem(option, f"{name!r} is not in namespace {namespace!r}; create it first")
    near = [f"did you mean {other!r}?" for other in difflib.get_close_matches(name, others, 1)]
    there = f"there are {', '.join(sorted(others)[:10])}" if others else "there are none"
    message = f"{name!r} is not in the cluster; {near[0] if near else there}"
    return Problem(option, message) if needed.required else f"{option} {message}; pods cannot be made before it is"
