"""Folders, files and names of one cluster. Everything here follows from the cluster's name and the state folder.

Because the names of the bridge and of the cgroup follow from the folder, `down` can clear them without any record.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.local_cluster.errors import LocalClusterError

NAME_PATTERN: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,28}[a-z0-9])?")
CGROUP_OF_ALL: Final = "/torchx-pulumi"
"""Parent of the control groups of every cluster on the machine. It is there as long as one has a real node."""
LONGEST_ROOT: Final = 66
"""Characters of the state folder that leave room for the kubelet's sockets, whose paths the kernel cuts at 107."""


def clusters_folder() -> Path:
    """Return the folder that holds the state of every cluster of this user."""
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser().absolute() / "torchx-pulumi" / "clusters"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where one cluster keeps its things."""

    name: str
    """Name of the cluster."""
    root: Path
    """State folder, readable by its owner only."""

    @classmethod
    def of(cls, name: str) -> Layout:
        """Return the layout of the cluster called `name`, which need not exist.

        Raises:
            LocalClusterError: the name is not one.
        """
        if not NAME_PATTERN.fullmatch(name):
            raise LocalClusterError(
                f"cluster name {name!r}: allowed are 1 to 30 lower-case letters, digits and inner hyphens"
            )
        return cls(name=name, root=clusters_folder() / name)

    @property
    def identity(self) -> str:
        """Eight hex digits that differ between clusters, of other users as well."""
        return hashlib.sha256(os.fsencode(self.root)).hexdigest()[:8]

    @property
    def bridge(self) -> str:
        """Network interface that the pods of the real node hang on; 15 characters at most."""
        return f"txp{self.identity}"

    @property
    def cgroup(self) -> str:
        """Parent of all containers' cgroups, below each hierarchy's root."""
        return f"{CGROUP_OF_ALL}/{self.identity}"

    @property
    def lock(self) -> Path:
        """File that `up` and `down` lock. It is beside the state folder, which they create and remove."""
        return self.root.with_name(f"{self.name}.lock")

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig (0600)."""
        return self.root / "kubeconfig"

    @property
    def settings(self) -> Path:
        """What was chosen for this cluster: ports, addresses, parts."""
        return self.root / "settings.json"

    @property
    def processes(self) -> Path:
        """One file for each process that was started."""
        return self.root / "processes"

    @property
    def logs(self) -> Path:
        """One file for each component. Apart from `config`: Volcano reloads whenever a file beside its own changes."""
        return self.root / "logs"

    @property
    def secrets(self) -> Path:
        """Keys, certificates and tokens."""
        return self.root / "secrets"

    @property
    def config(self) -> Path:
        """One folder of configuration for each component that needs any."""
        return self.root / "config"

    @property
    def data(self) -> Path:
        """What etcd, the registry, containerd and the kubelet store."""
        return self.root / "data"

    @property
    def run(self) -> Path:
        """Sockets and other things that end with the processes."""
        return self.root / "run"

    @property
    def kubelet(self) -> Path:
        """The kubelet's folder. Directly below the root, since it holds sockets with long names."""
        return self.root / "kubelet"

    def create(self) -> None:
        """Make the folders, closed to other users."""
        self.root.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        for folder in (self.root, self.processes, self.logs, self.secrets, self.config, self.data, self.run):
            folder.mkdir(exist_ok=True, mode=0o700)

    def write_config(self, component: str, file: str, text: str) -> Path:
        """Write a component's configuration file and return its path.

        A file that says this already is left alone: some components reload when theirs is touched.
        """
        path = self.config / component / file
        if path.is_file() and path.read_text("utf-8") == text:
            return path
        path.parent.mkdir(exist_ok=True, mode=0o700)
        return write_private(path, text)


def write_private(path: Path, text: str) -> Path:
    """Write a file that only its owner can read, and return its path."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def known_layouts() -> Iterator[Layout]:
    """Yield the clusters that have a state folder, by name."""
    folder = clusters_folder()
    if not folder.is_dir():
        return
    for entry in sorted(folder.iterdir()):
        if entry.is_dir() and NAME_PATTERN.fullmatch(entry.name):
            yield Layout(name=entry.name, root=entry)
