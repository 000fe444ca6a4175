"""Registry of scheduler backends: one line per scheduler."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchx_pulumi.model.options import Options
    from torchx_pulumi.schedulers.protocol import SchedulerBackend, Variant

_MODULES: dict[str, str] = {
    "volcano": "torchx_pulumi.schedulers.volcano.backend",
    "mcad": "torchx_pulumi.schedulers.appwrapper.backend",
}
"""Name of a scheduler to the module that has its `BACKEND`. The first one is the default."""


def register(name: str, module: str) -> None:
    """Add a scheduler.

    Args:
        name: Name of the scheduler in options, app handles and stored state; equal to `BACKEND.name`.
        module: Module that has the scheduler's `BACKEND`. It is imported when the backend is first used.
    """
    _MODULES[name] = module


def scheduler_names() -> tuple[str, ...]:
    """Return the names of all schedulers, the default first. No backend is imported."""
    return tuple(_MODULES)


def find_backend(scheduler: str) -> SchedulerBackend:
    """Return the backend of a scheduler.

    Raises:
        KeyError: No scheduler of this name is registered.
    """
    backend: SchedulerBackend = import_module(_MODULES[scheduler]).BACKEND
    return backend


def component_type(scheduler: str) -> str:
    """Return the type token of the Pulumi component of a scheduler, which is also that of its apps."""
    return f"torchx:index:{find_backend(scheduler).component}"


def backend_of(options: Options) -> SchedulerBackend:
    """Return the backend that options are for."""
    return find_backend(options.scheduler)


def variant_of(options: Options) -> Variant:
    """Return the variant that options choose."""
    return backend_of(options).variant_of(options)
