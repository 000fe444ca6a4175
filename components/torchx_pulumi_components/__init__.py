"""TorchX training jobs as Pulumi components. Public names only; no logic."""

from torchx_pulumi.model.launch_options import OnRunningChange, WaitFor
from torchx_pulumi.model.options import TaskLayout
from torchx_pulumi.schedulers.appwrapper.options import AppWrapperVersion, PodGroupVersion
from torchx_pulumi.schedulers.volcano.options import GangMode

from torchx_pulumi_components.args import Mount, MountKind, Resource, RetryPolicy, Role, SecretEnv
from torchx_pulumi_components.mcad_training_job import MCADTrainingJob, MCADTrainingJobArgs
from torchx_pulumi_components.program_jobs import failures_deferred
from torchx_pulumi_components.stack_outputs import export_outputs, stack_outputs
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
