"""The component from a language that is not Python: a YAML program and the plugin, nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB

from tests.e2e.project import FAKE_NODE, Project, changes

pytestmark = pytest.mark.e2e

PROGRAM = """\
name: yaml
runtime: yaml
resources:
  train:
    type: torchx:index:VolcanoTrainingJob
    properties:
      queue: {queue}
      namespace: {namespace}
      roles:
        - name: trainer
          image: app:1
          entrypoint: sleep
          args: [600]
          numReplicas: {replicas}
          env: {{LR: {rate}, DEBUG: true, TOKEN: {{"fn::secret": hunter22-hunter22}}}}
          resource: {{cpu: 0.5, memoryMb: 1500}}
          nodeSelector: {selector}
          tolerations: {tolerations}
  same:
    type: torchx:index:VolcanoTrainingJob
    properties:
      queue: {queue}
      namespace: {namespace}
      roles:
        - name: evaluator
          image: app:1
          entrypoint: sleep
          args: [600]
          numReplicas: ${{train.declared.roles[0].replicas}}
          nodeSelector: {selector}
          tolerations: {tolerations}
outputs:
  same: ${{same.podNames}}
  memory_mb: ${{train.declared.roles[0].resource.memoryMb}}
  uid: ${{train.uid}}
  job_name: ${{train.jobName}}
  state: ${{train.observed.state}}
"""


@pytest.fixture
def yaml_project(tmp_path: Path, make_project: Callable[..., Project], e2e_env: dict[str, str]) -> Project:
    """A project in YAML, with the plugin on PATH as the wheel's console script is."""
    from tools.bootstrap import ensure

    folder = tmp_path / "bin"
    folder.mkdir()
    plugin = folder / "pulumi-resource-torchx"
    plugin.write_text(f'#!/bin/sh\nexec {sys.executable} -m torchx_pulumi_components.plugin "$@"\n')
    plugin.chmod(0o755)
    host = ensure(["pulumi-language-yaml"])["pulumi-language-yaml"]
    e2e_env["PATH"] = os.pathsep.join([str(folder), str(host), e2e_env["PATH"]])
    return make_project("yaml", runtime="yaml")


def write(project: Project, **changed: Any) -> None:
    fields = {"queue": "default", "replicas": 2, "rate": 0.1, "namespace": project.namespace, **changed}
    text = PROGRAM.format(selector=FAKE_NODE["node_selector"], tolerations=FAKE_NODE["tolerations"], **fields)
    (project.folder / "Pulumi.yaml").write_text(text)


def test_the_schema_passes_the_check_of_the_engine(pulumi_tools: dict[str, str]) -> None:
    schema = Path(__file__).resolve().parents[2] / "components" / "schema.json"
    words = ["pulumi", "schema", "check", str(schema)]
    done = subprocess.run(words, env={**os.environ, **pulumi_tools}, text=True, capture_output=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_a_yaml_program_launches_keeps_and_destroys_a_job(yaml_project: Project, look: KubernetesCluster) -> None:
    write(yaml_project)
    yaml_project.up()
    uid, name = yaml_project.output("uid"), yaml_project.output("job_name")
    job = look.get(VOLCANO_JOB, yaml_project.namespace, name)
    assert job is not None
    assert job["metadata"]["uid"] == uid
    assert len(yaml_project.output("same")) == 2
    assert yaml_project.output("memory_mb") == 1500
    env = job["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["env"]
    assert {"name": "LR", "value": "0.1"} in env
    assert {"name": "DEBUG", "value": "true"} in env
    assert {"name": "TOKEN", "value": "hunter22-hunter22"} in env
    assert "hunter22" not in yaml_project.run("stack", "export")
    for step in (yaml_project.refresh, yaml_project.up):
        assert changes(step()).keys() == {"unchanged"}
    write(yaml_project, rate=0.2)
    assert "changing roles[trainer].env[LR] would relaunch" in yaml_project.preview(fails=True)
    yaml_project.destroy()
    assert look.get(VOLCANO_JOB, yaml_project.namespace, name) is None


def test_a_mistake_in_a_yaml_program_is_one_message_without_traceback(yaml_project: Project) -> None:
    write(yaml_project, replicas=0, queue="'Bad Queue'")
    text = yaml_project.preview(fails=True)
    assert "roles[0].num_replicas" in text
    assert "queue:" in text
    assert ".py" not in text
