"""Which images a Dockerfile takes from outside."""

from __future__ import annotations

import pytest
from torchx_pulumi.images.dockerfile import DEFAULT, ExpansionError, expand, images_of
from torchx_pulumi.model.errors import ImageError

ARGS = {"IMAGE": "base:1", "WORKSPACE": "workspace"}


@pytest.mark.parametrize(
    ("text", "images"),
    [
        (DEFAULT, ["base:1"]),
        ("FROM scratch\nCOPY . /", []),
        ("FROM other:2", ["other:2"]),
        ("ARG IMAGE\nFROM ${IMAGE} AS one\nFROM one\nCOPY --from=tools:3 /x /x", ["base:1", "tools:3"]),
        ("ARG V=3\nFROM python:${V}-slim", ["python:3-slim"]),
        ("ARG V\nFROM python:${V:-3}", ["python:3"]),
        ("ARG IMAGE=other\nFROM $IMAGE", ["base:1"]),
        ("# FROM commented\nfrom \\\n  --platform=linux/amd64 \\\n  other:2", ["other:2"]),
        ("FROM a AS build\nFROM b\nCOPY --from=build x y\nCOPY --from=0 x y", ["a", "b"]),
        ("ARG\tIMAGE\nFROM\t$IMAGE\tAS one\nCOPY\t--from=tools:3\t/x /x", ["base:1", "tools:3"]),
        ("ARG V=3\nFROM\t \\ \n\tpython:$V", ["python:3"]),
    ],
)
def test_images_of(text: str, images: list[str]) -> None:
    assert images_of(text, ARGS, "Dockerfile.torchx") == images


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("COPY . .", "has no FROM"),
        ("ARG X\nFROM $X", "names no image"),
        ("# escape=`\nFROM a", "another escape character"),
    ],
)
def test_a_dockerfile_without_a_base_is_refused(text: str, said: str) -> None:
    with pytest.raises(ImageError, match=said):
        images_of(text, ARGS, "Dockerfile.torchx")


def test_a_number_after_from_is_an_image() -> None:
    assert images_of("FROM 0\nCOPY --from=0 a b\n", {}, "Dockerfile") == ["0"]


def test_expansions_that_are_nested_too_deeply_are_an_error() -> None:
    with pytest.raises(ExpansionError, match="nested too deeply"):
        expand("${A:-" * 5000 + "}" * 5000, {})
