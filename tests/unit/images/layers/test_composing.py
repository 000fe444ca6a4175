"""The configuration, the history and the manifest of a composed image, and the limits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.images.dockerfile import DEFAULT
from torchx_pulumi.images.layers import UnsupportedError
from torchx_pulumi.images.layers.composing import MOST_LAYERS
from torchx_pulumi.images.oci import (
    DOCKER_CONFIG,
    DOCKER_LAYER,
    DOCKER_MANIFEST,
    OCI_CONFIG,
    OCI_LAYER,
    OCI_MANIFEST,
)
from torchx_pulumi.images.planning import plan_patch
from torchx_pulumi.model.errors import ImageError

from tests.unit.images.layers.images import BASE_LAYER, build, config_of, layers_of, make_base

PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@pytest.mark.parametrize(
    ("steps", "key", "value"),
    [
        ("ENV a=b 'c d'=e", "Env", ["PATH=/bin", "MODE=base", "a=b", "c d=e"]),
        ("ENV MODE new  value", "Env", ["PATH=/bin", "MODE=new  value"]),
        ("ENV a=$MODE b=$a", "Env", ["PATH=/bin", "MODE=base", "a=base", "b="]),
        ("ENV a='$MODE' b=\"$MODE\" c=\\$MODE", "Env", ["PATH=/bin", "MODE=base", "a=$MODE", "b=base", "c=$MODE"]),
        ('ENV a="${X:-y z}" b=${MODE:+w} c=${MODE}d', "Env", ["PATH=/bin", "MODE=base", "a=y z", "b=w", "c=based"]),
        ("ARG GIVEN=no\nENV a=$GIVEN", "Env", ["PATH=/bin", "MODE=base", "a=yes"]),
        ("ARG OTHER=no\nENV a=$OTHER", "Env", ["PATH=/bin", "MODE=base", "a=no"]),
        ("ENV a=$GIVEN", "Env", ["PATH=/bin", "MODE=base", "a="]),
        ("ARG EARLY\nENV a=$EARLY", "Env", ["PATH=/bin", "MODE=base", "a=early"]),
        ("ENV a=$EARLY", "Env", ["PATH=/bin", "MODE=base", "a="]),
        ("ARG MODE=arg\nENV a=$MODE", "Env", ["PATH=/bin", "MODE=base", "a=base"]),
        ("ENV a=$http_proxy", "Env", ["PATH=/bin", "MODE=base", "a=proxy"]),
        ("WORKDIR /new//a", "WorkingDir", "/new//a"),
        ("WORKDIR sub/../b", "WorkingDir", "/base/b"),
        ("WORKDIR $MODE", "WorkingDir", "/base/base"),
        ('WORKDIR "a b"', "WorkingDir", "/base/a b"),
        ("USER $MODE:7", "User", "base:7"),
        ("LABEL a=b of=this", "Labels", {"a": "b", "of": "this", "mine": "x"}),
        ("LABEL a b c", "Labels", {"a": "b c", "of": "base", "mine": "x"}),
        ("EXPOSE 80 443/UDP 1-2", "ExposedPorts", {"80/tcp": {}, "443/udp": {}, "1/tcp": {}, "2/tcp": {}}),
        ("ENV p='80 90'\nEXPOSE $p", "ExposedPorts", {"80/tcp": {}, "90/tcp": {}}),
        ('CMD ["a", "$MODE"]', "Cmd", ["a", "$MODE"]),
        ("CMD a  $MODE", "Cmd", ["/bin/sh", "-c", "a  $MODE"]),
        ('CMD ["a"', "Cmd", ["/bin/sh", "-c", '["a"']),
        ("CMD []", "Cmd", []),
        ("ENTRYPOINT a", "Entrypoint", ["/bin/sh", "-c", "a"]),
        ("ENTRYPOINT a", "Cmd", None),
        ("CMD a\nENTRYPOINT b", "Cmd", ["/bin/sh", "-c", "a"]),
        ("ENTRYPOINT []", "Entrypoint", None),
        ("ENV \\\n # no\n\n a=b", "Env", ["PATH=/bin", "MODE=base", "a=b"]),
    ],
)
def test_the_configuration(workspace: Path, steps: str, key: str, value: Any) -> None:
    arguments = {"GIVEN": "yes", "http_proxy": "proxy"}
    text = f"ARG EARLY=early\nFROM base\n{steps}"
    image = build(workspace, text, make_base(), arguments, labels={"mine": "x"})
    assert config_of(image)["config"].get(key) == value


def test_the_shell_of_the_base_runs_commands(workspace: Path) -> None:
    image = build(workspace, "FROM base\nCMD a", make_base({"Shell": ["bash", "-c"]}))
    assert config_of(image)["config"]["Cmd"] == ["bash", "-c", "a"]


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ("ENV a=${b%c}", "ENV is not valid: `${b%...}` is not one of"),
        ("ENV a='b", "ENV is not valid: a quote `'` is not closed"),
        ("ENV a=b c", "ENV has a word without `=`"),
        ("ENV a", "ENV has a name without a value"),
        ("EXPOSE x", "EXPOSE has the port 'x'"),
        ("EXPOSE 70000", "EXPOSE has the port '70000'"),
        ("CMD [1]", "CMD has a JSON list with something other than strings"),
        ("WORKDIR $none", "WORKDIR has an empty path"),
        ("COPY a", "COPY needs a source and a destination"),
    ],
)
def test_what_the_daemon_refuses_or_reads_differently_is_left_to_it(workspace: Path, step: str, said: str) -> None:
    with pytest.raises(UnsupportedError) as refused:
        build(workspace, f"FROM base\n{step}", make_base())
    assert refused.value.reasons[0].startswith(f"Dockerfile line 2: {said}")


def test_history_and_layers_of_the_base_are_kept(workspace: Path) -> None:
    text = "ARG A\nFROM base\nARG TOKEN\nCOPY . .\nENV KEY=$TOKEN\nCOPY train.py /opt/"
    image = build(workspace, text, make_base(layers=3), {"TOKEN": "secret"})
    config = config_of(image)
    assert config["history"][3:] == [
        {"created": "2024-01-02T03:04:05Z", "created_by": "ARG TOKEN", "empty_layer": True},
        {"created": "2024-01-02T03:04:05Z", "created_by": "COPY . ."},
        {"created": "2024-01-02T03:04:05Z", "created_by": "ENV KEY=$TOKEN", "empty_layer": True},
        {"created": "2024-01-02T03:04:05Z", "created_by": "COPY train.py /opt/"},
    ]
    assert len(config["rootfs"]["diff_ids"]) == 5
    assert sum(not each.get("empty_layer") for each in config["history"]) == 5
    assert "container_config" not in config
    manifest = json.loads(image.manifest.content)
    assert [each["digest"] for each in manifest["layers"]][:3] == [BASE_LAYER] * 3
    assert [each.digest for each in image.base_layers] == [BASE_LAYER] * 3
    assert [each["digest"] for each in manifest["layers"]][3:] == [each.digest for each in image.new_blobs[:-1]]
    assert [each["size"] for each in manifest["layers"]][3:] == [each.size for each in image.new_blobs[:-1]]
    assert manifest["config"]["digest"] == image.new_blobs[-1].digest


@pytest.mark.parametrize(
    "media_types", [(OCI_MANIFEST, OCI_CONFIG, OCI_LAYER), (DOCKER_MANIFEST, DOCKER_CONFIG, DOCKER_LAYER)]
)
def test_media_types_are_those_of_the_base(workspace: Path, media_types: tuple[str, str, str]) -> None:
    image = build(workspace, "FROM base\nCOPY . .", make_base(media_types=media_types))
    manifest = json.loads(image.manifest.content)
    assert image.manifest.media_type == manifest["mediaType"] == media_types[0]
    assert manifest["config"]["mediaType"] == media_types[1]
    assert [each["mediaType"] for each in manifest["layers"]] == [media_types[2]] * 2


def test_an_image_without_a_base(workspace: Path) -> None:
    image = build(workspace, "FROM scratch\nCOPY . .", platform="linux/arm/v6")
    config = config_of(image)
    assert {key: config[key] for key in ("os", "architecture", "variant", "created")} == {
        "os": "linux",
        "architecture": "arm",
        "variant": "v6",
        "created": "1970-01-01T00:00:00Z",
    }
    assert config["config"] == {"Env": [PATH]}
    assert image.base is None
    assert image.manifest.media_type == OCI_MANIFEST


def test_equal_layers_are_pushed_once(workspace: Path) -> None:
    image = build(workspace, "FROM base\nCOPY . .\nCOPY . .", make_base())
    assert len(json.loads(image.manifest.content)["layers"]) == 3
    assert len(image.new_blobs) == 2


def test_the_most_layers(workspace: Path) -> None:
    build(workspace, DEFAULT, make_base(layers=MOST_LAYERS - 1))
    with pytest.raises(ImageError, match=f"would have 128 layers, 127 of them the base's; at most {MOST_LAYERS}"):
        build(workspace, DEFAULT, make_base(layers=MOST_LAYERS))


@pytest.mark.parametrize(
    ("rules", "files"),
    [
        ("", [".dockerignore", "Dockerfile.torchx", "train.py"]),
        ("*", []),
        ("Dockerfile*", [".dockerignore", "train.py"]),
        (".dockerignore", ["Dockerfile.torchx", "train.py"]),
    ],
)
def test_a_generated_dockerfile_is_part_of_the_image_unless_it_is_excluded(
    workspace: Path, rules: str, files: list[str]
) -> None:
    (workspace / ".dockerignore").write_text(rules)
    pinned = f"registry.example.com/base@sha256:{'a' * 64}"
    plan = plan_patch(pinned, str(workspace), None, builder="docker")
    assert [each.path for each in plan.entries] == files
    (layer,) = layers_of(build(workspace, "FROM base\nCOPY . ./", make_base(), entries=plan.entries))
    assert [each.name for each in layer] == [f"base/{name}" for name in files]
