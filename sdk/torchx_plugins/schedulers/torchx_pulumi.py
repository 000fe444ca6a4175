"""The schedulers for TorchX nightly, which looks for plugins in this namespace package as well as in entry points.

A name that is registered in both is an error, so that this module registers where our entry points are not read. Where
they are, it sees to it that TorchX reads those only that it has use for.
"""

from __future__ import annotations

from typing import Any

from torchx.plugins import register
from torchx_pulumi.schedulers.registry import scheduler_names
from torchx_pulumi_stacks.nightly_plugins import entry_points_are_read, leave_out_forwarders

if entry_points_are_read():
    leave_out_forwarders()
else:
    # TorchX takes the first plugin for its default scheduler, in the order of these functions' names.
    @register.scheduler(name="local_docker")  # type: ignore[untyped-decorator]  # TorchX ships no types
    def a_default(session_name: str, **kwargs: Any) -> Any:
        """Make TorchX's own default scheduler."""
        from torchx_pulumi_stacks.builtins import make_own

        return make_own("local_docker", session_name, kwargs)

    def _factory(scheduler: str) -> Any:
        def create(session_name: str, **kwargs: Any) -> Any:
            from torchx_pulumi_stacks import entrypoints

            return getattr(entrypoints, f"create_{scheduler}")(session_name, **kwargs)

        return register.scheduler(name=f"pulumi_{scheduler}")(create)

    # TorchX looks for functions of this module among its names.
    globals().update({f"create_{scheduler}": _factory(scheduler) for scheduler in scheduler_names()})
