"""TorchX's own schedulers, forwarded to under their own names.

An entry point of `torchx.schedulers` hides TorchX's own schedulers in TorchX 0.7.0, and comes before them in nightly;
users of this package must lose none of them, nor get another default. In nightly `registration` leaves out all but the
default one.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from importlib import metadata
from typing import Any

from torchx_pulumi_stacks.nightly_plugins import GROUP


def _forward(session_name: str, kwargs: dict[str, Any], name: str) -> Any:
    """Make the scheduler of another package that registers this name, else TorchX's own."""
    for found in metadata.entry_points(group=GROUP, name=name):
        # Of two entry points with one name TorchX takes any; ours must not hide what somebody else registers.
        if not found.value.startswith(f"{__name__}:"):
            return found.load()(session_name, **kwargs)
    return make_own(name, session_name, kwargs)


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


def create_local_docker(session_name: str, **kwargs: Any) -> Any:
    """Make TorchX's own `local_docker`."""
    return _forward(session_name, kwargs, "local_docker")


def create_local_cwd(session_name: str, **kwargs: Any) -> Any:
    """Make TorchX's own `local_cwd`."""
    return _forward(session_name, kwargs, "local_cwd")


def create_slurm(session_name: str, **kwargs: Any) -> Any:
    """Make TorchX's own `slurm`."""
    return _forward(session_name, kwargs, "slurm")


def create_kubernetes(session_name: str, **kwargs: Any) -> Any:
    """Make TorchX's own `kubernetes`."""
    return _forward(session_name, kwargs, "kubernetes")


def create_kubernetes_mcad(session_name: str, **kwargs: Any) -> Any:
    """Make TorchX's own `kubernetes_mcad`, which nightly does not have."""
    return _forward(session_name, kwargs, "kubernetes_mcad")


def create_aws_batch(session_name: str, **kwargs: Any) -> Any:
    """Make TorchX's own `aws_batch`, which nightly does not have."""
    return _forward(session_name, kwargs, "aws_batch")


def create_aws_sagemaker(session_name: str, **kwargs: Any) -> Any:
    """Make TorchX's own `aws_sagemaker`, which nightly does not have."""
    return _forward(session_name, kwargs, "aws_sagemaker")


def create_gcp_batch(session_name: str, **kwargs: Any) -> Any:
    """Make TorchX's own `gcp_batch`, which nightly does not have."""
    return _forward(session_name, kwargs, "gcp_batch")


def create_ray(session_name: str, **kwargs: Any) -> Any:
    """Make TorchX's own `ray`, which nightly does not have."""
    return _forward(session_name, kwargs, "ray")


def create_lsf(session_name: str, **kwargs: Any) -> Any:
    """Make TorchX's own `lsf`, which nightly does not have."""
    return _forward(session_name, kwargs, "lsf")
