"""Kinds, labels and annotations of Volcano."""

from __future__ import annotations

from typing import Final

from torchx_pulumi.kube.kinds import Kind

VOLCANO_JOB = Kind(group="batch.volcano.sh", version="v1alpha1", kind="Job", plural="jobs", installed_by="Volcano")
VOLCANO_QUEUE = Kind(
    group="scheduling.volcano.sh",
    version="v1beta1",
    kind="Queue",
    plural="queues",
    namespaced=False,
    installed_by="Volcano",
)
VOLCANO_POD_GROUP = Kind(
    group="scheduling.volcano.sh", version="v1beta1", kind="PodGroup", plural="podgroups", installed_by="Volcano"
)
VOLCANO_COMMAND = Kind(
    group="bus.volcano.sh", version="v1alpha1", kind="Command", plural="commands", installed_by="Volcano"
)

VOLCANO_JOB_NAME: Final = "volcano.sh/job-name"
"""Name of the job, on every pod."""
VOLCANO_JOB_NAMESPACE: Final = "volcano.sh/job-namespace"
"""Namespace of the job, on every pod."""
VOLCANO_QUEUE_NAME: Final = "volcano.sh/queue-name"
"""Queue of the job, on every pod."""
VOLCANO_TASK_SPEC: Final = "volcano.sh/task-spec"
"""Task name, `<role>-<replica>`, on every pod (label and annotation)."""
VOLCANO_TASK_INDEX: Final = "volcano.sh/task-index"
"""Place of the pod in its task, from 0, on every pod (label and annotation); always 0 in the layout `replica`."""

DEFAULT_MAX_RETRY = 3
"""Retries that Volcano's webhook sets in a task without them (`jobs/mutate/mutate_job.go`). If the webhook set them, it
would also rewrite the quantities of the task, and the next `up` would show a change of a running job."""
