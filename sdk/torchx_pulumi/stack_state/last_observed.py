"""Reads what the output `torchx` of a stack says of how its run stands, without a process."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from torchx_pulumi.apps.answer import Answer
from torchx_pulumi.model.app_entry import StackRef
from torchx_pulumi.model.errors import DeployError
from torchx_pulumi.stack_state.backend import backend_url, know_backend, open_store
from torchx_pulumi.stack_state.checkpoint import DAMAGED, read_app
from torchx_pulumi.stack_state.stacks import StoredStacks

logger = logging.getLogger(__name__)

PAUSE_S = 30.0
"""A backend that could not be read is read again after so long: a list of apps would wait for it once for each app."""


class LastObservedReader:
    """Reads single stacks of any number of backends, each of which is opened once. For use by several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._opened: dict[str, StoredStacks | None] = {}
        self._failed_at: dict[str, float] = {}

    def read(self, ref: StackRef) -> Answer | None:
        """Return what the output `torchx` says, by at most one read of a checkpoint.

        Args:
            ref: The stack.

        Returns:
            What was observed and requested last. None: the stack is absent, or has no such output, or only the CLI
            reads its backend.

        Raises:
            DeployError: The backend or the stack cannot be read, or the backend could not be read a moment ago.
        """
        backend = know_backend(ref.backend)
        failed_at = self._failed_at.get(backend)
        if failed_at is not None and self._clock() - failed_at < PAUSE_S:
            raise DeployError(f"the Pulumi backend {backend} could not be read a moment ago", retryable=True)
        try:
            text = self._text(backend, ref)
            app = None if text is None else read_app(text)
        except DAMAGED as error:
            raise DeployError(f"stack {ref.project}/{ref.stack} in {backend} cannot be read: {error}") from error
        except (OSError, DeployError) as error:
            self._failed_at[backend] = self._clock()
            # The credentials of the backend may be renewed.
            self._opened.pop(backend, None)
            raise DeployError(f"the Pulumi backend {backend} cannot be read: {error}", retryable=True) from error
        answer = Answer() if app is None else Answer.of(app.output)
        return answer if answer.observed else None

    def _text(self, backend: str, ref: StackRef) -> str | None:
        if backend not in self._opened:
            store = open_store(backend_url(backend))
            self._opened[backend] = None if store is None else StoredStacks(backend, store)
        stacks = self._opened[backend]
        return None if stacks is None else stacks.export(ref)
