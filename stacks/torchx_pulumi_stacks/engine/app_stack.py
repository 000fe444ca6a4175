"""The stack of one app: made, brought up, removed, forgotten, with as few processes as each takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from torchx_pulumi.kube import KubernetesCluster, LiveCluster
from torchx_pulumi.model.app_entry import RunEntry
from torchx_pulumi.model.errors import DeployError, TakenOverError
from torchx_pulumi.model.progress import ProgressCallback
from torchx_pulumi.model.redaction import without_password
from torchx_pulumi.model.registration_plan import RegistrationPlan
from torchx_pulumi.runs.driver import Launched
from torchx_pulumi.runs.handle import delete_command
from torchx_pulumi.runs.whereabouts import Connect, check_before_change, reachable
from torchx_pulumi.stack_state.backend import backend_folder
from torchx_pulumi.stack_state.checkpoint import Checkpoint
from torchx_pulumi.stack_state.cli import NO_STACK, engine_environment, find_cli, wants_passphrase
from torchx_pulumi.stack_state.folder_stack import FolderStack, check_layout
from torchx_pulumi.stack_state.owner import CheckOwner, Life, life_of, unowned
from torchx_pulumi.stack_state.stack_locks import (
    LOCK_RETRY_PAUSES_S,
    LOCKED,
    Lock,
    is_over_of_0_1_0,
    read_locked_message,
)
from torchx_pulumi.stack_state.stacks import read_checkpoint

from torchx_pulumi_stacks.engine.engine_semaphore import slot
from torchx_pulumi_stacks.engine.event_log import EngineNotes, is_of_other_passphrase
from torchx_pulumi_stacks.engine.orphans import (
    delete_objects,
    delete_recorded,
    delete_unrecorded,
    engine_reaches,
    refuse_others,
    wait_for_pods,
)
from torchx_pulumi_stacks.engine.process import Ended, RunningCli, end_left_overs, run_cli
from torchx_pulumi_stacks.engine.program_host import serve
from torchx_pulumi_stacks.engine.relay import Relay
from torchx_pulumi_stacks.engine.work_dir import Workplace

UP = ("up", "--yes", "--skip-preview", "--suppress-outputs", "--suppress-progress", "--exec-kind", "auto.inline")
"""What the Automation API asks of the CLI for an inline program."""

NOBODY = "127.0.0.1:1"
NO_PROGRAM = f"--client={NOBODY}"
"""A deletion runs no program. Told that another process would run it, the engine starts no Python: half the time."""

LOCK_WAIT_S = 5.0
LOCK_POLL_S = 0.05


class AppStack:
    """The stack of one app."""

    def __init__(
        self,
        entry: RunEntry,
        root: Path,
        tell: ProgressCallback,
        connect: Connect = KubernetesCluster.connect,
        check: CheckOwner = unowned,
    ) -> None:
        """Name the stack; nothing is read yet.

        Args:
            entry: The app.
            root: Where the engine works.
            tell: Takes progress.
            connect: Opens the app's cluster.
            check: Called before each step; raises where another process has taken the app over.
        """
        self.check = check
        self.entry = entry
        self.tell = tell
        self.workplace = Workplace(root, entry)
        self._slots = root / "slots"
        self._connect = connect
        self._root = backend_folder(entry.place.backend)
        self._files = None if self._root is None else FolderStack(self._root, entry.place)

    def create(self, run: RegistrationPlan, *, seed: bool) -> None:
        """Make the stack, which must not be there.

        Raises:
            DeployError: It is there, or the backend cannot be used.
        """
        place = self.entry.place
        self.check()
        self.workplace.note_order(run)
        try:
            if self._root is not None:
                check_layout(self._root, place.backend)
            if self._files is not None and seed and wants_passphrase(place):
                find_cli()
                self._files.check_room()
                self._files.seed()
                return
            provider = ["--secrets-provider", place.secrets_provider] if place.secrets_provider else []
            ended = self._run(["stack", "init", place.cli_name, "--no-select", *provider], on_stack=False)
        except FileExistsError:
            self.workplace.clear()
            raise self._taken() from None
        except TakenOverError:
            raise
        except BaseException:
            self.workplace.clear()
            raise
        if ended.code != 0:
            self.workplace.clear()
            if "already exists" in ended.stderr:
                raise self._taken()
            raise EngineNotes(self.tell).error(self.entry.app_id, "launched", ended.stderr, code=ended.code)

    def up(self, run: RegistrationPlan) -> Launched:
        """Register a run in the stack.

        Raises:
            DeployError: The engine, the cluster or a webhook refused.
            ClusterError: The cluster cannot be reached.
        """
        notes = EngineNotes(self.tell)
        with slot(self._slots, self.check), self.workplace.open() as folder:
            self.check()
            ended = self._retried(lambda: self._up(run, folder, notes))
        self.check()
        if ended.code != 0:
            raise notes.error(self.entry.app_id, "launched", f"{ended.stdout}\n{ended.stderr}", code=ended.code)
        self.workplace.clear()
        head = next((uid for urn, uid in notes.uids.items() if urn.rpartition("::")[2] == run.names[0]), None)
        return Launched(uid=head, outputs=notes.outputs or dict(run.exports))

    def remove(self, *, take_over: bool = False) -> None:
        """Delete the app's objects and the stack; fine where some or all of them are gone.

        Args:
            take_over: Remove the stack's locks, regardless of who holds them.

        Raises:
            DeployError: The engine refused, or another process works on the stack.
            ClusterError: The cluster cannot be reached, or is not the one of the launch; nothing was forgotten.
        """
        self.clear_dead_locks(take_over=take_over)
        checkpoint = self.read()
        if checkpoint is not None and checkpoint.outdated and self._files is not None:
            self._files.restore()
        lost = checkpoint is None or checkpoint.outdated
        objects = checkpoint is not None and any(checkpoint.objects())
        if lost or objects:
            self.check_cluster()
        if lost:
            self.check()
            delete_objects(self.entry, self.cluster, self.tell, self.check)
        if checkpoint is not None and self._files is not None and not objects and not any(checkpoint.others()):
            # Nothing outside of the state was made: no process is needed to forget it.
            self.check()
            self._files.sweep(state=True)
        elif checkpoint is not None:
            if objects:
                self.check()
                delete_unrecorded(checkpoint, self.entry, self.cluster, self.tell, self.check)
            if objects and not engine_reaches(checkpoint, self.entry, self.cluster()):
                self._remove_without_engine(checkpoint, "the access in its state cannot be used here")
                return
            notes = EngineNotes(self.tell)
            words = ["destroy", "--yes", "--skip-preview", "--remove", "--suppress-progress"]
            ended = self._run([*words, NO_PROGRAM], notes)
            if ended.code != 0 and not notes.errors and NOBODY in ended.stderr:
                ended = self._run(words, notes)
            other_passphrase = ended.code != 0 and is_of_other_passphrase(f"{ended.stderr} {notes.errors}")
            if other_passphrase and objects and not any(checkpoint.others()):
                # Deleting an object takes no secret, so colleagues need not share a passphrase for it.
                self._remove_without_engine(checkpoint, "its state has another passphrase")
                return
            # A colleague who deletes the same app may have been faster: the engine then fails in many ways.
            if ended.code != 0 and not NO_STACK.search(ended.stderr) and self.read() is not None:
                raise notes.error(self.entry.app_id, "deleted", f"{ended.stdout}\n{ended.stderr}", code=ended.code)
            self.check()
            if objects:
                wait_for_pods(self.entry, self.cluster, self.check)
        self.check()
        if self._files is not None:
            self._files.sweep(state=False)
        self.workplace.clear()

    def forget(self, *, take_over: bool = False) -> None:
        """Remove the stack without its objects.

        Args:
            take_over: Remove the stack's locks, regardless of who holds them.

        Raises:
            DeployError: The backend cannot be used, another process works on the stack, or a program has put resources
                of other kinds into it.
        """
        self.clear_dead_locks(take_over=take_over)
        refuse_others(self.read(), self.entry)
        if self._files is not None:
            self._files.sweep(state=True)
        else:
            ended = self._run(["stack", "rm", "--yes", "--force"])
            if ended.code != 0 and not NO_STACK.search(ended.stderr):
                raise EngineNotes(self.tell).error(self.entry.app_id, "forgotten", ended.stderr, code=ended.code)
        self.workplace.clear()

    def read(self) -> Checkpoint | None:
        """Return the stack's state. None: there is no such stack.

        Raises:
            DeployError: It cannot be read.
        """
        return read_checkpoint(self.entry.place)

    def locks(self) -> list[Lock]:
        """Return the stack's locks that are not known to be of dead engines, as far as files tell."""
        found = self._files.locks() if self._files is not None else []
        return [lock for lock in found if not self._is_dead(lock)]

    def clear_dead_locks(self, *, take_over: bool = False) -> None:
        """Remove the stack's locks of engines that we started and that have ended; wait a moment for others to end.

        Args:
            take_over: Remove all locks, regardless of who holds them.

        Raises:
            DeployError: Another engine holds a lock, or one that cannot be seen from here.
        """
        self.check()
        if self._files is None:
            # The locks of other backends are seen when they are in the way; see _run.
            if take_over:
                self._cancel()
            return
        end = time.monotonic() + LOCK_WAIT_S
        while stay := self._files.clear_locks(lambda lock: take_over or self._is_dead(lock)):
            if time.monotonic() > end:
                raise self._locked(stay)
            self.check()
            time.sleep(LOCK_POLL_S)

    def end_left_overs(self) -> None:
        """End processes of the engine that a dead owner left."""
        self.check()
        end_left_overs(self.workplace.key, self.workplace.locks)

    def cluster(self) -> LiveCluster:
        """Open the app's cluster.

        Raises:
            ClusterError: There is no such kubeconfig or context.
        """
        entry = self.entry
        return self._connect(entry.kubeconfig or entry.ambient_kubeconfig, entry.kube_context or entry.ambient_context)

    def check_cluster(self) -> None:
        """Refuse to change anything in a cluster that is not known to be the one of the launch.

        From here on the app is reached by an access that can be used here, which a colleague's may not be.

        Raises:
            ClusterError: It is another cluster, that is not known, or it cannot be reached.
        """
        self.entry = reachable(self.entry, self._connect)
        check_before_change(self.entry, self.cluster())

    def _up(self, run: RegistrationPlan, folder: Path, notes: EngineNotes) -> Ended:
        """Start the engine, load Pulumi meanwhile, and let the one find the other."""
        relay = Relay()
        try:
            words = [*UP, f"--client=127.0.0.1:{relay.port}", "--stack", self.entry.place.cli_name]
            env = {**self._env(), "PULUMI_AUTOMATION_API": "true"}
            running = RunningCli(find_cli(), words, folder, env, notes, self.workplace.locks, self.check)
            try:
                self._serve(run, folder, relay, running)
                return running.wait()
            finally:
                running.interrupt()
        finally:
            relay.close()

    def _serve(self, run: RegistrationPlan, folder: Path, relay: Relay, running: RunningCli) -> None:
        """Offer the program until the engine has ended."""

        def wait(port: int) -> None:
            relay.pass_on_to(port)
            running.wait()

        serve(run, self.entry.place.stack, folder, self._env(), wait)

    def _remove_without_engine(self, checkpoint: Checkpoint, why: str) -> None:
        """Delete the objects that the state has by one's own access, then the stack."""
        refuse_others(checkpoint, self.entry)
        self.tell(f"{self.entry.app_id}: {why}; its objects are deleted by your own access to the cluster")
        delete_recorded(checkpoint, self.entry, self.cluster, self.tell, self.check)
        self.forget()

    def _run(self, words: Sequence[str], notes: EngineNotes | None = None, *, on_stack: bool = True) -> Ended:
        whole = [*words, *(["--stack", self.entry.place.cli_name] if on_stack else [])]
        locks = self.workplace.locks
        with slot(self._slots, self.check), self.workplace.open() as folder:
            self.check()
            cli, env = find_cli(), self._env()
            ended = self._retried(lambda: run_cli(cli, whole, folder, env, notes, locks, self.check))
            if ended.code != 0 and self._files is None and LOCKED in ended.stderr:
                held = read_locked_message(ended.stderr)
                if not held or not all(self._is_dead(lock) for lock in held):
                    raise self._locked(held)
                # The CLI removes all locks of a stack, and these are all of them.
                self.check()
                run_cli(cli, ["cancel", "--yes", "--stack", self.entry.place.cli_name], folder, env)
                ended = run_cli(cli, whole, folder, env, notes, locks, self.check)
        self.check()
        return ended

    def _cancel(self) -> None:
        """Remove all locks of a stack that is not in a folder; fine where there is no stack."""
        with self.workplace.open() as folder:
            words = ["cancel", "--yes", "--stack", self.entry.place.cli_name]
            ended = run_cli(find_cli(), words, folder, self._env())
        if ended.code != 0 and not NO_STACK.search(ended.stderr):
            raise EngineNotes(self.tell).error(self.entry.app_id, "taken over", ended.stderr, code=ended.code)

    def _is_dead(self, lock: Lock) -> bool:
        """Return whether a lock is of an engine that we started and that has ended."""
        owner = self.entry.owner
        # 0.1.0 noted no engines. Its dead owner's are known by the name of the host.
        if owner is not None and owner.boot_id is None and life_of(owner) is Life.ENDED and is_over_of_0_1_0(lock):
            return True
        return self.workplace.locks.is_dead(lock)

    def _retried(self, run: Callable[[], Ended]) -> Ended:
        """Run the CLI again where it met a lock: the end of a job is written under one, for a moment.

        The CLI takes the lock before it does anything.

        Raises:
            DeployError: The lock stays.
        """
        ended = run()
        for pause_s in LOCK_RETRY_PAUSES_S:
            if ended.code == 0 or LOCKED not in f"{ended.stdout}\n{ended.stderr}":
                break
            if self._files is None and all(map(self._is_dead, read_locked_message(ended.stderr))):
                # No process is going to remove them.
                break
            self.clear_dead_locks()
            time.sleep(pause_s)
            ended = run()
        return ended

    def _env(self) -> dict[str, str]:
        return engine_environment(self.entry, self.workplace.key)

    def _taken(self) -> DeployError:
        place = self.entry.place
        return DeployError(
            f"app {self.entry.app_id} cannot be launched: there is a stack {place.project}/{place.stack} in "
            f"{without_password(place.backend)} already; delete that app first, or choose another name"
        )

    def _locked(self, locks: Sequence[Lock]) -> DeployError:
        held = "; ".join(map(str, locks)) or "a process that the backend does not name"
        return DeployError(
            f"another process works on app {self.entry.app_id}; its stack is locked by {held}. Wait for its end. If it "
            f"is gone for certain, `{delete_command(self.entry)} --take-over` removes the lock and the app",
            retryable=True,
        )
