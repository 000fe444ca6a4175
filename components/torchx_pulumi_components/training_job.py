"""The constructor of every training job component. It returns at once; `job_construction` does the work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import cached_property
from importlib import import_module
from typing import Any, ClassVar

import pulumi
from torchx_pulumi.model.errors import DeployError
from torchx_pulumi.model.job_plan import JobPlan
from torchx_pulumi.outputs.types import COMPONENT_OUTPUTS, Declared, Observed, UserRequest
from torchx_pulumi.schedulers import find_backend, scheduler_names
from typing_extensions import Self

from torchx_pulumi_components.constructor_call import CheckedCall
from torchx_pulumi_components.input_resolution import copied
from torchx_pulumi_components.job_construction import Construction
from torchx_pulumi_components.program_jobs import wait_for
from torchx_pulumi_components.pulumi_runtime import Barrier
from torchx_pulumi_components.stack_state import read_outputs


class TrainingJob(CheckedCall):
    """A training job of any scheduler.

    A subclass has the outputs, as annotated attributes, and a constructor that calls `_construct`.
    """

    _scheduler: ClassVar[str]
    """Name of the scheduler."""
    # Those that are read of any component.
    app_id: pulumi.Output[str]
    app_handle: pulumi.Output[str]
    declared: pulumi.Output[Declared]
    observed: pulumi.Output[Observed]
    requested: pulumi.Output[UserRequest | None]
    _construction: Construction

    def __init_subclass__(cls) -> None:
        """Make an output when a program reads it for the first time: most programs read few of those of a job."""
        super().__init_subclass__()
        for name, _, _ in COMPONENT_OUTPUTS:

            def output(job: TrainingJob, name: str = name) -> pulumi.Output[Any]:
                made = job._construction
                return output_after(job, made.noted, lambda: made.outputs.get(name))

            found = cached_property(output)
            found.__set_name__(cls, name)
            setattr(cls, name, found)

    @classmethod
    def from_app(
        cls,
        name: str,
        app: Any,
        *,
        app_id: str | None = None,
        opts: pulumi.ResourceOptions | None = None,
        **options: Any,
    ) -> Self:
        """Make the job of a TorchX AppDef.

        Args:
            name: Name of the component.
            app: AppDef of TorchX 0.7.0 or nightly, or a `JobSpec`. It is not changed.
            app_id: Name of the job object. Unset: `<name>-<hash>`.
            opts: As for the constructor.
            **options: Arguments of the constructor, without `roles`.

        Raises:
            pulumi.RunError: As for the constructor.
        """
        job = object.__new__(cls)
        job._construct(name, options if app_id is None else {**options, "job_name": app_id}, app, opts)
        return job

    @property
    def plan(self) -> JobPlan[Any]:
        """The plan that was rendered, or that of the run which is kept; not an output. Reading it waits, see `made`."""
        return self.made.plan

    @property
    def made(self) -> Construction:
        """What is known of the job besides its outputs; not an output.

        Reading it in the program's own code waits until the job is decided, and with it for its arguments: jobs that
        are created later begin later. In an `apply` of one of the job's outputs it is known.

        Raises:
            pulumi.RunError: The job is refused.
        """
        decided = self._construction.decided
        if decided.done():
            decided.result()
        else:
            wait_for(asyncio.shield(decided))
        return self._construction

    def _construct(self, name: str, args: Mapping[str, Any], app: Any, opts: pulumi.ResourceOptions | None) -> None:
        """Begin to decide about the job and to register what it takes.

        Args:
            name: Name of the component, which is not registered yet.
            args: Its arguments.
            app: The job as an AppDef; `args` then has no roles. None: the arguments have the job.
            opts: Its options.

        Raises:
            pulumi.RunError: The state of the stack cannot be read.
        """
        try:
            # Before anything of a job is registered: as the last deployment left it.
            read_outputs()
        except DeployError as error:
            raise pulumi.RunError(str(error)) from error
        # As they are now: a program may change its options later, or a list in them.
        given = pulumi.ResourceOptions.merge(None, opts)
        given.depends_on, given.aliases = copied(given.depends_on), copied(given.aliases)
        made = Construction(self, self._scheduler, name, args, app, given)
        own = pulumi.ResourceOptions.merge(None, given)
        # These are options of its objects.
        own.import_, own.ignore_changes, own.custom_timeouts = None, None, None
        # A component that is refused is not registered, so that the state keeps what it has of it.
        super().__init__(made.token, name, {}, own, package_ref=made.allowed())
        Barrier(self, made.finished)
        self._construction = made
        made.begin()


def component_of(scheduler: str) -> type[TrainingJob]:
    """Return the component of a scheduler."""
    backend = find_backend(scheduler)
    component: type[TrainingJob] = getattr(import_module(backend.component_module), backend.component)
    return component


def component_schedulers() -> list[str]:
    """Return the schedulers that have a component, the default first."""
    return [name for name in scheduler_names() if find_backend(name).component_module]


def output_after(
    component: pulumi.Resource, noted: asyncio.Future[None], value: Callable[[], Any]
) -> pulumi.Output[Any]:
    """Return an output of a component that has it later. What uses it is registered after that.

    Args:
        component: The component.
        noted: Ends when the value is there.
        value: Returns the value.
    """

    async def wait() -> None:
        await asyncio.shield(noted)

    known: asyncio.Future[bool] = asyncio.Future()
    known.set_result(True)
    begun = pulumi.Output({component}, wait(), known)
    return begun.apply(lambda _: joined(value()))


def joined(value: Any) -> Any:
    """Return a value, as one Output if it has Outputs in it. `Output.from_input` makes an Output of each part."""
    return pulumi.Output.from_input(value) if _has_outputs(value) else value


def _has_outputs(value: Any) -> bool:
    if isinstance(value, (Mapping, list, tuple)):
        return any(map(_has_outputs, value.values() if isinstance(value, Mapping) else value))
    return isinstance(value, pulumi.Output)
