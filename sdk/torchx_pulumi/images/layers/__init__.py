"""Images that are built without a daemon: a base, one layer for each COPY, and a configuration.

`unsupported` says why a Dockerfile needs the daemon, `read_base` reads a base from its registry, and `compose` returns
the image that is pushed. The result is the same on every machine.
"""

from __future__ import annotations

from torchx_pulumi.images.layers.base_image import BaseImage, read_base
from torchx_pulumi.images.layers.composing import compose
from torchx_pulumi.images.layers.interpreting import UnsupportedError, unsupported

__all__ = ["BaseImage", "UnsupportedError", "compose", "read_base", "unsupported"]
