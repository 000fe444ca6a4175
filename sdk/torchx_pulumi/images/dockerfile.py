"""The external images of a Dockerfile, with its arguments substituted. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from torchx_pulumi.model.errors import ImageError

DEFAULT: Final = "ARG IMAGE\nFROM $IMAGE\n\nCOPY . .\n"
"""Default Dockerfile: copies the workspace into the base's working directory, as TorchX does."""
WORKSPACE: Final = "workspace"
"""Value of the build argument WORKSPACE. A constant, so that the image is the same on every machine."""
SHOWN_ARGUMENTS: Final = ("IMAGE", "WORKSPACE")
"""Build arguments that this package sets. Their values may be shown."""
_ESCAPE: Final = re.compile(r"^#\s*escape\s*=\s*([\\`])\s*$", re.IGNORECASE)
_VARIABLE: Final = re.compile(r"\\\$|\$(?:\{(?P<braced>\w+)(?::(?P<how>[-+])(?P<word>[^}]*))?\}|(?P<plain>\w+))")
_FROM_IMAGE: Final = re.compile(r"--from=(\S+)")


def images_of(text: str, build_args: Mapping[str, str], where: str) -> list[str]:
    """Return the external images of a build, in order, each once.

    Args:
        text: Text of the Dockerfile.
        build_args: Build arguments.
        where: Name of the file in messages.

    Raises:
        ImageError: There is no FROM, or the argument of one has no value.
    """
    given = dict(build_args)
    known: dict[str, str] = {}
    stages: list[str] = []
    images: list[str] = []
    begun = False
    for word, rest in _instructions(text):
        if word == "ARG" and not begun:
            for name, default in _arguments(rest):
                value = given.get(name, None if default is None else _filled(default, known))
                if value is not None:
                    known[name] = value
        elif word == "FROM":
            begun = True
            parts = [part for part in rest.split() if not part.startswith("--")]
            image = _filled(parts[0], known) if parts else ""
            if not image:
                raise ImageError(f"{where}: `FROM {rest}` names no image; set its argument with build_args")
            _add(images, image, stages)
            stages.append(parts[2].lower() if len(parts) > 2 and parts[1].lower() == "as" else str(len(stages)))
        elif word == "COPY" and (found := _FROM_IMAGE.search(rest)):
            _add(images, found[1], stages)
    if not begun:
        raise ImageError(
            f"{where}: has no FROM; begin it with `ARG IMAGE` and `FROM $IMAGE` to build on the role's image"
        )
    return images


def _add(images: list[str], image: str, stages: list[str]) -> None:
    if image.lower() not in stages and not image.isdigit() and image != "scratch" and image not in images:
        images.append(image)


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the arguments of every instruction. Continued lines are joined."""
    escape, gathered = "\\", ""
    for number, line in enumerate(text.splitlines()):
        if number == 0 and (found := _ESCAPE.match(line)):
            escape = found[1]
        if line.lstrip().startswith("#") or not line.strip():
            continue
        stripped = line.strip()
        if stripped.endswith(escape):
            gathered += stripped[:-1] + " "
            continue
        word, rest = [*(gathered + stripped).split(maxsplit=1), ""][:2]
        gathered = ""
        yield word.upper(), rest.strip()


def _arguments(rest: str) -> Iterator[tuple[str, str | None]]:
    for part in rest.split():
        name, equals, value = part.partition("=")
        yield name, value.strip("\"'") if equals else None


def _filled(text: str, values: Mapping[str, str]) -> str:
    def fill(found: re.Match[str]) -> str:
        name = found["braced"] or found["plain"]
        if name is None:
            return "$"
        value = values.get(name, "")
        if found["how"] == "-":
            return value or found["word"]
        if found["how"] == "+":
            return found["word"] if value else ""
        return value

    return _VARIABLE.sub(fill, text.strip("\"'"))
