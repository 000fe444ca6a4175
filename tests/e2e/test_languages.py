"""Programs in TypeScript and Go: what the examples deploy, and what their users see of types, refusals and secrets."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.model.status import JobState
from torchx_pulumi.schedulers.appwrapper.objects import APP_WRAPPER

from tests.doc_blocks import schema_examples
from tests.e2e.generated_sdks import ADD, ROOT, environment, type_errors
from tests.e2e.project import FAKE_NODE, Project, changes
from tests.e2e.stack_project import StackProject
from tests.e2e.test_examples import logs_of

pytestmark = pytest.mark.e2e

HOSTS = {"typescript": "nodejs", "go": "go"}
SOURCES = {"typescript": "index.ts", "go": "main.go"}
TOKEN = "correct-horse-battery"


OTHER_PLUGIN = """\
#!{python}
from typing import TypedDict

import pulumi
from pulumi.provider.experimental import component_provider_host


class GreetingArgs(TypedDict):
    name: pulumi.Input[str]


class Greeting(pulumi.ComponentResource):
    text: pulumi.Output[str]

    def __init__(self, name: str, args: GreetingArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("other:index:Greeting", name, {{}}, opts)
        self.text = pulumi.Output.concat("hello ", args["name"])
        self.register_outputs({{"text": self.text}})


component_provider_host([Greeting], "other")
"""


@pytest.fixture(params=["typescript", "go"])
def language(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def example(tmp_path: Path, e2e_env: dict[str, str], namespace: str, language: str) -> StackProject:
    from tools.bootstrap import pulumi_environment

    root, place = tmp_path / "root", f"examples/{language}"
    root.mkdir()
    env = {**e2e_env, **environment(language)}
    path = pulumi_environment(languages=("python", HOSTS[language]))["PATH"]
    env["PATH"] = os.pathsep.join([str(Path(sys.prefix) / "bin"), path, env["PATH"]])
    return StackProject(root, env, namespace, place=place, config_dir=place)


@pytest.mark.mcad
def test_an_example_runs_keeps_its_jobs_and_its_secret(
    example: StackProject, look: KubernetesCluster, cluster: Any, image: str, language: str
) -> None:
    ADD[language](example.folder)
    (example.folder / "src/evaluate.sh").write_text("sleep 600\n")
    example.run("config", "set", "image", image)
    example.run("config", "set", "repository", f"{cluster.registry}/{example.namespace}/{language}")
    example.run("config", "set", "namespace", example.namespace)
    example.run("config", "set", "--secret", "token", TOKEN)
    said = [example.up()]
    app_id = example.output("appId")
    name = app_id.partition(":")[2]
    assert logs_of(look, example, app_id) == [f"replica {index} of {name}, learning rate 0.1" for index in (0, 1)]
    assert example.output("replicas") == 2
    assert example.output("memoryMb") == 2 * 1100
    assert example.output("state") in {state.value for state in JobState}
    assert example.output("image").startswith(f"{cluster.registry}/{example.namespace}/{language}:")
    namespace, _, evaluation = example.output("evaluation").partition(":")
    assert look.get(APP_WRAPPER, namespace, evaluation) is not None
    said.append(example.up())
    assert changes(said[-1]).keys() == {"unchanged"}
    assert example.output("appId") == app_id
    example.run("config", "set", "learningRate", "0.2")
    said.append(example.preview(fails=True))
    assert "changing roles[evaluator].env[LEARNING_RATE] would relaunch" in said[-1]
    said.append(example.run("stack", "export"))
    assert not [text for text in said if TOKEN in text]


def test_the_examples_have_the_types_of_the_sdk(tmp_path: Path, language: str) -> None:
    """That of the language, and those that the schema has for each component."""
    program = tmp_path / "program"
    shutil.copytree(ROOT / "examples" / language, program)
    ADD[language](program)
    examples = schema_examples(language)
    assert len(examples) == 3
    for name, text in examples.items():
        (program / name).mkdir()
        (program / name / SOURCES[language]).write_text(text)
    if language == "typescript":
        settings = json.loads((program / "tsconfig.json").read_text())
        settings["files"] += [f"{name}/index.ts" for name in examples]
        (program / "tsconfig.json").write_text(json.dumps(settings))
    assert type_errors(program, language) == ""
    source = program / SOURCES[language]
    text = source.read_text()
    mistakes = {
        "typescript": [
            ("names.length", "names[0]", "Type 'Output<string>' is not assignable to type"),
            ("train.observed.state", "train.observed.stat", "Property 'stat' does not exist on type"),
            ("resourcesTotal.memoryMb", "resourcesTotal.memory_mb", "Property 'memory_mb' does not exist on type"),
        ],
        # Its compiler names the first mistake.
        "go": [("train.PodNames.ApplyT", "train.PodName.ApplyT", "train.PodName undefined")],
    }[language]
    for right, wrong, _ in mistakes:
        assert right in text
        text = text.replace(right, wrong)
    source.write_text(text)
    errors = type_errors(program, language)
    assert [said for _, _, said in mistakes if said not in errors] == []


@pytest.mark.extended
def test_a_program_has_components_of_another_plugin(tmp_path: Path, e2e_env: dict[str, str], namespace: str) -> None:
    from tools.bootstrap import pulumi_environment

    plugin = tmp_path / "bin/pulumi-resource-other"
    plugin.parent.mkdir()
    plugin.write_text(OTHER_PLUGIN.format(python=sys.executable))
    plugin.chmod(0o755)
    path = pulumi_environment(languages=("python", "yaml"))["PATH"]
    e2e_env["PATH"] = os.pathsep.join([str(plugin.parent), str(Path(sys.prefix) / "bin"), path])
    project = Project(tmp_path / "beside", e2e_env, namespace, runtime="yaml")
    role: dict[str, Any] = {"name": "trainer", "image": "app:1", "entrypoint": "sleep", "args": ["600"]}
    role |= {"nodeSelector": FAKE_NODE["node_selector"], "tolerations": FAKE_NODE["tolerations"]}
    job = {"queue": "default", "namespace": namespace, "roles": [role]}
    resources = {
        "train": {"type": "torchx:VolcanoTrainingJob", "properties": job},
        "greeting": {"type": "other:Greeting", "properties": {"name": "${train.jobName}"}},
        "second": {
            "type": "torchx:VolcanoTrainingJob",
            "properties": {**job, "annotations": {"greeting": "${greeting.text}"}},
        },
    }
    outputs = {"jobName": "${train.jobName}", "text": "${greeting.text}"}
    program = {"name": "beside", "runtime": "yaml", "resources": resources, "outputs": outputs}
    (project.folder / "Pulumi.yaml").write_text(json.dumps(program))
    project.up()
    assert project.output("text") == f"hello {project.output('jobName')}"
    assert changes(project.up()).keys() == {"unchanged"}
