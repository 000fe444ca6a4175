"""The stack's configuration: both ways to an app, all problems at once, nothing unknown."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pulumi
import pytest
from torchx_pulumi.model.errors import InvalidJobError
from torchx_pulumi.model.options import chosen_arguments
from torchx_pulumi_stacks.config import KEYS, StackConfig, read_config

# TorchX nightly prefers dist.torchrun, and says so.
pytestmark = pytest.mark.filterwarnings("ignore:.*dist.ddp is deprecated")

DDP = {"component": "dist.ddp", "arguments": ["-j", "2x2", "--script", "my-train.py", "--image", "img:1"]}
QUEUE = {"options": {"queue": "default"}}

APP = """
name: train
roles:
  - {name: trainer, image: "img:1", entrypoint: python, args: [train.py], num_replicas: 2}
"""


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    yield
    pulumi.runtime.set_all_config({}, [])


def read(tmp_path: Path, secrets: tuple[str, ...] = (), **values: Any) -> StackConfig:
    texts = {f"torchx:{key}": value if isinstance(value, str) else json.dumps(value) for key, value in values.items()}
    pulumi.runtime.set_all_config(texts, [f"torchx:{key}" for key in secrets])
    return read_config(pulumi.Config("torchx"), tmp_path)


def refusal(tmp_path: Path, **values: Any) -> str:
    with pytest.raises(InvalidJobError) as caught:
        read(tmp_path, **values)
    return str(caught.value)


def test_a_component_is_materialised_by_torchx_itself(tmp_path: Path) -> None:
    config = read(tmp_path, **DDP, **QUEUE)
    (role,) = config.app.roles
    assert (role.name, role.image, role.num_replicas) == ("my-train", "img:1", 2)
    assert config.options.queue == "default"


def test_a_component_of_the_users_own_file_is_found_from_the_projects_folder(tmp_path: Path) -> None:
    source = (
        "import torchx.specs as specs\n\n\n"
        "def hello(who: str) -> specs.AppDef:\n"
        '    """Greet.\n\n    Args:\n        who: whom\n    """\n'
        '    role = specs.Role(name="greeter", image="i", entrypoint="echo", args=[who])\n'
        '    return specs.AppDef(name="hello", roles=[role])\n'
    )
    (tmp_path / "mine.py").write_text(source)
    config = read(tmp_path, component="mine.py:hello", arguments=["--who", "you"], **QUEUE)
    assert config.app.roles[0].args == ["you"]


def test_an_app_file_is_read_from_the_projects_folder(tmp_path: Path) -> None:
    (tmp_path / "app.yaml").write_text(APP)
    config = read(tmp_path, appFile="app.yaml", **QUEUE)
    assert (config.app.name, config.app.roles[0].num_replicas) == ("train", 2)


def test_every_setting_is_taken(tmp_path: Path) -> None:
    config = read(
        tmp_path,
        secrets=("kubeconfig",),
        **DDP,
        name="nightly",
        options={"queue": "q", "namespace": "team", "gang": "pods"},
        createNamespace="true",
        jobName="fixed",
        onRunningChange="replace",
        rerun="2",
        waitFor="completed",
        timeout="60",
        deleteTimeout="30",
        kubeconfig="hush",
        kubeContext="lab",
    )
    assert (config.name, config.job_name, config.rerun, config.on_running_change) == (
        "nightly",
        "fixed",
        "2",
        "replace",
    )
    assert (config.wait_for, config.timeout_s) == ("completed", 60)
    assert (config.create_namespace, config.delete_timeout_s, config.kube_context) == (True, 30, "lab")
    assert isinstance(config.kubeconfig, pulumi.Output)
    assert "hush" not in repr(config)
    assert set(chosen_arguments(config.options)) == {"queue", "namespace", "gang"}


def test_all_problems_come_in_one_error(tmp_path: Path) -> None:
    said = refusal(
        tmp_path,
        component="dist.ddp",
        appFile="x.yaml",
        options={"quue": "default"},
        createNamespace="maybe",
        deleteTimeout="soon",
        onRunningChange="kill",
        scheduler="slurm",
        onRunningChnage="fail",
    )
    for part in (
        "torchx:component: both are set",
        "torchx:options.quue: is unknown",
        "torchx:options.queue: is not set",
        "torchx:createNamespace: is 'maybe', must be true or false",
        "torchx:deleteTimeout: is 'soon', must be a whole number",
        "torchx:onRunningChange: is 'kill', must be one of fail, replace, ignore",
        "torchx:scheduler: is 'slurm', must be one of volcano, mcad",
        "torchx:onRunningChnage: is unknown; did you mean 'onRunningChange'?",
    ):
        assert part in said
    assert "8 problems" in said


@pytest.mark.parametrize("name", ["namespace", "priorityClass"])
def test_a_key_that_is_an_option_is_led_to_the_options(tmp_path: Path, name: str) -> None:
    said = refusal(tmp_path, component="dist.ddp", **QUEUE, **{name: "x"})
    assert f"torchx:{name}: is not a key, but an option; write it in the stack's YAML, or `pulumi config set" in said
    assert f"--path 'options.{name}' VALUE`" in said


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import no_such_module_here\n", "No module named 'no_such_module_here'"),
        ("raise RuntimeError('no GPU on this machine')\n", "RuntimeError: no GPU on this machine"),
        ("import sys\nsys.exit(3)\n", "SystemExit: 3"),
        ("def hello(:\n", "invalid syntax"),
    ],
)
def test_a_component_file_that_cannot_be_imported_is_one_message(tmp_path: Path, code: str, said: str) -> None:
    (tmp_path / "mine.py").write_text(code)
    found = refusal(tmp_path, component="mine.py:hello", **QUEUE)
    assert "torchx:component: 'mine.py:hello'" in found
    assert said in found


def test_neither_component_nor_app_file_is_a_problem(tmp_path: Path) -> None:
    assert "neither is set; set either component" in refusal(tmp_path, **QUEUE)


@pytest.mark.parametrize(
    ("values", "part"),
    [
        ({"component": "dist.nope"}, "torchx:component: 'dist.nope'"),
        ({"component": "absent.py:f"}, "absent.py"),
        ({**DDP, "arguments": ["--frob", "1"]}, "torchx:arguments:"),
        ({**DDP, "arguments": ["--help"]}, "remove --help"),
        ({**DDP, "arguments": ["-j", "axb", "--script", "x.py"]}, "torchx:arguments: component dist.ddp raised"),
        ({**DDP, "arguments": "-j 2x2"}, "torchx:arguments: is text, must be a list"),
        ({**DDP, "arguments": [{"j": 2}]}, "has an item that is a mapping"),
        ({"appFile": "absent.yaml"}, "torchx:appFile"),
        ({**DDP, "options": "queue=default"}, "torchx:options: is text, must be a mapping"),
    ],
)
def test_each_mistake_has_its_own_message(tmp_path: Path, values: dict[str, Any], part: str) -> None:
    assert part in refusal(tmp_path, **{**QUEUE, **values})


def test_an_app_file_takes_no_arguments(tmp_path: Path) -> None:
    (tmp_path / "app.yaml").write_text(APP)
    assert "an appFile takes none" in refusal(tmp_path, appFile="app.yaml", arguments=["-j", "1"], **QUEUE)


def test_invalid_yaml_says_where(tmp_path: Path) -> None:
    (tmp_path / "app.yaml").write_text("name: [\nroles: 3")
    said = refusal(tmp_path, appFile="app.yaml", **QUEUE)
    assert "app.yaml" in said
    assert "line" in said


def test_numbers_in_arguments_become_text(tmp_path: Path) -> None:
    numbers = ["-j", "1x1", "--cpu", 1, "--memMB", 512, "--script", "x.py"]
    config = read(tmp_path, component="dist.ddp", arguments=numbers, **QUEUE)
    assert config.app.roles[0].resource.cpu == 1


def test_keys_are_camel_case_and_complete() -> None:
    assert {"component", "arguments", "appFile", "options", "createNamespace", "deleteTimeout", "kubeContext"} <= set(
        KEYS
    )
    assert all("_" not in key for key in KEYS)


def test_a_template_of_a_link_is_taken_or_refused(tmp_path: Path) -> None:
    assert read(tmp_path, **DDP, **QUEUE, uiUrl="https://ui.example/{name}").ui_url == "https://ui.example/{name}"
    assert "torchx:uiUrl: 'https://ui.example/{pod}' names {pod}" in refusal(
        tmp_path, **DDP, **QUEUE, uiUrl="https://ui.example/{pod}"
    )


def test_an_archive_of_logs_is_taken_or_refused(tmp_path: Path) -> None:
    assert read(tmp_path, **DDP, **QUEUE, logArchive="/mnt/logs").log_archive == "/mnt/logs"
    assert read(tmp_path, **DDP, **QUEUE).log_archive is None
    assert "torchx:logArchive: found 'logs', " in refusal(tmp_path, **DDP, **QUEUE, logArchive="logs")


@pytest.mark.parametrize("key", ["options", "arguments", "buildArgs"])
def test_a_blank_text_is_no_list_or_mapping(tmp_path: Path, key: str) -> None:
    (tmp_path / "app.yaml").write_text(APP)
    assert f"torchx:{key}: is text, must be a" in refusal(tmp_path, **{"appFile": "app.yaml", **QUEUE, key: " "})


@pytest.mark.parametrize("key", ["arguments", "buildArgs"])
def test_null_is_the_same_as_an_absent_list_or_mapping(tmp_path: Path, key: str) -> None:
    (tmp_path / "app.yaml").write_text(APP)
    assert read(tmp_path, **{"appFile": "app.yaml", **QUEUE, key: "null"}).app is not None
