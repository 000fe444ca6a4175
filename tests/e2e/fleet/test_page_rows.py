"""What an operator reads in the page, wide and on a phone: causes, who and where, filters, what is used."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.fleet.page_fleet import QUEUES, fill, runs_of
from tests.e2e.fleet.test_controller_page import WAIT_MS, View, viewed
from tests.e2e.fleet.test_fleet_page import browser, go
from tests.fleet.web.site_server import app, served

__all__ = ["browser"]

pytestmark = pytest.mark.e2e

FILTERS = ("queue", "user", "scheduler", "namespace", "cluster", "age")


@pytest.fixture(params=[1400, 390], ids=str)
def view(browser: Browser, request: pytest.FixtureRequest) -> Iterator[View]:
    """The page of a fleet as a team has it."""
    idle = {"name": "default", "cluster": "prod", "capability": {}, "allocated": {}}
    size = {"width": request.param, "height": 900}
    with viewed(browser, None, runs_of, [*QUEUES, idle], viewport=size) as made:
        yield made
        assert made.page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        made.check()


def row(page: Page, name: str) -> str:
    """Return the text of the row of an app, as it is seen."""
    return page.locator("#apps tbody tr").filter(has_text=name).inner_text().replace("\n", " ")


def test_a_row_has_the_cause_what_to_do_who_launched_it_and_how_long_it_ran(view: View) -> None:
    fill(view.server.fleet)
    page = view.open()
    waits = row(page, "caption-sft")
    assert "ImageUnavailable: image 'registry.example/ml/caption-sft:2.4' cannot be pulled: it is not in" in waits
    assert "What to do: push it, or correct its name" in waits
    assert "stack data/nightly" in waits
    # It waits for others only, or has ended.
    for name in ("diffusion-xl", "vit-finetune-c1xk7"):
        assert "What to do" not in row(page, name)
    assert "FAILED after 0s" in row(page, "asr-ablation")
    assert "SUCCEEDED after 38m" in row(page, "eval-mmlu")


def test_filters_of_the_address_are_those_that_are_seen(view: View) -> None:
    fill(view.server.fleet)
    page = view.open("?namespace=ml&cluster=west")
    assert view.names() == ["tokenizer-stats-q8hyb ml", "retriever-index-z0plc ml"]
    for name in FILTERS:
        expect(page.locator(f"#{name}")).to_be_visible()
    page.select_option("#user", label="stack data/nightly")
    assert view.names() == ["tokenizer-stats-q8hyb ml"]
    assert page.url.partition("?")[2] == "user=data%2Fnightly&namespace=ml&cluster=west"
    for name in ("user", "namespace", "cluster"):
        page.select_option(f"#{name}", "")
    page.select_option("#scheduler", "mcad")
    assert view.names() == ["embeddings-n5j1r search"]
    assert page.url.endswith("?scheduler=mcad")


def test_what_says_nothing_is_not_shown(view: View) -> None:
    fleet = view.server.fleet
    fleet.put_stack(app("train", queue=None, user=None))
    page = view.open("?scheduler=volcano")
    shown = [text for text in page.locator("#apps th:visible").all_inner_texts() if text]
    assert shown == ["App", "State", "Ready", "Age", "Changed", "GPU"]
    # All apps have the same value, and only the filter that is set stays.
    assert [name for name in FILTERS if page.locator(f"#{name}").is_visible()] == ["scheduler", "age"]
    fleet.put_stack(app("other", queue="big", user="ann", state="PENDING", reason="Unschedulable", message="no room"))
    expect(page.locator("#apps th:visible")).to_have_count(9)
    assert "Unschedulable: no room" in row(page, "other")
    assert [name for name in FILTERS if page.locator(f"#{name}").is_visible()] == ["queue", "user", "scheduler", "age"]


def test_queues_add_up_what_runs_without_one_and_leave_out_idle_ones(view: View) -> None:
    fill(view.server.fleet)
    page = view.open()
    page.evaluate("document.getElementById('queues').open = true")
    expect(page.locator("#queues")).to_contain_text("112 free")
    rows = page.locator("#queue-rows tbody tr").all_text_contents()
    assert rows[:2] == ["batch48 used, 2 asked", "no queue (mcad)48 used"]
    assert [text.partition("7")[0].partition("1")[0] for text in rows[2:]] == ["research", "speech"]


def test_an_app_that_is_gone_from_its_cluster_asks_no_queue_for_anything(view: View) -> None:
    view.server.fleet.put_stack(app("here", queue="big", state="PENDING", reason="Unschedulable"))
    view.server.fleet.put_stack(app("gone", queue="old", state="UNKNOWN", reason="NotFound"))
    page = view.open()
    page.evaluate("document.getElementById('queues').open = true")
    expect(page.locator("#queue-rows")).to_contain_text("big")
    assert not page.locator("#queue-rows").get_by_text("old").count()


def test_a_panel_says_that_it_is_live_and_how_to_read_the_log(view: View) -> None:
    apps = fill(view.server.fleet)
    page = view.open(apps["asr-ablation-s3b9g"])
    panel = page.locator("#panel")
    seen = panel.locator("dt", has_text="Last seen").locator("+ dd")
    expect(seen).to_have_text("live", use_inner_text=True)
    text = panel.inner_text()
    handle = "pulumi_volcano://torchx/speech:asr-ablation-s3b9g"
    for words in (f"torchx-pulumi log {handle}", "kubectl --context prod --namespace speech logs", "ran 0s", "Failed"):
        assert words in text
    # Its run took no time, and its bar is inside of the picture.
    x, width = (float(panel.locator(".timeline .FAILED").get_attribute(name)[:-1]) for name in ("x", "width"))
    assert width >= 1
    assert x + width <= 100


def test_without_a_connection_a_panel_says_when_its_app_was_last_seen(browser: Browser) -> None:
    page = browser.new_page()
    with served(auth=False) as server:
        address = fill(server.fleet)["embeddings-n5j1r"]
        go(page, f"http://127.0.0.1:{server.port}/{address}")
        seen = page.locator("#panel dt", has_text="Last seen").locator("+ dd")
        expect(seen).to_have_text("live", use_inner_text=True, timeout=WAIT_MS)
    expect(seen).to_contain_text(" ago", use_inner_text=True, timeout=WAIT_MS)
    page.context.close()
