"""May a job be launched in this cluster: what must be there is looked for before anything is registered."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

from torchx_pulumi.kube import Cluster
from torchx_pulumi.kube.kinds import NAMESPACE, PRIORITY_CLASS, SECRET, SERVICE_ACCOUNT, Kind
from torchx_pulumi.model.errors import ClusterError, Problem
from torchx_pulumi.model.options import Manifest, Options
from torchx_pulumi.schedulers import variant_of
from torchx_pulumi.schedulers.appwrapper.objects import APP_WRAPPER, APP_WRAPPER_V1BETA2
from torchx_pulumi.schedulers.appwrapper.options import AppWrapperApi, MCADOptions, PodGroupApi
from torchx_pulumi.schedulers.appwrapper.wrapped import POD_GROUP_APIS
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_QUEUE
from torchx_pulumi.schedulers.volcano.options import VolcanoOptions


@dataclass(slots=True)
class Findings:
    """What was found out about a launch."""

    problems: list[Problem] = field(default_factory=list)
    """What forbids it."""
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Needed:
    """An object that an option names."""

    option: str
    kind: Kind
    name: str | None
    """None: the option is not set."""
    forbids: bool = True
    """Its absence is a problem, not only a warning."""


def preflight(
    cluster: Cluster,
    options: Options,
    *,
    may_come: Set[str] = frozenset(),
    not_known: Callable[[str], bool] = lambda _: False,
) -> tuple[list[Problem], list[str]]:
    """Check that a job can be launched, before anything is registered.

    Args:
        cluster: Where it would go.
        options: Of the job.
        may_come: Names of options whose object this very deployment may create; they are not looked for.
        not_known: Says of a name that it is not known yet; such a one is not looked for.

    Returns:
        Problems that forbid the launch, and warnings.

    Raises:
        ClusterError: The cluster does not answer.
    """
    if isinstance(options, VolcanoOptions):
        absent, needed = _absent_volcano(cluster, options), _needed_by_volcano(options)
    else:
        assert isinstance(options, MCADOptions)  # noqa: S101 - the backends take this over
        absent, needed = _absent_mcad(cluster, options), _needed_by_mcad(options)
    if absent:
        return absent, []
    findings = Findings()
    for item in needed:
        unknown = not_known(item.name or "") or (item.kind.namespaced and not_known(options.namespace))
        if item.name is not None and item.option not in may_come and not unknown:
            _look_for(cluster, item, item.name, options.namespace, findings)
    return findings.problems, findings.warnings


def discover(cluster: Cluster | None, options: Options, left_open: Iterable[str]) -> Options:
    """Fill in what was left to be found on the cluster: the PodGroups that its coscheduler reads.

    Raises:
        ClusterError: The cluster does not answer.
    """
    if cluster is None or not isinstance(options, MCADOptions) or "pod_group_api" not in left_open:
        return options
    if options.coscheduler_name is None:
        return options
    for api in (PodGroupApi.X_K8S, PodGroupApi.SIGS):
        if cluster.serves(POD_GROUP_APIS[api][0]):
            return replace(options, pod_group_api=api)
    return options


def _absent_volcano(cluster: Cluster, options: VolcanoOptions) -> list[Problem]:
    kind = variant_of(options).job_object
    if cluster.serves(kind):
        return []
    text = f"serves no {kind.kind} of {kind.group}: Volcano is not installed; install it, or choose another cluster"
    return [Problem("cluster", text)]


def _needed_by_volcano(options: VolcanoOptions) -> list[Needed]:
    return [
        Needed(option="namespace", kind=NAMESPACE, name=options.namespace),
        Needed(option="queue", kind=VOLCANO_QUEUE, name=options.queue),
        Needed(option="priority_class", kind=PRIORITY_CLASS, name=options.priority_class),
        Needed(option="service_account", kind=SERVICE_ACCOUNT, name=options.service_account, forbids=False),
    ]


def _absent_mcad(cluster: Cluster, options: MCADOptions) -> list[Problem]:
    problems: list[Problem] = []
    kind = variant_of(options).job_object
    if not cluster.serves(kind):
        by_mcad = kind is APP_WRAPPER
        other, version = (
            (APP_WRAPPER_V1BETA2, AppWrapperApi.V1BETA2) if by_mcad else (APP_WRAPPER, AppWrapperApi.V1BETA1)
        )
        who = "MCAD" if by_mcad else "the AppWrapper operator"
        text = f"serves no {kind.kind} of {kind.api_version}: {who} is not installed; install it, "
        text += (
            f"set api_version to {version.value}, which it serves"
            if cluster.serves(other)
            else "or choose another cluster"
        )
        problems.append(Problem("cluster", text))
    group, _ = POD_GROUP_APIS[PodGroupApi(options.pod_group_api)]
    if options.coscheduler_name is not None and not cluster.serves(group):
        served = [api.value for api, (other, _) in POD_GROUP_APIS.items() if cluster.serves(other)]
        hint = f"set pod_group_api to {served[0]}, which it serves" if served else "install it, or unset the option"
        text = f"{options.coscheduler_name!r} needs PodGroups of {group.api_version}, which the cluster does not serve"
        problems.append(Problem("coscheduler_name", f"{text}: no such coscheduler is installed; {hint}"))
    return problems


def _needed_by_mcad(options: MCADOptions) -> list[Needed]:
    # MCAD tells nobody why it could not make a pod, so nothing that its pods need may be absent.
    return [
        Needed(option="namespace", kind=NAMESPACE, name=options.namespace),
        Needed(option="priority_class", kind=PRIORITY_CLASS, name=options.priority_class_name),
        Needed(option="service_account", kind=SERVICE_ACCOUNT, name=options.service_account),
        Needed(option="image_secret", kind=SECRET, name=options.image_secret),
    ]


def _look_for(cluster: Cluster, needed: Needed, name: str, default_namespace: str, findings: Findings) -> None:
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
        if needed.forbids:
            findings.problems.append(Problem(option, message))
        else:
            findings.warnings.append(f"{option} {message}; pods cannot be made before it is")
    elif kind is VOLCANO_QUEUE and _state(found) != "Open":
        text = f"{name!r} is {_state(found)}; a job can only be submitted to an open queue"
        findings.problems.append(Problem(option, text))


def _state(queue: Manifest) -> str:
    status: dict[str, Any] = queue.get("status") or {}
    return str(status.get("state") or "Open")


def _there_are(names: Sequence[str], name: str) -> str:
    if not names:
        return "there are none"
    near = difflib.get_close_matches(name, names, 1)
    return f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(names)[:10])}"
