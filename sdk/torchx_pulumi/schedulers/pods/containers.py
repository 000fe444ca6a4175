"""Container statuses of an observed Pod: the only reader of exit codes and container states."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from torchx_pulumi.model.object_fields import earliest, items_at, mapping_at, number_at, text_at, time_at
from torchx_pulumi.model.options import Observed

IMAGE_WAITS: Final = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "RegistryUnavailable",
        "ImageInspectError",
    }
)
"""The kubelet's waiting reasons for an image that cannot be pulled."""

REFUSED_WAITS: Final = frozenset(
    {
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
        "PreCreateHookError",
        "PostStartHookError",
    }
)
"""The kubelet's waiting reasons for a container that cannot be created or started."""

CRASH_LOOP: Final = "CrashLoopBackOff"
"""The kubelet's waiting reason for a container that it restarts again and again."""

START_ERRORS: Final = frozenset({"StartError", "ContainerCannotRun"})
"""Termination reasons of a container whose entrypoint was never executed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Termination:
    """How one run of a container ended."""

    exit_code: int | None
    """None: the status has no readable exit code."""
    reason: str | None
    """The runtime's word, for example `OOMKilled`, if reported."""
    message: str | None
    """The termination message. None: the container wrote none."""
    finished_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """The observed state of one container."""

    name: str | None
    init: bool
    """It is one of the pod's init containers."""
    sidecar: bool
    """It is not the one that runs the job: not the pod's first container, or an init container that always restarts."""
    image: str | None
    """Image of the pod's spec, else of the container's status. None: neither has it."""
    waiting: str | None
    """Reason for which it waits. None: it does not wait."""
    waiting_message: str
    """The kubelet's message about that. Empty: it has none."""
    ended: Termination | None
    """The end of its current run. None: it has not ended."""
    previous: Termination | None
    """The end of the run before the last restart, if any."""
    restarts: int
    started_at: datetime | None
    """When its current run started. None: it has not, or that is not reported."""
    memory_limit: str | None
    """A Kubernetes quantity. None: no limit."""


def read_containers(pod: Observed) -> list[Container]:
    """Return the containers that the pod's status reports, init containers first."""
    specs = {
        text_at(spec, "name"): spec for key in ("initContainers", "containers") for spec in items_at(pod, "spec", key)
    }
    main = text_at(next(iter(items_at(pod, "spec", "containers")), None), "name")
    found = []
    for key in ("initContainerStatuses", "containerStatuses"):
        for status in items_at(pod, "status", key):
            name, init = text_at(status, "name"), key == "initContainerStatuses"
            spec = specs.get(name, {})
            sidecar = spec.get("restartPolicy") == "Always" if init else main is not None and name not in (main, None)
            container = Container(
                name=name,
                init=init,
                sidecar=sidecar,
                image=text_at(spec, "image") or text_at(status, "image"),
                waiting=text_at(status, "state", "waiting", "reason"),
                waiting_message=text_at(status, "state", "waiting", "message") or "",
                ended=_read_termination(mapping_at(status, "state", "terminated")),
                previous=_read_termination(mapping_at(status, "lastState", "terminated")),
                restarts=number_at(status, "restartCount") or 0,
                started_at=earliest(time_at(status, "state", word, "startedAt") for word in ("running", "terminated")),
                memory_limit=text_at(spec, "resources", "limits", "memory"),
            )
            found.append(container)
    return found


def _read_termination(terminated: Observed) -> Termination | None:
    if not terminated:
        return None
    return Termination(
        exit_code=number_at(terminated, "exitCode"),
        reason=text_at(terminated, "reason"),
        message=text_at(terminated, "message"),
        finished_at=time_at(terminated, "finishedAt"),
    )
