"""Kinds, labels and annotations of AppWrappers and of what runs them: MCAD, the operator, Kueue and coschedulers."""

from __future__ import annotations

from typing import Final

from torchx_pulumi.kube.kinds import Kind

APP_WRAPPER = Kind(group="workload.codeflare.dev", version="v1beta1", kind="AppWrapper", plural="appwrappers")
APP_WRAPPER_V1BETA2 = Kind(group="workload.codeflare.dev", version="v1beta2", kind="AppWrapper", plural="appwrappers")
X_K8S_POD_GROUP = Kind(group="scheduling.x-k8s.io", version="v1alpha1", kind="PodGroup", plural="podgroups")
SIGS_POD_GROUP = Kind(group="scheduling.sigs.k8s.io", version="v1alpha1", kind="PodGroup", plural="podgroups")
WORKLOAD = Kind(group="kueue.x-k8s.io", version="v1beta2", kind="Workload", plural="workloads", installed_by="Kueue")
LOCAL_QUEUE = Kind(
    group="kueue.x-k8s.io", version="v1beta2", kind="LocalQueue", plural="localqueues", installed_by="Kueue"
)
CLUSTER_QUEUE = Kind(
    group="kueue.x-k8s.io",
    version="v1beta2",
    kind="ClusterQueue",
    plural="clusterqueues",
    namespaced=False,
    installed_by="Kueue",
)
COHORT = Kind(
    group="kueue.x-k8s.io", version="v1beta2", kind="Cohort", plural="cohorts", namespaced=False, installed_by="Kueue"
)
KUEUE_KINDS = (WORKLOAD, LOCAL_QUEUE, CLUSTER_QUEUE, COHORT)
"""Kinds of Kueue that say why a job waits."""
RESOURCE_FLAVOR = Kind(
    group="kueue.x-k8s.io",
    version="v1beta2",
    kind="ResourceFlavor",
    plural="resourceflavors",
    namespaced=False,
    installed_by="Kueue",
)

APP_WRAPPER_LABEL: Final = "appwrapper.workload.codeflare.dev"
"""Name of the AppWrapper, on every PodGroup; MCAD itself sets it on every pod."""
OPERATOR_LABEL: Final = "workload.codeflare.dev/appwrapper"
"""Name of the AppWrapper v1beta2, which its operator sets on every object and pod."""
JOB_NAME: Final = "batch.kubernetes.io/job-name"
"""Label of a pod: its Job."""
COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"
"""Label and annotation of a pod: its index in an Indexed Job, from 0."""
POD_GROUP_SIGS: Final = "pod-group.scheduling.sigs.k8s.io"
"""PodGroup of a pod, for coschedulers with PodGroups of `scheduling.sigs.k8s.io`."""
POD_GROUP_X_K8S: Final = "scheduling.x-k8s.io/pod-group"
"""PodGroup of a pod, for coschedulers with PodGroups of `scheduling.x-k8s.io`."""
NETWORKS: Final = "k8s.v1.cni.cncf.io/networks"
"""Annotation of a pod: further networks that Multus attaches it to."""
KUEUE_QUEUE: Final = "kueue.x-k8s.io/queue-name"
"""Kueue's LocalQueue, on the AppWrapper."""
KUEUE_PRIORITY: Final = "kueue.x-k8s.io/priority-class"
"""WorkloadPriorityClass of a job, on the AppWrapper."""
KUEUE_JOB_UID: Final = "kueue.x-k8s.io/job-uid"
"""Uid of the job, on the Workload that Kueue makes for it."""
RETRY_LIMIT: Final = "workload.codeflare.dev.appwrapper/retryLimit"
"""Annotation of an AppWrapper v1beta2: how often its pods are created again after a failure, 0 or more."""
FAILURE_GRACE_ANNOTATION: Final = "workload.codeflare.dev.appwrapper/failureGracePeriodDuration"
"""Annotation of an AppWrapper v1beta2: how long a failed pod may take to recover."""
WARMUP_GRACE_ANNOTATION: Final = "workload.codeflare.dev.appwrapper/warmupGracePeriodDuration"
"""Annotation of an AppWrapper v1beta2: how long its pods may wait for nodes and images before that is a failure."""
DELETION_ON_FAILURE_GRACE_ANNOTATION: Final = "workload.codeflare.dev.appwrapper/deletionOnFailureGracePeriodDuration"
"""Annotation of an AppWrapper v1beta2: how long the pods of a failed one are kept."""
