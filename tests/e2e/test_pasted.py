"""What a reader pastes: the blocks of the README and of each language's first project, as they stand and in order.

Each test has a new home, a new environment with the wheels of this checkout, and no setting of Pulumi. It ends with a
cluster that has nothing of the job. What `replaced` says is all that differs from the pages.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.kube.kinds import POD, SECRET, SERVICE, Kind
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB, VOLCANO_POD_GROUP

from tests.doc_blocks import ROOT, block, blocks, commands
from tests.e2e.generated_sdks import environment
from tests.e2e.project import eventually
from tests.e2e.test_docs import until_it_says
from tests.e2e.torchx_cli import BIN

pytestmark = pytest.mark.e2e

UV = BIN / "uv"
OWNED = (
    VOLCANO_JOB,
    VOLCANO_POD_GROUP,
    POD,
    SERVICE,
    SECRET,
    Kind(group="", version="v1", kind="ConfigMap", plural="configmaps"),
    Kind(group="networking.k8s.io", version="v1", kind="NetworkPolicy", plural="networkpolicies"),
)
"""Kinds of what a job brings."""
ELSEWHERE = {"page", "two-commands"}
"""Blocks of the README that are not pasted into one shell: the page runs until it is stopped, and has a test below; the
commands of a clone are what test_demo.py and continuous integration run."""
MARK = "@@ "


def replaced(image: str) -> dict[str, str]:
    """Return the words of the pages that a test replaces, with what stands for them."""
    return {
        # The local cluster has no access to public registries. Its queue has the name of the pages.
        "busybox:1.36": image,
        # Before a release, the package index lacks our wheels; UV_FIND_LINKS names those of this checkout. pip would
        # fetch a hundred megabytes of other packages, which uv has in its cache.
        "python3 -m venv": f"{UV} venv --quiet --seed --python {sys.executable}",
        "pip install": f"{UV} pip install --quiet",
        # The language hosts that are built here can neither generate an SDK nor link it.
        "pulumi package add": f"PYTHONPATH={ROOT} {sys.executable} -m tests.e2e.generated_sdks",
        # It has linked the packages of tests/e2e/package-lock.json, so that npm has nothing to fetch.
        "npm install\n": "",
    }


@dataclass(kw_only=True)
class Pasted:
    """What a shell printed, by the name of the block, and when."""

    said: dict[str, str] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    """Commands that ended with another code than 0."""
    installed_s: float = 0.0
    """Seconds until the first block, the installation, had ended."""
    ended_s: float = 0.0
    """Seconds until the shell first said that a job has succeeded."""


class Reader:
    """Somebody with Python, the Pulumi CLI and a cluster, in an empty home."""

    def __init__(self, home: Path, wheels: Path, env: dict[str, str], kubeconfig: Path, image: str) -> None:
        self.home, self.words = home, replaced(image)
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        kept = {
            name: value for name, value in env.items() if not name.startswith(("PULUMI", "XDG", "PYTHON", "VIRTUAL"))
        }
        self.env = {
            **kept,
            "HOME": str(home),
            # Built parts and packages are not made again for each home.
            "XDG_CACHE_HOME": str(cache),
            "KUBECONFIG": str(kubeconfig),
            "PULUMI_SKIP_UPDATE_CHECK": "true",
            "UV_FIND_LINKS": str(wheels),
            # The versions that every other test has.
            "UV_CONSTRAINT": str(ROOT / "requirements" / "dev.txt"),
        }

    def pastes(self, given: dict[str, str]) -> Pasted:
        """Run blocks in one shell, which goes on after an error as a terminal does."""
        script = ["trap 'echo \"@@ failed: $BASH_COMMAND\"' ERR"]
        for name, text in given.items():
            for word, value in self.words.items():
                text = text.replace(word, value)
            script += [f"echo '{MARK}{name}'", text]
        done, name, began = Pasted(), "", time.monotonic()
        with subprocess.Popen(
            ["bash", "-c", "\n".join(script)],
            cwd=self.home,
            env=self.env,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                now = time.monotonic() - began
                if line.startswith(f"{MARK}failed: "):
                    done.failed.append(line.removeprefix(f"{MARK}failed: ").strip())
                elif line.startswith(MARK):
                    name = line.removeprefix(MARK).strip()
                    done.installed_s = done.installed_s or (now if done.said else 0.0)
                    done.said[name] = ""
                else:
                    done.said[name] += line
                    done.ended_s = done.ended_s or (now if "SUCCEEDED" in line else 0.0)
        return done


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheels of this checkout, as `make wheel` builds them."""
    made = tmp_path_factory.mktemp("wheels")
    for package in (".", "fleet"):
        subprocess.run([UV, "build", "--quiet", "--wheel", "--out-dir", made, package], cwd=ROOT, check=True)
    return made


@pytest.fixture
def reader(tmp_path: Path, wheels: Path, kubeconfig: Path, image: str) -> Reader:
    """A reader whose Pulumi CLI has the hosts of every language."""
    from tools.bootstrap import pulumi_environment

    home = tmp_path / "home"
    home.mkdir()
    path = pulumi_environment(languages=("python", "yaml", "nodejs", "go"))["PATH"]
    return Reader(home, wheels, {**os.environ, "PATH": path}, kubeconfig, image)


def ends_well(done: Pasted, blocks: tuple[str, ...], look: KubernetesCluster) -> None:
    """The fleet showed that the job of each block has succeeded, nothing failed, and nothing of the jobs is left."""
    everything = "\n".join(done.said.values())
    # Doctor's exit code says that it found a problem: what else it looks for is not what is tested here.
    assert [command for command in done.failed if command != "torchx-pulumi doctor"] == [], everything
    for name in blocks:
        shown = re.findall(r"^(\S+):(\S+) +SUCCEEDED ", done.said[name], re.MULTILINE)
        assert len(shown) == 1, done.said[name]
        ((namespace, job),) = shown

        def left(namespace: str = namespace, job: str = job) -> list[str]:
            objects = [item["metadata"]["name"] for kind in OWNED for item in look.list(kind, namespace)]
            return [name for name in objects if job in name]

        eventually(lambda left=left: left() == [])
    sys.stdout.write(
        f"\n{', '.join(blocks)}: installed after {done.installed_s:.0f} s, first job ended after {done.ended_s:.0f} s\n"
    )


def test_the_readme(reader: Reader, look: KubernetesCluster) -> None:
    given = {
        "install": block("README.md", "install"),
        "doctor": block("README.md", "doctor"),
        "quick-start": block("README.md", "quick-start"),
        "first-program": block("README.md", "first-program"),
    }
    assert [name for _, name, _ in blocks(ROOT / "README.md") if name not in ELSEWHERE] == list(given)
    done = reader.pastes(given)
    ends_well(done, ("quick-start", "first-program"), look)
    assert "volcano" in done.said["doctor"]
    assert "hello" in done.said["quick-start"]
    assert "replica 1 of 2" in done.said["first-program"]
    assert "4 unchanged" in done.said["first-program"]
    # Any port that is free.
    (page,) = commands("README.md", "page", {"8080": "0"})
    programs = reader.home / "torchx-venv" / "bin"
    until_it_says("the page: http://127.0.0.1:", page, reader.home, reader.env, programs)


def test_the_page_for_torchx_users(reader: Reader, look: KubernetesCluster) -> None:
    given = {
        "install": block("README.md", "install"),
        "first": block("docs/torchx-users.md", "first"),
        # The page goes on with what its commands do.
        "delete": "torchx-pulumi delete \"$(torchx-pulumi fleet | grep -o 'default:echo-[^ ]*')\"",
    }
    ends_well(reader.pastes(given), ("first",), look)


def first_project(language: str, text: str) -> dict[str, str]:
    """Return the blocks that lead to the first project of a language."""
    install, state = block("README.md", "install"), block("docs/languages.md", "first-state")
    return {"install": install, "state": state, language: text}


def test_the_first_project_in_yaml(reader: Reader, look: KubernetesCluster) -> None:
    given = first_project("yaml", block("docs/languages.md", "first-yaml"))
    ends_well(reader.pastes(given), ("yaml",), look)


@pytest.mark.extended
def test_the_first_project_in_typescript(reader: Reader, look: KubernetesCluster) -> None:
    given = first_project("typescript", block("docs/languages.md", "first-typescript"))
    ends_well(reader.pastes(given), ("typescript",), look)


def use_go(reader: Reader) -> None:
    """Give a reader Go, with the modules and the compiled packages that are here."""
    found = environment("go")
    names = ("GOMODCACHE", "GOCACHE")
    caches = subprocess.check_output(["go", "env", *names], env=found, text=True).split()
    path = os.pathsep.join([reader.env["PATH"], found["PATH"]])
    reader.env |= {**dict(zip(names, caches, strict=True)), "GOFLAGS": "-trimpath", "CGO_ENABLED": "0", "PATH": path}


@pytest.mark.extended
def test_the_first_project_in_go(reader: Reader, look: KubernetesCluster) -> None:
    use_go(reader)
    given = first_project("go", block("docs/languages.md", "first-go"))
    ends_well(reader.pastes(given), ("go",), look)
