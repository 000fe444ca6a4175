"""TorchX training jobs as Pulumi components. Public names only; no logic."""

from torchx_pulumi_components.args import (
    GangMode,
    Mount,
    MountKind,
    OnRunningChange,
    Resource,
    RetryPolicy,
    Role,
    SecretEnv,
    Topology,
    VolcanoTrainingJobArgs,
    WaitFor,
)
from torchx_pulumi_components.mcad_args import AppWrapperVersion, MCADTrainingJobArgs, PodGroupVersion
from torchx_pulumi_components.mcad_training_job import MCADTrainingJob
from torchx_pulumi_components.program_jobs import failures_deferred
from torchx_pulumi_components.resources import TrainingRole
from torchx_pulumi_components.stack_outputs import export_outputs, stack_outputs
from torchx_pulumi_components.volcano_training_job import VolcanoTrainingJob

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
    "Topology",
    "TrainingRole",
    "VolcanoTrainingJob",
    "VolcanoTrainingJobArgs",
    "WaitFor",
    "export_outputs",
    "failures_deferred",
    "stack_outputs",
]
