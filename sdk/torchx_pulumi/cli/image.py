"""`torchx-pulumi image plan | push`: patched images without a launch."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torchx_pulumi.model.errors import Problem, invalid_arguments
from torchx_pulumi.model.image_options import ImageOptions, image_options
from torchx_pulumi.model.options import rows_of

Command = Callable[[argparse.Namespace], int]


def add_image(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands."""
    image = commands.add_parser("image", help="plan or push a patched image")
    actions = image.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_patch(
        actions,
        "plan",
        plan_command,
        "show what would be built from what",
        "Show the image of a workspace on a base: its name, layers, and what a push would upload. Nothing is built or "
        "pushed.",
    )
    _add_patch(
        actions,
        "push",
        push_command,
        "build and push a patched image without a launch",
        "Build the image of a workspace on a base and push it, unless the registry has it. Print the name for pods on "
        "stdout. A launch of the same content on another machine finds it and builds nothing.",
    )


def _add_patch(
    actions: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    command: Command,
    text: str,
    description: str,
) -> None:
    patch = actions.add_parser(name, help=text, description=description)
    patch.add_argument("base", metavar="BASE", help="image to patch, for example python:3.12 or one with @sha256:...")
    patch.add_argument(
        "--workspace",
        action="append",
        metavar="DIR[=PLACE]",
        help="folder or URL, and its place in the image's folder; repeatable, later ones are laid over earlier ones; "
        "default: the current folder",
    )
    patch.add_argument("--image-repo", required=True, metavar="NAME", help="repository to push to, without a tag")
    patch.add_argument(
        "--build-arg",
        action="append",
        default=[],
        metavar="NAME[=VALUE]",
        help="argument for the Dockerfile; without a value, that of the environment variable; repeatable",
    )
    for row in rows_of(ImageOptions):
        if row.kind is str:
            text = f"{row.help[0].lower()}{row.help[1:]}" + (f"; default: {row.default}" if row.default else "")
            patch.add_argument(f"--{row.name.replace('_', '-')}", metavar="NAME", default=row.default, help=text)
    patch.add_argument("--json", action="store_true", help="print JSON")
    patch.set_defaults(command=command)


def plan_command(arguments: argparse.Namespace) -> int:
    """Print what is known of an image before it is built."""
    from torchx_pulumi.images import plan_patch
    from torchx_pulumi.images.planning import report_plan
    from torchx_pulumi.images.registry import RegistryClient

    report = report_plan(plan_patch(**_patch_options(arguments)), RegistryClient())
    for warning in report["warnings"]:
        _say(f"torchx-pulumi: warning: {warning}")
    _print(report if arguments.json else "\n".join(_plan_lines(report)))
    return 0


def push_command(arguments: argparse.Namespace) -> int:
    """Build and push an image, and print its name for pods."""
    from torchx_pulumi.images import patch_image

    image = patch_image(**_patch_options(arguments), tell=_say)
    values = {
        "reference": image.reference,
        "digest": image.digest,
        "built": image.built,
        "pushed": image.pushed,
        "warnings": list(image.warnings),
    }
    _print(values if arguments.json else image.reference)
    return 0


def _patch_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of `plan_patch`.

    Raises:
        InvalidJobError: A workspace or a build argument is given twice or has no value; all problems at once.
    """
    problems: list[Problem] = []
    workspace = read_workspaces(arguments.workspace or ["."], problems)
    build_args = read_build_args(arguments.build_arg, os.environ, problems)
    if problems:
        raise invalid_arguments(*problems)
    return {
        "base": arguments.base,
        "workspace": workspace,
        "repository": arguments.image_repo,
        **image_options(vars(arguments)),
        "build_args": build_args,
    }


def read_workspaces(words: Sequence[str], problems: list[Problem]) -> str | dict[str, str]:
    """Read folders and their places in the image's folder.

    >>> read_workspaces(["code"], []), read_workspaces(["code", "../shared=shared"], [])
    ('code', {'code': '', '../shared': 'shared'})
    """
    places: dict[str, str] = {}
    for word in words:
        folder, sign, place = word.rpartition("=")
        if not sign or Path(word).exists():
            folder, place = word, ""
        if not folder:
            problems.append(Problem("--workspace", f"is {word!r}, must be DIR or DIR=PLACE"))
        elif folder in places:
            problems.append(Problem("--workspace", f"gives {folder!r} twice; remove one"))
        places[folder] = place
    return next(iter(places)) if list(places.values()) == [""] else places


def read_build_args(words: Sequence[str], environ: Mapping[str, str], problems: list[Problem]) -> dict[str, str]:
    """Read `NAME=VALUE` words; the value of `NAME` alone is that of the environment variable. No message has a value.

    >>> read_build_args(["A=1=2", "HOME"], {"HOME": "/root"}, [])
    {'A': '1=2', 'HOME': '/root'}
    """
    read: dict[str, str] = {}
    for word in words:
        name, sign, value = word.partition("=")
        if not name:
            problems.append(Problem("--build-arg", "has no name; write NAME=VALUE or NAME"))
        elif name in read:
            problems.append(Problem("--build-arg", f"gives {name} twice; remove one"))
        elif not sign and name not in environ:
            problems.append(Problem("--build-arg", f"{name} has no value, and the environment has none; give one"))
        read[name] = value if sign else environ.get(name, "")
    return read


def _plan_lines(report: Mapping[str, Any]) -> list[str]:
    from torchx_pulumi.model.text import megabytes

    is_pushed, upload = report["is_pushed"], report["upload_bytes"]
    state = {True: "is in the registry; nothing to build", None: "whether the registry has it is not known"}.get(
        is_pushed, "is not in the registry"
    )
    if not is_pushed and upload is not None:
        state += f"; a push uploads {megabytes(upload)}"
    builder = ": ".join(filter(None, (report["builder"], report["why_docker"])))
    lines = [_row("image", report["reference"]), _row("", state)]
    lines += [_row("base", f"{base['image']} {base['digest']} (from: {base['source']})") for base in report["bases"]]
    lines += [_row("dockerfile", report["dockerfile"] or "none; COPY . .")]
    lines += [_row("platform", report["platform"]), _row("builder", builder)]
    for layer in report["layers"] or ():
        what = " ".join(["new" if layer["new"] else "base", "known" if layer["known"] else "missing"])
        lines.append(_row("layer", f"{layer['digest']} {megabytes(layer['size']):>10} {'' if is_pushed else what}"))
    return [line.rstrip() for line in lines]


def _row(name: str, value: str) -> str:
    return f"{name:<11}{value}"


def _print(values: object) -> None:
    sys.stdout.write((values if isinstance(values, str) else json.dumps(values, indent=2)) + "\n")


def _say(text: str) -> None:
    print(text, file=sys.stderr)  # noqa: T201
