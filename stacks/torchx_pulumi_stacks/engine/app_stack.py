"""The stack of one app: create, update, remove and forget it with as few processes as possible."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from torchx_pulumi.kube import Cluster, KubernetesCluster
from torchx_pulumi.model.app_entry import RunEntry
from torchx_pulumi.model.errors import DeployError
from torchx_pulumi.model.progress import ProgressCallback, once_each
from torchx_pulumi.model.redaction import without_password
from torchx_pulumi.model.registration_plan import RegistrationPlan
from torchx_pulumi.runs.handle import delete_command
from torchx_pulumi.runs.whereabouts import Connect, check_before_change, reachable
from torchx_pulumi.stack_state.backend import backend_folder
from torchx_pulumi.stack_state.checkpoint import Checkpoint
from torchx_pulumi.stack_state.cli import NO_STACK, engine_environment, find_cli, wants_passphrase
from torchx_pulumi.stack_state.stack_locks import Lock, read_locked_message
from torchx_pulumi.stack_state.stacks import FolderStack, check_layout, read_checkpoint
from torchx_pulumi.storage.owners import CheckOwner, unowned

from torchx_pulumi_stacks.engine.engine_semaphore import EngineSlot
from torchx_pulumi_stacks.engine.event_log import EngineNotes, is_of_other_passphrase
from torchx_pulumi_stacks.engine.process import CliResult, RunningCli, end_orphaned_engines
from torchx_pulumi_stacks.engine.pulumi_home import without_log
from torchx_pulumi_stacks.engine.pulumi_loading import load_inline, preload
from torchx_pulumi_stacks.engine.relay import Relay
from torchx_pulumi_stacks.engine.work_dir import WorkDir

UP = ("up", "--yes", "--skip-preview", "--suppress-outputs", "--suppress-progress", "--exec-kind", "auto.inline")
"""Command of the CLI that the Automation API uses for an inline program."""

NOT_READY = "error reading server preface"
"""Message of an engine that waited for the program for 20 s, while this process loaded Pulumi; nothing was changed."""

NO_ADDRESS = "127.0.0.1:1"
NO_PROGRAM = f"--client={NO_ADDRESS}"
"""Flag of a deletion: the engine connects to no program and starts no Python process, which halves the time."""

LOCKED = "is currently locked by"
"""Message of the CLI about a lock."""

LOCK_RETRY_PAUSES_S = (0.1, 0.3, 0.6)
"""Pauses before the CLI is started again after that message."""

LOCK_WAIT_S = 5.0
LOCK_POLL_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class _StartedUp:
    """An engine that runs `up` and waits for its program."""

    folder: Path
    """Its working directory."""
    relay: Relay
    running: RunningCli
    notes: EngineNotes
    ends: contextlib.ExitStack
    """Ends it, if it has not ended, and gives its slot back."""


class AppStack:
    """The stack of one app."""

    def __init__(
        self,
        entry: RunEntry,
        root: Path,
        progress: ProgressCallback,
        connect: Connect = KubernetesCluster.connect,
        check: CheckOwner = unowned,
    ) -> None:
        """Take an app, without reading its stack.

        Args:
            entry: The app.
            root: Work folder of the engine.
            progress: Receives progress messages.
            connect: Connects to the app's cluster.
            check: Called before each step; raises if another process has taken the app over.
        """
        self.check = check
        self.entry = entry
        self.progress = progress
        self.work_dir = WorkDir(root, entry)
        self._engine_root = root
        self._slot = EngineSlot(root / "slots", lambda line: progress(f"{entry.app_id}: {line}"), check)
        self._connect = connect
        self._root = backend_folder(entry.place.backend)
        self._files = None if self._root is None else FolderStack(self._root, entry.place)
        self._started: _StartedUp | None = None

    def create(self, *, seed: bool) -> None:
        """Create the stack.

        Raises:
            DeployError: The stack exists, or the backend cannot be used.
        """
        place = self.entry.place
        self.check()
        try:
            if self._root is not None:
                check_layout(self._root, place.backend)
            if self._files is not None and seed and wants_passphrase(place):
                find_cli()
                if self._files.seed():
                    return
            provider = ["--secrets-provider", place.secrets_provider] if place.secrets_provider else []
            ended = self._run(["stack", "init", place.cli_name, "--no-select", *provider], on_stack=False)
        except FileExistsError:
            raise self._taken() from None
        if ended.code != 0:
            if "already exists" in ended.stderr:
                raise self._taken()
            self.work_dir.clear()
            raise EngineNotes(self.progress).error(self.entry.app_id, "launched", ended.stderr, code=ended.code)

    def start(self) -> None:
        """Start the engine for `up`, which goes on with it; `abandon` ends it. Without a program it changes nothing.

        Raises:
            DeployError: The engine cannot be started.
        """
        self._started = self._start_up()

    def abandon(self) -> None:
        """End the engine that `start` started, if `up` has not taken it."""
        if self._started is not None:
            self._started.ends.close()
            self._started = None

    def up(self, request: Callable[[], RegistrationPlan]) -> str | None:
        """Register a run in the stack, and return the uid of its job object, if the engine said it.

        Args:
            request: Returns what is registered, which is on disk then. Called while the engine starts, and once.

        Raises:
            DeployError: The engine, the cluster or a webhook refused.
            ClusterError: The cluster cannot be reached.
        """
        request = functools.cache(request)
        ended, notes = self._retried_up(request)
        if ended.code != 0 and NOT_READY in ended.stderr:
            ended, notes = self._retried_up(request)
        self.check()
        if ended.code != 0:
            raise notes.error(self.entry.app_id, "launched", ended.stderr, code=ended.code)
        self.work_dir.clear()
        job = request().names[0]
        return next((uid for urn, uid in notes.uids.items() if urn.rpartition("::")[2] == job), None)

    def remove(self, *, take_over: bool = False, interrupted: bool = False) -> None:
        """Delete the app's objects and the stack, if they exist.

        Args:
            take_over: Remove the stack's locks, regardless of their owners.
            interrupted: The launch was interrupted, so the API server may create objects that are not in the state yet.

        Raises:
            DeployError: The engine refused, or another process works on the stack.
            ClusterError: The cluster cannot be reached, or is not the one of the launch; the stack stays.
        """
        # What follows is loaded by deletions only.
        from torchx_pulumi_stacks.engine import orphans

        # The engine reports deletions of objects that were asked to go before.
        progress = once_each(self.progress)
        self.clear_dead_locks(take_over=take_over)
        checkpoint = self.read()
        if checkpoint is not None and checkpoint.outdated and self._files is not None:
            self._files.restore()
        lost = checkpoint is None or checkpoint.outdated
        objects = checkpoint is not None and any(checkpoint.objects())
        order = self.work_dir.order() if interrupted else None
        late = [] if checkpoint is None else orphans.unrecorded(checkpoint, order)
        if lost or objects or late:
            self.check_cluster()
        if lost:
            self.check()
            orphans.delete_objects(self.entry, self.cluster, progress, self.check)
        if late:
            self.check()
            orphans.delete_late(late, self.entry, self.cluster, progress, self.check)
        if checkpoint is not None and self._files is not None and not objects and not any(checkpoint.others()):
            # Without objects in the cluster, the files can be removed without a process.
            self.check()
            self._files.sweep(state=True)
        elif checkpoint is not None:
            if objects and not orphans.engine_reaches(checkpoint, self.entry, self.cluster()):
                self._remove_without_engine(checkpoint, "the access in its state cannot be used here")
                return
            find_cli()
            if not any(checkpoint.others()):
                orphans.delete_awaited(checkpoint, self.entry, self.cluster, progress, self.check)
            notes = EngineNotes(progress)
            words = ["destroy", "--yes", "--skip-preview", "--remove", "--suppress-progress"]
            ended = self._run([*words, NO_PROGRAM], notes)
            if ended.code != 0 and not notes.errors and NO_ADDRESS in ended.stderr:
                ended = self._run(words, notes)
            other_passphrase = ended.code != 0 and is_of_other_passphrase(f"{ended.stderr} {notes.errors}")
            if other_passphrase and objects and not any(checkpoint.others()):
                # The deletion of an object needs no secret, so users need not share a passphrase.
                self._remove_without_engine(checkpoint, "its state has another passphrase")
                return
            # Another user may delete the same app at the same time; the engine then fails in many ways.
            if ended.code != 0 and not NO_STACK.search(ended.stderr) and self.read() is not None:
                raise notes.error(self.entry.app_id, "deleted", ended.stderr, code=ended.code)
            self.check()
            if ended.code != 0:
                # The notes below say that its lock, if it left one, is ours.
                self.clear_dead_locks()
            if objects:
                orphans.wait_for_pods(self.entry, self.cluster, progress, self.check)
        self.check()
        if self._files is not None:
            self._files.sweep(state=False)
        self.work_dir.clear()

    def forget(self, *, take_over: bool = False) -> None:
        """Remove the stack without its objects.

        Args:
            take_over: Remove the stack's locks, regardless of their owners.

        Raises:
            DeployError: The backend cannot be used, another process works on the stack, or it holds resources of the
                user's own program.
        """
        from torchx_pulumi_stacks.engine import orphans

        self.clear_dead_locks(take_over=take_over)
        orphans.refuse_others(self.read(), self.entry)
        if self._files is not None:
            self._files.sweep(state=True)
        else:
            ended = self._run(["stack", "rm", "--yes", "--force"])
            if ended.code != 0 and not NO_STACK.search(ended.stderr):
                raise EngineNotes(self.progress).error(self.entry.app_id, "forgotten", ended.stderr, code=ended.code)
        self.work_dir.clear()

    def read(self) -> Checkpoint | None:
        """Return the stack's state. None: the stack does not exist.

        Raises:
            DeployError: The state cannot be read.
        """
        return read_checkpoint(self.entry.place)

    def locks(self) -> list[Lock]:
        """Return the locks in a folder backend, except those of dead engines. Other backends: empty."""
        found = self._files.locks() if self._files is not None else []
        return [lock for lock in found if not self.work_dir.locks.is_dead(lock)]

    def clear_dead_locks(self, *, take_over: bool = False) -> None:
        """Remove the locks of our engines that have ended, and wait up to 5 s until other locks are released.

        Args:
            take_over: Remove all locks, regardless of their owners.

        Raises:
            DeployError: Another engine, here or on another machine, holds a lock.
        """
        self.check()
        if self._files is None:
            # `_run` handles the locks of other backends when the CLI reports them.
            if take_over:
                with self.work_dir.open() as folder:
                    words = ["cancel", "--yes", "--stack", self.entry.place.cli_name]
                    ended = RunningCli(find_cli(), words, folder, self._env()).wait()
                if ended.code != 0 and not NO_STACK.search(ended.stderr):
                    raise EngineNotes(self.progress).error(
                        self.entry.app_id, "taken over", ended.stderr, code=ended.code
                    )
            return
        end = time.monotonic() + LOCK_WAIT_S
        while stay := self._files.clear_locks(lambda lock: take_over or self.work_dir.locks.is_dead(lock)):
            if time.monotonic() > end:
                raise self._locked(stay)
            self.check()
            time.sleep(LOCK_POLL_S)

    def end_orphaned_engines(self) -> None:
        """End the engine processes of a dead owner."""
        self.check()
        end_orphaned_engines(self.work_dir.key, self.work_dir.locks)

    def cluster(self) -> Cluster:
        """Connect to the app's cluster.

        Raises:
            ClusterError: The kubeconfig or the context does not exist.
        """
        entry = self.entry
        return self._connect(*entry.access)

    def check_cluster(self) -> None:
        """Check that the cluster is that of the launch, before a change of it.

        The entry then has cluster access that works here, which another user's access may not.

        Raises:
            ClusterError: It is another or an unknown cluster, or it cannot be reached.
        """
        self.entry = reachable(self.entry, self._connect)
        check_before_change(self.entry, self.cluster())

    def _start_up(self) -> _StartedUp:
        cli, env = find_cli(), self._env()
        self._slot.acquire(preload)
        with contextlib.ExitStack() as ends:
            ends.enter_context(self._slot)
            folder = ends.enter_context(self.work_dir.open())
            self.check()
            notes, relay = EngineNotes(self.progress), Relay()
            ends.callback(relay.close)
            words = [*UP, f"--client=127.0.0.1:{relay.port}", "--stack", self.entry.place.cli_name]
            automation = {**env, "PULUMI_AUTOMATION_API": "true"}
            locks, free = self.work_dir.locks, self._slot.release
            running = RunningCli(cli, words, folder, automation, notes, locks, self.check, free)
            ends.callback(running.interrupt)
            # First: the engine does not end while it waits for the answer of its program.
            ends.callback(relay.close)
            return _StartedUp(folder=folder, relay=relay, running=running, notes=notes, ends=ends.pop_all())

    def _retried_up(self, request: Callable[[], RegistrationPlan]) -> tuple[CliResult, EngineNotes]:
        """Let the engine register a run, and return its result and what it noted; again if it found a lock."""
        notes: list[EngineNotes] = []

        def up() -> CliResult:
            started, self._started = self._started or self._start_up(), None
            notes.append(started.notes)
            return self._up(started, request)

        return self._retried(up), notes[-1]

    def _up(self, started: _StartedUp, request: Callable[[], RegistrationPlan]) -> CliResult:
        """Load Pulumi and make the request while the engine starts, and connect the two by the relay."""

        def wait(port: int) -> None:
            started.relay.pass_on_to(port)
            started.running.wait()

        with started.ends:
            load_inline().serve(request(), self.entry.place.stack, started.folder, wait)
            return started.running.wait()

    def _remove_without_engine(self, checkpoint: Checkpoint, why: str) -> None:
        """Delete the recorded objects with this user's access to the cluster, then the stack."""
        from torchx_pulumi_stacks.engine import orphans

        orphans.refuse_others(checkpoint, self.entry)
        self.progress(f"{self.entry.app_id}: {why}; its objects are deleted by your own access to the cluster")
        orphans.delete_recorded(checkpoint, self.entry, self.cluster, self.progress, self.check)
        self.forget()

    def _run(self, words: Sequence[str], notes: EngineNotes | None = None, *, on_stack: bool = True) -> CliResult:
        whole = [*words, *(["--stack", self.entry.place.cli_name] if on_stack else [])]
        locks, free = self.work_dir.locks, self._slot.release
        cli, env = find_cli(), self._env()

        def run(folder: Path) -> CliResult:
            return RunningCli(cli, whole, folder, env, notes, locks, self.check, free).wait()

        def cancel_and_run(folder: Path) -> CliResult:
            RunningCli(cli, ["cancel", "--yes", "--stack", self.entry.place.cli_name], folder, env).wait()
            return run(folder)

        ended = self._retried(lambda: self._in_slot(run))
        if ended.code != 0 and self._files is None and LOCKED in ended.stderr:
            held = read_locked_message(ended.stderr)
            if not held or not all(self.work_dir.locks.is_dead(lock) for lock in held):
                raise self._locked(held)
            # `pulumi cancel` removes all locks of a stack, and all of them are dead.
            ended = self._in_slot(cancel_and_run)
        self.check()
        return ended

    def _in_slot(self, run: Callable[[Path], CliResult]) -> CliResult:
        """Wait for a slot, and run the CLI in a folder of its own."""
        with self._slot, self.work_dir.open() as folder:
            self.check()
            return run(folder)

    def _retried(self, run: Callable[[], CliResult]) -> CliResult:
        """Run the CLI again if it found a lock: status writers hold one for a moment.

        The CLI acquires the lock before it changes anything. While this waits for the lock, other engines may run.

        Raises:
            DeployError: The lock stays.
        """
        ended = run()
        for pause_s in LOCK_RETRY_PAUSES_S:
            if ended.code == 0 or LOCKED not in ended.stderr:
                break
            if self._files is None and all(map(self.work_dir.locks.is_dead, read_locked_message(ended.stderr))):
                # No process removes them.
                break
            self.clear_dead_locks()
            time.sleep(pause_s)
            ended = run()
        return ended

    def _env(self) -> dict[str, str]:
        return without_log(engine_environment(self.entry, self.work_dir.key), self._engine_root)

    def _taken(self) -> DeployError:
        place = self.entry.place
        return DeployError(
            f"app {self.entry.app_id} cannot be launched: the stack {place.project}/{place.stack} exists already in "
            f"{without_password(place.backend)}; delete that app first, or choose another name"
        )

    def _locked(self, locks: Sequence[Lock]) -> DeployError:
        held = "; ".join(map(str, locks)) or "a process that the backend does not name"
        return DeployError(
            f"another process works on app {self.entry.app_id}; its stack is locked by {held}. Wait for its end. If it "
            f"is gone for certain, `{delete_command(self.entry)} --take-over` removes the lock and the app",
            retryable=True,
        )
