"""A folder as a backend: whether it is there, how stacks lie in it, and which there are."""

from __future__ import annotations

import errno
import re
import stat
from pathlib import Path

from torchx_pulumi.model.errors import BackendAbsentError, DeployError
from torchx_pulumi.model.redaction import without_password
from torchx_pulumi.stack_state.places import backend_folder, own_backend
from torchx_pulumi.stack_state.presence import is_file, is_folder, names_in

STATES = (".json", ".json.gz")
"""Ends of the names of states that can be read here."""

_VERSION = re.compile(r"^version:\s*(\d+)\s*$", re.MULTILINE)

_OLD_STATES = re.compile(r"\.(json|yaml|yml)(\.gz|\.zst)?$")
"""Ends of the names of all states that Pulumi writes."""


def check_layout(root: Path, backend: str) -> None:
    """Refuse a folder in which Pulumi does not keep stacks by project.

    In the old layout Pulumi would not see the new stack; and with a file that says that the layout is the new one,
    it would not see the stacks that are there.

    Raises:
        DeployError: The folder has another layout, or cannot be read.
    """
    where = f"the Pulumi backend {without_password(backend)}"
    folder = root / ".pulumi"
    meta = folder / "meta.yaml"
    try:
        found = _VERSION.search(meta.read_text(encoding="utf-8")) if is_file(meta) else None
        version = int(found[1]) if found is not None else None
        old = [] if version else [name for name in names_in(folder / "stacks") if _OLD_STATES.search(name)]
    except (OSError, UnicodeDecodeError) as error:
        known = error if isinstance(error, OSError) else OSError(errno.EINVAL, str(error), str(meta))
        raise backend_refused(backend, known) from error
    if old or version == 0:
        stacks = f" ({', '.join(old[:3])}{', ...' if len(old) > 3 else ''})" if old else ""
        raise DeployError(
            f"{where} has Pulumi's old layout, which does not know projects{stacks}: run `pulumi state upgrade` "
            "there, with PULUMI_DIY_BACKEND_IGNORE_DEPRECATION_ERROR=1, which moves its stacks to the new layout; or "
            "name another backend by the option pulumi_backend"
        )
    if version is not None and version > 1:
        raise DeployError(
            f"{where} has layout version {version}, and this release of torchx-pulumi knows version 1; install a "
            "newer release, or name another backend by the option pulumi_backend"
        )


def check_there(root: Path, backend: str) -> None:
    """Refuse to conclude anything from a folder that holds no backend: a shared folder may not be mounted.

    This user's own backend may be absent: the first launch makes it.

    Raises:
        BackendAbsentError: There is no `.pulumi` in the folder.
        DeployError: It cannot be found out.
    """
    if root == backend_folder(own_backend()):
        return
    try:
        found, what = is_folder(root / ".pulumi"), "has no folder .pulumi" if is_folder(root) else "is not there"
    except OSError as error:
        raise backend_refused(backend, error) from error
    if not found:
        raise BackendAbsentError(
            f"the Pulumi backend {without_password(backend)} cannot be read: the folder {root} {what}, so that nothing "
            "is known of the stacks in it, and none is taken for deleted. Mount it, or correct the option "
            f"pulumi_backend or PULUMI_BACKEND_URL; if its contents are lost for good, make {root / '.pulumi'}"
        )


def stack_names(root: Path, project: str, backend: str) -> list[str]:
    """Return the names of the stacks of a project in a folder.

    Raises:
        BackendAbsentError: There is no backend in the folder.
        DeployError: It cannot be read.
    """
    try:
        names = names_in(root / ".pulumi" / "stacks" / project)
    except OSError as error:
        raise backend_refused(backend, error) from error
    if not names:
        check_there(root, backend)
    return sorted({name.removesuffix(".gz").removesuffix(".json") for name in names if name.endswith(STATES)})


def backend_refused(backend: str, error: OSError) -> DeployError:
    """Say why a backend in a folder cannot be used, and what to do."""
    reasons = {
        errno.ENOSPC: "the disk is full; free some space",
        errno.EDQUOT: "the quota of this user is used up; free some space",
        errno.EROFS: "the file system is read-only; choose a folder that can be written",
        errno.EACCES: "this user may not; change the folder's permissions, or choose another one",
        errno.EPERM: "this user may not; change the folder's permissions, or choose another one",
        errno.ESTALE: "its file system was mounted again meanwhile; start this process again",
    }
    reason = reasons.get(error.errno or 0, str(error.strerror or error))
    where = f" ({error.filename}{_permissions(error)})" if error.filename else ""
    return DeployError(
        f"the Pulumi backend {without_password(backend)} cannot be used: {reason}{where}. "
        "The option pulumi_backend or PULUMI_BACKEND_URL names another one"
    )


def _permissions(error: OSError) -> str:
    """Return mode and owner of a file that may not be used, or of the first folder above it that can be looked at."""
    if error.errno not in (errno.EACCES, errno.EPERM):
        return ""
    for path in (Path(error.filename), *Path(error.filename).parents):
        try:
            found = path.stat()
        except OSError:
            continue
        what = "" if path == Path(error.filename) else f"{path} "
        owner = f"user {found.st_uid}, group {found.st_gid}"
        return f": {what}has mode {stat.S_IMODE(found.st_mode):04o} and belongs to {owner}"
    return ""
