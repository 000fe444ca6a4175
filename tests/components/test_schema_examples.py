"""The examples of the schema in Python and YAML, and the pages of the Pulumi registry.

`make e2e` compiles the examples in TypeScript and Go.
"""

from __future__ import annotations

import re
import shlex
from functools import reduce
from importlib.metadata import metadata
from operator import getitem
from pathlib import Path
from typing import Any

import pulumi
import pytest
import yaml
from packaging.requirements import Requirement
from torchx_pulumi.kube.kubeconfig import locations
from torchx_pulumi_components import cluster_access
from torchx_pulumi_components.plugin import schema

from tests.components.test_patched_image import images as images
from tests.doc_blocks import ROOT, commands, schema_examples

IMAGE = "ghcr.io/acme/trainer:1.4"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("print('one')\n")
    monkeypatch.chdir(tmp_path)


def run_yaml(plugin: Any, text: str) -> None:
    """Construct what a YAML program has through the plugin, as the YAML host does it."""
    made: dict[str, Any] = {}
    program = yaml.safe_load(text)

    def evaluated(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: evaluated(item) for key, item in value.items()}
        if isinstance(value, list):
            return [evaluated(item) for item in value]
        if isinstance(value, str) and (found := re.fullmatch(r"\$\{(\w+)\.(\w+)((?:\.\w+)*)\}", value)):
            return reduce(getitem, found[3].split(".")[1:], made[found[1]][found[2]])
        return value.replace("$${", "${") if isinstance(value, str) else value

    for key, resource in program["resources"].items():
        properties = evaluated(resource["properties"])
        token = resource["type"].replace(":", ":index:")
        made[key] = plugin.construct(resource.get("name", key), token, properties).state
    evaluated(program["outputs"])


@pytest.mark.parametrize("component", ["VolcanoTrainingJob", "MCADTrainingJob", "PatchedImage"])
def test_python_and_yaml_make_the_same_job(engine: Any, plugin: Any, images: Any, component: str) -> None:
    texts = {language: schema_examples(language)[component] for language in ("python", "yaml", "typescript", "go")}
    assert all(f"{component}(" in texts[language] for language in ("python", "typescript", "go"))
    # Of a pinned image no registry is asked.
    texts = {language: text.replace(IMAGE, f"{IMAGE}@sha256:{'1' * 64}") for language, text in texts.items()}
    made = []
    for program in (lambda: exec(texts["python"], {}), lambda: run_yaml(plugin, texts["yaml"])):
        engine.run(program)
        assert component in {item.typ.rpartition(":")[2] for item in engine.mocks.resources}
        made.append([item.inputs for item in engine.mocks.resources if item.typ.startswith("kubernetes:")])
    assert made[0] == made[1] != []


def test_links_of_the_registry_pages_name_files_of_the_repository() -> None:
    repository = schema()["repository"]
    for name in ("_index.md", "installation-configuration.md"):
        text = (ROOT / "docs" / name).read_text()
        found = re.findall(rf"{repository}/(?:blob|tree)/main/([^)\s]+)", text)
        assert found
        assert [path for path in found if not (ROOT / path).exists()] == []
        # The registry has no other pages of ours.
        assert re.findall(r"\]\((?!https://)", text) == []


def test_the_installation_page_adds_this_package() -> None:
    (added,) = commands("docs/installation-configuration.md", "package-add")
    assert added == f"pulumi package add {schema()['pluginDownloadURL'].removeprefix('git://')}"
    (installed,) = commands("docs/installation-configuration.md", "python-package")
    package = Requirement(shlex.split(installed)[-1])
    found = metadata(package.name)
    assert package.extras <= set(found.get_all("Provides-Extra", []))


def test_the_configuration_of_the_installation_page_names_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    words = [shlex.split(line) for line in commands("docs/installation-configuration.md", "configuration")]
    asked: list[Any] = []
    monkeypatch.setattr(cluster_access.KubernetesCluster, "connect", lambda *access: asked.append(access))
    monkeypatch.setattr(cluster_access.pulumi_runtime, "is_mocked", lambda: False)
    pulumi.runtime.set_all_config({key: value for *_, key, value in words}, [])
    try:
        cluster_access.connect(None, None, {}, own_provider=False)
    finally:
        pulumi.runtime.set_all_config({}, [])
    assert asked == [("$(cat team-cluster.yaml)", "team-cluster")]
    (environment,) = commands("docs/installation-configuration.md", "environment")
    name, _, path = environment.removeprefix("export ").partition("=")
    monkeypatch.setenv(name, path)
    assert locations(None) == [Path(path)]
