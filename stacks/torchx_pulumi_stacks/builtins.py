"""Entry points that forward to TorchX's own schedulers.

An entry point of `torchx.schedulers` hides TorchX's own schedulers in TorchX 0.7.0, and precedes them in nightly. Users
of this package keep all of them, and the same default. For nightly `nightly_plugins` removes all but the default one.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from importlib import metadata
from typing import Any

from torchx_pulumi_stacks.nightly_plugins import GROUP


def make_own(name: str, session_name: str, kwargs: Mapping[str, Any]) -> Any:
    """Make a scheduler of TorchX's own.

    Raises:
        ModuleNotFoundError: The installed TorchX does not have it, or a package that it needs is absent. Some of
            them fail in other ways then, which `torchx runopts` does not expect.
    """
    from torchx.schedulers import DEFAULT_SCHEDULER_MODULES

    module = DEFAULT_SCHEDULER_MODULES.get(name)
    if module is None:
        raise ModuleNotFoundError(f"the installed TorchX has no scheduler {name!r}", name=f"torchx.schedulers.{name}")
    try:
        factory = importlib.import_module(module).create_scheduler
    except NameError as error:
        text = f"TorchX's scheduler {name!r} cannot be loaded ({error}); install the packages that it needs"
        raise ModuleNotFoundError(text, name=module) from error
    return factory(session_name, **kwargs)


def _forwarder(name: str) -> Callable[..., Any]:
    def create(session_name: str, **kwargs: Any) -> Any:
        for found in metadata.entry_points(group=GROUP, name=name):
            # Of two entry points with one name TorchX takes any; ours must not hide that of another package.
            if not found.value.startswith(f"{__name__}:"):
                return found.load()(session_name, **kwargs)
        return make_own(name, session_name, kwargs)

    create.__name__, create.__doc__ = f"create_{name}", f"Make TorchX's own `{name}`."
    return create


create_local_docker = _forwarder("local_docker")
create_local_cwd = _forwarder("local_cwd")
create_slurm = _forwarder("slurm")
create_kubernetes = _forwarder("kubernetes")

# TorchX nightly does not have these.
create_kubernetes_mcad = _forwarder("kubernetes_mcad")
create_aws_batch = _forwarder("aws_batch")
create_aws_sagemaker = _forwarder("aws_sagemaker")
create_gcp_batch = _forwarder("gcp_batch")
create_ray = _forwarder("ray")
create_lsf = _forwarder("lsf")
