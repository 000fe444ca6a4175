"""Each template of `pulumi new` becomes a project that can be previewed as it is. Two of them run on the real node."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from torchx_pulumi.kube import KubernetesCluster

from tests.doc_blocks import commands
from tests.e2e.generated_sdks import ADD, environment, type_errors
from tests.e2e.project import Project
from tests.e2e.stack_project import ROOT
from tests.e2e.test_examples import logs_of
from tools.bootstrap import pulumi_environment

pytestmark = pytest.mark.e2e

JOB = "kubernetes:batch.volcano.sh/v1alpha1:Job"
REPOSITORY = "https://github.com/torchx-pulumi/torchx-pulumi"
KINDS = ("Namespace", "Queue", "PriorityClass", "ServiceAccount", "Secret", "Role", "RoleBinding")
"""What the platform of a team has."""


class TemplateProject(Project):
    """A project that `pulumi new` makes of a template, with the defaults of its configuration."""

    def __init__(self, folder: Path, env: dict[str, str], namespace: str, template: str, **config: str) -> None:
        self.folder, self.env, self.namespace = folder, env, namespace
        folder.mkdir()
        source = ROOT / "templates" / template
        page = {f"{REPOSITORY}/tree/main/templates/volcano-python": str(source)}
        (new,) = commands("docs/infra-teams.md", "new", page)
        flags = ("--yes", "--generate-only", "--name", folder.name, "--description", "A test")
        self.run(*shlex.split(new)[1:], *flags)
        (folder / "venv").symlink_to(sys.prefix)
        self.run("stack", "init", self.stack)
        keys = yaml.safe_load((source / "Pulumi.yaml").read_text())["template"]["config"]
        values = {key: each["default"] for key, each in keys.items() if "default" in each}
        values |= {"namespace": namespace, **config}
        self.run("config", "set-all", *(word for pair in values.items() for word in ("--plaintext", "=".join(pair))))


@pytest.fixture
def env(e2e_env: dict[str, str]) -> dict[str, str]:
    """Environment with the language hosts and our plugin, as the wheel installs it."""
    path = pulumi_environment(languages=("python", "yaml", "nodejs", "go"))["PATH"]
    return {**e2e_env, "PATH": f"{Path(sys.prefix) / 'bin'}:{path}"}


@pytest.fixture
def volcano(
    tmp_path: Path, env: dict[str, str], namespace: str, image: str, request: pytest.FixtureRequest
) -> TemplateProject:
    return TemplateProject(tmp_path / "trainer", env, namespace, request.param, image=image)


@pytest.mark.parametrize(
    "volcano", ["volcano-python", pytest.param("volcano-yaml", marks=pytest.mark.extended)], indirect=True
)
def test_the_job_of_a_template_runs(volcano: TemplateProject, look: KubernetesCluster) -> None:
    volcano.up()
    app_id = volcano.output("app_handle").rpartition("/")[2]
    job_name = app_id.partition(":")[2]
    assert logs_of(look, volcano, app_id) == [f"replica {index} of {job_name}" for index in (0, 1)]


@pytest.mark.parametrize("volcano", ["volcano-yaml"], indirect=True)
def test_the_job_of_a_template_is_previewed(volcano: TemplateProject) -> None:
    assert JOB in volcano.preview()


@pytest.mark.extended
@pytest.mark.parametrize("language", ["typescript", "go"])
def test_the_job_of_a_template_with_a_generated_sdk_is_previewed(
    tmp_path: Path, env: dict[str, str], namespace: str, language: str
) -> None:
    project = TemplateProject(tmp_path / "trainer", env, namespace, f"volcano-{language}")
    # What `pulumi new` does without --generate-only; the hosts that are built here cannot.
    ADD[language](project.folder)
    if language == "go":
        found = environment(language)
        project.env |= {**found, "PATH": os.pathsep.join([project.env["PATH"], found["PATH"]])}
        subprocess.run(["go", "mod", "tidy"], cwd=project.folder, env=project.env, check=True)
    else:
        assert type_errors(project.folder, language) == ""
    assert JOB in project.preview()


def test_the_platform_of_a_template_is_previewed(tmp_path: Path, env: dict[str, str], namespace: str) -> None:
    team = TemplateProject(tmp_path / "team", env, namespace, "platform", team=f"{namespace}-team", members="users")
    team.run(
        "config", "set", "--secret", "dockerConfigJson", '{"auths": {"registry.example.com": {"auth": "aHVzaA=="}}}'
    )
    text = team.preview()
    assert [kind for kind in KINDS if f":{kind} " not in text] == []
    assert "aHVzaA==" not in text
