"""Names that Volcano derives from a job: pods and environment variables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from torchx_pulumi.planning.names import MAX_LABEL, task_name

MAX_PER_TASK: Final = 1000
"""Replicas that one task can have. The svc plugin gives all hosts of a task to each container as one variable. Linux
starts no process with a variable of more than 128 KiB, and a host has at most 127 characters."""

MAX_CONFIG_MAP_BYTES: Final = 1_048_576
"""Kubernetes' limit for the data of a ConfigMap."""

KEY_BYTES: Final = 16
"""Characters of a key of that ConfigMap, without the name of its task, and of the number of hosts."""


def pod_name(job: str, task: str, position: int = 0) -> str:
    """Name a pod of a task, as Volcano's job controller does, by its place in the task.

    >>> pod_name("train-x1", "trainer-3")
    'train-x1-trainer-3-0'
    """
    return f"{job}-{task}-{position}"


def longest_tail(tasks: Mapping[str, int]) -> int:
    """Return the number of characters that the longest pod name adds to the job's name.

    Volcano's webhook checks the name `<job>-<task>-<position of the task in the job>`, which is longer than the pod's
    own from the eleventh task on.

    Args:
        tasks: Task names in the order of the job, with their replicas.

    >>> longest_tail({"trainer-0": 1}), longest_tail({f"t-{i}": 1 for i in range(11)}), longest_tail({"t-0": 1000})
    (12, 8, 8)
    """
    return max((len(f"-{task}-{max(place, tasks[task] - 1)}") for place, task in enumerate(tasks)), default=0)


def room_for_hosts(tasks: Mapping[str, int]) -> int:
    """Return how long the name of a job may be, so that the hosts of its replicas fit into a ConfigMap.

    The svc plugin writes each host, `<job>-<task>-<place>.<job>`, into it twice (`pkg/controllers/job/plugins/svc`).

    Args:
        tasks: Task names with their replicas.

    >>> room_for_hosts({"t-0": 1, **{f"t-{first}": 1000 for first in range(1, 9000, 1000)}})
    23
    """
    fixed = sum(3 * (len(task) + KEY_BYTES) for task in tasks)
    fixed += sum(2 * count * len(f"-{task}-{count - 1}.,") for task, count in tasks.items())
    return (MAX_CONFIG_MAP_BYTES - fixed) // (4 * max(sum(tasks.values()), 1))


def name_tail(tasks: Mapping[str, int]) -> int:
    """Return the characters that a job's name must leave free: those of pod names, or more if hosts need room."""
    return max(longest_tail(tasks), MAX_LABEL - room_for_hosts(tasks))


def hosts_env(role: str) -> str:
    """Name the variable with the host of the first replica of a role, which Volcano's svc plugin sets in every pod.

    >>> hosts_env("my-train")
    'VC_MY_TRAIN_0_HOSTS'
    """
    return task_env(task_name(role, 0))[0]


def task_env(task: str) -> tuple[str, str]:
    """Name the variables of Volcano's svc plugin with the hosts of a task, and with their number.

    Dashes of the task's name become underscores (`pkg/controllers/job/plugins/svc`).

    >>> task_env("my-train-1")
    ('VC_MY_TRAIN_1_HOSTS', 'VC_MY_TRAIN_1_NUM')
    """
    key = task.replace("-", "_").upper()
    return f"VC_{key}_HOSTS", f"VC_{key}_NUM"
