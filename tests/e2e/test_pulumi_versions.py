"""Programs with the oldest and the newest supported version of Pulumi's SDK, each in an environment of its own.

It fetches packages and takes some minutes. No cluster is used.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from torchx_pulumi.model.pulumi_pieces import PIECES, RELEASES, digest, read_piece
from torchx_pulumi.model.versions import VERSIONS, read_version, version_text

pytestmark = [pytest.mark.e2e, pytest.mark.extended]

ROOT = Path(__file__).parents[2]
OLDEST, NEWEST = VERSIONS["pulumi-sdk"].oldest, VERSIONS["pulumi-sdk"].newest
TESTS = ["tests/components", "tests/third_scheduler", "tests/unit/stacks/test_config.py"]
"""What runs programs on mocks, and reads their configuration."""

FIRST = """\
import pulumi

pulumi.export("kept", "old")
pulumi.export("hidden", pulumi.Output.secret("old"))
"""

SECOND = """\
import pulumi
from torchx_pulumi_components import VolcanoTrainingJob

roles = [{"name": "trainer", "image": "app:1", "entrypoint": "sleep"}]
# Without a queue they are refused before a cluster is looked for.
one, two = (VolcanoTrainingJob(name, {"roles": roles}) for name in ("one", "two"))
begun = pulumi.Stash("begun", input="x")
pulumi.Stash("later", input=begun.output.apply(lambda value: value + "y"))
pulumi.Stash("uses", input=one.uid)
pulumi.Stash("after", input="x", opts=pulumi.ResourceOptions(depends_on=[two]))
pulumi.export("kept", one.uid)
pulumi.export("hidden", two.uid)
pulumi.export("never", one.uid)
pulumi.export("new", begun.output)
"""


def run(*words: str | Path, cwd: Path = ROOT, code: int = 0, **variables: str) -> str:
    env = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "PYTHONPATH"))}
    done = subprocess.run(words, cwd=cwd, env={**env, **variables}, text=True, capture_output=True, check=False)
    assert (done.returncode != 0) is bool(code), f"{words}\n{done.stdout[-20000:]}{done.stderr[-5000:]}"
    return done.stdout


@pytest.fixture(scope="module", params=[OLDEST, NEWEST], ids=version_text)
def venv(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the oldest release of the oldest version, or the newest of the newest."""
    version, folder = request.param, tmp_path_factory.mktemp("sdk")
    rule = f"pulumi=={version_text(version)}.{'0' if version == OLDEST else '*'}"
    pins = (ROOT / "requirements" / "dev.txt").read_text(encoding="utf-8")
    (folder / "pins.txt").write_text(re.sub(r"(?m)^pulumi==\S+", rule, pins), encoding="utf-8")
    uv, made = Path(sys.executable).with_name("uv"), folder / "venv"
    # With pip, which the language host of Pulumi asks.
    run(uv, "venv", "--seed", "--python", sys.executable, made)
    for what in (["-r", folder / "pins.txt"], ["--no-deps", "-e", ROOT, "-e", ROOT / "fleet"]):
        run(uv, "pip", "install", *what, VIRTUAL_ENV=str(made))
    found = run(made / "bin" / "python", "-c", "import importlib.metadata as m; print(m.version('pulumi'))")
    assert read_version(found) == version
    return made


def test_the_newest_release_is_a_tested_one() -> None:
    """If it is not: raise it in `model/versions.py` and pyproject.toml, and run this page."""
    said = run(sys.executable, "-m", "pip", "index", "versions", "pulumi")
    assert read_version(said.partition("Available versions:")[2]) == NEWEST, said[:80]


def test_the_tests_on_mocks_pass(venv: Path) -> None:
    run(venv / "bin" / "python", "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", *TESTS)


def test_the_table_has_the_pieces_of_every_tested_release(tmp_path: Path) -> None:
    """If it has not: read what changed in these pieces, and take what the failure says over into the table."""
    found: dict[str, list[str]] = {piece: [] for piece in PIECES}
    for release in RELEASES:
        words = ("download", "--quiet", "--no-deps", "--only-binary", ":all:", f"pulumi=={release}")
        run(sys.executable, "-m", "pip", *words, cwd=tmp_path)
        (wheel,) = tmp_path.glob(f"pulumi-{release}-*.whl")
        shutil.unpack_archive(wheel, tmp_path / release, "zip")
        for piece, digests in found.items():
            tree = read_piece(tmp_path / release / "pulumi", piece)
            digests += [each for each in [digest(tree)] if each not in digests]
    assert {piece: tuple(digests) for piece, digests in found.items()} == dict(PIECES)


@pytest.fixture
def cli(venv: Path, pulumi_tools: dict[str, str], tmp_path: Path) -> Callable[..., str]:
    """Pulumi in the folder of a stack whose program deployed FIRST."""
    (tmp_path / "state").mkdir()
    project = {
        "name": "versions",
        "runtime": {"name": "python", "options": {"virtualenv": str(venv)}},
        "backend": {"url": f"file://{tmp_path / 'state'}"},
    }
    (tmp_path / "Pulumi.yaml").write_text(json.dumps(project), encoding="utf-8")

    def pulumi(*words: str, code: int = 0) -> str:
        env = {**pulumi_tools, "PULUMI_CONFIG_PASSPHRASE": "x", "PULUMI_SKIP_UPDATE_CHECK": "true"}
        return run("pulumi", *words, "--non-interactive", cwd=tmp_path, code=code, **env)

    pulumi("stack", "init", "dev")
    (tmp_path / "__main__.py").write_text(FIRST, encoding="utf-8")
    pulumi("up", "--yes", "--skip-preview")
    (tmp_path / "__main__.py").write_text(SECOND, encoding="utf-8")
    return pulumi


def notes(cli: Callable[..., str]) -> set[str]:
    state = json.loads(cli("stack", "export"))["deployment"]["resources"]
    return {item["urn"].rpartition("::")[2] for item in state if item["type"] == "pulumi:index:Stash"}


def test_refused_jobs_end_a_program_last_and_keep_its_exports(cli: Callable[..., str]) -> None:
    said = cli("up", "--yes", "--skip-preview", code=1)
    told = [line.strip() for line in said.partition("Diagnostics:")[2].splitlines()]
    begin = told.index("error: job 'one' has 1 problem:")
    assert told[begin + 1 : begin + 4] == ["- queue: is missing", "job 'two' has 1 problem:", "- queue: is missing"]
    assert "Traceback" not in said
    assert "was not tested" not in said
    exports = json.loads(cli("stack", "output", "--json", "--show-secrets"))
    assert exports == {"kept": "old", "hidden": "old", "new": "x"}
    assert json.loads(cli("stack", "output", "--json"))["hidden"] == "[secret]"
    assert notes(cli) == {"begun", "later"}


def test_a_release_that_was_altered_is_warned_about_or_refused(venv: Path, cli: Callable[..., str]) -> None:
    """It alters the environment, so it is the last test of the page."""
    (package,) = venv.glob("lib/python3*/site-packages/pulumi")
    (metadata,) = package.parent.glob("pulumi-3*.dist-info/METADATA")

    def alter(path: Path, rule: str, text: str) -> None:
        altered = re.sub(rule, text, path.read_text(encoding="utf-8"))
        path.unlink()  # uv's cache has the same file
        path.write_text(altered, encoding="utf-8")

    alter(metadata, r"(?m)^Version: .*$", "Version: 3.999.0")
    alter(package / "runtime" / "stack.py", r"(?m)^(async def wait_for_rpcs\(.*)$", r"\1\n    _ = 1")
    said = cli("up", "--yes", "--skip-preview", code=1).partition("Diagnostics:")[2]
    assert said.count("it changed pulumi.runtime.stack.wait_for_rpcs; read previews with care") == 1
    assert "job 'two' has 1 problem:" in said
    assert notes(cli) == {"begun", "later"}

    for path in package.rglob("*.py"):
        alter(path, r"\b_expand_dependencies\b", "_other_dependencies")
    cli("destroy", "--yes", "--skip-preview")
    said = cli("up", "--yes", "--skip-preview", code=1)
    assert "lacks pulumi.runtime.rpc._expand_dependencies, which jobs in a program need; nothing was changed" in said
    assert "Traceback" not in said
    assert notes(cli) == set()
