"""Entry points of `torchx.schedulers`: the schedulers of the sdk with the real engine."""

from __future__ import annotations

import atexit
import gc
import sys
from typing import TYPE_CHECKING, Any

from torchx_pulumi.planning.platforms import check_platform

COLLECTION_THRESHOLD = 50_000
"""Allocations between two garbage collections of a command; Python's own value is 700 to 2,000."""

if TYPE_CHECKING:
    from torchx_pulumi.runs.driver import Driver
    from torchx_pulumi.torchx_adapter.scheduler import PulumiScheduler


def __getattr__(name: str) -> Any:
    """Return `create_NAME`, which makes the scheduler `pulumi_NAME`, for each scheduler of the registry."""
    from torchx_pulumi.schedulers.registry import scheduler_names

    scheduler = name.removeprefix("create_")
    if scheduler == name or scheduler not in scheduler_names():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def create(session_name: str, client: Any = None, docker_client: Any = None, **kwargs: Any) -> PulumiScheduler:
        # TorchX passes whatever its environment holds.
        del kwargs
        return create_scheduler(scheduler, session_name, client, docker_client)

    return create


def make_driver() -> Driver:
    """Make the real driver; the engine is loaded when something is launched or deleted."""
    from torchx_pulumi_stacks.engine import AutomationDriver

    return AutomationDriver()


def create_scheduler(
    scheduler: str, session_name: str, client: Any = None, docker_client: Any = None
) -> PulumiScheduler:
    """Make the TorchX scheduler of a registered backend.

    Args:
        scheduler: Name of the backend.
        session_name: TorchX session.
        client: A `kubernetes.client.ApiClient`. None: a client for the kubeconfig.
        docker_client: A docker-py client. None: a client for Docker's environment variables.
    """
    if "torchx.cli.main" in sys.modules:
        # Loading modules makes many objects and no garbage, and at its end Python searches all of them once more: a
        # tenth of the time of a command. In other processes garbage is the business of their owner.
        gc.set_threshold(COLLECTION_THRESHOLD)
        atexit.register(gc.freeze)
    # The driver is used without TorchX too.
    from torchx_pulumi.torchx_adapter.plain_errors import show_plainly

    show_plainly()
    check_platform()
    # What these import does not exist on Windows.
    from torchx_pulumi.torchx_adapter.context import AdapterContext
    from torchx_pulumi.torchx_adapter.scheduler import PulumiScheduler

    # Of a program that loads gRPC by itself, forks before the first launch count too.
    from torchx_pulumi_stacks import forks  # noqa: F401

    context = AdapterContext(make_driver=make_driver, client=client)
    return PulumiScheduler(scheduler, session_name, context, docker_client=docker_client)
