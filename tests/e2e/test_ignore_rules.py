"""`.dockerignore` as we read it, next to moby's own patternmatcher, with hostile rules and names.

Half of the cases have rules of the documented grammar only. In the others, lines that we refuse are left out. All are
read as by moby.

`TORCHX_PULUMI_IGNORE_CASES` sets how many cases are tried, and `TORCHX_PULUMI_SEED_FROM` which ones.
"""

from __future__ import annotations

import base64
import json
import os
import random
import re
import subprocess
from typing import Any

import pytest
from torchx_pulumi.images.content.ignore import Rules, docker_rules
from torchx_pulumi.model.errors import ImageError

from tools.bootstrap import ensure

pytestmark = pytest.mark.e2e

CASES = int(os.environ.get("TORCHX_PULUMI_IGNORE_CASES", "1000"))
SEED = int(os.environ.get("TORCHX_PULUMI_SEED_FROM", "0"))
DOCUMENTED = (
    *("a", "b", "key", ".pem", ".git", "a.b", "é", "-", "]", "$", "+", "(", ")", ".", ",", ":", "2", "7", "!", "#"),
    *(" ", "*", "*", "*", "**", "**", "**", "***", "?", "?", "\t", "\xa0", "[a-c]", "[^a]", "[\\]a]", "[a\\-c]"),
    *("[é-ü]", "[^\\^x]", "\\.", "\\*", "\\?", "\\[", "\\\\", "\\!", "\\#", "\\^", "\\|", "\\{", "\\}"),
)  # fmt: skip
PIECES = (
    *("a", "b", "key", ".pem", ".git", "a.b", "é", "-", "]", "{", "}", "$", "+", "(", ")", ".", "^", "|", ",", ":"),
    *("2", "7", "*", "*", "*", "**", "**", "**", "***", "?", "?", "!", "#", " ", "\t", "\x1c", "\xa0", "\ufeff"),
    *("\udcff", "{2}", "{0,1}", "[a-c]", "[^a]", "[a*]", "[?b]", "[a/b]", "[[:alpha:]]", "[\\]a]", "[\\d]"),
    *("[a\\-c]", "[[:^alpha:]x]", "[é-ü]", "[^/]", "[\\w\\s]", "[a^b]", "[**]", "\\a", "\\.", "\\*", "\\?", "\\["),
    *("\\\\", "\\d", "\\D", "\\w", "\\s", "\\b", "\\B", "\\z", "\\A", "\\x41", "\\x{e9}", "\\141", "\\0", "\\ "),
    *("\\!", "\\#"),
)  # fmt: skip
BROKEN = (
    *("[ab", "[]a]", "[^]", "[-a]", "[a-]", "[z-a]", "[[:no:]]", "[\\b]", "[\\", "[", "\\8", "\\y", "\\é", "\\"),
    *("\\x4", "{0}", "{1,}", "{,2}", "{2,1}", "{1001}", "{2}{2}", "|{2}", "\\x{110000}", "[\udcff]", "[a\udcff]"),
)  # fmt: skip
LINES = (
    *("!/", "/", ".", "..", "!", "!.", "!..", "./a", "a/../b", "#x", " # y", "**/", "!**", "a\\", "//a", "/ *"),
    *("! /a", "!!a", "", "  ", "\r", "\x1c", "a\r", "/!a", "./!a", "/ /", "\ufeffa*", "\ufeff**a", "**/**", "a//b"),
    *("*/.", "**/..", "/**", "\xa0a"),
)  # fmt: skip
NAMES = (
    *("a", "b", "ab", "aab", "key.pem", "x.pem", ".git", "a.b", "aXb", "7", "77", "c|d", "^a", "é", "a b", "]", "{"),
    *("{2}", "$", "+x", "pem", "a\nb", "\n", "A", "!a", "#x", "-", "a\\b", "\\", "*", "\udcff", "a\udcffb"),
    *("\ufffd", " a", "a ", "a{2}"),
)  # fmt: skip


SIGNS = re.compile(r"[\\|{}^*\0-\x1f\ufeff\ufffd\udc80-\udcff]")
"""Characters of names that a pattern of the documented grammar escapes, or does not have."""


def rules(chance: random.Random, paths: list[str], *, documented: bool) -> str:
    """Return a file of one to six lines."""
    if documented:
        paths = [SIGNS.sub("a", path) for path in paths]
    lines = [line(chance, paths, documented=documented) for _ in range(chance.randint(1, 6))]
    return ("\ufeff" if chance.random() < 0.05 else "") + chance.choice(["\n", "\n", "\n", "\r\n"]).join(lines)


def line(chance: random.Random, paths: list[str], *, documented: bool) -> str:
    if chance.random() < 0.08:
        return chance.choice([each for each in LINES if not (documented and re.search("[\x1c\ufeff]", each))])
    # Most patterns are changed names, or hardly one of them would match.
    parts = chance.choice(paths).split("/")
    parts = parts[: chance.randint(1, len(parts))] if chance.random() < 0.7 else parts[-1:]
    changed = "/".join(part if chance.random() < 0.4 else change(chance, part, documented=documented) for part in parts)
    mark = "" if documented else "\ufeff"
    before = chance.choice(["", "", "", "", "/", "./", " ", mark, "**", "**/", "*/"])
    after = chance.choice(["", "", "", "", "/", " ", "/ ", "/.", "**", "/**", "/*"])
    return ("!" if chance.random() < 0.3 else "") + before + changed + after


def change(chance: random.Random, part: str, *, documented: bool) -> str:
    pieces = DOCUMENTED if documented else BROKEN if chance.random() < 0.04 else PIECES
    begin, end = sorted(chance.randint(0, len(part)) for _ in range(2))
    return part[:begin] + "".join(chance.choice(pieces) for _ in range(chance.randint(1, 2))) + part[end:]


def files(chance: random.Random) -> list[str]:
    """Return files, of which some are in one folder."""
    made: list[str] = []
    while len(made) < 8:
        above = chance.choice([[], [], made[-1].split("/")[:-1] if made else []])
        path = "/".join([*above, *(chance.choice(NAMES) for _ in range(chance.randint(1, 3)))])
        if not any(f"{path}/".startswith(f"{other}/") or f"{other}/".startswith(f"{path}/") for other in made):
            made.append(path)
    return made


def ours(text: str, paths: list[str]) -> dict[str, Any]:
    """Return the answer of the part to our own rules."""
    try:
        judge = docker_rules(text)
    except ImageError as error:
        return {"error": str(error)}
    ignored = [[judge.ignores(each) for each in (*folders_of(path), path)] for path in paths]
    return {"ignored": ignored, "sent": [is_sent(judge, path) for path in paths]}


def folders_of(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:end]) for end in range(1, len(parts))]


def is_sent(judge: Rules, path: str) -> bool:
    is_entered = not any(judge.ignores(folder) and judge.may_skip(folder) for folder in folders_of(path))
    return is_entered and not judge.ignores(path)


def theirs(cases: list[tuple[str, list[str]]]) -> list[dict[str, Any]]:
    program = ensure(["patternmatcher"])["patternmatcher"] / "patternmatcher"
    asked = [{"rules": encoded(text), "files": [encoded(path) for path in paths]} for text, paths in cases]
    lines = "\n".join(map(json.dumps, asked)).encode()
    # moby's scanner of text complains of each byte that is no UTF-8.
    told = subprocess.run([program], input=lines, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    return [json.loads(each) for each in told.stdout.splitlines()]


def encoded(text: str) -> str:
    return base64.b64encode(os.fsencode(text)).decode()


@pytest.mark.counted
def test_the_same_verdicts_as_of_mobys_patternmatcher() -> None:
    cases = []
    for number in range(SEED, SEED + CASES):
        chance = random.Random(number)
        paths = files(chance)
        text = rules(chance, paths, documented=number % 2 == 0)
        cases.append((text if number % 2 == 0 else accepted(text), paths))
    differences, refused = [], 0
    for number, (case, told) in enumerate(zip(cases, theirs(cases), strict=True), SEED):
        found = ours(*case)
        refused += "error" in found
        if ("error" in found) != ("error" in told) or ("error" not in found and found != told):
            differences.append((number, case, found, told))
    assert differences == []
    # Most rules are accepted, or little would have been compared.
    assert refused < CASES / 4


def accepted(text: str) -> str:
    """Return the lines that we do not refuse."""
    return "\n".join(line for line in text.split("\n") if "error" not in ours(f"\n{line}", []))
