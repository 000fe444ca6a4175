"""The documentation site as `make docs` builds it: its links, its reference, and five pages in a browser."""

from __future__ import annotations

import importlib
import re
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest
from playwright.sync_api import Browser, expect

from tests.e2e.fleet.axe import violations
from tests.e2e.fleet.test_fleet_page import LOAD_MS, browser, go
from tools.site import API, ROOT

__all__ = ["browser"]

pytestmark = pytest.mark.e2e

SITE = ROOT / "build" / "site"
OPENED = {
    "": "torchx-pulumi",
    "options/": "Run options",
    "diagnosis/": "Why is my job not running?",
    "reference/torchx_pulumi/": "Python: render, images, errors",
    "reference/command-line/": "Command line",
}
"""Pages that are looked at, and their headings."""


class Document(HTMLParser):
    """What a page links to, and the anchors that it has."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value and name in ("href", "src"):
                self.links.append(value)
            elif value and name in ("id", "name"):
                self.anchors.add(value)


@pytest.fixture(scope="module")
def site() -> dict[Path, Document]:
    """The pages of the site, built once."""
    done = subprocess.run(["make", "docs"], cwd=ROOT, text=True, capture_output=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return {path: Document(path) for path in SITE.rglob("*.html")}


@pytest.fixture(scope="module")
def address(site: dict[Path, Document]) -> Iterator[str]:
    """Address at which the site is served."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(SITE))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def test_every_link_leads_to_a_file_and_an_anchor(site: dict[Path, Document]) -> None:
    missing, external = [], set()
    for path, document in site.items():
        for link in document.links:
            if re.match(r"[a-z]+:", link):
                external.add(link)
                continue
            place, anchor = (unquote(part) for part in urldefrag(link))
            target = SITE / place.lstrip("/") if place.startswith("/") else (path.parent / place if place else path)
            target = target.resolve() / "index.html" if target.is_dir() else target.resolve()
            if not target.is_file() or (anchor and target in site and anchor not in site[target].anchors):
                missing.append((str(path.relative_to(SITE)), link))
    (SITE.parent / "external-links.txt").write_text("\n".join(sorted(external)))
    assert missing == []
    assert len(site) > 50


def test_all_of_the_markdown_is_rendered(site: dict[Path, Document]) -> None:
    """Lists and tables that the forge shows need an empty line before them here."""
    raw = re.compile(r"<p>[^<]*(?:\n(?:[-*]|\d\.) |```|\|\s*-{3}|&gt;&gt;&gt; |:::)|\{\{%")
    for path in site:
        text = re.sub(r"<(pre|code|script)\b.*?</\1>", "", path.read_text(), flags=re.DOTALL)
        assert raw.findall(text) == [], path


@pytest.mark.parametrize("module", API)
def test_the_reference_has_every_public_name(site: dict[Path, Document], module: str) -> None:
    anchors = site[SITE / "reference" / module.replace(".", "-") / "index.html"].anchors
    names = {anchor.rpartition(".")[2] for anchor in anchors if anchor.startswith(f"{module}.")}
    assert {*importlib.import_module(module).__all__} - names == set()


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_five_pages_in_a_browser(browser: Browser, address: str, width: int, scheme: str) -> None:
    page = browser.new_page(viewport={"width": width, "height": 844}, color_scheme=scheme)  # type: ignore[arg-type]
    page.set_default_timeout(LOAD_MS)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    for place, heading in OPENED.items():
        go(page, address + place, wait_until="networkidle")
        expect(page.get_by_role("heading", level=1)).to_contain_text(heading, timeout=LOAD_MS)
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, place
        assert [one for one in violations(page) if one["impact"] in ("serious", "critical")] == [], place
        expect(page.locator(".md-social__link")).to_have_attribute("href", re.compile("^https://"))
    assert [url for url in asked if not url.startswith((address, "data:", "blob:"))] == []
    page.context.close()


def test_the_search_finds_an_option(browser: Browser, address: str) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 844})
    page.set_default_timeout(LOAD_MS)
    go(page, address)
    page.get_by_role("button", name="Search").first.click()
    page.get_by_role("combobox").fill("requeuing_max_time_s")
    # The navigation has the first of these words, the search the second.
    page.get_by_text("Run options").nth(1).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Run options", timeout=LOAD_MS)
    page.context.close()
