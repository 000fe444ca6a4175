"""MCADTrainingJob: a training job in one AppWrapper as one Pulumi component. Here: what its users see of it."""

from typing import Any

import pulumi
from torchx_pulumi.model.job_plan import JobPlan
from torchx_pulumi.schedulers.appwrapper.options import MCADOptions

from torchx_pulumi_components.construct import ComponentType, Made, construct, spec_of
from torchx_pulumi_components.mcad_args import MCADTrainingJobArgs
from torchx_pulumi_components.read_args import MCAD

DOOR = ComponentType(type="torchx:index:MCADTrainingJob", dialect=MCAD)


class MCADTrainingJob(pulumi.ComponentResource):
    """A training job in an AppWrapper, run by MCAD or by its successor, the AppWrapper operator."""

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

    def __init__(self, name: str, args: MCADTrainingJobArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Launch the job, keep it, or launch it anew: docs/decisions/0005 says when.

        Args:
            name: Name of the component; the job object is called `<name>-<hash>`.
            args: What to run and how.
            opts: Provider, parent, aliases, protect, depends_on, ignore_changes, custom_timeouts and import are
                passed on to the objects that the component makes.

        Raises:
            pulumi.RunError: The arguments are wrong (all problems in one message), the cluster cannot take the job, or
                a change would end a run that has not finished. Nothing was registered.
        """
        self._made = construct(self, DOOR, name, args, None, opts)

    @classmethod
    def from_app(
        cls,
        name: str,
        app: Any,
        *,
        app_id: str | None = None,
        opts: pulumi.ResourceOptions | None = None,
        **options: Any,
    ) -> "MCADTrainingJob":
        """Make the job of a TorchX AppDef.

        Args:
            name: Name of the component.
            app: AppDef of TorchX 0.7.0 or nightly, or a `JobSpec`. It is not changed.
            app_id: Name of the job object, taken as it is. Unset: `<name>-<hash>`.
            opts: As for the constructor.
            **options: Fields of `MCADTrainingJobArgs` beside `roles`.

        Raises:
            pulumi.RunError: As for the constructor.
        """
        job = cls.__new__(cls)
        given = options if app_id is None else {**options, "job_name": app_id}
        job._made = construct(job, DOOR, name, given, spec_of(app), opts)
        return job

    @property
    def plan(self) -> JobPlan[MCADOptions]:
        """The plan that was rendered, for what is built on it; not an output."""
        return self._made.plan

    @property
    def made(self) -> Made:
        """What the constructor found out beside the outputs, for what is built on it; not an output."""
        return self._made
