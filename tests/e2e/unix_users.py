"""Unix users of a team: each with a uid, a home and a kubeconfig of its own, in one group with a shared folder.

Needs root. No account is made: a uid needs none. Folders of this machine that others may not enter (root's home, where
the cache of parts may be) are opened in a mount namespace of each command only.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.e2e.torchx_cli import BIN, Said

ROOT = Path(__file__).resolve().parents[2]
TEAM_GID = 61100
FIRST_UID = 61101

_AS_USER = """
set -eu
staging=$1 needed=$2 umask=$3; shift 3
if [ -n "$needed" ]; then
  mount --bind "${needed%%:*}" "$staging"
  mount -t tmpfs -o mode=0755 tmpfs "${needed%%:*}"
  for below in $(echo "${needed#*:}" | tr : ' '); do
    mkdir -p "${needed%%:*}/$below"
    mount --bind "$staging/$below" "${needed%%:*}/$below"
  done
  umount "$staging"
fi
umask "$umask"
exec "$@"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnixUser:
    """One user."""

    name: str
    uid: int
    gid: int
    """Primary group, of this user only."""
    umask: int
    home: Path
    """Folder of mode 0700 with the kubeconfig and the state of this user."""
    env: Mapping[str, str] = field(repr=False)

    @property
    def kubeconfig(self) -> Path:
        """File of mode 0600."""
        return self.home / "kubeconfig"

    def torchx(self, *words: str, code: int | None = 0, **env: str) -> Said:
        """Run `torchx` and wait for its end."""
        return self.finish(self.start("torchx", *words, **env), code, " ".join(words))

    def ours(self, *words: str, code: int | None = 0, **env: str) -> Said:
        """Run `torchx-pulumi` and wait for its end."""
        return self.finish(self.start("torchx-pulumi", *words, **env), code, " ".join(words))

    def start(self, program: str, *words: str, **env: str) -> subprocess.Popen[str]:
        """Start a program of this environment as this user."""
        staging = self.home.parent / "staging"
        groups = f"{self.gid},{TEAM_GID}"
        become = ["setpriv", f"--reuid={self.uid}", f"--regid={self.gid}", f"--groups={groups}", "--no-new-privs"]
        closed = ["sh", "-c", _AS_USER, "sh", str(staging), _closed_folder(), f"{self.umask:03o}"]
        return subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", *closed, *become, "--", str(BIN / program), *words],
            cwd=self.home,
            env={**self.env, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def finish(self, running: subprocess.Popen[str], code: int | None, what: str) -> Said:
        """Wait for a program and check its exit code; None: any."""
        out, err = running.communicate(timeout=300)
        said = Said(out=out, err=err, code=running.returncode)
        assert code is None or said.code == code, f"{self.name}: {what}: {said.code}\n{said.text}"
        assert "Traceback" not in said.text, f"{self.name}: {what}\n{said.text}"
        return said


class Team:
    """Users who share a group and a folder."""

    def __init__(self, folder: Path, kubeconfig: Path, env: Mapping[str, str]) -> None:
        self._folder = folder
        self._kubeconfig = json.loads(kubeconfig.read_text())
        self._env = dict(env)
        self._count = 0
        (folder / "staging").mkdir()
        self.shared = folder / "shared"
        """Folder of the team: mode 2770, new files belong to the group."""
        self.shared.mkdir()
        os.chown(self.shared, 0, TEAM_GID)
        self.shared.chmod(0o2770)

    @property
    def backend(self) -> str:
        """URL of the Pulumi backend in the shared folder."""
        return f"file://{self.shared}"

    def user(self, name: str, *, umask: int = 0o022, context: str | None = None, **env: str) -> UnixUser:
        """Return a new user.

        Args:
            name: What the environment says.
            umask: Umask of all that the user starts.
            context: Name of the context in the kubeconfig. None: the user's name.
            env: What the user has set besides.
        """
        uid = FIRST_UID + self._count
        self._count += 1
        home = self._folder / name
        home.mkdir(mode=0o700)
        kubeconfig = home / "kubeconfig"
        chosen = context or name
        config = {**self._kubeconfig, "contexts": self._contexts(chosen), "current-context": chosen}
        kubeconfig.write_text(json.dumps(config))
        kubeconfig.chmod(0o600)
        for path in (home, kubeconfig):
            os.chown(path, uid, uid)
        own = {
            "HOME": str(home),
            "USER": name,
            "LOGNAME": name,
            "XDG_STATE_HOME": str(home / "state"),
            "KUBECONFIG": str(kubeconfig),
            "CI": "true",
        }
        return UnixUser(name=name, uid=uid, gid=uid, umask=umask, home=home, env={**self._env, **own, **env})

    def _contexts(self, name: str) -> list[Mapping[str, object]]:
        return [{**self._kubeconfig["contexts"][0], "name": name}]


@contextmanager
def team_of(kubeconfig: Path, env: Mapping[str, str]) -> Iterator[Team]:
    """Make a team whose folders are gone afterwards.

    Args:
        kubeconfig: The cluster's, in JSON; each user gets a copy.
        env: Environment in which `pulumi` is found.
    """
    if os.geteuid() != 0 or shutil.which("unshare") is None or shutil.which("setpriv") is None:
        pytest.skip("only root can run commands as other users, with unshare and setpriv of util-linux")
    dropped = ("PULUMI_BACKEND_URL", "PULUMI_CONFIG_PASSPHRASE", "PULUMI_CONFIG_PASSPHRASE_FILE", "PULUMI_HOME")
    kept = {name: value for name, value in env.items() if name not in dropped and not name.startswith("XDG_")}
    # Not pytest's own folder, which other users may not enter.
    folder = Path(tempfile.mkdtemp(prefix="torchx-pulumi-team-"))
    folder.chmod(0o755)
    try:
        yield Team(folder, kubeconfig, {**kept, "PYTHONDONTWRITEBYTECODE": "1"})
    finally:
        shutil.rmtree(folder)


def _closed_folder() -> str:
    """Return the folder that others may not enter and what they need below it, as `/root:.cache:.pyenv`; or nothing."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    needed = [Path(sys.base_prefix), cache, ROOT, BIN.parent]
    closed = {parent for path in needed for parent in path.resolve().parents if not parent.stat().st_mode & 0o001}
    if not closed:
        return ""
    top = min(closed, key=lambda path: len(path.parts))
    below = {str(path.resolve().relative_to(top)) for path in needed if top in path.resolve().parents}
    return ":".join([str(top), *sorted(below)])
