"""The controller's page in Chromium, over a fleet that the test changes: what arrives, what stays, what is refused."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect
from torchx_pulumi.logs.waiting import LogStop
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi_fleet.tracker.live_fleet import live_id
from torchx_pulumi_fleet.web.logs import NOTE, LogRequest

from tests.e2e.fleet.test_fleet_page import NETWORK_CHANGED, browser, contrast, go, luminance
from tests.e2e.project import eventually
from tests.fleet.web.site_server import Served, app, served

__all__ = ["browser"]

pytestmark = pytest.mark.e2e

WAIT_MS = 30_000
"""Timeout of an action in the browser, for a loaded machine."""

EVIL = "<script>window.caught = 1</script><img src=x onerror=window.caught=1>\u202etxt.exe"
WATCH = """
window.violations = [];
document.addEventListener('securitypolicyviolation', (event) => violations.push(event.violatedDirective));
"""


class View:
    """A page of a server, and what went wrong in it."""

    server: Served
    """What the page is of, where a test serves it itself."""

    def __init__(self, url: str, context: BrowserContext) -> None:
        self.url, self.page = url, context.new_page()
        self.problems: list[str] = []
        self.page.set_default_timeout(WAIT_MS)
        expect.set_options(timeout=WAIT_MS)
        self.page.add_init_script(WATCH)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("console", self._said)

    def open(self, address: str = "") -> Page:
        """Log in, and open an address."""
        root = self.url.partition("?")[0]
        go(self.page, self.url)
        expect(self.page.locator("#connection")).to_have_text("live")
        if address:
            self.page.goto("about:blank")
            go(self.page, f"{root}{address}")
            expect(self.page.locator("#connection")).to_have_text("live")
        return self.page

    def _said(self, message: ConsoleMessage) -> None:
        if message.type == "error" and NETWORK_CHANGED not in message.text:
            self.problems.append(message.text)

    def names(self) -> list[str]:
        return self.page.locator("#apps tbody tr:not([hidden]) td:first-child").all_text_contents()

    def check(self) -> None:
        """Fail if anything went wrong in the page."""
        assert self.problems == []
        assert self.page.evaluate("violations") == []


class Log:
    """A log that the test writes."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._more = threading.Condition()
        """Guards the lines."""
        self.asked: list[LogRequest] = []
        self.open_now = 0

    def write(self, *lines: str) -> None:
        with self._more:
            self._lines += lines
            self._more.notify_all()

    def open(self, _app: object, request: LogRequest, stop: LogStop) -> Iterator[str]:
        self.asked.append(request)
        return self._read(request, stop)

    def _read(self, request: LogRequest, stop: LogStop) -> Iterator[str]:
        self.open_now += 1
        try:
            yield f"{NOTE}log of pod train-0\n"
            place = max(len(self._lines) - (request.tail or 0), 0)
            while not stop.is_set():
                with self._more:
                    lines, place = self._lines[place:], len(self._lines)
                yield from (f"{line}\n" for line in lines)
                if not request.follow:
                    return
                with self._more:
                    self._more.wait_for(lambda place=place: len(self._lines) > place, 0.1)
        finally:
            self.open_now -= 1


ATTEMPT = {
    "role": "trainer", "replica": 0, "attempt": 1, "container": "main", "pod": "train-0",
    "default": True, "init": False, "running": False, "archived": True, "complete": False, "exit_code": 3,
    "started_at": "2026-03-04T10:00:00Z", "finished_at": "2026-03-04T11:00:00Z",
}  # fmt: skip
RUN = {
    "uid": "uid-1", "current": True, "archived": True, "state": "RUNNING", "reason": "Running", "attempt": 2,
    "started_at": "2026-03-04T10:00:00Z", "finished_at": None, "omitted": 2,
    "attempts": [{**ATTEMPT, "attempt": 2, "running": True, "exit_code": None, "archived": False}, ATTEMPT],
}  # fmt: skip
UPDATE = {"kind": "update", "result": "failed", "started_at": None, "finished_at": None, "message": "launch"}
EVENT = {
    "time": "2026-03-04T11:00:00Z", "type": "Warning", "reason": "BackOff", "message": "x" * 90,
    "object": "Pod/train-0", "count": 3, "source": None,
}  # fmt: skip


@contextmanager
def viewed(browser: Browser, logs: Any = None, runs: Any = None, queues: Any = (), **more: Any) -> Iterator[View]:
    """Serve an empty fleet, in a new context of the browser."""
    options = {"viewport": {"width": 1280, "height": 800}, **more}
    known = {"runs": [RUN], "updates": [UPDATE], "notes": ["archive s3://logs cannot be read"]}
    log = logs or Log(["line"] * 30)
    with served(
        queues=lambda: queues, runs=runs or (lambda _: known), events=lambda _: [EVENT], logs=log.open
    ) as server:
        context = browser.new_context(**options)
        try:
            view = View(f"http://127.0.0.1:{server.port}/?token={server.token}", context)
            view.server = server
            yield view
        finally:
            context.close()


@pytest.fixture
def view(browser: Browser) -> Iterator[View]:
    with viewed(browser) as made:
        yield made


def identity(name: str) -> str:
    return live_id(app(name).key)


def row(page: Page, name: str) -> Any:
    return page.locator(f'#apps tr[data-id="{identity(name)}"]')


def test_the_token_of_the_url_opens_the_page_and_does_not_stay_in_its_address(view: View) -> None:
    view.server.fleet.put_stack(app("train"))
    page = view.open()
    assert page.url == f"http://127.0.0.1:{view.server.port}/"
    assert view.names() == ["train default"]
    page.context.clear_cookies()
    go(page, page.url)
    page.get_by_label("Token").fill(view.server.token)
    page.get_by_role("button", name="Log in").click()
    expect(page.locator("#connection")).to_have_text("live")


def test_changes_arrive_without_a_reload_and_leave_everything_else_as_it_was(view: View) -> None:
    fleet = view.server.fleet
    for number in range(30):
        fleet.put_stack(app(f"train-{number}", second=number, user="ann" if number % 2 else "bo"))
    page = view.open()
    page.locator("#apps th button").first.click()
    page.select_option("#user", "ann")
    page.locator("#apps").get_by_role("link", name="train-13", exact=True).focus()
    page.evaluate("window.scrollTo(0, 150)")
    page.evaluate("document.body.dataset.kept = 'yes'")
    before = page.evaluate("scrollY")
    fleet.put_stack(app("train-13", second=13, state="FAILED", reason="OutOfMemory", message="too little", user="ann"))
    expect(row(page, "train-13")).to_contain_text("OutOfMemory: too little")
    fleet.put_stack(app("train-7b", second=50, user="ann"))
    fleet.put_stack(app("train-8b", second=51, user="bo"))
    fleet.drop(app("train-5").key)
    expect(page.locator("#count")).to_have_text("15 of 31")
    names = [1, 3, 7, "7b", 9, *range(11, 30, 2)]
    assert view.names() == [f"train-{name} default" for name in names]
    assert page.evaluate("document.activeElement.textContent") == "train-13"
    assert page.evaluate("scrollY") == before
    assert page.evaluate("document.body.dataset.kept") == "yes"
    page.locator("#apps th button").nth(1).click()
    page.locator("#apps").get_by_role("link", name="train-21", exact=True).focus()
    fleet.put_stack(app("train-21", second=21, state="CANCELLED", reason="Cancelled", user="ann"))
    expect(page.locator("#apps tbody tr:not([hidden])").first).to_contain_text("train-21 default")
    assert page.evaluate("document.activeElement.textContent") == "train-21"
    expect(page.locator("#states")).to_contain_text("All 31")
    expect(page.locator("#states")).to_contain_text("FAILED 1")
    view.check()


def test_the_page_shows_of_its_data_what_it_shows_of_the_stream(view: View) -> None:
    fleet = view.server.fleet
    apps = [app("young", second=5), app("broken", state="FAILED", reason="OutOfMemory", message="a", user=None)]
    apps += [app("queued", state="PENDING", reason="Unschedulable", queue=None), app("evil", message=EVIL, user=EVIL)]
    apps += [app("big", state="SUBMITTED", reason="Submitted")]
    page = view.open()
    for each in apps:
        fleet.put_stack(each)
    expect(page.locator("#apps tbody tr")).to_have_count(len(apps))
    read = "[...document.querySelectorAll('#apps tbody tr')].map((row) => row.dataset.id + row.innerHTML)"
    made = page.evaluate(read)
    states = page.inner_html("#states")
    assert view.names() == [f"{name} default" for name in ("young", "big", "evil", "queued", "broken")]
    # Without the stream, all that is shown is of the page's data.
    page.route("**/stream**", lambda route: route.abort())
    go(page, page.url)
    assert page.evaluate(read) == made
    assert page.inner_html("#states") == states


def test_a_lost_connection_is_said_and_the_page_goes_on_where_it_was(browser: Browser) -> None:
    with served(auth=False) as server:
        port = server.port
        server.fleet.put_stack(app("train"))
        context = browser.new_context()
        page = context.new_page()
        page.set_default_timeout(WAIT_MS)
        expect.set_options(timeout=WAIT_MS)
        go(page, f"http://127.0.0.1:{port}/")
        expect(page.locator("#connection")).to_have_text("live")
    expect(page.locator("body > .bar")).to_contain_text("Connection lost at")
    # Another process, whose versions are others.
    with served(auth=False, port=port) as server:
        server.fleet.put_stack(app("other"))
        expect(page.locator("#connection")).to_have_text("live")
        expect(page.locator("body > .bar")).to_be_hidden()
        expect(page.locator("#apps tbody tr td:first-child")).to_have_text(["other default"])
    with served(port=port):
        expect(page.locator("body > .bar")).to_contain_text("You are logged out. Log in again")
        page.get_by_role("link", name="Log in again").click()
        expect(page.get_by_label("Token")).to_be_visible()
    context.close()


def test_a_tab_that_is_not_looked_at_has_no_connection(view: View) -> None:
    view.server.fleet.put_stack(app("train"))
    page = view.open()
    show = "(hidden) => { Object.defineProperty(document, 'hidden', { value: hidden, configurable: true });"
    show += " document.dispatchEvent(new Event('visibilitychange')); }"
    with page.expect_event("requestfailed", lambda request: "/stream" in request.url):
        page.evaluate(show, True)
    view.server.fleet.put_stack(app("train", state="FAILED", reason="Evicted"))
    page.evaluate(show, False)
    expect(row(page, "train")).to_contain_text("FAILED")
    view.check()


def test_an_open_panel_follows_its_app(view: View) -> None:
    fleet = view.server.fleet
    fleet.put_stack(app("train", state="PENDING", reason="Unschedulable", message="no room"))
    page = view.open(f"?user=ann#{identity('train')}")
    expect(page.locator("#panel-title")).to_have_text("train default")
    expect(page.locator("#panel")).to_contain_text("no room")
    page.locator("#tab-overview").focus()
    page.keyboard.press("End")
    expect(page.locator("#tab-runs")).to_be_focused()
    page.keyboard.press("Home")
    expect(page.locator("#tab-overview")).to_have_attribute("aria-selected", "true")
    fleet.put_stack(app("train", state="RUNNING"))
    expect(page.locator("#panel-state")).to_contain_text("RUNNING")
    expect(page.locator("#tab-overview")).to_be_focused()
    fleet.drop(app("train").key)
    expect(page.locator("#panel-remark")).to_contain_text("gone")
    page.keyboard.press("Escape")
    expect(page.locator("#panel")).to_be_hidden()
    expect(page).to_have_url(f"http://127.0.0.1:{view.server.port}/?user=ann")
    assert page.input_value("#user") == "ann"


def test_texts_of_an_app_are_never_markup(view: View) -> None:
    view.server.fleet.put_stack(app(EVIL, state="FAILED", reason=EVIL, message=EVIL, user=EVIL, queue=EVIL))
    view.server.problems.append(EVIL)
    page = view.open(f"#{identity(EVIL)}")
    shown = EVIL.replace("\u202e", "<U+202E>")
    for place in ("#panel-title", "#view-overview", "#problems"):
        expect(page.locator(place)).to_contain_text(shown)
    expect(page).to_have_title(re.compile(re.escape(shown)))
    assert "\u202e" not in page.inner_text("body")
    assert page.locator("img").count() == 0
    assert page.evaluate("window.caught") is None
    view.check()


def test_a_log_is_followed_to_its_end_and_stays_where_the_reader_is(browser: Browser) -> None:
    log = Log([f"line {number}" for number in range(200)])
    with viewed(browser, log) as view:
        view.server.fleet.put_stack(app("train"))
        page = view.open(f"#{identity('train')}/log")
        text = page.locator("#log")
        expect(text).to_contain_text("line 199")
        expect(text.locator(".note")).to_have_text("log of pod train-0")
        log.write("line 200", "\x1b[31mred\x1b[0m", "10%\r100%\r", "bell \x07 turned \u202e", EVIL)
        expect(text).to_contain_text("line 200\nred\n100%\nbell ^G turned <U+202E>\n<script>")
        bottom = "log.scrollHeight - log.scrollTop - log.clientHeight"
        eventually(lambda: page.evaluate(bottom) < 2)
        text.hover()
        page.mouse.wheel(0, -700)
        eventually(lambda: page.evaluate(bottom) > 100)
        expect(page.locator("#log-end")).to_be_visible()
        place = page.evaluate("log.scrollTop")
        log.write("line 201", "line 202")
        expect(page.locator("#log-end")).to_have_text("To the end, 2 new")
        assert page.evaluate("log.scrollTop") == place
        page.locator("#log-end").click()
        expect(page.locator("#log-end")).to_be_hidden()
        eventually(lambda: page.evaluate(bottom) < 2)
        # Far more than is shown: the page keeps the newest.
        log.write(*(f"many {number}" for number in range(20_000)))
        expect(text).to_contain_text("many 19999\n")
        shown = text.inner_text().splitlines()
        assert 4000 <= len(shown) <= 5000
        expect(page.locator("#log-dropped")).to_contain_text("earlier lines are not shown")
        assert log.open_now == 1
        page.locator("#tab-runs").click()
        eventually(lambda: log.open_now == 0)
        page.get_by_role("button", name="Log of trainer/0, attempt 1, exit 3").click()
        expect(page.locator("#log-run option:checked")).to_contain_text("attempt 1, exit 3")
        # The page shows the choice before its request has arrived.
        eventually(lambda: log.asked[-1].run == "uid-1")
        asked = log.asked[-1]
        assert (asked.run, asked.attempt, asked.container, asked.timestamps) == ("uid-1", 1, "main", False)
        page.keyboard.press("Escape")
        eventually(lambda: log.open_now == 0)
        view.check()


def test_a_role_with_absurdly_many_replicas_leaves_the_page_usable(browser: Browser) -> None:
    huge = app("train")
    whole = huge.output
    (role,), (seen,) = whole["declared"]["roles"], whole["observed"]["roles"]
    listed = [*seen["replicas"], {"id": 20_000, "state": "FAILED"}, {"id": 1e300, "state": "FAILED"}]
    declared = {
        **whole["declared"],
        "roles": [{**role, "replicas": 1e11}, {**role, "name": "second", "replicas": 1e11}],
    }
    observed = {**whole["observed"], "roles": [{**seen, "replicas": listed}]}
    output = {**whole, "declared": declared, "observed": observed}
    with viewed(browser) as view:
        view.server.fleet.put_stack(replace(huge, output=output))
        page = view.open(f"#{identity('train')}/log")
        options = page.locator("#log-replica option")
        expect(page.locator('#log-replica option[value="trainer/20000"]')).to_have_text("trainer/20000 FAILED")
        assert 5_000 < options.count() <= 10_001  # with the option for all of them
        view.check()


def test_the_logs_of_all_replicas_are_one_by_time_and_are_searched(browser: Browser) -> None:
    stamp = "2026-03-04T10:00:{:02}.{:09}Z {}"
    first = Log([stamp.format(1, 5, "loss 3"), stamp.format(3, 0, "loss 1")])
    second = Log([stamp.format(2, 0, "loss 2")])
    asked: list[LogRequest] = []

    def read(app: object, request: LogRequest, stop: LogStop) -> Iterator[str]:
        asked.append(request)
        return (first, second)[request.replica].open(app, replace(request, tail=100), stop)

    with viewed(browser, SimpleNamespace(open=read)) as view:
        view.server.fleet.put_stack(app("train"))
        page = view.open(f"#{identity('train')}/log")
        page.select_option("#log-replica", "*")
        text = page.locator("#log")
        expect(text).to_contain_text("trainer/0: loss 3\ntrainer/1: loss 2\ntrainer/0: loss 1\n")
        expect(page.locator("#log-state")).to_have_text("Following 2 of 2 replicas")
        # The line that is known comes again, and one of the same time.
        first.write(stamp.format(3, 0, "same time"), stamp.format(4, 0, "loss 0"))
        expect(text).to_contain_text("trainer/0: loss 1\ntrainer/0: same time\ntrainer/0: loss 0\n")
        # The end of a run may come after the first lines of the next one.
        first.write(stamp.format(3, 5, "end of a run"))
        expect(text).to_contain_text("trainer/0: loss 0\ntrainer/0: end of a run\n")
        expect(text).not_to_contain_text(re.compile("loss 0.*loss 0", re.DOTALL))
        since = [str(one.since) for one in asked if one.since and one.replica == 0]
        assert since[:2] == ["2026-03-04 10:00:03+00:00"] * 2
        page.fill("#log-find", "LOSS")
        expect(page.locator("#log-found")).to_have_text("4 of 6 lines")
        expect(text).not_to_contain_text("same time")
        view.check()


def test_a_replica_whose_log_fails_or_never_comes_does_not_hide_the_others(browser: Browser) -> None:
    lines = Log([f"2026-03-04T10:00:0{second}Z step {second}" for second in range(3)])
    ended = threading.Event()

    def read(app: object, request: LogRequest, stop: LogStop) -> Iterator[str]:
        if request.replica == 1:
            raise ClusterError("node n1 does not answer", retryable=True)
        if request.replica == 2:
            raise ClusterError("it has no pod", reason="NotFound")
        if request.replica == 3:
            ended.wait(WAIT_MS)
        return lines.open(app, request, stop)

    four = app("train")
    (role,) = four.output["declared"]["roles"]
    declared = {**four.output["declared"], "roles": [{**role, "replicas": 4}]}
    output = {**four.output, "declared": declared}
    with viewed(browser, SimpleNamespace(open=read)) as view:
        view.server.fleet.put_stack(replace(four, output=output))
        page = view.open(f"#{identity('train')}/log")
        page.select_option("#log-replica", "*")
        try:
            expect(page.locator("#log-state")).to_have_text(
                re.compile("Following 1 of 4 replicas; trainer/[13]: (node n1|it) does not answer")
            )
            expect(page.locator("#log")).to_contain_text("trainer/0: step 0\ntrainer/0: step 1\ntrainer/0: step 2\n")
        finally:
            ended.set()


def test_an_address_that_is_no_text_and_a_filter_given_twice_are_said(view: View) -> None:
    view.server.fleet.put_stack(app("train", user="ann  b "))
    page = view.open("?state=running&state=failed&user=ann++b+#%")
    expect(page.locator("#panel-remark")).to_have_text("There is no app of this address any more.")
    page.keyboard.press("Escape")
    expect(page.locator("#unknown")).to_contain_text("Not a filter: state=failed.")
    expect(page.locator("#count")).to_have_text("1 of 1")
    assert page.locator("#user option").count() == 2


def test_apps_that_have_ended_are_behind_a_button_and_a_filter_that_is_none_is_named(view: View) -> None:
    for number in range(60):
        view.server.fleet.put_stack(app(f"old-{number}", state="SUCCEEDED", reason="Completed", second=number))
    view.server.fleet.put_stack(app("train"))
    page = view.open("?queue=gone&user=ann&color=red&toString=1&state=nothing&age=7")
    expect(page.locator("#unknown")).to_contain_text("Not a filter: color=red, toString=1, state=nothing, age=7.")
    assert page.locator("#user option").all_text_contents() == ["all", "ann"]
    expect(page.locator("#empty")).to_have_text("No app matches.")
    page.select_option("#queue", "")
    expect(page.locator("#unknown")).to_be_hidden()
    expect(page.locator("#count")).to_have_text("51 of 61")
    assert view.names()[0] == "train default"
    page.get_by_role("button", name="Show 10 more that have ended").click()
    expect(page.get_by_role("link", name="old-9", exact=True)).to_be_focused()
    expect(page.locator("#count")).to_have_text("61 of 61")
    expect(page).to_have_title("1 RUNNING - TorchX apps")
    page.get_by_role("link", name="old-7", exact=True).click()
    expect(page).to_have_title("SUCCEEDED default:old-7 - TorchX apps")
    assert "%23188038" in (page.get_attribute("link[rel=icon]", "href") or "")
    page.get_by_role("button", name="Copy: handle").click()
    assert page.evaluate("getSelection().toString()") == "pulumi_volcano://torchx/default:old-7"
    view.check()


def test_a_log_that_has_ended_can_be_read_again(browser: Browser) -> None:
    log = Log(["first"])
    with viewed(browser, log) as view:
        view.server.fleet.put_stack(app("train", state="SUCCEEDED", reason="Completed"))
        page = view.open(f"#{identity('train')}/log")
        expect(page.locator("#log-state")).to_have_text("End of the log")
        assert not page.is_checked("#log-follow")
        log.write("second")
        page.get_by_role("button", name="Read again").click()
        expect(page.locator("#log")).to_contain_text("first\nsecond")
        assert (page.get_attribute("#log-file", "href") or "").startswith("api/v1/apps/")
        page.locator("#log-times").check()
        eventually(lambda: log.asked[-1].timestamps)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone_and_has_enough_contrast(browser: Browser, scheme: Any, tmp_path: Any) -> None:
    with viewed(browser, viewport={"width": 360, "height": 740}, is_mobile=True, color_scheme=scheme) as view:
        for name, state in (("a" * 60, "RUNNING"), ("b-1", "PENDING"), ("c", "FAILED"), ("d", "SUCCEEDED")):
            view.server.fleet.put_stack(app(name, state=state, reason="Why", message="long words " * 20))
        view.server.problems.append("cluster " + "x" * 80)
        for address in ("", *(f"#{identity('b-1')}/{tab}" for tab in ("overview", "log", "events", "runs"))):
            page = view.open(address)
            page.screenshot(path=tmp_path / f"{scheme}-{address[-4:]}.png")
            assert page.evaluate("document.documentElement.scrollWidth") <= 360
            assert page.evaluate("panel.scrollWidth - panel.clientWidth") <= 0
            colors = page.evaluate(
                "[document.body, ...document.querySelectorAll('.state, .where, #apps a, .remark, .tabs button, td')]"
                ".map((e) => getComputedStyle(e).color).concat(getComputedStyle(document.body).backgroundColor)"
            )
            *texts, ground = [luminance(color) for color in colors]
            assert (ground > 0.9) is (scheme == "light")
            assert min(contrast(text, ground) for text in texts) >= 4.5
        view.check()
