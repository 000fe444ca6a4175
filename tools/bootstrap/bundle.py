"""Put the Pulumi CLI and its language hosts into one folder, as they are in an official release.

The CLI looks for language hosts beside itself and warns on every run about one that it finds on PATH instead.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path


def bundle(folders: Sequence[Path], bundles: Path) -> Path:
    """Return a folder that holds the programs of all `folders`, made of hard links below `bundles`."""
    name = hashlib.sha256("\0".join(str(folder) for folder in folders).encode()).hexdigest()[:8]
    final = bundles / name / "bin"
    if final.is_dir():
        if final.parent.stat().st_mode & 0o777 != 0o755:
            # An earlier checkout made it, for its owner only.
            final.parent.chmod(0o755)
        return final
    bundles.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=".making-", dir=bundles))
    (unfinished / "bin").mkdir()
    for folder in folders:
        for program in folder.iterdir():
            # Not symbolic links: the CLI resolves those before it looks beside itself.
            os.link(program, unfinished / "bin" / program.name)
    unfinished.chmod(0o755)
    try:
        unfinished.rename(final.parent)
    except OSError:
        shutil.rmtree(unfinished)
        if not final.is_dir():
            raise
    return final
