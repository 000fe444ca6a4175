"""The fleet's page in a real browser: table, sorting, filters, an app's panel, a phone, the dark, no network."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.cli.main import main

from tests.e2e.browser import Browser
from tests.unit.fleet.collect.states import checkpoint, output, write_stack

pytestmark = pytest.mark.e2e

EVIL = "<img src=x onerror=document.title='caught'><script>document.title='caught'</script>"
DIAGNOSIS = {
    "reason": "OutOfMemory",
    "summary": "trainer-1 used more than 2 GB",
    "detail": "last lines:\nKilled",
    "resolution": "ask for more memory",
    "objects": [{"kind": "Pod", "namespace": "team", "name": "train-3-trainer-1"}],
}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    from tools.bootstrap import ensure

    program = ensure(["chromium"])["chromium"] / "chromium-headless-shell"
    opened = Browser(program, tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Address of a page with twelve apps; the fourth failed, the fifth is called something evil."""
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


SHOWN = "[...document.querySelectorAll('#apps tbody tr')].filter((r) => !r.hidden).map((r) => r.cells[0].textContent)"


def choose(browser: Browser, name: str, value: str) -> list[str]:
    """Set a filter as a person does and return the apps that are left."""
    browser.evaluate(
        f"(() => {{ const e = document.getElementById({name!r}); e.value = {value!r};"
        " e.dispatchEvent(new Event('input', { bubbles: true })); })()"
    )
    shown: list[str] = browser.evaluate(SHOWN)
    return shown


def test_the_table_sorts_and_filters(browser: Browser, page: str) -> None:
    browser.open(page)
    assert len(browser.evaluate(SHOWN)) == 12
    heading = "document.querySelectorAll('#apps th')[0]"
    browser.evaluate(f"{heading}.querySelector('button').click()")
    assert browser.evaluate(SHOWN) == [f"team:train-{number}" for number in range(12)]
    assert browser.evaluate(f"{heading}.getAttribute('aria-sort')") == "ascending"
    browser.evaluate(f"{heading}.querySelector('button').click()")
    assert browser.evaluate(SHOWN)[0] == "team:train-11"
    browser.evaluate("document.querySelectorAll('#apps th')[4].querySelector('button').click()")
    assert browser.evaluate(SHOWN)[0] == "team:train-11"  # the youngest
    assert choose(browser, "state", "FAILED") == ["team:train-3"]
    assert browser.evaluate("document.getElementById('count').textContent") == "1 of 12"
    choose(browser, "state", "")
    assert len(choose(browser, "queue", "big")) == 6
    choose(browser, "queue", "")
    assert choose(browser, "search", "TRAIN-7-trainer-0") == ["team:train-7"]
    assert browser.evaluate("document.body.innerText.includes('its checkpoint is empty')")


def test_an_apps_panel_has_reasons_and_replicas_and_its_own_address(browser: Browser, page: str) -> None:
    browser.open(page)
    browser.evaluate("[...document.querySelectorAll('#apps a')].find((a) => a.textContent === 'team:train-3').click()")
    browser.until("document.getElementById('panel').open")
    text = browser.evaluate("document.getElementById('panel').innerText")
    for words in (
        "OutOfMemory: trainer-1 used more than 2 GB", "Killed", "What to do: ask for more memory",
        "Pod team/train-3-trainer-1", "train-3-trainer-0", "Role trainer: 1/2 ready", "kubectl --context here",
    ):  # fmt: skip
        assert words in text
    address = browser.evaluate("location.href")
    browser.press("Escape", 27)
    browser.until("!document.getElementById('panel').open")
    browser.open(address)
    browser.until("document.getElementById('panel').open")
    assert "team:train-3" in browser.evaluate("document.getElementById('panel-title').textContent")


def test_text_of_an_app_is_never_markup(browser: Browser, page: str) -> None:
    browser.open(f"{page}#torchx%2Fs4")
    browser.until("document.getElementById('panel').open")
    assert EVIL in browser.evaluate("document.getElementById('panel').innerText")
    assert browser.evaluate("document.querySelectorAll('img').length") == 0
    assert "caught" not in browser.evaluate("document.title")


def test_it_is_read_on_a_phone_without_scrolling_sideways(browser: Browser, page: str, tmp_path: Path) -> None:
    for address in (page, f"{page}#torchx%2Fs3"):
        browser.open(address, width=360, height=740, phone=True)
        browser.picture(tmp_path / f"phone-{len(address)}.png")
        assert browser.evaluate("document.documentElement.scrollWidth") <= 360
        assert browser.evaluate("(({ scrollWidth, clientWidth }) => scrollWidth - clientWidth)(panel)") <= 0
    # A cell says what it is, since the headings are not above it any more.
    assert "Queue" in browser.evaluate(
        "getComputedStyle(document.querySelector('#apps td[data-label=Queue]'), '::before').content"
    )


def test_it_is_light_or_dark_as_the_reader_prefers_with_enough_contrast(
    browser: Browser, page: str, tmp_path: Path
) -> None:
    grounds = []
    for scheme in ("light", "dark"):
        browser.prefer(scheme)
        browser.open(page)
        browser.picture(tmp_path / f"{scheme}.png")
        colours = browser.evaluate(
            "[document.body, ...document.querySelectorAll('.state, .stale, .where, #apps a, .remark')]"
            ".map((e) => getComputedStyle(e).color).concat(getComputedStyle(document.body).backgroundColor)"
        )
        *texts, ground = [luminance(colour) for colour in colours]
        grounds.append(ground)
        assert min(contrast(text, ground) for text in texts) >= 4.5
    browser.prefer("")
    assert grounds[0] > 0.9
    assert grounds[1] < 0.1


def test_nothing_is_asked_of_the_network_and_nothing_goes_wrong(browser: Browser, page: str) -> None:
    browser.open(page)
    browser.evaluate("document.querySelector('#apps a').click()")
    browser.until("document.getElementById('panel').open")
    asked = {event["request"]["url"].partition(":")[0] for event in browser.told("Network.requestWillBeSent")}
    assert asked <= {"file", "data", "about"}
    assert browser.told("Runtime.exceptionThrown") == []
    wrong = [event["entry"] for event in browser.told("Log.entryAdded")]
    assert [entry["text"] for entry in wrong if entry["level"] == "error"] == []


def luminance(colour: str) -> float:
    """Return the relative luminance of `rgb(r, g, b)`, as WCAG reckons it."""
    parts = [int(part) / 255 for part in colour.partition("(")[2].rstrip(")").split(",")[:3]]
    red, green, blue = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: float, other: float) -> float:
    """Return the contrast of two luminances."""
    return (max(one, other) + 0.05) / (min(one, other) + 0.05)
