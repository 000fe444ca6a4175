"""The seam to the engine: what launches, previews and removes the stack of an app.

`Driver` is the Protocol. The real one is `torchx_pulumi_stacks.engine`, over Pulumi's Automation API;
`torchx_pulumi.testing.fake_driver.FakeDriver` passes the same contract suite. The sdk knows no Pulumi.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from torchx_pulumi.model.app_entry import RunEntry, StackRef
from torchx_pulumi.model.job_plan import JobPlan
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.model.progress import ProgressCallback
from torchx_pulumi.stack_state.owner import CheckOwner, unowned

Still = Callable[[RunEntry], bool]
"""Tells of a remembered entry whether it still describes the app."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRequest:
    """One app to be launched."""

    entry: RunEntry
    """What the index has of it, in stage LAUNCHING."""
    plan: JobPlan[Any]
    """The plan that outputs are built from."""
    manifest: Manifest
    """What is created, as the caller left it: one object, or a `List` of them. Never rendered again."""
    digests: Mapping[str, str] = field(default_factory=dict)
    """Image reference to its digest, as far as known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """What a launch came to."""

    uid: str | None
    """Uid of the job object."""
    outputs: Mapping[str, Any]
    """Outputs of the stack."""


class Recorded(str, Enum):
    """What came of writing an observation to a stack."""

    WRITTEN = "written"
    KNOWN = "known"
    """The stack has it already, or something newer, or is of another run."""
    DEFERRED = "deferred"
    """Another process works on the stack, or it cannot be reached; to be tried again soon."""
    LEFT = "left"
    """The stack cannot be written from here: no permission, a backend or a state that allows no such write."""


class Driver(Protocol):
    """What may be done to the stacks of apps. Implementations: AutomationDriver, FakeDriver."""

    def launch(self, order: LaunchRequest, tell: ProgressCallback, *, check: CheckOwner = unowned) -> Launched:
        """Create the app's objects in a stack of its own.

        Args:
            order: What is launched.
            tell: Takes progress.
            check: Called before each step and while the launch waits.

        Raises:
            TakenOverError: `check` raised it. What was begun is left to the new owner.
            DeployError: The engine, the cluster or a webhook refused; what was begun is removed again.
            ClusterError: The cluster cannot be reached.
        """
        ...

    def recover(
        self, entry: RunEntry, tell: ProgressCallback, *, check: CheckOwner = unowned, take_over: bool = False
    ) -> RunEntry | None:
        """Put right what an interrupted launch or deletion left: finish it, or remove what it made.

        The caller has claimed the app in the index. Clears only locks of engines that we started and that have ended.
        Asks nobody to edit state.

        Args:
            entry: The app; its owner is the process that was interrupted.
            tell: Takes progress.
            check: Called before each step and while the recovery waits.
            take_over: Act even if another process owns the app, and clear the stack's locks in any case.

        Returns:
            The entry as it is now. None: nothing of the app is left.

        Raises:
            DeployError: Another process works on the app.
            ClusterError: The cluster cannot be reached, so that the truth cannot be found.
        """
        ...

    def destroy(
        self,
        entry: RunEntry,
        tell: ProgressCallback,
        *,
        forget_unreachable: bool = False,
        check: CheckOwner = unowned,
        take_over: bool = False,
    ) -> None:
        """Delete the app's objects and its stack; fine where some or all of them are gone.

        Args:
            entry: The app.
            tell: Takes progress.
            forget_unreachable: Remove the stack although the cluster cannot be reached; its objects may stay there.
            check: Called before each step and while the deletion waits.
            take_over: Clear the stack's locks regardless of who holds them.

        Raises:
            DeployError: The engine refused, or another process works on the app.
            ClusterError: The cluster cannot be reached; nothing was forgotten.
        """
        ...

    def record(self, entry: RunEntry, observed: Mapping[str, Any]) -> Recorded:
        """Write an observation to the stack's output `torchx.observed`, unless the stack has a newer one.

        Only `observed`, `state` and `reason` change, and only where the stack's run has the uid of the observation.
        Starts no process, and never waits for another one that works on the stack.

        Args:
            entry: The app.
            observed: In the shape of the output, with the `uid` of the object that was seen.
        """
        ...

    def locks(self, entry: RunEntry) -> Sequence[str]:
        """Return who holds locks on an app's stack, without those of engines that are known to have ended.

        Only what can be read without starting a process; elsewhere the engine itself refuses a locked stack.
        """
        ...

    def find(self, place: StackRef, still: Still | None = None, *, known: RunEntry | None = None) -> RunEntry | None:
        """Return an app's entry from its stack's own state, as a colleague wrote it. None: there is no such stack.

        Args:
            place: The stack.
            still: Whether an entry that was read a few minutes ago still holds. Where reading takes a process, such
                an entry is returned without one. None: the stack is read, always. Never pass it before a change.
            known: The app as it is known here. Where it has no stack at the place, the stack is looked for under the
                name that `pulumi stack rename` gave it; the entry that is returned has the new place. None: only the
                place is looked at.

        Raises:
            DeployError: The backend cannot be read.
        """
        ...

    def places(self, backend: str, project: str) -> Iterable[StackRef]:
        """Return the stacks of a project in a backend."""
        ...

    def close(self) -> None:
        """End what the driver started. May be called more than once."""
        ...
