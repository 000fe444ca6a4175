"""The needs of AppWrappers of a cluster: kinds, a coscheduler and permissions."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from torchx_pulumi.kube import Cluster, Reader
from torchx_pulumi.kube.kinds import JOB, NAMESPACE, POD, PRIORITY_CLASS, SECRET, SERVICE, SERVICE_ACCOUNT, Kind
from torchx_pulumi.model.errors import Problem
from torchx_pulumi.model.finding import DoctorScope, Finding, problem, skipped
from torchx_pulumi.schedulers.appwrapper.kueue_observe import PERMISSIONS as KUEUE_PERMISSIONS
from torchx_pulumi.schedulers.appwrapper.objects import (
    APP_WRAPPER,
    APP_WRAPPER_V1BETA2,
    LOCAL_QUEUE,
    SIGS_POD_GROUP,
    X_K8S_POD_GROUP,
)
from torchx_pulumi.schedulers.appwrapper.options import AppWrapperVersion, MCADOptions, PodGroupVersion
from torchx_pulumi.schedulers.appwrapper.wrapped import POD_GROUP_APIS
from torchx_pulumi.schedulers.installed import deployed_tag, installed
from torchx_pulumi.schedulers.permissions import READING, Permission, on_job_object
from torchx_pulumi.schedulers.protocol import NamedObject, named_kinds

CONTROLLERS = {
    APP_WRAPPER: (AppWrapperVersion.V1BETA1, "MCAD"),
    APP_WRAPPER_V1BETA2: (AppWrapperVersion.V1BETA2, "the AppWrapper operator"),
}
"""Kind to its value of `api_version`, and what runs it."""

IMAGES = {
    APP_WRAPPER: ("mcad", "kube-system", "mcad-controller"),
    APP_WRAPPER_V1BETA2: ("appwrapper", "appwrapper-system", "appwrapper"),
}
"""Kind to what runs it in the table of versions, its namespace, and its image."""

GET_COSCHEDULERS_GROUP = Permission(
    verb="get", kind=X_K8S_POD_GROUP, without="why a coscheduler does not place a gang is read from its pods only"
)
LIST_APP_WRAPPERS = Permission(
    verb="list", kind=APP_WRAPPER, everywhere=True, without="what else is in MCAD's line is seen in one namespace"
)
LIST_JOBS = Permission(
    verb="list", kind=JOB, without="how replicas of an AppWrapper v1beta2 ended whose pods are gone is not known"
)
WRAPPED = tuple(
    Permission(verb="create", kind=kind, without=f"the webhook of its operator refuses {what}")
    for kind, what in (
        (POD, "an AppWrapper v1beta2 with pods"),
        (SERVICE, "every AppWrapper v1beta2"),
        (JOB, "an AppWrapper v1beta2 with Indexed Jobs (layout role)"),
        (X_K8S_POD_GROUP, "an AppWrapper v1beta2 with a coscheduler"),
        (SIGS_POD_GROUP, "an AppWrapper v1beta2 with a coscheduler of the older API"),
    )
)
"""What a user has to be allowed to create: an AppWrapper v1beta2 has only what its user could create alone."""


def of_app_wrapper(kind: Kind) -> Sequence[Permission]:
    """Return the permissions of an AppWrapper of one version."""
    return (
        *on_job_object(kind),
        *((LIST_JOBS, *WRAPPED) if kind is APP_WRAPPER_V1BETA2 else ()),
        replace(LIST_APP_WRAPPERS, kind=kind),
        *(replace(GET_COSCHEDULERS_GROUP, kind=group) for group in (X_K8S_POD_GROUP, SIGS_POD_GROUP)),
        *READING,
    )


def permissions(cluster: Reader) -> Sequence[Permission]:
    """Return the permissions that AppWrappers need, in the versions that the cluster serves, and under Kueue."""
    served = [of_app_wrapper(kind) for kind in CONTROLLERS if cluster.serves(kind)]
    if cluster.serves(APP_WRAPPER_V1BETA2) and cluster.serves(LOCAL_QUEUE):
        served.append(KUEUE_PERMISSIONS)
    return tuple(dict.fromkeys(permission for each in served for permission in each))


def absent(cluster: Reader, options: MCADOptions) -> list[Problem]:
    """Return the parts of the scheduler that the cluster lacks; empty if a job can be created."""
    problems: list[Problem] = []
    kind = next(kind for kind, (api, _) in CONTROLLERS.items() if options.api_version == api)
    if not cluster.serves(kind):
        other = next(one for one in CONTROLLERS if one is not kind)
        text = f"serves no {kind.kind} of {kind.api_version}: {CONTROLLERS[kind][1]} is not installed; install it, "
        text += (
            f"set api_version to {CONTROLLERS[other][0].value}, which it serves"
            if cluster.serves(other)
            else "or choose another cluster"
        )
        problems.append(Problem("cluster", text))
    group, _ = POD_GROUP_APIS[PodGroupVersion(options.pod_group_api)]
    if options.coscheduler_name is not None and not cluster.serves(group):
        served = [api.value for api, (other, _) in POD_GROUP_APIS.items() if cluster.serves(other)]
        hint = f"set pod_group_api to {served[0]}, which it serves" if served else "install it, or unset the option"
        text = f"{options.coscheduler_name!r} needs PodGroups of {group.api_version}, which the cluster does not serve"
        problems.append(Problem("coscheduler_name", f"{text}: no such coscheduler is installed; {hint}"))
    return problems


def named_objects(options: MCADOptions) -> list[NamedObject]:
    """Return the objects that options name.

    MCAD does not report why it could not create a pod, so everything that the pods name is required.
    """
    return [
        NamedObject(option="namespace", kind=NAMESPACE, name=options.namespace),
        NamedObject(option="priority_class", kind=PRIORITY_CLASS, name=options.priority_class),
        NamedObject(option="service_account", kind=SERVICE_ACCOUNT, name=options.service_account),
        NamedObject(option="image_secret", kind=SECRET, name=options.image_secret),
    ]


def discover(cluster: Reader, options: MCADOptions, unset: Collection[str]) -> MCADOptions:
    """Return options whose unset API of PodGroups is the one that the coscheduler of the cluster reads.

    Raises:
        ClusterError: The cluster does not answer.
    """
    if options.coscheduler_name is None or "pod_group_api" not in unset:
        return options
    served = (api for api in (PodGroupVersion.X_K8S, PodGroupVersion.SIGS) if cluster.serves(POD_GROUP_APIS[api][0]))
    return replace(options, pod_group_api=next(served, options.pod_group_api))


def check_installed(cluster: Cluster, asked: DoctorScope) -> Finding:
    """Check that the cluster serves AppWrappers, and say in which versions, and the version of what runs them."""
    found = [kind for kind in (APP_WRAPPER, APP_WRAPPER_V1BETA2) if cluster.serves(kind)]
    groups = [kind for kind in (X_K8S_POD_GROUP, SIGS_POD_GROUP) if cluster.serves(kind)]
    if not found and asked.scheduler != "mcad":
        return skipped("mcad", "not installed")
    if not found:
        return problem(
            "mcad",
            "the cluster serves no AppWrapper",
            "install MCAD (v1beta1) or the AppWrapper operator (v1beta2), or choose another cluster",
        )
    more = f"; for a coscheduler: {named_kinds(groups)}" if groups else "; no PodGroups for a coscheduler"
    part, namespace, image = IMAGES[found[-1]]
    return installed("mcad", named_kinds(found) + more, part, deployed_tag(cluster, namespace, image))
