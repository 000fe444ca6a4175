"""Which Dockerfiles need the daemon, and what the message says."""

from __future__ import annotations

from pathlib import Path

import pytest
from torchx_pulumi.images.dockerfile import DEFAULT
from torchx_pulumi.images.layers import UnsupportedError, unsupported

from tests.unit.images.layers.images import build, make_base


@pytest.mark.parametrize(
    "text",
    [
        DEFAULT,
        "FROM a AS b\nCOPY --chown=1:2 a \\\n b \\\n# comment\n  c/\n",
        "ARG A\nARG B=1\nFROM a\nENV x y z\nENV a=b\n",
        "FROM a\nLABEL a=b\nUSER 1\nEXPOSE 80\nCMD []\nENTRYPOINT a\nWORKDIR /a\nADD a /b/",
        "from a\ncopy . .\n",
        "FROM a\nCOPY --chown=$U . .",
        "\ufeffFROM a\r\nCOPY . .\r\n",
    ],
)
def test_supported(text: str) -> None:
    assert unsupported(text, "Dockerfile") == []


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("FROM a\n\n# x\nRUN \\\n ls", 4, "RUN runs a program"),
        ("FROM a\nFROM b", 2, "FROM begins a second stage"),
        ("FROM --platform=linux/amd64 a", 1, "FROM has the option --platform"),
        ("FROM a b", 1, "FROM is not `FROM IMAGE` or `FROM IMAGE AS NAME`"),
        ("FROM a\nCOPY --from=b x y", 2, "COPY has the option --from"),
        ("FROM a\nCOPY --link x y", 2, "COPY has the option --link"),
        ("FROM a\nCOPY --chmod=755 x y", 2, "COPY has the option --chmod"),
        ("FROM a\nCOPY <<EOF /x\ny\nEOF", 2, "COPY has a here-document"),
        ("FROM a\nSHELL ['x']", 2, "SHELL is not one of FROM"),
        ("FROM a\nHEALTHCHECK NONE", 2, "HEALTHCHECK is not one of"),
        ("FROM a\nVOLUME /x", 2, "VOLUME is not one of"),
        ("FROM a\nSTOPSIGNAL 9", 2, "STOPSIGNAL is not one of"),
        ("FROM a\nONBUILD COPY . .", 2, "ONBUILD is not one of"),
        ("FROM a\nMAINTAINER x", 2, "MAINTAINER is not one of"),
        ("FROM a\nCPOY . .", 2, "CPOY is not one of"),
        ("# syntax=docker/dockerfile:1\nFROM a", 1, "`# syntax=` chooses the frontend"),
        ("FROM a\nENV", 2, "ENV has no argument"),
        ("FROM a\nENV a=\udcff", 2, "ENV has bytes that are not UTF-8"),
        ("FROM a\nENV a=b\\\\\nCOPY . .", 2, "the line ends in `\\\\`, which releases of Docker read differently"),
        ("COPY . .\nFROM a", 1, "COPY is before the first FROM"),
        ("FROM a\nCMD --x y", 2, "CMD has the option --x"),
    ],
)
def test_unsupported(text: str, line: int, said: str) -> None:
    reason = unsupported(text, "docker/Dockerfile")[0]
    assert reason.startswith(f"docker/Dockerfile line {line}: {said}")
    assert reason.endswith(", which needs the builder docker")


def test_all_reasons_are_told_at_once(workspace: Path) -> None:
    text = "FROM a\nRUN x\nVOLUME /y"
    assert [each.split(":")[0] for each in unsupported(text, "D")] == ["D line 2", "D line 3"]
    with pytest.raises(UnsupportedError) as refused:
        build(workspace, text, make_base())
    assert len(refused.value.reasons) == 2


def test_a_base_with_triggers_needs_the_daemon(workspace: Path) -> None:
    with pytest.raises(UnsupportedError, match="the base has ONBUILD instructions"):
        build(workspace, DEFAULT, make_base({"OnBuild": ["COPY . ."]}))
