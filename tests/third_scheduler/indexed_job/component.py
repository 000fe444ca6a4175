"""IndexedTrainingJob: the component for Indexed Jobs."""

from collections.abc import Sequence
from typing import Any, TypedDict

import pulumi
from torchx_pulumi_components import Role, WaitFor
from torchx_pulumi_components.read_args import ArgsReader
from torchx_pulumi_components.training_job import TrainingJob
from typing_extensions import NotRequired


# region component
class IndexedTrainingJobArgs(TypedDict):
    """Arguments of a training job that runs as an Indexed Job."""

    roles: Sequence[Role]
    """The one role."""
    namespace: NotRequired[pulumi.Input[str]]
    """Kubernetes namespace of the job. Unset: `default`."""
    active_deadline_s: NotRequired[int]
    """Seconds after which the job is stopped and counts as failed. Unset: no limit."""
    wait_for: NotRequired[WaitFor]
    """How far a launch is waited for. Unset: `created`."""
    job_name: NotRequired[str]
    """Fixed name of the job object. Unset: `<name>-<hash>`, new with every run."""


class IndexedTrainingJob(TrainingJob):
    """A training job that runs as an Indexed Job."""

    _arguments = ArgsReader(shape=IndexedTrainingJobArgs, scheduler="indexed_job")

    job_name: pulumi.Output[str]
    """Name of the job object."""
    observed: pulumi.Output[dict[str, Any]]
    """What was seen: `observed` of the stack output `torchx`."""
    requested: pulumi.Output[dict[str, Any] | None]
    """The last request to cancel or resume the run: `requested` of the stack output `torchx`. None: there was none."""

    def __init__(self, name: str, args: IndexedTrainingJobArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Launch the job, keep it, or launch it again.

        Args:
            name: Name of the component.
            args: What to run and how.
            opts: As for every component.

        Raises:
            pulumi.RunError: The state of the stack cannot be read.
        """
        self._construct(name, args, None, opts)


# endregion
