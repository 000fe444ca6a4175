"""The examples of the schema: the same job in Python and YAML. Those in TypeScript and Go are compiled by `make e2e`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from torchx_pulumi_components.plugin import provider

from tests.components.test_patched_image import images as images
from tests.doc_blocks import schema_examples

IMAGE = "ghcr.io/acme/trainer:1.4"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("print('one')\n")
    monkeypatch.chdir(tmp_path)


def run_yaml(text: str) -> None:
    """Construct what a YAML program has through the plugin, as the YAML host does it."""
    made: dict[str, Any] = {}
    program = yaml.safe_load(text)

    def evaluated(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: evaluated(item) for key, item in value.items()}
        if isinstance(value, list):
            return [evaluated(item) for item in value]
        if isinstance(value, str) and (found := re.fullmatch(r"\$\{(\w+)\.(\w+)\}", value)):
            return made[found[1]][found[2]]
        return value.replace("$${", "${") if isinstance(value, str) else value

    for key, resource in program["resources"].items():
        properties = evaluated(resource["properties"])
        token = resource["type"].replace(":", ":index:")
        made[key] = provider().construct(resource.get("name", key), token, properties).state
    evaluated(program["outputs"])


@pytest.mark.parametrize("component", ["VolcanoTrainingJob", "MCADTrainingJob", "PatchedImage"])
def test_python_and_yaml_make_the_same_job(engine: Any, images: Any, component: str) -> None:
    texts = {language: schema_examples(language)[component] for language in ("python", "yaml", "typescript", "go")}
    assert all(f"{component}(" in texts[language] for language in ("python", "typescript", "go"))
    # Of a pinned image no registry is asked.
    texts = {language: text.replace(IMAGE, f"{IMAGE}@sha256:{'1' * 64}") for language, text in texts.items()}
    made = []
    for program in (lambda: exec(texts["python"], {}), lambda: run_yaml(texts["yaml"])):
        engine.run(program)
        assert component in {item.typ.rpartition(":")[2] for item in engine.mocks.resources}
        made.append([item.inputs for item in engine.mocks.resources if item.typ.startswith("kubernetes:")])
    assert made[0] == made[1] != []
