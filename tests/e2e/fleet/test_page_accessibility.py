"""axe-core finds nothing in the pages: list, panel and log, wide and narrow, light and dark, live and offline."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.e2e.fleet.axe import violations
from tests.e2e.fleet.page_fleet import QUEUES, fill, runs_of, write_offline
from tests.e2e.fleet.test_controller_page import WAIT_MS, Log, viewed
from tests.e2e.fleet.test_fleet_page import browser

__all__ = ["browser"]

pytestmark = pytest.mark.e2e

TABS = ("overview", "log", "events", "runs")

SCREENS = [
    {"viewport": {"width": width, "height": height}, "color_scheme": scheme}
    for width, height in ((1400, 900), (390, 844))
    for scheme in ("light", "dark")
]


@pytest.mark.parametrize("screen", SCREENS, ids=str)
def test_the_live_page_has_no_violation(browser: Browser, screen: dict[str, Any], tmp_path: Path) -> None:
    log = Log([f"epoch 3, step {step}" for step in range(200)])
    with viewed(browser, log, runs_of, QUEUES, **screen) as view:
        apps = fill(view.server.fleet)
        view.server.problems.append("cluster prod does not answer")
        # One has many replicas, one has failed.
        shown = (apps["llama-pretrain-k3x9f"], apps["vit-finetune-c1xk7"])
        for name in ("", *(f"{one}/{tab}" for one in shown for tab in TABS)):
            page = view.open(name)
            page.evaluate("document.getElementById('queues').open = true")
            if name.endswith("/log"):
                page.select_option("#log-replica", "*")
                page.fill("#log-find", "step")
                expect(page.locator("#log")).to_contain_text("trainer/0: epoch 3, step 199")
            page.screenshot(path=tmp_path / f"{len(name)}-{name[-8:].replace('/', '-')}.png")
            assert violations(page) == [], name
            assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        view.check()


@pytest.mark.parametrize("screen", SCREENS, ids=str)
def test_the_offline_page_has_no_violation(browser: Browser, screen: dict[str, Any], tmp_path: Path) -> None:
    page = browser.new_page(**screen)
    page.set_default_timeout(WAIT_MS)
    page.goto(write_offline(tmp_path, datetime.now(timezone.utc)))
    assert violations(page) == []
    page.locator("#apps a").first.click()
    expect(page.locator("#panel")).to_be_visible()
    assert violations(page) == []
    # It does see what is wrong.
    page.evaluate("panel.append(document.createElement('select'))")
    assert [one["rule"] for one in violations(page)] == ["select-name"]
    page.context.close()
