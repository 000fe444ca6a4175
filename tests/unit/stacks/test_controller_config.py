"""The key `controller` of the platform program: what it may say, and all that is wrong with it at once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pulumi
import pytest
import yaml
from torchx_pulumi.model.errors import InvalidJobError
from torchx_pulumi_stacks.controller_config import ControllerConfig
from torchx_pulumi_stacks.platform import read_config

from tests.doc_blocks import block, commands

LEAST = {"backends": ["s3://state"], "image": "registry.example.com/controller:1"}


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    yield
    pulumi.runtime.set_all_config({}, [])


def read(controller: Any) -> ControllerConfig | None:
    text = controller if isinstance(controller, str) else json.dumps(controller)
    pulumi.runtime.set_all_config({"torchx-platform:controller": text}, ["torchx-platform:controller"])
    return read_config(pulumi.Config("torchx-platform")).controller


def refused(controller: Any) -> str:
    with pytest.raises(InvalidJobError) as caught:
        read(controller)
    return str(caught.value)


def test_the_least_is_a_backend_and_an_image() -> None:
    assert read(LEAST) == ControllerConfig(backends=["s3://state"], image="registry.example.com/controller:1")


@pytest.mark.parametrize("text", ["", "null"])
def test_a_key_without_a_value(text: str) -> None:
    if text == "null":
        assert read(text) is None
    else:
        assert "controller: must be a mapping; known keys are allowedHosts," in refused(text)


def test_everything_can_be_asked_for() -> None:
    config = read(
        {
            "name": "watcher",
            "baseImage": "python:3.12-slim",
            "imageRepo": "registry.example.com/controller",
            "pythonVersion": "3.12",
            "platform": "linux/arm64",
            "imagePullSecret": "registry",
            "replicas": 3.0,
            "backends": ["s3://state", "file:///mnt/state/of%20team"],
            "backendCredentials": {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "hush-hush"},
            "volumeClaim": "state",
            "volumePath": "/mnt/state",
            "fsGroup": 1000,
            "namespaces": ["team-a", "team-b"],
            "programStacks": True,
            "logArchive": "/mnt/state/logs",
            "archiveAllow": ["/mnt/state/team", "s3://team"],
            "archiveSecretPods": "true",
            "forgetAfter": "30d",
            "forgetFailedAfter": "90d",
            "tokenSecret": "page-token",
            "port": 9000,
            "allowedHosts": ["jobs.example.com"],
            "resources": {"limits": {"memory": "1Gi"}},
            "nodeSelector": {"kubernetes.io/arch": "arm64"},
            "tolerations": [{"key": "control", "operator": "Exists"}],
            "priorityClassName": "high",
            "serviceAccountAnnotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/r"},
        }
    )
    assert config is not None
    assert (config.replicas, config.program_stacks, config.archive_secret_pods) == (3, True, True)
    assert config.tolerations == [{"key": "control", "operator": "Exists"}]
    assert "hush-hush" not in repr(config)


def test_all_problems_come_in_one_error() -> None:
    text = refused(
        {
            "name": "Watcher",
            "image": "a:1",
            "imageRepo": "b",
            "backends": ["https://api.pulumi.com", "file:///home/me/state", 5],
            "backendSecret": "x",
            "backendCredentials": {"1KEY": "hush-hush", "OTHER": 4711},
            "archiveAllow": ["logs", "/elsewhere/logs"],
            "archiveSecretPods": True,
            "namespaces": ["Team_A"],
            "allowedHosts": ["https://jobs.example.com"],
            "replicas": 0,
            "port": 80,
            "tokenSecret": "_",
            "volumePath": "state",
            "replica": 1,
            "nodeSelector": ["x"],
            "programStacks": "yes",
        }
    )
    for part in (
        "controller.name: is 'Watcher', must be a DNS label",
        "controller.imageRepo: is for an image that is built from baseImage",
        "controller.backends[0]: is 'https://api.pulumi.com', must begin with file://, s3://, gs://, azblob://",
        "controller.backends[1]: is 'file:///home/me/state', a folder that no pod has; set volumeClaim",
        "controller.backends[2]: ",
        "controller.backendSecret: and backendCredentials are both set",
        "controller.backendCredentials.1KEY: must be the name of an environment variable",
        "controller.backendCredentials['OTHER']: ",
        "controller.archiveAllow[0]: found 'logs', allowed is an absolute path",
        "controller.archiveAllow[1]: is '/elsewhere/logs', a folder that no pod has; set volumeClaim",
        "controller.archiveSecretPods: is true, but logArchive is not set",
        "controller.namespaces[0]: is 'Team_A', must be a DNS label",
        "controller.allowedHosts[0]: is 'https://jobs.example.com', must be a host name without scheme and port",
        "controller.replicas: is 0, must be at least 1",
        "controller.port: is 80, must be 1024 to 65535",
        "controller.tokenSecret: is '_', must be a DNS name",
        "controller.volumePath: is 'state', must be an absolute path",
        "controller.replica: is unknown; did you mean 'replicas'?",
        "controller.nodeSelector: is of type list, must be a mapping",
        "controller.programStacks: ",
    ):
        assert part in text, text
    assert "hush-hush" not in text
    assert "4711" not in text


def test_an_image_is_named_or_built_and_not_both() -> None:
    assert "controller.image: is not set; set either image" in refused({"backends": ["s3://state"]})
    text = refused({**LEAST, "baseImage": "python:3.12-slim"})
    assert "controller.image: and baseImage are both set" in text
    text = refused({"backends": ["s3://state"], "baseImage": "python:3.12-slim", "imageRepo": "a:1"})
    assert "controller.imageRepo: " in text
    assert "controller.pythonVersion: is not set, must be the Python of baseImage in quotes" in text
    for version, part in (("3.9", "is '3.9'"), ("3.09", "must be '3.10' or newer"), (3.1, "must be text")):
        built = {"baseImage": "python:3.12-slim", "imageRepo": "a", "pythonVersion": version}
        assert part in refused({"backends": ["s3://state"], **built})


@pytest.mark.parametrize(
    ("url", "part"),
    [
        ("file:///srv/other", "is 'file:///srv/other', must be in /state, where the volume 'claim' is mounted"),
        ("file:///state/../etc", "must be in /state"),
        ("file://state", "must be in /state"),
        ("file:///statement", "must be in /state"),
    ],
)
def test_a_folder_must_be_in_the_volume(url: str, part: str) -> None:
    assert f"controller.backends[0]: is {url!r}" in refused({**LEAST, "backends": [url], "volumeClaim": "claim"})
    assert part in refused({**LEAST, "backends": [url], "volumeClaim": "claim"})


def test_folders_in_the_volume_and_archives_in_it_are_taken() -> None:
    more = {"backends": ["file:///state", "file:///state/b?no_tmp_dir=true"], "logArchive": "file:///state/logs"}
    assert read({**LEAST, **more, "volumeClaim": "claim"}) is not None
    text = refused({**LEAST, "logArchive": "/srv/logs"})
    assert "controller.logArchive: is '/srv/logs', a folder that no pod has; set volumeClaim" in text


def test_ages_are_those_of_the_command() -> None:
    text = refused({**LEAST, "forgetAfter": "30", "forgetFailedAfter": "1h"})
    assert "controller.forgetAfter: found '30', allowed is a number with h, d or w" in text
    assert "controller.forgetFailedAfter: " in refused({**LEAST, "forgetAfter": "30d", "forgetFailedAfter": "1d"})
    assert "controller.forgetFailedAfter: " in refused({**LEAST, "forgetFailedAfter": "1d"})

    assert "less than forgetAfter 30d" in refused({**LEAST, "forgetAfter": "30d", "forgetFailedAfter": "1d"})


@pytest.mark.parametrize("path", ["/tmp", "/tmp/", "/usr", "/opt", "/run/secrets/torchx-pulumi", "/var", "/etc/state"])
def test_a_volume_does_not_hide_what_the_container_needs(path: str) -> None:
    backends = [f"file://{path.rstrip('/')}/state"]
    text = refused({**LEAST, "backends": backends, "volumeClaim": "claim", "volumePath": path})
    assert f"controller.volumePath: is {path!r}, which hides /" in text
    assert read({**LEAST, "volumeClaim": "claim", "volumePath": "/opt/state"}) is not None


def test_what_the_api_server_would_refuse_later_is_refused_at_once() -> None:
    text = refused({**LEAST, "image": "a b", "resources": {"request": {"cpu": 1}}, "tolerations": [{"effects": "x"}]})
    assert "controller.image: image 'a b'" in text
    assert "controller.resources.request: is unknown; known are limits, requests, claims" in text
    assert "controller.tolerations[0].effects: is unknown; known are key, operator," in text
    built = {"imageRepo": "a", "pythonVersion": "3.12", "platform": "linux", "baseImage": "B"}
    text = refused({"backends": ["s3://state"], **built})
    assert "controller.platform: is 'linux', must be linux/ and an architecture, for example linux/arm64" in text
    assert "controller.baseImage: image 'B'" in text


def test_credentials_in_the_url_of_a_backend_are_refused_and_not_repeated() -> None:
    text = refused({**LEAST, "backends": ["s3://state?endpoint=http://me:hush-hush@store:9000"]})
    assert "which has credentials, and pods show their arguments; use backendCredentials" in text
    assert "hush-hush" not in text


def test_the_documented_configuration_is_valid() -> None:
    documented = yaml.safe_load(block("docs/controller-deployment.md", "deployment"))["config"]
    controller = dict(documented["torchx-platform:controller"])
    for line in commands("docs/controller-deployment.md", "deploy"):
        if "--secret" in line.split() and "--path" in line.split():
            name, value = line.split()[-2:]
            controller.setdefault("backendCredentials", {})[name.removeprefix("controller.backendCredentials.")] = value
    config = read(controller)
    assert config is not None
    assert {*config.backend_credentials} == {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}
