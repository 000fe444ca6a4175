"""Checks of a launch against its cluster, before anything is registered."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Sequence, Set
from dataclasses import dataclass, field

from torchx_pulumi.kube import Reader
from torchx_pulumi.kube.kinds import SECRET
from torchx_pulumi.model.errors import ClusterError, Problem
from torchx_pulumi.model.options import Options
from torchx_pulumi.schedulers.protocol import NamedObject
from torchx_pulumi.schedulers.registry import backend_of


@dataclass(slots=True)
class Findings:
    """Result of the checks of a launch."""

    problems: list[Problem] = field(default_factory=list)
    """What prevents the launch."""
    warnings: list[str] = field(default_factory=list)


def preflight(
    cluster: Reader,
    options: Options,
    *,
    may_come: Set[str] = frozenset(),
    not_known: Callable[[str], bool] = lambda _: False,
) -> tuple[list[Problem], list[str]]:
    """Check that a job can be launched, before anything is registered.

    Args:
        cluster: The cluster of the launch.
        options: Options of the job.
        may_come: Names of options whose object the same deployment may create; these objects are not checked.
        not_known: Return whether a name is not known yet; such objects are not checked.

    Returns:
        Problems that prevent the launch, and warnings.

    Raises:
        ClusterError: The cluster does not answer.
    """
    backend = backend_of(options)
    absent = backend.absent(cluster, options)
    if absent:
        return absent, []
    findings = Findings()
    for item in backend.named_objects(options):
        unknown = not_known(item.name or "") or (item.kind.namespaced and not_known(options.namespace))
        if item.name is not None and item.option not in may_come and not unknown:
            _look_for(cluster, item, item.name, options.namespace, findings)
    return findings.problems, findings.warnings


def discover(cluster: Reader | None, options: Options, unset: Collection[str]) -> Options:
    """Return options with what the scheduler reads from the cluster where the user has not set it.

    Raises:
        ClusterError: The cluster does not answer.
    """
    found: Options = options if cluster is None else backend_of(options).discover(cluster, options, unset)
    return found


def _look_for(cluster: Reader, needed: NamedObject, name: str, default_namespace: str, findings: Findings) -> None:
    kind, option = needed.kind, needed.option
    namespace = default_namespace if kind.namespaced else None
    try:
        found = cluster.get(kind, namespace, name)
        # Secrets are not listed: that would read them all.
        listed = found is not None or kind is SECRET
        others = [] if listed else [item["metadata"]["name"] for item in cluster.list(kind, namespace)]
    except ClusterError as error:
        if error.retryable:
            raise
        findings.warnings.append(f"{option} {name!r} could not be checked: {error}")
        return
    if found is None and kind is SECRET:
        findings.problems.append(Problem(option, f"{name!r} is not in namespace {namespace!r}; create it first"))
    elif found is None:
        message = f"{name!r} is not in the cluster; {_there_are(others, name)}"
        if needed.required:
            findings.problems.append(Problem(option, message))
        else:
            findings.warnings.append(f"{option} {message}; pods cannot be made before it is")
    elif text := needed.check(found):
        findings.problems.append(Problem(option, f"{name!r} {text}"))


def _there_are(names: Sequence[str], name: str) -> str:
    if not names:
        return "there are none"
    near = difflib.get_close_matches(name, names, 1)
    return f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(names)[:10])}"
