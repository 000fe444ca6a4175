"""AutomationDriver: the `Driver` that runs the Pulumi engine. `torchx_pulumi.runs.driver` documents its methods."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.model.app_entry import RunEntry, StackRef, Stage
from torchx_pulumi.model.errors import ClusterError, DeployError, TakenOverError, TorchxPulumiError
from torchx_pulumi.model.progress import ProgressCallback
from torchx_pulumi.runs.driver import Recorded, Still, Written
from torchx_pulumi.runs.registration import Registration, plan_registration
from torchx_pulumi.runs.whereabouts import Connect
from torchx_pulumi.stack_state.backend import backend_folder, backend_url, know_backend, open_store, state_folder
from torchx_pulumi.stack_state.checkpoint import DAMAGED, checkpoint_text, output_in, parse_components
from torchx_pulumi.stack_state.stack_locks import OwnedLocks, clear_dead_locks
from torchx_pulumi.stack_state.stacks import FolderStack, StackName, StoredStacks, check_there, list_stacks
from torchx_pulumi.storage.owners import CheckOwner, unowned
from torchx_pulumi.storage.stores import Store

from torchx_pulumi_stacks.engine.app_stack import AppStack
from torchx_pulumi_stacks.engine.stack_lookup import drop_cached, find_entry, find_renamed
from torchx_pulumi_stacks.engine.work_dir import place_key
from torchx_pulumi_stacks.forks import check_process

if TYPE_CHECKING:
    from torchx_pulumi.apps.answer import Answer, StackChange

logger = logging.getLogger(__name__)

PAUSE_S = 30.0
"""A backend that could not be read is read again after so long: a list of apps would wait for it once for each app."""


class AutomationDriver:
    """Launches, removes and reads the stacks of apps. Safe for threads and processes, which share files."""

    def __init__(self, folder: Path | None = None, *, connect: Connect = KubernetesCluster.connect) -> None:
        """Create a driver without starting a process or loading Pulumi.

        Args:
            folder: Work folder of the engine. None: `engine` in the user's state folder.
            connect: Connects to a cluster by kubeconfig and context.
        """
        self._folder = folder
        self._connect = connect
        self._failed_at: dict[str, float] = {}
        self._begun: dict[StackRef, AppStack] = {}
        """Launches whose engine waits for its program."""
        self._stores: Mapping[str, Store] = {}
        # Writing the empty state of a stack in a folder saves the process of `pulumi stack init`.
        self._seed = os.environ.get("TORCHX_PULUMI_SEED", "1") != "0"

    def check_process(self) -> None:
        check_process()

    def begin(self, app: Registration, progress: ProgressCallback, *, check: CheckOwner = unowned) -> None:
        check_process()
        entry = app.app_entry
        stack = self._stack(entry, progress, check)
        with self._changing(entry):
            stack.create(seed=self._seed)
            with self._undoing(stack):
                stack.start()
        self._begun[entry.place] = stack

    def abandon(self, app: Registration) -> None:
        entry = app.app_entry
        stack = self._begun.pop(entry.place)
        with self._changing(entry):
            stack.abandon()
            stack.remove()

    def launch(self, app: Registration, progress: ProgressCallback, *, check: CheckOwner = unowned) -> str | None:
        entry = app.app_entry
        if entry.place not in self._begun:
            self.begin(app, progress, check=check)
        stack = self._begun.pop(entry.place)
        with self._changing(entry), self._undoing(stack):
            # The engine needs 0.3 s to ask for the program: longer than this and Pulumi's modules take.
            return stack.up(lambda: stack.work_dir.write_request(plan_registration(app)))

    def recover(
        self, entry: RunEntry, progress: ProgressCallback, *, check: CheckOwner = unowned, take_over: bool = False
    ) -> RunEntry | None:
        from torchx_pulumi_stacks.engine.recovery import recover_stack

        entry = _followed(entry, progress)
        with self._changing(entry):
            return recover_stack(entry, self._stack(entry, progress, check), progress, take_over=take_over)

    def destroy(
        self,
        entry: RunEntry,
        progress: ProgressCallback,
        *,
        forget_unreachable: bool = False,
        check: CheckOwner = unowned,
        take_over: bool = False,
    ) -> None:
        entry = _followed(entry, progress)
        stack = self._stack(entry, progress, check)
        with self._changing(entry):
            try:
                stack.remove(take_over=take_over)
            except ClusterError:
                if not forget_unreachable:
                    raise
                stack.forget(take_over=take_over)
                progress(
                    f"{entry.app_id}: the stack is removed; its objects stay in the cluster, which cannot be reached"
                )

    def record(self, entry: RunEntry, change: StackChange) -> Written:
        try:
            place = _followed(entry, logger.debug).place
        except (OSError, ValueError, DeployError) as error:
            # The folder may not be mounted. What is known is kept and written later.
            logger.debug("the stack of %s is not written yet: %s", entry.app_id, error)
            return Written(outcome=Recorded.DEFERRED)
        return self.record_at(place, change, program_stacks=entry.of_program)

    def record_at(
        self,
        place: StackRef,
        change: StackChange,
        *,
        also: Callable[[], Sequence[StackChange]] = tuple,
        program_stacks: bool = False,
    ) -> Written:
        from torchx_pulumi_stacks.engine.status_writer import write_status

        try:
            store = self._store(place.backend)
            if store is None:
                return Written(outcome=Recorded.LEFT)
            locks = self._owned(place)
            written = write_status(store, place, change, locks, also=also, program_stacks=program_stacks)
            if written.outcome is Recorded.LEFT:
                self._drop_store(place.backend)
            return written
        except PermissionError as error:
            logger.debug("the backend of stack %s may not be opened: %s", place.stack, error)
            return Written(outcome=Recorded.LEFT)
        except (OSError, ValueError, DeployError) as error:
            logger.debug("stack %s is not written yet: %s", place.stack, error)
            return Written(outcome=Recorded.DEFERRED)

    def clear_dead_locks(self, backend: str, place: StackRef | None = None) -> bool:
        try:
            store = self._store(backend)
            if store is not None:
                clear_dead_locks(store, backend, self._owned, place)
        except (OSError, ValueError, DeployError) as error:
            logger.debug("locks of backend %s are not looked at yet: %s", backend, error)
            return False
        return True

    def answer(self, entry: RunEntry) -> Answer | None:
        from torchx_pulumi.apps.answer import Answer
        from torchx_pulumi.apps.app import read_apps

        place, backend = entry.place, know_backend(entry.place.backend)
        if time.monotonic() - self._failed_at.get(backend, -PAUSE_S) < PAUSE_S:
            raise DeployError(f"the Pulumi backend {backend} could not be read a moment ago", retryable=True)
        try:
            store = self._store(place.backend)
            text = None if store is None else StoredStacks(backend, store).read(StackName.of(place))
            checkpoint = parse_components(checkpoint_text("") if text is None else text)
            if entry.of_program:
                # A program may export nothing of it.
                apps = (app for app in read_apps(checkpoint, place) if app.uid == entry.uid)
                answer = next((app.answer for app in apps), Answer())
            else:
                answer = Answer.of(output_in(checkpoint) or {})
        except DAMAGED as error:
            raise DeployError(f"stack {place.project}/{place.stack} in {backend} cannot be read: {error}") from error
        except (OSError, DeployError) as error:
            self._failed_at[backend] = time.monotonic()
            self._drop_store(place.backend)
            raise DeployError(f"the Pulumi backend {backend} cannot be read: {error}", retryable=True) from error
        return answer if answer.observed else None

    def locks(self, entry: RunEntry) -> Sequence[str]:
        return [str(lock) for lock in self._stack(entry, logger.debug).locks()]

    def find(self, place: StackRef, still: Still | None = None, *, known: RunEntry | None = None) -> RunEntry | None:
        found = find_entry(place, self._root, still)
        if found is not None or known is None:
            return found
        moved = _followed(known, logger.debug).place
        return None if moved == place else find_entry(moved, self._root, still)

    def places(self, backend: str, project: str) -> Iterable[StackRef]:
        return list_stacks(backend, project)

    def close(self) -> None:
        """Do nothing: every process ends with the call that started it."""

    @property
    def _root(self) -> Path:
        return self._folder or state_folder() / "engine"

    def _work(self, place: StackRef) -> Path:
        return self._root / "work" / place_key(place)

    def _owned(self, place: StackRef) -> OwnedLocks:
        return OwnedLocks(self._work(place))

    def _store(self, backend: str) -> Store | None:
        """Return the files of a backend. None: they cannot be accessed without the engine."""
        store = self._stores.get(backend) or open_store(backend_url(backend))
        if store is not None:
            # Creating a client of an object store takes longer than a write.
            self._stores = {**self._stores, backend: store}
        return store

    def _drop_store(self, backend: str) -> None:
        """Let the next access to a backend read its credentials again."""
        self._stores = {name: kept for name, kept in self._stores.items() if name != backend}

    def _stack(self, entry: RunEntry, progress: ProgressCallback, check: CheckOwner = unowned) -> AppStack:
        return AppStack(entry, self._root, progress, self._connect, check)

    @contextlib.contextmanager
    def _changing(self, entry: RunEntry) -> Iterator[None]:
        """Drop the cached entry of a stack before and after a change, as a reader may cache it in between."""
        drop_cached(entry.place, self._root)
        try:
            yield
        finally:
            drop_cached(entry.place, self._root)

    @contextlib.contextmanager
    def _undoing(self, stack: AppStack) -> Iterator[None]:
        """Remove what a launch created if the block fails; if that fails too, the next call on the app repeats it."""
        app_id = stack.entry.app_id
        try:
            yield
        except TakenOverError:
            # The new owner continues or removes what was created.
            raise
        except BaseException as error:
            try:
                stack.remove(interrupted=not isinstance(error, TorchxPulumiError))
            except TakenOverError as second:
                stack.progress(str(second))
                error.__context__ = second
            except (ClusterError, DeployError) as second:
                stack.progress(
                    f"{app_id}: what was begun could not be removed yet: {second}; deleting the app will do it"
                )
                error.__context__ = second
            raise


def _followed(entry: RunEntry, progress: ProgressCallback) -> RunEntry:
    """Return an entry with the current name of its stack, which `pulumi stack rename` may have changed.

    Raises:
        BackendAbsentError: The folder of the backend is absent.
        DeployError: The backend cannot be read.
    """
    place, folder = entry.place, backend_folder(entry.place.backend)
    if folder is None or FolderStack(folder, place).exists():
        return entry
    check_there(place.backend)
    moved = find_renamed(folder, entry)
    if moved is not None:
        progress(f"{entry.app_id}: its stack {place.project}/{place.stack} is {moved.project}/{moved.stack} now")
        return replace(entry, place=moved)
    if entry.stage is not Stage.LAUNCHING:
        progress(
            f"{entry.app_id}: its stack {place.project}/{place.stack} is gone from {place.backend}: it was "
            "removed, or `pulumi stack migrate` moved it elsewhere; its objects are found by their label"
        )
    return entry
