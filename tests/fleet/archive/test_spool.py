"""Logs above the limit: the first and the last half are kept, and a line between them says so."""

from __future__ import annotations

import gzip
import tempfile
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torchx_pulumi_fleet.archive.copying import LimitedSpool

from tests.unit.logs.scripted import shown, stamp


def spooled(parts: Sequence[str], limit: int) -> tuple[str, LimitedSpool]:
    """Return the kept parts of a log, and its spool."""
    spool = LimitedSpool(limit)
    for part in parts:
        spool.add(part)
    text = gzip.decompress(spool.finish().read()).decode()
    spool.close()
    return text, spool


LINES = [shown((number * 10**6, f"line {number}")) for number in range(100)]
MARK = "bytes of this log were left out here: it has more than"


@given(st.lists(st.text(alphabet="aä€\U0001f600 ", max_size=60).map(lambda text: f"{text}\n"), max_size=60))
def test_a_log_up_to_the_limit_is_kept_unchanged(lines: list[str]) -> None:
    whole = "".join(lines)
    text, spool = spooled(lines, max(len(whole.encode()) + 60, 10) * 2)
    assert (text, spool.left_out_bytes, spool.lines) == (whole, 0, len(lines))


def test_whole_lines_are_kept_of_both_ends() -> None:
    text, spool = spooled(LINES, 1000)
    found = text.splitlines(keepends=True)
    at = next(index for index, line in enumerate(found) if MARK in line)
    assert found[:at] == LINES[:at]
    assert found[at + 1 :] == LINES[len(LINES) - (len(found) - at - 1) :]
    assert 10 < at < 15
    assert spool.left_out_bytes == len("".join(LINES)) - len("".join(found[:at] + found[at + 1 :]))
    assert f"[torchx-pulumi: {spool.left_out_bytes:,} {MARK} 1,000 bytes, the limit" in found[at]
    assert found[at].startswith(stamp(99 * 10**6))


@given(
    st.lists(st.text(alphabet="aä€\U0001f600", min_size=1, max_size=200), min_size=1, max_size=40),
    st.integers(min_value=2, max_value=600),
)
def test_a_cut_log_is_valid_text_of_its_two_ends(parts: list[str], limit: int) -> None:
    """Parts without line ends are one line, however long."""
    begin, end = f"{stamp(1)} ", "\n"
    whole = begin + "".join(parts) + end
    text, spool = spooled([begin + parts[0], *parts[1:], end], limit)
    if not spool.left_out_bytes:
        assert text == whole
        return
    head, _, rest = text.partition("[torchx-pulumi: ")
    assert "�" not in text
    assert whole.startswith(head.removesuffix(begin).removesuffix("\n"))
    tail = rest.partition("]\n")[2]
    assert whole.endswith(tail.removeprefix(begin))


def test_a_line_of_100_mb_takes_bounded_memory() -> None:
    part = "x" * (1 << 20)
    tracemalloc.start()
    spool = LimitedSpool(8 << 20)
    spool.add(f"{stamp(1)} ")
    for _ in range(100):
        spool.add(part)
    spool.add("the end\n")
    spool.finish()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    spool.close()
    assert peak < 8 << 20
    assert (spool.lines, spool.size) == (1, (100 << 20) + 39)
    assert 92 << 20 < spool.left_out_bytes < 93 << 20


@pytest.mark.parametrize("limit", [10**9, 1000])
def test_a_full_disk_is_an_error_with_its_number(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda: Path("/dev/full").open("r+b"))  # noqa: SIM115
    spool = LimitedSpool(limit)

    def write() -> None:
        for number in range(100_000):
            spool.add(f"{stamp(number)} {number * 7919}\n")
        spool.finish()

    with pytest.raises(OSError, match="No space left") as raised:
        write()
    assert raised.value.errno == 28
    spool.close()
