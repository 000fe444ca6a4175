"""SDKs of this checkout's schema in programs in TypeScript and Go, as `pulumi package add` puts them there.

The language hosts that are built here can neither generate an SDK nor link it, so that its steps are done one by one.
`python -m tests.e2e.generated_sdks` does them for the project of the working folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import yaml

from tools.bootstrap import ensure, go_command
from tools.bootstrap.cache import default_cache
from tools.bootstrap.go_build import go_environment

ROOT = Path(__file__).resolve().parents[2]
NPM_PACKAGE = ROOT / "examples/typescript/package.json"
NPM_LOCK = Path(__file__).with_name("package-lock.json")
SDK = "sdks/torchx"
"""Where the SDK is, below the program's folder."""
NPM_NAME = "@torchx-pulumi/torchx"
GO_PACKAGES = "github.com/torchx-pulumi/torchx-pulumi/sdk/go/..."


def generate(language: str, folder: Path) -> None:
    """Write the SDK for `nodejs`, `go` or `python` into a folder."""
    program = ensure(["sdkgen"])["sdkgen"] / "sdkgen"
    with (ROOT / "components/schema.json").open() as schema:
        subprocess.run([program, language, folder], stdin=schema, check=True)


def add_to_typescript(program: Path) -> None:
    """Generate the SDK into a program's folder, compile it, and link it as npm does."""
    generate("nodejs", program / SDK)
    packages, modules = node_modules(), program / "node_modules"
    modules.mkdir()
    for package in packages.iterdir():
        (modules / package.name).symlink_to(package)
    link = modules / NPM_NAME
    link.parent.mkdir()
    link.symlink_to(program / SDK)
    path = os.pathsep.join([str(packages / ".bin"), os.environ["PATH"]])
    # The script that npm runs: it compiles the SDK by the rules of its tsconfig.json, which are strict.
    subprocess.run(["node", "scripts/postinstall.js"], cwd=program / SDK, env={**os.environ, "PATH": path}, check=True)


def add_to_go(program: Path) -> None:
    """Generate the SDK into a program's folder; the example's go.mod leads there."""
    generate("go", program / SDK)


ADD = {"typescript": add_to_typescript, "go": add_to_go}


def add_here() -> None:
    """Add the package to the project of the working folder, with what the host of Go writes into its go.mod.

    `go mod tidy` would take the newest SDK of Pulumi. That of the example is here, and compiled.
    """
    program = Path.cwd()
    runtime = yaml.safe_load((program / "Pulumi.yaml").read_text())["runtime"]
    ADD[{"nodejs": "typescript"}.get(runtime, runtime)](program)
    if runtime == "go":
        found = re.search(r"github.com/pulumi/pulumi/sdk/v3 \S+", (ROOT / "examples/go/go.mod").read_text())
        assert found
        words = [f"-replace={GO_PACKAGES.removesuffix('/...')}=./{SDK}", f"-require={found[0].replace(' ', '@')}"]
        subprocess.run(["go", "mod", "edit", *words], cwd=program, check=True)


def environment(language: str) -> dict[str, str]:
    """Return the variables that a program's compiler needs, to be laid over the caller's own."""
    if language != "go":
        return {}
    found, go = go_environment(), go_command(ROOT / "examples/go")
    # What the CLI was built from, and how, is not compiled again.
    return {
        **found,
        "GOFLAGS": f"{found['GOFLAGS']} -trimpath",
        "PATH": os.pathsep.join([str(go.parent), found["PATH"]]),
    }


def type_errors(program: Path, language: str) -> str:
    """Return the compiler's errors about the types of a program and its SDK; nothing if all is well."""
    words = {
        "typescript": ["node_modules/.bin/tsc", "--pretty", "false", "--project", "."],
        "go": ["go", "vet", "./...", GO_PACKAGES],
    }[language]
    env = {**os.environ, **environment(language)}
    done = subprocess.run(words, cwd=program, env=env, text=True, capture_output=True, check=False)
    assert bool(done.returncode) == bool(done.stdout + done.stderr)
    return done.stdout + done.stderr


def node_modules() -> Path:
    """Return npm's packages of the example: from the cache, or from npm's registry as it is configured."""
    package = json.loads(NPM_PACKAGE.read_text())
    del package["dependencies"][NPM_NAME]
    asked = json.dumps(package)
    kept = default_cache() / "npm" / hashlib.sha256(asked.encode() + NPM_LOCK.read_bytes()).hexdigest()[:12]
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent) as made:
            folder = Path(made) / "packages"
            folder.mkdir()
            (folder / "package.json").write_text(asked)
            shutil.copy(NPM_LOCK, folder)
            # npm compares each package with its checksum in the lock.
            words = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
            subprocess.run(words, cwd=folder, check=True, timeout=600)
            folder.rename(kept)
    return kept / "node_modules"


if __name__ == "__main__":
    add_here()
