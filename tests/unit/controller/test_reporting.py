"""Lines of the controller."""

from __future__ import annotations

from torchx_pulumi.controller.reporting import Reporter


def test_a_name_with_a_line_break_or_a_terminal_sequence_does_not_make_lines_of_its_own() -> None:
    lines: list[str] = []
    Reporter(lines.append).line("stack a\n2026-01-01T00:00:00Z stopped \x1b[31mred cannot be read")
    assert len(lines) == 1
    assert "\n" not in lines[0]
    assert "\x1b" not in lines[0]
