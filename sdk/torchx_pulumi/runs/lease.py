"""The lease of an app: claimed in the index before a change, checked before each step, and ended after it.

The index entry is the only authority. A claim compares the entry under the index's lock, so that of two processes that
want one app the second sees the first as its owner.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from torchx_pulumi.model.app_entry import Owner, RunEntry, Stage
from torchx_pulumi.model.errors import TakenOverError, TorchxPulumiError
from torchx_pulumi.runs.index import RunIndex
from torchx_pulumi.storage.owners import describe_owner, holding, is_same, lease_s, renewed, this_process


class Lease:
    """The lease of one app by this process. As a context manager, it is renewed until the block ends."""

    def __init__(self, index: RunIndex, entry: RunEntry, owner: Owner) -> None:
        """Wrap a claim; use `claim`, or add an entry with the owner to the index.

        Args:
            index: The index.
            entry: The app.
            owner: This process, as the entry in the index names it.
        """
        self._index = index
        self._entry = entry
        self._owner = owner
        self._held = contextlib.ExitStack()

    def __enter__(self) -> Lease:
        self._held.enter_context(holding(self._owner))
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def check(self) -> None:
        """Renew the lease, or raise if another process has taken the app over.

        Raises:
            TakenOverError: Another process has taken it over, and perhaps removed it.
            DeployError: The index cannot be read or written.
        """
        owner = self._mine(self._index.get(self._entry))
        if (owner.lease_until or 0.0) - time.time() < lease_s() * 2 / 3:
            self._index.update(self._entry, lambda now: replace(now or self._entry, owner=renewed(self._mine(now))))

    def end(self, change: Callable[[RunEntry], RunEntry | None]) -> RunEntry | None:
        """Write the result of the work, and end the lease.

        Args:
            change: Takes the entry as it is now and returns the one to be kept. None: the app is forgotten.

        Raises:
            TakenOverError: Another process has taken the app over; nothing was written.
            DeployError: The index cannot be written.
        """

        def ended(now: RunEntry | None) -> RunEntry | None:
            self._mine(now)
            made = None if now is None else change(now)
            return None if made is None else replace(made, owner=None)

        return self._index.update(self._entry, ended)

    @contextlib.contextmanager
    def deleting(self) -> Iterator[None]:
        """End the lease as the deletion of the app in the block ends: the app is forgotten, or after an error launched.

        A deletion that is interrupted is finished by the next one. After a take-over, what is left is the new owner's.
        """
        try:
            yield
        except TakenOverError:
            raise
        except TorchxPulumiError:
            self.end(lambda now: replace(now, stage=Stage.LAUNCHED))
            raise
        except BaseException:
            self.end(lambda now: now)
            raise
        self.end(lambda _: None)

    def restore_owner(self, before: Owner | None) -> None:
        """Restore the previous owner after a failure. An app that was taken over stays as it is.

        Raises:
            DeployError: The index cannot be written.
        """
        self._index.change(
            self._entry, lambda now: replace(now, owner=before) if is_same(now.owner, self._owner) else now
        )

    def _mine(self, now: RunEntry | None) -> Owner:
        """Return the owner, which is this process."""
        if now is not None and now.owner is not None and is_same(now.owner, self._owner):
            return now.owner
        who = "is gone: another process has removed it"
        if now is not None:
            who = f"was taken over by {describe_owner(now.owner)}"
        raise TakenOverError(
            f"app {self._entry.app_id} {who}, as the lease of this process had expired; this process has stopped "
            "and changed nothing more. `torchx status` says what became of the app"
        )


def claim(index: RunIndex, entry: RunEntry, stage: Stage | None = None) -> Lease | None:
    """Become the owner of an app, if it is in the index as it was last read.

    Args:
        index: The index.
        entry: The app as it was read.
        stage: What the owner is about to do. None: what was begun.

    Returns:
        The ownership. None: another process changed or removed the app meanwhile; read it again.

    Raises:
        DeployError: The index cannot be written.
    """
    owner = this_process()

    def claimed(now: RunEntry | None) -> RunEntry | None:
        if now is None or now.stage is not entry.stage or not is_same(now.owner, entry.owner):
            return now
        return replace(now, stage=stage or now.stage, owner=owner)

    now = index.update(entry, claimed)
    return Lease(index, entry, owner) if now is not None and is_same(now.owner, owner) else None
