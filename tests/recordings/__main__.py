"""Write the recordings of the code that is on the path, with TorchX 0.7.0: `python -m tests.recordings NAME`.

Recordings are frozen: `SHA256SUMS` lists their digests, and its lines stay. A later version of the identity, or of a
stored form, gets recordings of its own under another name.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from tests.recordings.jobs import program_jobs, torchx_jobs
from tests.recordings.producing import environment, launch, program_of, register, take_over, up

HERE = Path(__file__).parent


def main(name: str) -> None:
    folder = HERE / name
    try:
        folder.mkdir()
    except FileExistsError:
        sys.exit(f"tests/recordings/{name} exists, and recordings are frozen: take the name of another version")
    programs: dict[str, Any] = {}
    for job in program_jobs():
        ups: list[Any] = []
        for index in range(len(job.ups)):
            ups.append(up(job, index, ups[-1] if ups else None))
        programs[job.id] = [ups[0], *(without_specs(registered) for registered in ups[1:])]
    write(folder / "programs.json.gz", programs)
    apps: dict[str, Any] = {}
    for app in torchx_jobs():
        with environment(app.user) as home:
            made = launch(app, home)
        (order,) = [value for path, value in made["files"].items() if path.endswith("order.json")]
        registered = register(order)
        program = program_of(order["entry"])
        taken = without_specs(take_over(program, order["entry"], registered))
        apps[app.id] = {**made, "registered": without_specs(registered), "program": program, "taken": taken}
    write(folder / "apps.json.gz", apps)
    with (HERE / "SHA256SUMS").open("a") as sums:
        sums.writelines(
            f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {name}/{path.name}\n" for path in folder.iterdir()
        )
    sys.stdout.write(f"{len(programs)} programs, {len(apps)} apps\n")


def without_specs(registered: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Leave out the specs, which the renderers' golden files have."""
    return [
        {**item, "inputs": {key: value for key, value in item["inputs"].items() if key != "spec"}}
        for item in registered
    ]


def write(path: Path, value: Any) -> None:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


if __name__ == "__main__":
    main(sys.argv[1])
