"""The controller's pages: the data that their script draws, and what their security policies allow."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from html.parser import HTMLParser
from typing import Any

import pytest
from torchx_pulumi_fleet.views.page import content_hash, fleet_page
from torchx_pulumi_fleet.web.page import login_page, message_page

NOW = datetime(2026, 1, 2, 12, tzinfo=timezone.utc)
EVIL = '</script><script>alert("x")</script><img src=x onerror=alert(1)>\n"\'\\$version'
EMPTY_ELEMENTS = ("meta", "link", "input")


def app(name: str = "train", **changes: Any) -> dict[str, Any]:
    """The summary of an app that was launched an hour ago and changed ten minutes ago."""
    return {
        "id": "0123456789abcdef",
        "app_id": f"team:{name}",
        "name": name,
        "namespace": "team",
        "scheduler": "volcano",
        "queue": "default",
        "user": "ada",
        "launcher": "ada",
        "cluster": "prod",
        "state": "RUNNING",
        "reason": "Running",
        "cause": "",
        "ready": 1,
        "wanted": 2,
        "gpus": 4.0,
        "stale": False,
        "source": "live",
        "attempt": 1,
        "project": "torchx",
        "stack": name,
        "backend": "file:///b",
        "launched_at": "2026-01-02T11:00:00Z",
        "queued_at": None,
        "started_at": None,
        "finished_at": None,
        "observed_at": "2026-01-02T11:50:00Z",
        "checked_at": "2026-01-02T12:00:00Z",
        **changes,
    }


def live(*apps: dict[str, Any], **changes: Any) -> tuple[str, str]:
    more: dict[str, Any] = {"version": "w-7", "backends": ["file:///b"], "problems": [], "read_at": NOW}
    return fleet_page(apps, title="TorchX apps", **{**more, **changes})


class Read(HTMLParser):
    """What a browser makes of a page: elements that open with their attributes, and the text inside of each."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.opened: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._inside: list[int] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.opened.append((tag, dict(attrs)))
        self.texts.append("")
        if tag not in EMPTY_ELEMENTS:
            self._inside.append(len(self.texts) - 1)

    def handle_endtag(self, tag: str) -> None:
        assert self.opened[self._inside.pop()][0] == tag

    def handle_data(self, data: str) -> None:
        for place in self._inside:
            self.texts[place] += data

    def all(self, tag: str, **attributes: str) -> list[str]:
        """Return the texts of the elements of a name that have attributes."""
        found = zip(self.opened, self.texts, strict=True)
        return [text for (name, has), text in found if name == tag and attributes.items() <= has.items()]


def data(text: str) -> Any:
    """Return the drawing of a page's script."""
    return json.loads(Read(text).all("script", type="application/json")[0])


def test_the_page_has_its_apps_and_columns_inside() -> None:
    text, _ = live(app("a"), app("b", queue=None), problems=["no answer"])
    found = data(text)
    assert found["apps"] == [app("a"), app("b", queue=None)]
    assert (found["version"], found["backends"], found["problems"]) == ("w-7", ["file:///b"], ["no answer"])
    assert found["read_at"] == "2026-01-02T12:00:00Z"
    keys = {column["key"] for column in found["columns"]}
    assert keys <= app().keys()
    assert set(found["searched"]) <= app().keys()


def test_a_browser_without_scripts_is_told_what_is_needed() -> None:
    assert "needs JavaScript" in Read(live(app())[0]).all("noscript")[0]


def test_no_text_of_an_app_is_markup_or_a_placeholder() -> None:
    evil = app(**dict.fromkeys(("app_id", "name", "queue", "user", "reason", "cause", "project", "stack"), EVIL))
    text, _ = live(evil, problems=[EVIL], backends=[EVIL])
    page, plain = Read(text), Read(live(app(), problems=["x"])[0])
    assert [name for name, _ in page.opened] == [name for name, _ in plain.opened]
    assert (data(text)["apps"][0]["user"], data(text)["problems"]) == (EVIL, [EVIL])


@pytest.mark.parametrize(
    "page",
    [
        live(app()),
        live(app(), version=None),
        login_page("the token is wrong"),
        message_page("Logged in", "Welcome.", forward=True),
    ],
)
def test_a_policy_allows_only_what_is_in_the_page_and_requests_to_its_origin(page: tuple[str, str]) -> None:
    text, header = page
    read = Read(text)
    allowed = [has["content"] for name, has in read.opened if has.get("http-equiv") == "Content-Security-Policy"]
    assert header == allowed[0]
    rules = dict(rule.split(" ", 1) for rule in header.split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["style-src"] == f"'{content_hash(*read.all('style'))}'"
    assert rules.get("script-src") == (f"'{content_hash(read.all('script')[-1])}'" if read.all("script") else None)
    assert rules.get("connect-src") in ("'self'", None)
    assert rules["base-uri"] == "'none'"
    addresses = [has[name] or "" for _, has in read.opened for name in ("src", "href", "action") if name in has]
    assert all(address.startswith("#") or address in ("data:,", "./", "login", "") for address in addresses)
    assert not [has for _, has in read.opened if any(name.startswith("on") or name == "style" for name in has)]


def test_the_login_page_posts_the_token_to_its_own_origin() -> None:
    text, policy = login_page(EVIL)
    page = Read(text)
    assert ("form", {"method": "post", "action": "login"}) in page.opened
    assert [has["type"] for name, has in page.opened if has.get("name") == "token"] == ["password"]
    assert page.all("p", role="alert") == [EVIL]
    assert "form-action 'self'" in policy
    assert Read(login_page()[0]).all("p", role="alert") == []


def test_a_message_leads_to_the_apps_by_a_link_or_by_itself() -> None:
    stays, goes = message_page("Not found", EVIL)[0], message_page("Logged in", "", forward=True)[0]
    assert Read(stays).all("p")[0] == EVIL
    assert Read(stays).all("a", href="./") == ["Show the apps"]
    assert "refresh" not in stays
    assert '<meta http-equiv="refresh" content="0; url=./">' in goes
