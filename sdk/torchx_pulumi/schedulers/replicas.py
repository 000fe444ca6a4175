"""Which replica a pod is, for every scheduler."""

from __future__ import annotations

from torchx_pulumi.model import labels
from torchx_pulumi.model.object_fields import mapping_at, number_at, text_at
from torchx_pulumi.model.options import Observed
from torchx_pulumi.schedulers.pods.status import role_of
from torchx_pulumi.schedulers.registry import find_backend, scheduler_names


def replica_of(pod: Observed) -> tuple[str, int]:
    """Return role name and replica id of a pod: by TorchX's labels, else by its task and its place in the task.

    The role is written as a label value.
    """
    carried, name = mapping_at(pod, "metadata", "labels"), text_at(pod, "metadata", "name") or "pod"
    if number_at(carried, labels.REPLICA_ID) is None:
        for scheduler in scheduler_names():
            place = find_backend(scheduler).place_of(carried)
            if place is not None:
                role, first = role_of(place[0], carried)
                return role, first + place[1]
    return role_of(name, carried)
