"""The images there are, and the cache that keeps each of them prepared."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.images import busybox, python, pytorch
from tools.images.errors import ImageError
from tools.images.oci import ImageFolder, architecture
from tools.images.storage import place_image


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How one image comes about."""

    repository: str
    """Its name in a registry."""
    tag: str
    """Its tag there."""
    key: Callable[[], str]
    """Text that changes whenever the image would come out differently."""
    build: Callable[[ImageFolder], None]
    """Fills an empty folder."""


_RECIPES: Final = {
    "busybox": Recipe(repository="busybox", tag="1", key=busybox.key, build=busybox.build),
    "pause": Recipe(repository="pause", tag="1", key=busybox.key, build=busybox.build_pause),
    "python": Recipe(repository="python", tag="3", key=python.key, build=python.build),
    "pytorch": Recipe(repository="pytorch", tag="1.13", key=pytorch.key, build=pytorch.build),
}
NAMES: Final = tuple(_RECIPES)
"""Short names of all images."""
PAUSE: Final = "pause:1"
"""The image that holds a pod's network open."""


def cache_folder() -> Path:
    """Return the folder with the prepared images."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser().absolute() / "torchx-pulumi" / "images"


def prepare(name: str) -> ImageFolder:
    """Return an image from the cache; made now if it is not there, once however many ask.

    Raises:
        ImageError: there is no such image, or it cannot be made on this machine.
    """
    recipe = _recipe(name)
    determined = f"{name} {recipe.tag} {architecture()} {recipe.key()}"
    folder = cache_folder() / f"{name}-{recipe.tag}-{hashlib.sha256(determined.encode()).hexdigest()[:8]}"
    if (folder / "index.json").exists():
        return ImageFolder(folder)
    cache_folder().mkdir(parents=True, exist_ok=True)
    with _lock(folder.with_name(f"{folder.name}.lock"), name):
        if not (folder / "index.json").exists():
            _build(recipe, folder)
    return ImageFolder(folder)


def place(name: str, storage: Path) -> str:
    """Put an image into a registry's storage folder and return it as `repository:tag`."""
    recipe = _recipe(name)
    place_image(prepare(name), storage, recipe.repository, recipe.tag)
    return f"{recipe.repository}:{recipe.tag}"


def _recipe(name: str) -> Recipe:
    if name not in _RECIPES:
        raise ImageError(f"image {name!r}: there are {', '.join(NAMES)}")
    return _RECIPES[name]


def _build(recipe: Recipe, folder: Path) -> None:
    for old in folder.parent.glob(f"{folder.name}.new-*"):
        shutil.rmtree(old, ignore_errors=True)  # of a build that was killed: we hold the lock
    fresh = Path(tempfile.mkdtemp(prefix=f"{folder.name}.new-", dir=folder.parent))
    try:
        recipe.build(ImageFolder(fresh))
        shutil.rmtree(folder, ignore_errors=True)
        fresh.rename(folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


@contextlib.contextmanager
def _lock(path: Path, name: str) -> Iterator[None]:
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"image {name}: another run is making it, waiting", file=sys.stderr, flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
