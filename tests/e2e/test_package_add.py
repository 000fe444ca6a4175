"""`pulumi package add` of this checkout's package, in a fresh folder: from a folder, and from a git URL at a tag.

The Python language host that is built here is older than plugins in source: it installs the dependencies of one, and
cannot start it. Then the program of the plugin that was installed is added: the step that such a host lacks.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml

from tests.doc_blocks import commands
from tests.e2e.generated_sdks import generate
from tests.e2e.git_server import serve_git
from tests.e2e.project import Project
from tests.loopback import Certificates
from tools.release import version_of

pytestmark = [pytest.mark.e2e, pytest.mark.extended]

ROOT = Path(__file__).resolve().parents[2]
TAG = f"v{version_of(ROOT)}"
OWNER = "torchx-pulumi/torchx-pulumi"
JOB = {
    "queue": "default",
    "roles": [{"name": "trainer", "image": "app:1", "entrypoint": "sleep", "args": ["600"]}],
}
PYTHON = """\
import pulumi
import pulumi_torchx as torchx

job = torchx.VolcanoTrainingJob(
    "train",
    queue="default",
    namespace="{namespace}",
    roles=[torchx.RoleArgs(name="trainer", image="app:1", entrypoint="sleep", args=["600"])],
)
pulumi.export("job_name", job.job_name)
"""
LACKS = ("can't find '__main__' module", "GeneratePackage not implemented")
"""What the CLI says where the host lacks a step."""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A bare repository of this commit with the release's tag, below the folder `git`."""
    bare = tmp_path / "git" / f"{OWNER}.git"
    subprocess.run(["git", "clone", "--quiet", "--bare", str(ROOT), str(bare)], check=True)
    subprocess.run(["git", "tag", "--force", TAG], cwd=bare, check=True)
    return bare


@pytest.fixture
def env(tmp_path: Path, e2e_env: dict[str, str]) -> dict[str, str]:
    """Environment with a home of Pulumi that has the plugin of Kubernetes, which the CLI would download."""
    from tools.bootstrap import pulumi_environment

    env = {name: value for name, value in e2e_env.items() if name != "PYTHONPATH"}
    env |= {"PULUMI_HOME": str(tmp_path / "home"), "PATH": pulumi_environment(languages=("python", "yaml"))["PATH"]}
    provider = shutil.which("pulumi-resource-kubernetes", path=env["PATH"])
    assert provider is not None
    words = ["plugin", "install", "resource", "kubernetes", version("pulumi-kubernetes"), "--file", provider]
    subprocess.run(["pulumi", *words], env=env, check=True, capture_output=True)
    return env


@pytest.fixture
def address(tmp_path: Path, env: dict[str, str], repository: Path) -> Iterator[str]:
    """An address of loopback where git is served at the port of HTTPS: a port in the URL would be part of a path."""
    if os.geteuid() != 0:
        pytest.skip("the port of HTTPS needs root")
    address = f"127.91.{os.getpid() // 256 % 256}.{os.getpid() % 256}"
    (tmp_path / "tls").mkdir()
    certificates = Certificates(tmp_path / "tls")
    certificates.server = certificates.make("git", f"subjectAltName=IP:{address}")
    trusted = tmp_path / "tls/trusted.crt"
    known = Path(os.environ.get("SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt"))
    trusted.write_bytes(known.read_bytes() + certificates.authority)
    env["SSL_CERT_FILE"] = str(trusted)
    with serve_git(tmp_path / "git", certificates, address, 443):
        yield address


def add(project: Project, command: str, plugins: Path) -> None:
    """Run the command; if the host does not start the plugin that it installed, add the plugin's program."""
    _, *words = command.split()
    done = subprocess.run(
        ["pulumi", *words, "--non-interactive"], cwd=project.folder, env=project.env, text=True, capture_output=True
    )
    assert "Finished installing dependencies" in done.stdout + done.stderr, done.stdout + done.stderr
    (program,) = plugins.glob("**/bin/pulumi-resource-torchx")
    if done.returncode:
        assert LACKS[0] in done.stderr
        project.run("package", "add", str(program))
    project.env["PATH"] = os.pathsep.join([str(program.parent), project.env["PATH"]])


def previews(project: Project) -> None:
    """The program of a project that the package was added to has a job, and its preview shows it."""
    content = yaml.safe_load((project.folder / "Pulumi.yaml").read_text())
    assert set(content["packages"]) == {"torchx"}
    assert list((project.folder / "sdks/torchx").glob("torchx-*.yaml"))
    job = {"type": "torchx:VolcanoTrainingJob", "properties": {**JOB, "namespace": project.namespace}}
    (project.folder / "Pulumi.yaml").write_text(yaml.safe_dump({**content, "resources": {"train": job}}))
    assert "batch.volcano.sh/v1alpha1:Job" in project.preview()


def test_a_yaml_program_adds_the_package_of_a_folder(
    tmp_path: Path, env: dict[str, str], repository: Path, namespace: str
) -> None:
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", str(repository), str(clone)], check=True)
    project = Project(tmp_path / "fresh", env, namespace, runtime="yaml")
    (command,) = commands("docs/languages.md", "add-folder", {"./torchx-pulumi": str(clone)})
    add(project, command, clone / "components")
    previews(project)


def test_a_yaml_program_adds_the_package_of_a_tag(
    tmp_path: Path, env: dict[str, str], address: str, namespace: str
) -> None:
    project = Project(tmp_path / "fresh", env, namespace, runtime="yaml")
    (command,) = commands("docs/languages.md", "add-url", {"github.com": f"https://{address}"})
    assert command.endswith(f"/components@{TAG[1:]}")
    add(project, command, tmp_path / "home/plugins")
    previews(project)


def test_a_python_program_adds_the_package(tmp_path: Path, e2e_env: dict[str, str], namespace: str) -> None:
    """The host generates no SDK: it is generated and installed by hand, as the host of today does."""
    program = Path(sys.prefix) / "bin/pulumi-resource-torchx"
    project = Project(tmp_path / "fresh", e2e_env, namespace, program=PYTHON.format(namespace=namespace))
    assert LACKS[1] in project.run("package", "add", str(program), fails=True)
    generate("python", project.folder / "sdks/torchx")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(tmp_path / "installed")]
    subprocess.run([*pip, "./sdks/torchx"], cwd=project.folder, check=True)
    project.env["PYTHONPATH"] += f"{os.pathsep}{tmp_path / 'installed'}"
    project.env["PATH"] = os.pathsep.join([str(program.parent), project.env["PATH"]])
    assert "batch.volcano.sh/v1alpha1:Job" in project.preview()
