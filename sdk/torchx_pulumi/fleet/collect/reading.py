"""Read a fleet: all stacks of a backend, merged with newer observations of this machine and of the clusters."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial

from torchx_pulumi.apps.answer import Answer, StackChange
from torchx_pulumi.fleet.collect.fleet_stacks import FleetStacks, Observations
from torchx_pulumi.fleet.collect.live import PATIENCE_S, LiveReader
from torchx_pulumi.fleet.collect.row import Fleet, FleetRow
from torchx_pulumi.fleet.collect.selection import Selection
from torchx_pulumi.model.errors import TorchxPulumiError
from torchx_pulumi.runs.driver import Driver
from torchx_pulumi.runs.whereabouts import Connect
from torchx_pulumi.stack_state.stacks import StackName, Stacks

logger = logging.getLogger(__name__)


def read_fleet(
    backend: str | None = None,
    *,
    project: str | None = None,
    organization: str | None = None,
    selection: Selection | None = None,
    observations: Observations | None = None,
    live: bool | None = False,
    connect: Connect | None = None,
    make_driver: Callable[[], Driver] | None = None,
    stacks: Stacks | None = None,
    now: datetime | None = None,
) -> Fleet:
    """Return all apps of a backend, read from its stacks; clusters are queried only if `live` is not False.

    Args:
        backend: URL of the Pulumi backend. None: PULUMI_BACKEND_URL, else this user's own folder, which may be absent.
        project: Pulumi project. None: all of them.
        organization: Organization of a Pulumi service. None: all that this user may see.
        selection: Filter of apps. None: all.
        observations: Last observations of apps. None: those of this machine.
        live: Query the clusters of unfinished apps. None: only clusters that respond within `live.PATIENCE_S`, and
            clusters without access are skipped silently.
        connect: Connects to a cluster. None: by kubeconfig.
        make_driver: Creates the driver that writes observed final states of apps of `torchx run` to their stacks. None:
            they are not written.
        stacks: The stacks. None: those of the backend.
        now: End of all ages, aware. None: the current time.

    Raises:
        DeployError: The backend cannot be read. A single stack that cannot be read is in `Fleet.broken`.
    """
    moment = now or datetime.now(timezone.utc)
    source = FleetStacks(backend, project=project, organization=organization, observations=observations, stacks=stacks)
    source.refresh()
    rows = source.rows(moment)
    unreachable: Mapping[str, str] = {}
    if live is not False:
        reader = LiveReader(
            source.stacks,
            connect,
            now=lambda: now or datetime.now(timezone.utc),
            patience_s=PATIENCE_S if live is None else None,
            write=None if make_driver is None else partial(_write_end, make_driver, source.backend),
        )
        apps = source.apps()
        fresh, unreachable = reader.refresh(
            [(row, apps[name]) for name, row in rows.items() if is_asked(row, selection)]
        )
        rows |= fresh
    kept = [row for row in rows.values() if selection is None or selection.wants(row)]
    return source.fleet(kept, moment, unreachable=unreachable)


def _write_end(make_driver: Callable[[], Driver], backend: str, name: StackName, change: StackChange) -> Answer | None:
    """Write the end of an app that `torchx run` launched, and return what its stack says then. None: not known."""
    try:
        return make_driver().record_at(name.at(backend), change).answer
    except TorchxPulumiError as error:
        logger.warning("the end of the app of stack %s is not in it yet: %s", name.stack, error)
        return None


def is_asked(row: FleetRow, selection: Selection | None) -> bool:
    """Return whether to query the cluster of an app: it has not ended, and only its state may exclude it."""
    if row.state.terminal:
        return False
    return selection is None or replace(selection, states=()).wants(row)
