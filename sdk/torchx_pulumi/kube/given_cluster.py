"""The cluster that a unit test gives to the components of a program, which connect to none then."""

from __future__ import annotations

from contextvars import ContextVar

from torchx_pulumi.kube.protocol import PodReader

GIVEN: ContextVar[PodReader | None] = ContextVar("cluster", default=None)
"""None: components connect to the cluster of the kubeconfig."""
