"""Findings as text for a terminal and as JSON values."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence
from typing import Any

from torchx_pulumi.model.finding import Finding, Verdict


def to_lines(findings: Sequence[Finding]) -> list[str]:
    """Return findings as text for the terminal: a line each, the next step below, at the end the number of problems."""
    size = max(len(item.check) for item in findings) if findings else 0
    columns = max(shutil.get_terminal_size((120, 24)).columns, 60)
    lines: list[str] = []
    for item in findings:
        head = f"{item.verdict.value:<7}  {item.check:<{size}}  "
        lines += textwrap.wrap(
            head + " ".join(item.detail.split()), columns, subsequent_indent=" " * len(head), break_on_hyphens=False
        )
        if item.resolution:
            indent = " " * len(head)
            lines += textwrap.wrap(
                f"{indent}-> {item.resolution}", columns, subsequent_indent=f"{indent}   ", break_on_hyphens=False
            )
    problems = sum(item.verdict is Verdict.PROBLEM for item in findings)
    return [*lines, "1 problem" if problems == 1 else f"{problems or 'no'} problems"]


def finding_values(findings: Sequence[Finding]) -> dict[str, Any]:
    """Return findings as plain JSON values."""
    return {
        "version": 1,
        "ok": all(item.verdict is not Verdict.PROBLEM for item in findings),
        "findings": [
            {
                "check": item.check,
                "verdict": item.verdict.value,
                "detail": item.detail,
                "resolution": item.resolution,
            }
            for item in findings
        ],
    }
