"""Pages of other origins in Chromium: they neither read the controller's page nor embed it, nor log in for the user."""

from __future__ import annotations

import contextlib
import http.server
import threading
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Request, expect

from tests.e2e.fleet.test_fleet_page import LOAD_MS, browser, go
from tests.e2e.project import eventually
from tests.fleet.web.site_server import app, served
from tests.loopback import LoopbackServer

__all__ = ["browser"]

pytestmark = pytest.mark.e2e

EVIL = """<!doctype html><title>evil</title>
<a id="link" href="{target}">a link</a>
<form id="form" method="post" action="{target}login"><input name="token" value="{token}"></form>
<iframe id="frame" src="{target}"></iframe>
<img id="image" src="{target}metrics"><script src="{target}api/v1/apps"></script>
"""
READ = """async ([url, mode]) => {
  try {
    const answer = await fetch(url, {mode, credentials: "include"});
    return answer.type + " " + answer.status + " " + (await answer.text()).length;
  } catch (error) {
    return "failed";
  }
}"""


@contextlib.contextmanager
def page_of_another(text: str) -> Iterator[tuple[str, list[str]]]:
    """Serve a page at another port of the same host; gives its URL, and the cookies that it gets."""
    cookies: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            cookies.append(self.headers.get("Cookie", ""))
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *args: object) -> None:
            """Stay silent."""

    with LoopbackServer(Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/", cookies
        finally:
            server.shutdown()
            thread.join()


def test_another_origin_gets_nothing_though_the_browser_sends_the_cookie(browser: Browser) -> None:
    with served() as server:
        server.fleet.put_stack(app("my-app"))
        target = f"http://127.0.0.1:{server.port}/"
        with page_of_another(EVIL.format(target=target, token=server.token)) as (evil, cookies):
            context = browser.new_context()
            context.set_default_timeout(LOAD_MS)
            expect.set_options(timeout=LOAD_MS)
            try:
                page = context.new_page()
                go(page, f"{target}?token={server.token}")
                expect(page.locator("#connection")).to_have_text("live")
                asked: list[Request] = []
                context.on("requestfailed", lambda request: asked.append(request))
                context.on("requestfinished", lambda request: asked.append(request))

                def is_refused(path: str) -> bool:
                    url = f"{target}{path}"
                    eventually(lambda: page.wait_for_timeout(50) or [each for each in asked if each.url == url])
                    request = next(each for each in asked if each.url == url)
                    answer = request.response()
                    return answer is None or answer.status == 403

                go(page, evil)
                # Another port is the same site: browsers send the cookie to it, and from its pages.
                assert f"torchx-pulumi-{server.port}=" in cookies[0]
                assert all(map(is_refused, ("metrics", "api/v1/apps", "")))
                for url in (f"{target}api/v1/apps", f"{target}api/v1/stream", target):
                    assert page.evaluate(READ, [url, "cors"]) == "failed"
                    assert page.evaluate(READ, [url, "no-cors"]) in ("failed", "opaque 0 0")
                page.evaluate("document.getElementById('form').submit()")
                page.wait_for_url(f"{target}login")
                assert is_refused("login")
                # A link leads to the page, as to any other.
                go(page, evil)
                page.locator("#link").click()
                expect(page.locator("#connection")).to_have_text("live")
            finally:
                context.close()
