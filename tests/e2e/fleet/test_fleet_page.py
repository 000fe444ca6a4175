"""The fleet page in Chromium: table, sorting, filters, an app's panel, a phone, dark colours, no network."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Error, Page, expect, sync_playwright
from torchx_pulumi.cli.main import main

from tests.fleet.tracker.states import checkpoint, output, write_stack

pytestmark = pytest.mark.e2e

EVIL = "<img src=x onerror=document.title='caught'><script>document.title='caught'</script>"
DIAGNOSIS = {
    "reason": "OutOfMemory",
    "summary": "trainer-1 used more than 2 GB",
    "detail": "last lines:\nKilled",
    "resolution": "ask for more memory",
    "objects": [{"kind": "Pod", "namespace": "team", "name": "train-3-trainer-1"}],
}


NETWORK_CHANGED = "ERR_NETWORK_CHANGED"
"""Chromium breaks off what it loads while pods of this machine come or go, which are networks to it."""

LOAD_MS = 120_000
"""Timeout of a browser action. A loaded machine may take long to start the browser."""


@contextmanager
def started_browser() -> Iterator[Browser]:
    """Start the Chromium of the parts, without a screen."""
    from tools.bootstrap import ensure

    program = ensure(["chromium"])["chromium"] / "chromium-headless-shell"
    # A place that is scrolled to is reached at once, and not by an animation that a slow machine stretches.
    arguments = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-smooth-scrolling"]
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=program, args=arguments, timeout=LOAD_MS)
        yield opened
        opened.close()


def go(page: Page, address: str, **options: Any) -> None:
    """Open an address, again if Chromium breaks off, or still shows the page that says so."""
    for _ in range(5):
        try:
            page.goto(address, **options)
        except Error as error:
            if not any(words in str(error) for words in (NETWORK_CHANGED, "chrome-error://")):
                raise
        else:
            return
    page.goto(address, **options)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with started_browser() as opened:
        yield opened


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """An empty page of a new browser context."""
    opened = browser.new_page(viewport={"width": 1280, "height": 800})
    opened.set_default_timeout(LOAD_MS)
    expect.set_options(timeout=LOAD_MS)
    yield opened
    opened.context.close()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Address of a page with twelve apps. The fourth failed; the texts of the fifth contain markup."""
    folder = tmp_path_factory.mktemp("fleet")
    for number in range(12):
        seen: dict[str, Any] = {"queued_at": f"2026-01-02T{number:02}:00:00Z"}
        if number == 3:
            seen |= {"state": "FAILED", "reason": "OutOfMemory", "diagnoses": [DIAGNOSIS]}
        queue = "big" if number % 2 else "default"
        app = {"queue": queue, **({"name": EVIL, "handle": EVIL} if number == 4 else {})}
        seen |= {"message": EVIL} if number == 4 else {}
        write_stack(folder, f"s{number}", checkpoint(output(f"train-{number}", observed=seen, app=app)))
    write_stack(folder, "broken", "")
    assert main(["fleet", "--backend", f"file://{folder}", "--html", str(folder / "fleet.html")]) == 0
    return (folder / "fleet.html").as_uri()


def shown(page: Page) -> list[str]:
    """Return the first cells of the visible rows."""
    return [text.strip() for text in page.locator("#apps tbody tr:not([hidden]) td:first-child").all_text_contents()]


def sort_by(page: Page, column: int) -> None:
    page.locator("#apps th button").nth(column).click()


def test_the_table_sorts_and_filters(page: Page, address: str) -> None:
    page.goto(address)
    assert len(shown(page)) == 12
    sort_by(page, 0)
    assert shown(page) == [f"train-{number} team" for number in range(12)]
    expect(page.locator("#apps th").first).to_have_attribute("aria-sort", "ascending")
    sort_by(page, 0)
    assert shown(page)[0] == "train-11 team"
    sort_by(page, 4)
    assert shown(page)[0] == "train-11 team"  # the youngest
    page.locator("#states").get_by_role("button", name="FAILED").click()
    assert shown(page) == ["train-3 team"]
    expect(page.locator("#count")).to_have_text("1 of 12")
    page.locator("#states").get_by_role("button", name="All").click()
    page.select_option("#queue", "big")
    assert len(shown(page)) == 6
    page.select_option("#queue", "")
    page.fill("#search", "TRAIN-7-trainer-0")
    assert shown(page) == ["train-7 team"]
    expect(page.locator("body")).to_contain_text("its checkpoint is empty", use_inner_text=True)


def test_an_apps_panel_has_reasons_and_replicas_and_its_own_address(page: Page, address: str) -> None:
    page.goto(address)
    page.get_by_role("link", name="train-3", exact=True).click()
    expect(page.locator("#panel")).to_be_visible()
    text = page.locator("#panel").inner_text()
    for words in (
        "OutOfMemory: trainer-1 used more than 2 GB", "Killed", "What to do: ask for more memory",
        "Pod team/train-3-trainer-1", "train-3-trainer-0", "trainer 1/2 ready", "kubectl --context here",
    ):  # fmt: skip
        assert words in text
    of_the_app = page.url
    page.keyboard.press("Escape")
    expect(page.locator("#panel")).to_be_hidden()
    page.goto("about:blank")
    page.goto(of_the_app)
    expect(page.locator("#panel-title")).to_contain_text("train-3 team")


def test_what_is_not_known_is_said_and_many_problems_are_behind_a_button(page: Page, tmp_path: Path) -> None:
    never = dict.fromkeys(("queued_at", "started_at", "observed_at"))
    observed = {**never, "state": "SUBMITTED", "reason": "Submitted"}
    asked = {"created_by": None, "resources_total": {}}
    write_stack(tmp_path, "a", checkpoint(output("new", observed=observed, declared=asked, app={"queue": None})))
    for number in range(5):
        write_stack(tmp_path, f"b{number}", "")
    file = tmp_path / "fleet.html"
    assert main(["fleet", "--offline", "--backend", f"file://{tmp_path}", "--html", str(file)]) == 0
    page.goto(file.as_uri())
    cells = page.locator("#apps tbody td").all_text_contents()
    assert cells[:2] == ["new team", "SUBMITTED"]
    assert cells[3:] == ["1/2", "-", "never seen", "", "", ""]
    expect(page.locator("#problems > p")).to_have_count(3)
    expect(page.locator("#problems summary")).to_have_text("3 more")
    assert main(["fleet", "--offline", "--backend", f"file://{tmp_path}", "--user", "x", "--html", str(file)]) == 0
    page.goto(file.as_uri())
    expect(page.locator("#empty")).to_have_text(f"no apps in file://{tmp_path} match: the filter excludes all 1")


def test_times_of_several_clocks_are_shown_as_they_are(page: Page, tmp_path: Path) -> None:
    hours = {"queued_at": 12, "started_at": 11, "finished_at": 10}
    times = {name: f"2026-01-02T{hour}:00:00Z" for name, hour in hours.items()}
    write_stack(tmp_path, "a", checkpoint(output("a", observed={"state": "FAILED", **times})))
    file = tmp_path / "fleet.html"
    assert main(["fleet", "--offline", "--backend", f"file://{tmp_path}", "--html", str(file)]) == 0
    page.goto(f"{file.as_uri()}#torchx%2Fa")
    expect(page.locator(".timeline svg")).to_have_attribute("aria-label", "Timeline: waited 0s, ran 0s")
    shown_times = page.locator(".moments time").evaluate_all("(all) => all.map((each) => each.dateTime.slice(11, 13))")
    assert shown_times == ["12", "11", "10"]


def test_text_of_an_app_is_never_markup(page: Page, address: str) -> None:
    page.goto(f"{address}#torchx%2Fs4")
    expect(page.locator("#panel")).to_be_visible()
    assert EVIL in page.locator("#panel").inner_text()
    assert page.locator("img").count() == 0
    assert "caught" not in page.title()


def test_it_is_read_on_a_phone_without_scrolling_sideways(browser: Browser, address: str, tmp_path: Path) -> None:
    phone = browser.new_context(viewport={"width": 360, "height": 740}, is_mobile=True)
    phone.set_default_timeout(LOAD_MS)
    for place in (address, f"{address}#torchx%2Fs3"):
        page = phone.new_page()
        page.goto(place)
        page.screenshot(path=tmp_path / f"phone-{len(place)}.png")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        assert page.evaluate("(({ scrollWidth, clientWidth }) => scrollWidth - clientWidth)(panel)") <= 0
    # A cell shows its heading, because the headings are not above it.
    assert "Queue" in page.evaluate(
        "getComputedStyle(document.querySelector('#apps td[data-label=Queue]'), '::before').content"
    )
    phone.close()


@pytest.mark.parametrize("width", [320, 1000, 1130, 1200, 1280])
def test_long_names_and_an_old_page_do_not_scroll_sideways(page: Page, tmp_path: Path, width: int) -> None:
    declared = {"created_by": "firstname.lastname@company.example.com"}
    app = {"queue": "research-large-models-eu-west", "name": "n" * 60}
    stack = output(
        "n" * 60, declared=declared, app=app, observed={"reason": "ContainerCannotRun", "message": "m " * 99}
    )
    for role in (*stack["declared"]["roles"], *stack["observed"]["roles"]):
        role["name"] = "r" * 60
    write_stack(tmp_path, "a", checkpoint(stack))
    file = tmp_path / "fleet.html"
    assert main(["fleet", "--offline", "--backend", f"file://{tmp_path}", "--html", str(file)]) == 0
    file.write_text(file.read_text().replace('"read_at":"20', '"read_at":"19'))
    page.set_viewport_size({"width": width, "height": 800})
    page.goto(f"{file.as_uri()}#torchx%2Fa")
    expect(page.locator("#connection")).to_contain_text("ago when this page was opened")
    for element in ("document.documentElement", "panel", "document.getElementById('view-overview')"):
        assert page.evaluate(f"(({{ scrollWidth, clientWidth }}) => scrollWidth - clientWidth)({element})") <= 0


def test_it_is_light_or_dark_as_the_reader_prefers_with_enough_contrast(
    page: Page, address: str, tmp_path: Path
) -> None:
    grounds = []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]  # one of its literals
        page.goto("about:blank")
        page.goto(address)
        page.screenshot(path=tmp_path / f"{scheme}.png")
        colours = page.evaluate(
            "[document.body, ...document.querySelectorAll('.state, .stale, .where, #apps a, .remark')]"
            ".map((e) => getComputedStyle(e).color).concat(getComputedStyle(document.body).backgroundColor)"
        )
        *texts, ground = [luminance(colour) for colour in colours]
        grounds.append(ground)
        assert min(contrast(text, ground) for text in texts) >= 4.5
    assert grounds[0] > 0.9
    assert grounds[1] < 0.1


def test_nothing_is_asked_of_the_network_and_nothing_goes_wrong(page: Page, address: str) -> None:
    requests: list[str] = []
    problems: list[str] = []
    page.on("request", lambda request: requests.append(request.url.partition(":")[0]))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.goto(address)
    page.locator("#apps a").first.click()
    expect(page.locator("#panel")).to_be_visible()
    assert "file" in requests
    assert set(requests) <= {"file", "data", "about"}
    assert problems == []


def luminance(colour: str) -> float:
    """Return the relative luminance of `rgb(r, g, b)`, as WCAG reckons it."""
    parts = [int(part) / 255 for part in colour.partition("(")[2].rstrip(")").split(",")[:3]]
    red, green, blue = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: float, other: float) -> float:
    """Return the contrast of two luminances."""
    return (max(one, other) + 0.05) / (min(one, other) + 0.05)
