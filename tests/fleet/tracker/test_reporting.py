"""Lines of the controller."""

from __future__ import annotations

from torchx_pulumi_fleet.tracker.reporting import MOST_FACTS, Reporter


def test_a_name_with_a_line_break_or_a_terminal_sequence_does_not_make_lines_of_its_own() -> None:
    lines: list[str] = []
    Reporter(lines.append).line("stack a\n2026-01-01T00:00:00Z stopped \x1b[31mred cannot be read")
    assert len(lines) == 1
    assert "\n" not in lines[0]
    assert "\x1b" not in lines[0]


def test_facts_are_written_once_and_those_of_long_ago_are_not_kept() -> None:
    lines: list[str] = []
    reporter = Reporter(lines.append)
    for number in range(2 * MOST_FACTS):
        reporter.once(f"lost log {number}", f"{number}")
        reporter.once("still so", "still so")
    assert sum(line.endswith("still so") for line in lines) == 1
    assert len(lines) == 2 * MOST_FACTS + 1
    assert len(reporter._told) == MOST_FACTS
    reporter.once(f"lost log {2 * MOST_FACTS - 1}", "again")
    assert not lines[-1].endswith("again")
