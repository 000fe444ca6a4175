"""TorchX's own scheduler `kubernetes`, which can also build images without a Docker daemon."""

from __future__ import annotations

from typing import Any

from torchx.schedulers.kubernetes_scheduler import KubernetesScheduler

from torchx_pulumi.torchx_adapter.workspace_types import WorkspaceTypes


class RegistryKubernetesScheduler(WorkspaceTypes, KubernetesScheduler):  # type: ignore[misc]
    """TorchX's `kubernetes` with the run option `workspace_type`."""


def create_scheduler(
    session_name: str, client: Any = None, docker_client: Any = None, **kwargs: Any
) -> RegistryKubernetesScheduler:
    """Make the scheduler; arguments as those of TorchX's own."""
    del kwargs
    return RegistryKubernetesScheduler(session_name, client=client, docker_client=docker_client)
