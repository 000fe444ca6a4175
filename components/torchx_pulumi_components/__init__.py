"""TorchX training jobs as Pulumi components. Public names only, each imported when it is used; no logic.

`torchx run` registers what it launches by this package without them.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchx_pulumi.model.launch_options import OnRunningChange, WaitFor
    from torchx_pulumi.model.options import TaskLayout
    from torchx_pulumi.schedulers.appwrapper.options import AppWrapperVersion, PodGroupVersion
    from torchx_pulumi.schedulers.volcano.options import GangMode

    from torchx_pulumi_components.args import Mount, MountKind, Resource, RetryPolicy, Role, SecretEnv
    from torchx_pulumi_components.exports import export_outputs, stack_outputs
    from torchx_pulumi_components.mcad_training_job import MCADTrainingJob, MCADTrainingJobArgs
    from torchx_pulumi_components.program_jobs import failures_deferred
    from torchx_pulumi_components.volcano_training_job import Topology, VolcanoTrainingJob, VolcanoTrainingJobArgs

__all__ = [
    "AppWrapperVersion",
    "GangMode",
    "MCADTrainingJob",
    "MCADTrainingJobArgs",
    "Mount",
    "MountKind",
    "OnRunningChange",
    "PodGroupVersion",
    "Resource",
    "RetryPolicy",
    "Role",
    "SecretEnv",
    "TaskLayout",
    "Topology",
    "VolcanoTrainingJob",
    "VolcanoTrainingJobArgs",
    "WaitFor",
    "export_outputs",
    "failures_deferred",
    "stack_outputs",
]

_HOMES: Mapping[str, str] = {
    "AppWrapperVersion": "torchx_pulumi.schedulers.appwrapper.options",
    "GangMode": "torchx_pulumi.schedulers.volcano.options",
    "MCADTrainingJob": "torchx_pulumi_components.mcad_training_job",
    "MCADTrainingJobArgs": "torchx_pulumi_components.mcad_training_job",
    "Mount": "torchx_pulumi_components.args",
    "MountKind": "torchx_pulumi_components.args",
    "OnRunningChange": "torchx_pulumi.model.launch_options",
    "PodGroupVersion": "torchx_pulumi.schedulers.appwrapper.options",
    "Resource": "torchx_pulumi_components.args",
    "RetryPolicy": "torchx_pulumi_components.args",
    "Role": "torchx_pulumi_components.args",
    "SecretEnv": "torchx_pulumi_components.args",
    "TaskLayout": "torchx_pulumi.model.options",
    "Topology": "torchx_pulumi_components.volcano_training_job",
    "VolcanoTrainingJob": "torchx_pulumi_components.volcano_training_job",
    "VolcanoTrainingJobArgs": "torchx_pulumi_components.volcano_training_job",
    "WaitFor": "torchx_pulumi.model.launch_options",
    "export_outputs": "torchx_pulumi_components.exports",
    "failures_deferred": "torchx_pulumi_components.program_jobs",
    "stack_outputs": "torchx_pulumi_components.exports",
}
"""Module of each name."""


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
