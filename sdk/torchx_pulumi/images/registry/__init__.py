"""Registries over the distribution API with Docker's credentials: digests, manifests, blobs and pushes.

No daemon is needed. urllib3 and docker-py are imported on demand.
"""

from __future__ import annotations

from torchx_pulumi.images.registry.addresses import is_insecure
from torchx_pulumi.images.registry.client import RegistryClient
from torchx_pulumi.images.registry.credentials import RegistryLogin, import_docker, login_of
from torchx_pulumi.images.registry.push import push_image

__all__ = ["RegistryClient", "RegistryLogin", "import_docker", "is_insecure", "login_of", "push_image"]
