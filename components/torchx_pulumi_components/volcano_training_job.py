"""VolcanoTrainingJob: the component for Volcano."""

from typing import Any

import pulumi

from torchx_pulumi_components.args import VolcanoTrainingJobArgs
from torchx_pulumi_components.read_args import VOLCANO
from torchx_pulumi_components.training_job import TrainingJob


class VolcanoTrainingJob(TrainingJob):
    """A gang-scheduled training job, run by Volcano."""

    _arguments = VOLCANO

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
    """Name of the headless Service by which replicas find each other. Empty: there is none."""
    pod_groups: pulumi.Output[list[str]]
    """Names of the PodGroups."""
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

    def __init__(self, name: str, args: VolcanoTrainingJobArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Launch the job, keep it, or launch it again: docs/decisions/0005 says when.

        The job is decided after the constructor has returned. The program fails at its end if the arguments are wrong
        (all problems in one message), the cluster cannot take the job, or a change would end a run that has not
        finished; nothing of the job is registered then.

        Args:
            name: Name of the component; the job object is called `<name>-<hash>`.
            args: What to run and how.
            opts: Provider, parent, aliases, protect, depends_on, ignore_changes, custom_timeouts and import are
                passed on to the objects that the component registers.

        Raises:
            pulumi.RunError: The state of the stack cannot be read.
        """
        self._construct(name, args, None, opts)
