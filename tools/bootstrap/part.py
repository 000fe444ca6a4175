"""What a part is: the types of the table in `parts`.

Only data lives here. The table is in `parts`; how a part is looked for, built or unpacked is elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class GoTarget:
    """One executable and the Go package it is built from."""

    executable: str
    """File name in the part's `bin`."""
    package: str
    """Import path of the main package, or `.` for the family's own."""
    stamps: tuple[str, ...] = ()
    """Variables set at link time, each as `import/path.name=value`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleFile:
    """Files that are copied out of a Go module."""

    module: str
    """Path of the module, one of those in the family's go.mod."""
    pattern: str
    """Glob below the module's folder. Matching nothing is an error."""
    to: str
    """Folder below the part's own that receives the files, for example `share/crd`."""
    family: str | None = None
    """Name of the family in `tools/go` whose go.mod selects the version. None: the part's own."""
    version: str | None = None
    """Version to take; its checksum must be in the family's go.sum. None: the one that go.mod selects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedFile:
    """A source file of ours that a build finds in a module, for what its newest release lacks."""

    module: str
    """Path of the module, one of those in the family's go.mod."""
    file: str
    """The file, below `tools/go`."""
    to: str
    """Folder of the module that gets it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GoSource:
    """A part that is built from Go modules."""

    folder: Path
    """Folder with go.mod and go.sum."""
    targets: tuple[GoTarget, ...]
    """Executables to build."""
    module: str | None = None
    """Module that gives the part its version. None: the code is in the folder itself."""
    files: tuple[ModuleFile, ...] = ()
    """Data and scripts that belong to the part."""
    added: AddedFile | None = None
    """Compiled along. None: the modules are compiled as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DebianLink:
    """One executable out of unpacked Debian packages."""

    executable: str
    """File name in the part's `bin`."""
    path: str
    """Path in the unpacked tree; `*` may stand for the machine's name."""
    variables: tuple[tuple[str, str], ...] = ()
    """Environment the program needs because it is not installed: one path, or several with colons between them. Those
    below `{root}`, the unpacked tree, count if they are there. Empty: a plain link."""
    arguments: tuple[str, ...] = ()
    """Put before the caller's arguments; only together with `variables`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DebianSource:
    """A part that is unpacked from Debian packages, without installing them."""

    packages: tuple[str, ...]
    """Names of the packages. What they depend on comes along, except for what every machine with apt has."""
    links: tuple[DebianLink, ...]
    """Executables to offer."""
    unused: tuple[str, ...] = ()
    """Dependencies that the executables never use. They stay away, with all that only they need."""
    self_contained: bool = False
    """True: what every machine has comes along as well, so that the tree can be the root of an image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfficialSource:
    """A part that its makers offer as a tar archive, with a file of SHA-256 checksums."""

    archive_url: str
    """Where the archive is; `{system}` and `{processor}` are filled in."""
    checksums_url: str
    """Where the checksums are: lines of a checksum and a file name."""
    processors: tuple[tuple[str, str], ...]
    """What `{processor}` is for each name that a machine has for itself."""
    executables: tuple[str, ...]
    """Files to take out of the archive, from whatever folder they are in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """When a part that is on the machine already may be taken."""

    probe: tuple[str, ...] | None = None
    """Arguments that make the first executable print its version. None: any version will do."""
    at_least: tuple[int, ...] = ()
    """Oldest version that will do. Empty: any."""
    below: tuple[int, ...] = ()
    """First version that will not do any more. Empty: none."""
    folders: tuple[str, ...] = ()
    """Looked through after PATH."""
    variable: str = ""
    """Environment variable that names the folder to take it from, in any version. Empty: none."""
    static_only: bool = False
    """True: a program that needs shared libraries is not taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One thing that the tools need on this machine."""

    name: str
    """Unique; the word used on the command line."""
    version: str
    """Version that is built or downloaded. For Debian packages: what the distribution has."""
    expected_s: int
    """Seconds to get it on two cores with nothing cached."""
    source: GoSource | DebianSource | OfficialSource
    """Where it comes from when it is not there."""
    official: Part | None = None
    """The same part as its makers release it, preferred where it can be downloaded. None: not looked for."""
    installed: Installed | None = None
    """When one that is there already is taken. None: never, because it has to fit the other parts exactly."""
    note: str = ""
    """Said along with the choice."""

    @property
    def executables(self) -> tuple[str, ...]:
        """File names of its executables."""
        if isinstance(self.source, GoSource):
            scripts = (Path(f.pattern).name for f in self.source.files if f.to == "bin")
            return (*(t.executable for t in self.source.targets), *scripts)
        if isinstance(self.source, OfficialSource):
            return self.source.executables
        return tuple(link.executable for link in self.source.links)

    @property
    def origin(self) -> str:
        """Where it comes from when it is not there, in a few words."""
        if isinstance(self.source, GoSource):
            where = "built from Go modules" if self.source.module else "built from this checkout"
        elif isinstance(self.source, OfficialSource):
            where = f"official release {self.version}"
        else:
            where = "unpacked from Debian packages"
        return f"{where} ({self.note})" if self.note else where
