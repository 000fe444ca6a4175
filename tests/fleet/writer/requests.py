"""Requests of users, as `torchx cancel` writes them to a stack."""

from __future__ import annotations

from torchx_pulumi.apps.answer import StackChange
from torchx_pulumi.model.requested import Requested, RequestedAction
from torchx_pulumi.runs.driver import Recorded

from tests.fleet.writer.world import App, World, wait_for


def cancelled(world: World, app: App) -> None:
    """Write what `torchx cancel` writes, which waits for other writers."""
    request = Requested(action=RequestedAction.CANCEL, at="2026-01-02T12:00:00Z", by="tester", uid=app.entry.uid)
    change = StackChange(uid=app.entry.uid or "", request=request)
    wait_for(lambda: world.driver().record_at(app.entry.place, change).outcome is Recorded.WRITTEN)
