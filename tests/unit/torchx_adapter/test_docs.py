from __future__ import annotations

import re
from pathlib import Path

from torchx_pulumi.torchx_adapter.run_opts import run_options

PAGE = Path(__file__).resolve().parents[3] / "docs" / "torchx-users.md"


def test_the_page_for_torchx_users_names_every_option_and_no_other() -> None:
    known = {name for kind in ("volcano", "mcad") for name, _ in run_options(kind)}
    tables = [line for line in PAGE.read_text().splitlines() if line.startswith(("| `", "| Volc"))]
    tables += [line for line in PAGE.read_text().splitlines() if line.startswith("| MCAD: `")]
    named = {word for line in tables for word in re.findall(r"`(\w+)`", line.split("|")[1])}
    assert known <= named
    assert not {word for word in named - known if "_" in word}
