"""Write the sources of the documentation site into build/site-src: `python -m tools.site`. `make docs` builds the site.

README.md is the first page. The index docs/README.md, and those of the folders that it names, say which other pages
there are, and their order. The reference is what the code knows: Python API, command line, outputs, components.
"""

from __future__ import annotations

import io
import json
import os
import posixpath
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from torchx_pulumi.cli.main import main as run_command
from torchx_pulumi.model.fleet_package import FLEET, FLEET_COMMANDS, INSTALL_FLEET
from torchx_pulumi.outputs.reader import read_schema

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "build" / "site-src"

API = {
    "torchx_pulumi": "Python: render, images, errors",
    "torchx_pulumi_components": "Python: components for Pulumi programs",
    "torchx_pulumi.outputs.reader": "Python: reading stack outputs",
    "torchx_pulumi.testing": "Python: unit tests of programs",
    "torchx_pulumi_fleet": "Python: all apps (torchx-pulumi-fleet)",
}
"""Packages and modules for users, and what the site calls them."""

ALWAYS = "Always there. "
"""What is said about a required output."""

_LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^)#\s]+)")
_FENCED = re.compile(r"^(```.*?^```)$", re.MULTILINE | re.DOTALL)
_ROW = re.compile(r"^\| \[(.+?)\]\((.+?\.md)\)", re.MULTILINE)
_COMMAND = re.compile(r"^    ([a-z][\w-]*)(?: |$)", re.MULTILINE)


def main() -> None:
    """Write the sources again."""
    shutil.rmtree(SOURCES, ignore_errors=True)
    shutil.copytree(ROOT / "docs" / "images", SOURCES / "images")
    shutil.copy(ROOT / "docs" / "site.css", SOURCES)
    navigation, pages = read_indexes()
    forge = _found(r"^ +link: (\S+)", (ROOT / "mkdocs.yml").read_text())
    texts = {target: to_site((ROOT / source).read_text(), source, pages, forge) for source, target in pages.items()}
    reference = dict(reference_pages())
    navigation += "- Reference\n" + _entries((target, _title(text)) for target, text in reference.items())
    navigation += "- [Changelog](changelog.md)\n"
    for target, text in {**texts, **reference, ".navigation.md": navigation}.items():
        (SOURCES / target).parent.mkdir(exist_ok=True)
        (SOURCES / target).write_text(text)


def read_indexes() -> tuple[str, dict[str, str]]:
    """Return the navigation as a list in Markdown, and the pages: path in the repository -> path in the site.

    Sections and titles are those of the tables of docs/README.md. A folder has the pages that its own index names.
    """
    navigation = "- [Start](index.md)\n"
    pages = {"README.md": "index.md", "docs/README.md": "contents.md", "CHANGELOG.md": "changelog.md"}
    for part in re.split(r"^## ", (ROOT / "docs" / "README.md").read_text(), flags=re.MULTILINE)[1:]:
        section, _, table = part.partition("\n")
        navigation += f"- {section}\n"
        for title, page in _ROW.findall(table):
            folder, name = posixpath.split(page)
            target = page if name != "README.md" else f"{folder}/index.md"
            pages[f"docs/{page}"] = target
            navigation += _entries([(target, title)])
            if target != page:
                index = ROOT / "docs" / page
                inner = [name for _, name in _ROW.findall(index.read_text())]
                pages |= {f"docs/{folder}/{each}": f"{folder}/{each}" for each in inner}
                navigation += _entries(
                    ((f"{folder}/{each}", _title((index.parent / each).read_text())) for each in inner), 8
                )
    return navigation, pages


def to_site(text: str, source: str, pages: Mapping[str, str], forge: str) -> str:
    """Return the text of a page as the site has it: with its own links, and fences without the names of their blocks.

    Args:
        text: As the repository has it.
        source: Path of the page in the repository.
        pages: Pages of the site, see `read_indexes`. A link to another file goes to the forge.
        forge: Address of the repository.
    """

    def move(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link[1]))
        if target in pages or target.startswith("docs/images/"):
            place = pages.get(target, target.removeprefix("docs/"))
            return posixpath.relpath(place, posixpath.dirname(pages[source]) or ".")
        return f"{forge}/{'tree' if (ROOT / target).is_dir() else 'blob'}/main/{target}"

    text = re.sub(r"^```(\w+) .*", r"```\1", text, flags=re.MULTILINE)
    return _in_prose(text, lambda prose: _LINK.sub(move, prose))


def _in_prose(text: str, change: Callable[[str], str]) -> str:
    """Return a text with its parts outside code blocks changed."""
    parts = _FENCED.split(text)
    return "".join(part if part.startswith("```") else change(part) for part in parts)


def reference_pages() -> Iterator[tuple[str, str]]:
    """Yield path and text of the pages that are made from code."""
    for module, title in API.items():
        yield f"reference/{module.replace('.', '-')}.md", f"# {title}\n\n`import {module}`\n\n::: {module}\n"
    yield "reference/command-line.md", "# Command line\n\n" + "".join(command_help(()))
    yield "reference/outputs.md", _outputs(read_schema())
    yield "reference/components.md", _components(json.loads((ROOT / "components" / "schema.json").read_text()))


def command_help(words: tuple[str, ...]) -> Iterator[str]:
    """Yield the help of a command and of those below it, as sections."""
    os.environ["COLUMNS"] = "100"
    with redirect_stdout(io.StringIO()) as printed:
        run_command([*words, "--help"])
    needs = f"Of the package `{FLEET}`: `{INSTALL_FLEET}`.\n\n" if words[:1] and words[0] in FLEET_COMMANDS else ""
    yield f"## {' '.join(('torchx-pulumi', *words))}\n\n{needs}```text\n{printed.getvalue()}```\n\n"
    for name in _COMMAND.findall(printed.getvalue()):
        yield from command_help((*words, name))


def _outputs(schema: Mapping[str, Any]) -> str:
    text = f"# Stack output torchx\n\n{schema['description']} `torchx_pulumi.outputs.reader.read_schema()` returns the "
    text += f"JSON Schema from which this page is generated.\n\n{field_table(schema, ALWAYS)}"
    for name, kind in schema["$defs"].items():
        text += f"\n## {name}\n\n{kind['description']}\n\n{field_table(kind, ALWAYS)}"
    return text


def _components(schema: Mapping[str, Any]) -> str:
    text = "# Components in every language\n\nInputs and outputs of the package `torchx`, by their names in YAML and "
    text += "TypeScript.\n"
    for token, resource in schema["resources"].items():
        inputs = {"properties": resource["inputProperties"], "required": resource.get("requiredInputs", ())}
        # Marks of the Pulumi registry are left out; headings of examples would stand among those of the page.
        about = re.sub(r"\{\{[%<].*?[%>]\}\}\n*", "", resource["description"])
        about = _in_prose(about, lambda prose: re.sub(r"^#+ (.*)$", r"**\1**", prose, flags=re.MULTILINE))
        text += f"\n## {_name(token)}\n\n{about}\n\n### Inputs of {_name(token)}\n\n{field_table(inputs)}"
        text += f"\n### Outputs of {_name(token)}\n\n{field_table(resource, ALWAYS)}"
    for token, kind in schema["types"].items():
        values = "".join(f"| `{each['value']}` | {_cell(each)} |\n" for each in kind.get("enum", ()))
        text += f"\n## {_name(token)}\n\n{kind.get('description', '')}\n\n" + (
            f"| Value | Meaning |\n| --- | --- |\n{values}" if values else field_table(kind)
        )
    return text


def field_table(kind: Mapping[str, Any], required: str = "Required. ") -> str:
    """Return a table of the fields of an object in a schema.

    Args:
        kind: The object: its `properties`, and the names of those that are `required`.
        required: What is said about a required one.
    """
    rows = "".join(
        f"| `{name}` | {_type(value)} | {required if name in kind.get('required', ()) else ''}{_cell(value)} |\n"
        for name, value in kind["properties"].items()
    )
    return f"| Field | Type | Meaning |\n|---|---|---|\n{rows}"


def _type(value: Mapping[str, Any]) -> str:
    if "anyOf" in value:
        return " or ".join(map(_type, value["anyOf"]))
    if "enum" in value:
        return ", ".join(f"`{each}`" for each in value["enum"])
    if "$ref" in value:
        name = _name(value["$ref"])
        return f"[{name}](#{name.lower()})" if value["$ref"].startswith("#/") else name
    if "items" in value:
        return f"list of {_type(value['items'])}"
    if "additionalProperties" in value:
        return f"map of {_type(value['additionalProperties'])}"
    return " or ".join([value["type"]] if isinstance(value["type"], str) else value["type"])


def _cell(value: Mapping[str, Any]) -> str:
    return " ".join(value.get("description", "").split()).replace("|", "\\|")


def _name(reference: str) -> str:
    return re.split(r"[/:]", reference)[-1]


def _entries(titles: Iterable[tuple[str, str]], indent: int = 4) -> str:
    return "".join(f"{' ' * indent}- [{title}]({target})\n" for target, title in titles)


def _title(text: str) -> str:
    return text.partition("\n")[0].removeprefix("# ")


def _found(pattern: str, text: str) -> str:
    found = re.search(pattern, text, re.MULTILINE)
    if found is None:
        raise SystemExit(f"site: nothing matches {pattern!r} in mkdocs.yml; write it as before")
    return found[1]


if __name__ == "__main__":
    main()
