"""Protocol of the engine: what launches, reads and removes the stack of an app.

`torchx_pulumi_stacks.engine` implements it with Pulumi's Automation API.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from torchx_pulumi.model.app_entry import RunEntry, StackRef
from torchx_pulumi.model.progress import ProgressCallback
from torchx_pulumi.storage.owners import CheckOwner, unowned

if TYPE_CHECKING:
    from torchx_pulumi.apps.answer import Answer, StackChange
    from torchx_pulumi.runs.registration import Registration

Still = Callable[[RunEntry], bool]
"""Returns whether a cached entry still describes the app."""


class Recorded(str, Enum):
    """Result of writing an observation to a stack."""

    WRITTEN = "written"
    KNOWN = "known"
    """The stack says this already, or more, or has another run."""
    DEFERRED = "deferred"
    """Another process has the lease of the stack, or the stack cannot be reached; try again soon."""
    LEFT = "left"
    """The stack cannot be written: no permission, or the backend or the state does not allow it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Result of writing what is known of a run to its stack."""

    outcome: Recorded
    answer: Answer | None = None
    """What the stack says now. None: it was not read, or has another run."""
    also: Mapping[str, Answer] = field(default_factory=dict)
    """Uid of each other run that was written with it to what the stack says of it now."""


class Driver(Protocol):
    """Operations on the stacks of apps. Implementation: AutomationDriver."""

    def check_process(self) -> None:
        """Check that this process can launch, before anything is made for a launch.

        Raises:
            DeployError: It cannot.
        """
        ...

    def begin(self, app: Registration, progress: ProgressCallback, *, check: CheckOwner = unowned) -> None:
        """Begin a launch that may still be refused: start the engine, which creates nothing before `launch`.

        Args:
            app: The app, with its entry and its objects.
            progress: Takes lines of progress.
            check: Called before each step and while the launch waits.

        Raises:
            TakenOverError: `check` raised it.
            DeployError: The engine cannot be started; what was begun is removed again.
        """
        ...

    def abandon(self, app: Registration) -> None:
        """Remove what `begin` has begun.

        Raises:
            TakenOverError: Another process has taken the app over.
            DeployError: It cannot be removed yet; deleting the app does it.
        """
        ...

    def launch(self, app: Registration, progress: ProgressCallback, *, check: CheckOwner = unowned) -> str | None:
        """Create the app's objects in a stack of its own, and return the uid of the job object, if the engine said it.

        A launch that was begun goes on.

        Args:
            app: The app, with its entry and its objects.
            progress: Takes lines of progress.
            check: Called before each step and while the launch waits.

        Raises:
            TakenOverError: `check` raised it. The new owner continues or removes what was begun.
            DeployError: The engine, the cluster or a webhook refused; what was begun is removed again.
            ClusterError: The cluster cannot be reached.
        """
        ...

    def recover(
        self, entry: RunEntry, progress: ProgressCallback, *, check: CheckOwner = unowned, take_over: bool = False
    ) -> RunEntry | None:
        """Complete an interrupted launch or deletion, or remove what it created.

        The caller has the lease of the app. Only locks of engines that this package started and that have ended are
        removed. No state has to be edited by hand.

        Args:
            entry: The app; its owner is the process that was interrupted.
            progress: Takes lines of progress.
            check: Called before each step and while the recovery waits.
            take_over: Act also if another process owns the app, and remove the stack's locks in any case.

        Returns:
            The entry as it is now. None: the app does not exist any more.

        Raises:
            DeployError: Another process works on the app.
            ClusterError: The cluster cannot be reached, so that the state of the app is unknown.
        """
        ...

    def destroy(
        self,
        entry: RunEntry,
        progress: ProgressCallback,
        *,
        forget_unreachable: bool = False,
        check: CheckOwner = unowned,
        take_over: bool = False,
    ) -> None:
        """Delete the app's objects and its stack. Missing objects are skipped.

        Args:
            entry: The app.
            progress: Takes lines of progress.
            forget_unreachable: Remove the stack although the cluster cannot be reached; its objects may stay there.
            check: Called before each step and while the deletion waits.
            take_over: Remove the stack's locks of all holders.

        Raises:
            DeployError: The engine refused, or another process works on the app.
            ClusterError: The cluster cannot be reached; the stack stays.
        """
        ...

    def record(self, entry: RunEntry, change: StackChange) -> Written:
        """Write what is known of a run to the stack's output `torchx`, judged with what the stack has under its lock.

        Only `observed`, `requested`, `state` and `reason` change, and only if the run has the uid of the change.
        Starts no process, and does not wait for another process that has the lease.

        Args:
            entry: The app.
            change: What was read, observed earlier or requested.
        """
        ...

    def answer(self, entry: RunEntry) -> Answer | None:
        """Return the observation of the run in the stack's output `torchx`. Starts no process.

        Returns:
            It may be about another run than the one that is known here. None: the output is absent, or only a
            process can read the backend.

        Raises:
            DeployError: The stack cannot be read.
        """
        ...

    def record_at(
        self,
        place: StackRef,
        change: StackChange,
        *,
        also: Callable[[], Sequence[StackChange]] = tuple,
        program_stacks: bool = False,
    ) -> Written:
        """Write as `record` does, to the stack at a place; the stack is not searched elsewhere.

        Args:
            place: The stack.
            change: What was read, observed earlier or requested.
            also: Returns the same of other runs in the stack; called only if `change` can be written. They are written
                with it, and the outcome is that of `change`.
            program_stacks: Write also to the stack of a user's own program.
        """
        ...

    def clear_dead_locks(self, backend: str, place: StackRef | None = None) -> bool:
        """Remove locks on stacks of a backend that were taken by own processes which are known to have ended.

        Starts no process. Locks of other users, machines and pods stay.

        Args:
            backend: Its URL.
            place: The stack whose locks are looked at. None: all stacks of the backend.

        Returns:
            Whether the locks could be looked at; also True if only the engine can.
        """
        ...

    def locks(self, entry: RunEntry) -> Sequence[str]:
        """Return the holders of locks on an app's stack, without engines that are known to have ended.

        Only locks that can be read without a process; for other backends the engine refuses a locked stack.
        """
        ...

    def find(self, place: StackRef, still: Still | None = None, *, known: RunEntry | None = None) -> RunEntry | None:
        """Return an app's entry from its stack's state. None: the stack does not exist.

        Args:
            place: The stack.
            still: Whether an entry that was read a few minutes ago is still valid. Where reading takes a process, a
                valid entry is returned without one. None: the stack is read. Always None before a change.
            known: The local index entry of the app. If the place has no stack, the stack is searched by the
                name that `pulumi stack rename` gave it; the returned entry has the new place. None: no search.

        Raises:
            DeployError: The backend cannot be read.
        """
        ...

    def places(self, backend: str, project: str) -> Iterable[StackRef]:
        """Return the stacks of a project in a backend."""
        ...

    def close(self) -> None:
        """End the processes that the driver started. May be called more than once."""
        ...
