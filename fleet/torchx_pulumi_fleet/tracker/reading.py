"""Read a fleet: the tracker of a backend read once, with what the clusters say now."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial

from torchx_pulumi.apps.answer import Answer, StackChange
from torchx_pulumi.apps.app import App
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.model.errors import TorchxPulumiError
from torchx_pulumi.runs.driver import Driver
from torchx_pulumi.runs.whereabouts import Connect

from torchx_pulumi_fleet.tracker.user_clusters import PATIENCE_S, UserClusters
from torchx_pulumi_fleet.tracker.user_fleet import UserFleet
from torchx_pulumi_fleet.views.row import Fleet, FleetRow
from torchx_pulumi_fleet.views.selection import Selection

logger = logging.getLogger(__name__)


def read_fleet(
    backend: str | None = None,
    *,
    project: str | None = None,
    organization: str | None = None,
    selection: Selection | None = None,
    live: bool | None = False,
    connect: Connect | None = None,
    make_driver: Callable[[], Driver] | None = None,
    now: datetime | None = None,
) -> Fleet:
    """Return all apps of a backend, read from its stacks; clusters are queried only if `live` is not False.

    Args:
        backend: URL of the Pulumi backend. None: PULUMI_BACKEND_URL, else this user's own folder, which may be absent.
        project: Pulumi project. None: all of them.
        organization: Organization of a Pulumi service. None: all that this user may see.
        selection: Filter of apps. None: all.
        live: Query the clusters of unfinished apps. None: only clusters that respond within `PATIENCE_S`, and clusters
            without access are skipped silently.
        connect: Connects to a cluster. None: by kubeconfig.
        make_driver: Creates the driver that writes observed final states of apps of `torchx run` to their stacks. None:
            they are not written.
        now: End of all ages, aware. None: the current time.

    Raises:
        DeployError: The backend cannot be read. A single stack that cannot be read is in `Fleet.broken`.
    """
    moment = now or datetime.now(timezone.utc)
    fleet = UserFleet(backend, project=project, organization=organization)
    fleet.refresh()
    clusters = UserClusters(
        fleet=fleet,
        wanted=partial(is_asked, selection=selection),
        connect=connect or KubernetesCluster.connect,
        says_unconfigured=live is True,
        write=None if make_driver is None else partial(_write_end, make_driver),
        now=lambda: now or datetime.now(timezone.utc),
    )
    if live is not False:
        clusters.ask(patience_s=PATIENCE_S if live is None else None)
    rows = [row for row in fleet.rows(moment) if selection is None or selection.wants(row)]
    return fleet.fleet(rows, moment, unreachable=clusters.unreachable)


def _write_end(make_driver: Callable[[], Driver], app: App, change: StackChange) -> Answer | None:
    """Write the end of an app that `torchx run` launched, and return what its stack says then. None: not known."""
    try:
        return make_driver().record_at(app.place, change).answer
    except TorchxPulumiError as error:
        logger.warning("the end of the app of stack %s is not in it yet: %s", app.stack.stack, error)
        return None


def is_asked(row: FleetRow, selection: Selection | None) -> bool:
    """Return whether to query the cluster of an app: it has not ended, and only its state may exclude it."""
    if row.state.terminal:
        return False
    return selection is None or replace(selection, states=()).wants(row)
