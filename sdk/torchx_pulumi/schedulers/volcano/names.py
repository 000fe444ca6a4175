"""Names that Volcano derives from a job: pods and environment variables."""

from __future__ import annotations

from collections.abc import Sequence

from torchx_pulumi.planning.names import task_name


def pod_name(job: str, task: str) -> str:
    """Name the pod of a task, as Volcano's job controller does; every task has one pod, number 0.

    >>> pod_name("train-x1", "trainer-3")
    'train-x1-trainer-3-0'
    """
    return f"{job}-{task}-0"


def longest_tail(tasks: Sequence[str]) -> int:
    """Return the number of characters that the longest pod name adds to the job's name.

    Volcano's webhook checks the name `<job>-<task>-<position of the task in the job>`, which is longer than the pod's
    own from the eleventh task on.

    >>> longest_tail(["trainer-0"]), longest_tail([f"t-{i}" for i in range(11)])
    (12, 8)
    """
    return max((len(f"-{task}-{position}") for position, task in enumerate(tasks)), default=0)


def hosts_env(role: str, index: int = 0) -> str:
    """Name the variable with the host of a replica, which Volcano's svc plugin sets in every pod.

    Dashes of the task's name become underscores (`pkg/controllers/job/plugins/svc`).

    >>> hosts_env("my-train")
    'VC_MY_TRAIN_0_HOSTS'
    """
    return f"VC_{_key(role, index)}_HOSTS"


def count_env(role: str, index: int = 0) -> str:
    """Name the variable with the number of hosts of a task.

    >>> count_env("my-train", 1)
    'VC_MY_TRAIN_1_NUM'
    """
    return f"VC_{_key(role, index)}_NUM"


def _key(role: str, index: int) -> str:
    return task_name(role, index).replace("-", "_").upper()
