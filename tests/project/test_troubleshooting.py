"""The troubleshooting page quotes messages as the code has them."""

from __future__ import annotations

import re

from tests.doc_blocks import ROOT

SOURCES = "\n".join(
    re.sub(r'"\s*\n\s*f?"', "", path.read_text())
    for folder in ("sdk", "components", "stacks", "fleet")
    for path in (ROOT / folder).rglob("*.py")
)


def test_every_message_of_the_page_is_one_of_the_code() -> None:
    rows = re.findall(r"^\| (`.*?) \|", (ROOT / "docs" / "troubleshooting.md").read_text(), re.MULTILINE)
    quoted = [part for row in rows for part in re.findall(r"``(.+?)``|`([^`]+)`", row)]
    texts = [double.strip() or single for double, single in quoted]
    assert len(texts) > 30
    assert [text for text in texts if text not in SOURCES] == []
