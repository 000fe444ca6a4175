"""Images for the local cluster, made from Debian packages without any image hub and without dockerd.

An image is prepared once in the cache as an OCI image layout; clusters take it from there. Only the names that
others may use are here.
"""

from tools.images.catalogue import NAMES, PAUSE, place, prepare
from tools.images.errors import ImageError
from tools.images.registry_client import add_layer

__all__ = ["NAMES", "PAUSE", "ImageError", "add_layer", "place", "prepare"]
