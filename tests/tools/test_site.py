"""The sources of the site: links that lead on in it or to the forge, the order of the indexes, and help of commands."""

from __future__ import annotations

import re

import pytest
from torchx_pulumi.model.fleet_package import FLEET_COMMANDS

from tools.site import API, ROOT, command_help, read_indexes, reference_pages, to_site

PAGES = {"README.md": "index.md", "docs/images.md": "images.md", "docs/decisions/0001.md": "decisions/0001.md"}
FORGE = "https://forge.example.com/app"


@pytest.mark.parametrize(
    ("source", "link", "moved"),
    [
        ("README.md", "docs/images.md#builders", "images.md#builders"),
        ("README.md", "docs/images/fleet-page.png", "images/fleet-page.png"),
        ("docs/images.md", "../README.md#install", "index.md#install"),
        ("docs/images.md", "#builders", "#builders"),
        ("docs/decisions/0001.md", "../images.md", "../images.md"),
        ("docs/decisions/0001.md", "../../README.md", "../index.md"),
        ("docs/images.md", "https://example.com/a.md", "https://example.com/a.md"),
        ("docs/images.md", "../LICENSE", f"{FORGE}/blob/main/LICENSE"),
        ("docs/images.md", "../examples/yaml", f"{FORGE}/tree/main/examples/yaml"),
    ],
)
def test_a_link_leads_to_the_page_of_the_site_or_to_the_forge(source: str, link: str, moved: str) -> None:
    assert to_site(f"[a]({link}), [b]({link})", source, PAGES, FORGE) == f"[a]({moved}), [b]({moved})"


def test_code_stays_as_it_is_without_the_name_of_its_block() -> None:
    text = "```sh install\npip install a  # [a](../LICENSE)\n```\n```text\nb\n```\n[a](../LICENSE)"
    moved = to_site(text, "docs/images.md", PAGES, FORGE)
    assert moved == text.replace("sh install", "sh").replace(
        "```\n[a](../LICENSE)", f"```\n[a]({FORGE}/blob/main/LICENSE)"
    )


def test_the_navigation_is_that_of_the_indexes() -> None:
    navigation, pages = read_indexes()
    assert re.findall(r"^- ([A-Z]\w+)$", navigation, re.MULTILINE) == ["Run", "Look", "Adopt", "Operate", "Extend"]
    assert navigation.startswith("- [Start](index.md)\n")
    listed = re.findall(r"\]\((.+)\)", navigation)
    assert sorted(listed) == sorted({*pages.values()} - {"contents.md", "changelog.md"})
    assert "        - [0001 Layout and packaging](decisions/0001-layout-and-packaging.md)\n" in navigation
    assert all((ROOT / source).is_file() for source in pages)


def test_each_command_has_its_help() -> None:
    text = "".join(command_help(()))
    for name in ("torchx-pulumi", "torchx-pulumi render", "torchx-pulumi image push"):
        assert f"## {name}\n\n```text\nusage: {name} [-h]" in text
    for name in FLEET_COMMANDS:
        needs = "Of the package `torchx-pulumi-fleet`: `pip install 'torchx-pulumi[fleet]'`."
        assert f"## torchx-pulumi {name}\n\n{needs}\n\n```text\nusage: torchx-pulumi {name} [-h]" in text
    assert text.count("## ") == text.count("usage: ")


def test_the_python_api_of_both_packages_has_a_page_and_is_found() -> None:
    pages = dict(reference_pages())
    assert "::: torchx_pulumi\n" in pages["reference/torchx_pulumi.md"]
    assert "::: torchx_pulumi_fleet\n" in pages["reference/torchx_pulumi_fleet.md"]
    (places,) = re.findall(r"paths: \[(.+)\]", (ROOT / "mkdocs.yml").read_text())
    for module in API:
        assert any((ROOT / place / module.partition(".")[0]).is_dir() for place in places.split(", ")), module


def test_outputs_are_always_there_and_inputs_are_required() -> None:
    outputs = dict(reference_pages())["reference/outputs.md"]
    components = dict(reference_pages())["reference/components.md"]
    assert "Required." not in outputs
    assert "| `schema_version` | integer | Always there. " in outputs
    assert "| `queue` | string | Required. " in components
    assert "| `jobName` | string | Always there. " in components


def test_the_site_names_the_repository_of_the_package() -> None:
    (address,) = re.findall(r'^Repository = "(\S+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    settings = (ROOT / "mkdocs.yml").read_text()
    assert f"\n      link: {address}\n" in settings
    assert "\nrepo_url:" not in settings  # the theme would ask another server
