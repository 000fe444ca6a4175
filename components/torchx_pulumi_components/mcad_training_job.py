"""MCADTrainingJob: the component for AppWrappers."""

from typing import Any

import pulumi

from torchx_pulumi_components.mcad_args import MCADTrainingJobArgs
from torchx_pulumi_components.read_args import MCAD
from torchx_pulumi_components.training_job import TrainingJob


class MCADTrainingJob(TrainingJob):
    """A training job in an AppWrapper, run by MCAD or by its successor, the AppWrapper operator."""

    _arguments = MCAD

    app_id: pulumi.Output[str]
    """Id of the app in TorchX's words: `namespace:job_name`."""
    app_handle: pulumi.Output[str]
    """Handle by which TorchX finds the app."""
    job_name: pulumi.Output[str]
    """Name of the job object."""
    namespace: pulumi.Output[str]
    """Namespace of all objects."""
    uid: pulumi.Output[str]
    """Uid of the job object; a new one is a new run."""
    service: pulumi.Output[str]
    """Name of the headless Service by which replicas find each other."""
    pod_groups: pulumi.Output[list[str]]
    """Names of the PodGroups, one per role. Empty: there is no coscheduler."""
    pod_names: pulumi.Output[list[str]]
    """Names of the pods, in the order of ranks."""
    rank0_host: pulumi.Output[str]
    """Host name of rank 0 inside the job."""
    images: pulumi.Output[dict[str, str]]
    """Role name to image."""
    declared: pulumi.Output[dict[str, Any]]
    """What was asked for: `declared` of the stack output `torchx`."""
    observed: pulumi.Output[dict[str, Any]]
    """What was seen: `observed` of the stack output `torchx`."""
    requested: pulumi.Output[dict[str, Any] | None]
    """The last request to cancel or resume the run: `requested` of the stack output `torchx`. None: there was none."""

    def __init__(self, name: str, args: MCADTrainingJobArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Launch the job, keep it, or launch it again, as `VolcanoTrainingJob` does.

        Raises:
            pulumi.RunError: The state of the stack cannot be read.
        """
        self._construct(name, args, None, opts)
