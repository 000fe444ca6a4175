"""Each view of a fleet: what it shows, and that no text of an app can do harm in it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import datetime, timezone
from html.parser import HTMLParser
from typing import Any

import pytest
from rich.cells import cell_len
from torchx_pulumi.stack_state.stacks import StackName
from torchx_pulumi_fleet.views.html import to_html
from torchx_pulumi_fleet.views.prometheus import to_prometheus
from torchx_pulumi_fleet.views.row import BrokenStack, Fleet, build_row
from torchx_pulumi_fleet.views.table import to_table
from torchx_pulumi_fleet.views.values import to_json

from tests.fleet.tracker.states import ODD_NUMBERS, odd_output, output
from tests.fleet.writer.live_apps import app_of

NOW = datetime(2026, 1, 2, 12, tzinfo=timezone.utc)
EVIL = '</script><script>alert("x")</script>\x1b[31m\n"\\'


def fleet(*outputs: dict[str, Any], **more: Any) -> Fleet:
    rows = [
        build_row(app_of(item, StackName(project="torchx", stack=f"s{place}")), NOW)
        for place, item in enumerate(outputs)
    ]
    return Fleet(**{"backend": "file:///b", "read_at": NOW, "rows": rows, **more})


def evil() -> Fleet:
    item = output(
        app={"id": f"team:{EVIL}", "name": EVIL, "queue": EVIL, "handle": EVIL},
        observed={"reason": EVIL, "message": EVIL, "diagnoses": [{"summary": EVIL, "reason": EVIL}]},
        declared={"created_by": EVIL},
        links={"ui_url": "javascript:alert(1)"},
    )
    return fleet(item, broken=[BrokenStack(stack=StackName(project="p", stack=EVIL), why=EVIL)])


def test_the_table_has_a_line_for_each_app() -> None:
    lines = to_table(fleet(output("a"), output("b", observed={"message": "why so"}))).splitlines()
    assert lines[0].split() == [
        "APP",
        "STATE",
        "REASON",
        "READY",
        "AGE",
        *("LAST", "SEEN"),
        "GPU",
        "QUEUE",
        *("LAUNCHED", "BY"),
        "SCHEDULER",
        "WHY",
    ]
    assert lines[1].split()[:5] == ["team:a", "RUNNING", "Running", "1/2", "1h"]
    assert lines[2].endswith("why so")


def test_a_narrow_table_does_without_columns_and_no_line_is_wider_than_the_terminal() -> None:
    long = fleet(output("a", observed={"message": "no node has room " * 20}))
    for width in (140, 100, 80, 60, 40):
        lines = to_table(long, width).splitlines()
        assert max(map(cell_len, lines)) <= width
        assert "team:a" in lines[1]
    assert "SCHEDULER" not in to_table(long, 80)


def test_a_long_name_leaves_the_states_readable_on_a_narrow_terminal() -> None:
    heading, line = to_table(fleet(output("a" * 63)), 60).splitlines()[:2]
    assert cell_len(line) <= 60
    assert heading.split()[:3] == ["APP", "STATE", "REASON"]
    assert line.split()[:3] == ["team:" + "a" * (len(line.split()[0]) - 6) + "…", "RUNNING", "Running"]


def test_what_the_rows_cannot_say_stands_beneath_them() -> None:
    shown = fleet(
        output("a", observed={"observed_at": "2026-01-01T00:00:00Z"}),
        broken=[BrokenStack(stack=StackName(project="p", stack="s"), why="cut off")],
        unreachable={"ctx": "no answer"},
    )
    text = to_table(shown)
    assert "stack p/s cannot be read: cut off" in text
    assert "cluster ctx not reached: no answer" in text
    assert "stale" in text
    assert "--live" in text
    assert to_table(fleet()) == "no apps in file:///b\n"


def test_a_terminal_is_not_steered_by_the_text_of_an_app() -> None:
    text = to_table(evil())
    assert "\x1b" not in text
    assert len(text.splitlines()) == 3


def test_json_has_every_field_and_versions() -> None:
    values = json.loads(to_json(evil()))
    assert values["version"] == 1
    (app,) = values["apps"]
    assert (app["app_id"], app["state"], app["stack"], app["ui_url"]) == (f"team:{EVIL}", "RUNNING", "s0", None)
    assert app["queued_at"] == "2026-01-02T11:00:00Z"
    assert values["broken"][0]["why"] == EVIL


def test_json_knows_no_numbers_that_are_none() -> None:
    odd = output(declared={"resources_total": {"cpu": float("nan"), "gpu": float("inf")}})
    assert "NaN" not in to_json(fleet(odd))
    to_prometheus(fleet(odd))
    to_html(fleet(odd))


LABELS = r'\{((?:[a-z_]+="(?:[^"\\\n]|\\[\\n"])*",?)*)\}'
SAMPLE = re.compile(rf"^([a-z_]+)(?:{LABELS})? (-?[0-9.]+(?:e\+[0-9]+)?|NaN|\+Inf)$")


def test_prometheus_text_is_well_formed_whatever_an_app_is_called() -> None:
    text = to_prometheus(replace(evil(), rows=[*evil().rows, *fleet(output("b")).rows]))
    described: set[str] = set()
    seen: set[str] = set()
    for line in text.splitlines():
        if line.startswith("# HELP "):
            described.add(line.split()[2])
        elif not line.startswith("# TYPE "):
            match = SAMPLE.match(line)
            assert match, line
            assert match[1] in described
            assert line.rpartition(" ")[0] not in seen
            seen.add(line.rpartition(" ")[0])
    assert 'torchx_fleet_apps{state="RUNNING"} 2' in text
    assert "torchx_app_requested_memory_bytes" in text
    assert "torchx_app_queued_timestamp_seconds" in text
    assert text.endswith("\n")


class Page(HTMLParser):
    """What a browser makes of a page: elements that open, and the text of scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.opened: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self._in_script = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.opened.append((tag, dict(attrs)))
        self._in_script = tag == "script"
        if self._in_script:
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self._in_script:
            self.scripts[-1] += data

    def handle_endtag(self, tag: str) -> None:
        self._in_script = self._in_script and tag != "script"


def test_the_page_holds_everything_and_loads_nothing() -> None:
    page = Page(to_html(evil()))
    assert len(page.scripts) == 2
    assert json.loads(page.scripts[0])["apps"][0]["name"] == EVIL
    policies = [a["content"] for t, a in page.opened if t == "meta" and a.get("http-equiv")]
    assert policies
    rules = (policies[0] or "").split("; ")
    assert {"default-src 'none'", "require-trusted-types-for 'script'", "trusted-types 'none'"} <= {*rules}
    assert not [rule for rule in rules if rule.startswith("connect-src")]
    addresses = [a.get(name) or "" for _, a in page.opened for name in ("src", "href") if name in a]
    assert all(address.startswith(("#", "data:")) for address in addresses)
    assert not [a for _, a in page.opened if any(name.startswith("on") for name in a)]


def test_a_dollar_in_a_text_is_no_placeholder() -> None:
    assert "costs $title" in to_html(fleet(output("a", observed={"message": "costs $title"})))


@pytest.mark.parametrize("number", ODD_NUMBERS, ids=lambda number: repr(number)[:12])
def test_an_odd_number_of_one_app_takes_no_view_from_the_others(number: Any) -> None:
    seen = fleet(output("a"), odd_output("odd", number))
    assert "team:a " in to_table(seen)
    page = json.loads(Page(to_html(seen)).scripts[0], parse_constant=pytest.fail)
    assert [app["app_id"] for app in page["apps"]] == ["team:a", "team:odd"]
    values = json.loads(to_json(seen), parse_constant=pytest.fail)
    assert [app["app_id"] for app in values["apps"]] == ["team:a", "team:odd"]
    numbers = [line.rpartition(" ")[2] for line in to_prometheus(seen).splitlines() if not line.startswith("#")]
    assert len(numbers) > 30
    assert all(0 <= float(text) < 1e25 for text in numbers), numbers


@pytest.mark.parametrize("excluded", [0, 2])
def test_a_page_without_apps_says_whether_a_filter_excludes_them(excluded: int) -> None:
    empty = fleet(excluded=excluded)
    assert json.loads(Page(to_html(empty)).scripts[0])["empty"] == empty.without_rows()
    assert ("the filter excludes all 2" in empty.without_rows()) is bool(excluded)
