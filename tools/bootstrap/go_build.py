"""Build parts from Go modules, with checksums from the committed go.sum and nothing looked up.

The machine's own Go settings (GOFLAGS, GOWORK, cross-compilation) do not matter here; where it gets modules from
(GOPROXY and its like) does.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tools.bootstrap.errors import BootstrapError
from tools.bootstrap.part import AddedFile, GoSource, GoTarget, ModuleFile, Part
from tools.bootstrap.parts import GO_FAMILIES
from tools.bootstrap.running import run

_PROCESSORS: Final = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
_CROSS_SETTINGS: Final = ("GOAMD64", "GOARM64", "GOEXPERIMENT", "GODEBUG", "GOROOT", "GOTOOLDIR")
_NEXT_STEP: Final = (
    "next: see that modules can be downloaded (`go env GOPROXY`) and that the disk is not full, then try again;"
    " what was compiled already is not compiled twice"
)


def go_environment() -> dict[str, str]:
    """Return the environment for Go: this machine's own, minus what would change the result."""
    environment = {name: value for name, value in os.environ.items() if name not in _CROSS_SETTINGS}
    processor = platform.machine().lower()
    return environment | {
        # An empty GOFLAGS would bring back the one from Go's own configuration file.
        "GOFLAGS": "-mod=readonly",
        "GOWORK": "off",
        "GO111MODULE": "on",
        "GOTOOLCHAIN": "local",
        "GOOS": platform.system().lower(),
        "GOARCH": _PROCESSORS.get(processor, processor),
        # No C compiler needed, and programs that run on any Linux.
        "CGO_ENABLED": "0",
    }


def build(part: Part, source: GoSource, go: Path, folder: Path, tick: Callable[[], None]) -> None:
    """Put the part's executables into `folder/bin` and its files beside it.

    Raises:
        BootstrapError: A module cannot be had, does not have the committed checksum, or does not compile.
    """
    (folder / "bin").mkdir()
    with tempfile.TemporaryDirectory() as work:
        go_mod = source.folder / "go.mod" if source.added is None else _with_added(source, source.added, go, Path(work))
        for target in source.targets:
            run(
                [go, *_build_arguments(target, go_mod, folder / "bin")],
                what=f"building {part.name} {part.version}",
                next_step=_NEXT_STEP,
                environment=go_environment(),
                folder=source.folder,
                tick=tick,
            )
    for wanted in source.files:
        family = source.folder if wanted.family is None else GO_FAMILIES / wanted.family
        _copy(wanted, _module_dir(family, wanted.module, wanted.version, go), folder)


def _with_added(source: GoSource, added: AddedFile, go: Path, work: Path) -> Path:
    """Return a go.mod in `work` that replaces a module by a copy with the added file."""
    module = work / "module"
    shutil.copytree(_module_dir(source.folder, added.module, None, go), module)
    (module / added.to).chmod(0o755)
    shutil.copy(GO_FAMILIES / added.file, module / added.to)
    for name in ("go.mod", "go.sum"):
        shutil.copy(source.folder / name, work)
    run(
        [go, "mod", "edit", f"-replace={added.module}={module}", str(work / "go.mod")],
        what=f"replacing the Go module {added.module}",
        next_step=_NEXT_STEP,
        environment=go_environment(),
        folder=source.folder,
    )
    return work / "go.mod"


def _build_arguments(target: GoTarget, go_mod: Path, bin_folder: Path) -> list[str]:
    flags = " ".join(["-s", "-w", *(f"-X {stamp}" for stamp in target.stamps)])
    output = str(bin_folder / target.executable)
    return [
        "build",
        f"-modfile={go_mod}",
        "-trimpath",
        "-buildvcs=false",
        "-ldflags",
        flags,
        "-o",
        output,
        target.package,
    ]


def _copy(wanted: ModuleFile, module: Path, folder: Path) -> None:
    found = sorted(module.glob(wanted.pattern))
    if not found:
        raise BootstrapError(
            f"{wanted.module}: no file is called {wanted.pattern} in {module};"
            " next: run `go clean -modcache`, then the same again"
        )
    to = folder / wanted.to
    to.mkdir(parents=True, exist_ok=True)
    for path in found:
        shutil.copyfile(path, to / path.name)
        (to / path.name).chmod(0o755 if wanted.to == "bin" else 0o644)


def module_dir(family: str, module_path: str, *, go: Path) -> Path:
    """Return the unpacked sources of a module, in the version that the family's go.mod selects; download if missing.

    Args:
        family: Name of a folder in `tools/go`.
        module_path: The module, for example `volcano.sh/volcano`.
        go: The Go command.
    """
    return _module_dir(GO_FAMILIES / family, module_path, None, go)


def _module_dir(folder: Path, module_path: str, version: str | None, go: Path) -> Path:
    query = module_path if version is None else f"{module_path}@{version}"
    answer = run(
        [go, "mod", "download", "-json", query],
        what=f"downloading the Go module {query}",
        next_step=_NEXT_STEP,
        environment=go_environment(),
        folder=folder,
    )
    # Notes of Go may stand before the JSON.
    return Path(json.loads(answer[answer.index("{") :])["Dir"])
