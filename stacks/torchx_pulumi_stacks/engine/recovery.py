"""Recovery of interrupted launches and deletions: finish the operation, or remove what it created.

docs/decisions/0010 lists the cases.
"""

from __future__ import annotations

from dataclasses import replace

from torchx_pulumi.model.app_entry import RunEntry, Stage
from torchx_pulumi.model.errors import DeployError, TakenOverError
from torchx_pulumi.model.progress import ProgressCallback
from torchx_pulumi.model.registration_plan import APP_SUFFIX
from torchx_pulumi.runs.handle import delete_command
from torchx_pulumi.stack_state.checkpoint import Checkpoint, is_object, record_in
from torchx_pulumi.storage.owners import describe_owner, is_working

from torchx_pulumi_stacks.engine.app_stack import AppStack
from torchx_pulumi_stacks.forks import check_process


def recover_stack(
    entry: RunEntry, stack: AppStack, progress: ProgressCallback, *, take_over: bool = False
) -> RunEntry | None:
    """Finish an interrupted operation, or remove what it created. The caller has claimed the app.

    Args:
        entry: The app; its owner is the interrupted process.
        stack: Its stack.
        progress: Receives progress messages.
        take_over: Ignore a running owner and the locks of others.

    Returns:
        The updated entry. None: the app no longer exists.

    Raises:
        DeployError: Another process works on the app, or the engine refused.
        ClusterError: The cluster cannot be reached.
    """
    if not take_over and is_working(entry.owner):
        raise DeployError(
            f"another process works on app {entry.app_id}: {describe_owner(entry.owner)}; wait for its end, or take "
            f"the app over: `{delete_command(entry)} --take-over`",
            retryable=True,
        )
    stack.end_orphaned_engines()
    stack.clear_dead_locks(take_over=take_over)
    if entry.stage is Stage.DELETING:
        progress(f"{entry.app_id}: its deletion was interrupted; it is finished now")
        stack.remove()
        return None
    checkpoint = stack.read()
    stack.check()
    if checkpoint is None:
        # The engine writes the state before it creates an object, so without a state no object exists. If the launch
        # had finished, the state was lost and the objects may exist.
        stack.work_dir.clear()
        return None if entry.stage is Stage.LAUNCHING else replace(entry, owner=None)
    if is_whole(checkpoint):
        stack.work_dir.clear()
        return _launched(entry, checkpoint)
    if entry.stage is Stage.LAUNCHED:
        return replace(entry, owner=None)
    return _finish_or_remove(entry, stack, checkpoint, progress)


def is_whole(checkpoint: Checkpoint) -> bool:
    """Return whether a launch has finished: its notes exist, and no operation is pending."""
    is_noted = checkpoint.stash(APP_SUFFIX) is not None and any(map(record_in, checkpoint.resources))
    return is_noted and not checkpoint.pending and not checkpoint.outdated


def _finish_or_remove(
    entry: RunEntry, stack: AppStack, checkpoint: Checkpoint, progress: ProgressCallback
) -> RunEntry | None:
    order = stack.work_dir.order()
    made = any(is_object(item) for item in checkpoint.resources)
    if made and order is not None and not checkpoint.pending and not checkpoint.outdated:
        # A process that cannot finish the launch leaves it to another one, and does not remove it.
        check_process()
        progress(f"{entry.app_id}: its launch was interrupted after the job was created; it is finished now")
        stack.check_cluster()
        try:
            uid = stack.up(lambda: order)
        except TakenOverError:
            raise
        except DeployError as error:
            progress(f"{entry.app_id}: it cannot be finished: {error}")
        else:
            done = stack.read()
            return replace(_launched(entry, done), uid=uid or _uid(done)) if done else None
    progress(f"{entry.app_id}: its launch was interrupted; what it began is removed")
    stack.remove(interrupted=True)
    return None


def _launched(entry: RunEntry, checkpoint: Checkpoint) -> RunEntry:
    return replace(entry, stage=Stage.LAUNCHED, owner=None, uid=_uid(checkpoint) or entry.uid)


def _uid(checkpoint: Checkpoint | None) -> str | None:
    note = None if checkpoint is None else checkpoint.stash(APP_SUFFIX)
    return str(note["uid"]) if note and note.get("uid") else None
