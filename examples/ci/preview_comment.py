"""Preview a stack and write what a reviewer wants to know as Markdown: refusals, changes, totals, warnings.

    python preview_comment.py [words for `pulumi preview`, such as --stack acme/prod] > comment.md

Exit code 1: the preview was refused or failed. It needs Python 3.10 and the Pulumi CLI, and sends nothing anywhere.
"""

import contextlib
import difflib
import json
import math
import os
import re
import subprocess
import sys

NOISE = ("using pulumi-resource-", "an unhandled error occurred: program exited", "preview failed", "resource plugin")
SECRET = "4dabf18193072939515e22adb298388d"  # key by which Pulumi marks a secret
ENDED = ("SUCCEEDED", "FAILED", "CANCELLED")
MOST_LINES = 80  # of one diff
MOST_COMPARED = 2_000  # lines of one object, from the first one that differs
MOST_ROWS = 100  # of one table
MOST_TEXT = 12_000  # characters of one message or diff
MOST = 65_000  # characters of a comment: GitHub takes 65,536


def events_of(printed):
    """Return the events that a preview printed, each in a line. A CLI that is killed may end in the middle of one."""
    events = []
    for line in printed.split("\n"):
        if line.startswith("{"):
            with contextlib.suppress(json.JSONDecodeError):
                events.append(json.loads(line))
    return events


def resources_of(events):
    """Return URN -> what happens to a resource, its old and new inputs, and its outputs in the preview."""
    found = {}
    kinds = ("resourcePreEvent", "resOutputsEvent")
    for kind, step in ((kind, event[kind]["metadata"]) for event in events for kind in kinds if kind in event):
        old, new = step.get("old") or {}, step.get("new") or {}
        each = found.setdefault(step["urn"], {"type": step["type"], "old": {}, "new": {}, "outputs": {}})
        if kind == "resourcePreEvent":  # a replacement has several
            each["op"] = "replace" if "replace" in step["op"] else step["op"]
            each["old"], each["new"] = old.get("inputs") or each["old"], new.get("inputs") or each["new"]
        elif step["op"] != "delete":
            each["outputs"] = shown(new.get("outputs")) or each["outputs"]
    return found


def messages_of(events, severity):
    """Return the messages of a severity, each once and without what the engine adds."""
    said = (event["diagnosticEvent"] for event in events if "diagnosticEvent" in event)
    texts = [each["message"].strip() for each in said if each["severity"] == severity and not each.get("ephemeral")]
    return list(dict.fromkeys(text for text in texts if text and not text.startswith(NOISE)))


def totals(resources):
    """Return the rows of a table: what the replicas of each job ask for together, and the sum of those that may run."""
    rows, whole = [], [0] * 4
    for urn, each in resources.items():
        outputs = each["outputs"]
        if not each["type"].startswith("torchx:index:") or "declared" not in outputs:
            continue
        declared, observed = outputs["declared"], outputs.get("observed")
        state, amounts = observed.get("state", "new") if isinstance(observed, dict) else "new", [math.nan] * 4
        if isinstance(declared, dict):
            asked, replicas = declared["resources_total"], sum(number(role["replicas"]) for role in declared["roles"])
            amounts = [replicas, *(number(asked[name]) for name in ("cpu", "gpu", "memory_mb"))]
        rows.append([name_of(urn), state, *amounts])
        if state not in ENDED:
            whole = [one + other for one, other in zip(whole, amounts, strict=True)]
    rows = [["**not ended**", "", *whole], *rows] if rows else []
    return [[name, state, *(f"{one:.12g}".replace("nan", "?") for one in amounts)] for name, state, *amounts in rows]


def number(value):
    """Return a number; nan, `?` in the table, if it is known after the update only."""
    return value if isinstance(value, (int, float)) else math.nan


def name_of(urn):
    return plain(urn.rpartition("::")[2])


def plain(text):
    """Return a name as neither Markdown nor HTML."""
    return re.sub(r"[^\w.:/ -]", lambda found: f"&#{ord(found[0])};", text[:200])


def fenced(text, language="text"):
    """Return a text between two lines that it does not have."""
    tildes = "~" * max([6, *(len(run) + 1 for run in re.findall("~+", text))])
    more = f"\n# {len(text)} characters in all" * (len(text) > MOST_TEXT)
    return f"{tildes}{language}\n{text[:MOST_TEXT]}{more}\n{tildes}"


def table(*rows):
    lines = [f"| {' | '.join(row)} |" for row in rows[: MOST_ROWS + 1]]
    more = [f"\n{len(rows) - 1} rows in all"] * (len(rows) - 1 > MOST_ROWS)
    return "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:], *more])


def fitted(parts):
    """Return the texts of parts in their order, those of the highest numbers left out if a comment has no space."""
    left, kept = MOST - 100, {}
    for index, (_, text) in sorted(enumerate(parts), key=lambda part: part[1][0]):
        if len(text) + 2 <= left:
            kept[index], left = text, left - len(text) - 2
    more = [f"{len(parts) - len(kept)} messages and diffs have no space here."] * (len(kept) < len(parts))
    return [kept[index] for index in sorted(kept)] + more


def shown(value):
    """Return inputs as previews show them."""
    if isinstance(value, dict):
        return "[secret]" if SECRET in value else {key: shown(item) for key, item in value.items()}
    return [shown(item) for item in value] if isinstance(value, list) else value


def difference(each):
    """Return the changed inputs of an object as a diff."""
    old, new = (json.dumps(shown(each[key]), indent=1).splitlines() for key in ("old", "new"))
    same = next((index for index, pair in enumerate(zip(old, new, strict=False)) if pair[0] != pair[1]), 0)
    first = max(same - 2, 0)
    last, whole = first + MOST_COMPARED, max(len(old), len(new))
    # Where parts differ follows from the lines around them.
    found = list(difflib.unified_diff(old[first:last], new[first:last], lineterm="", n=2))[2:]
    lines = ["@@" if line.startswith("@@") else line for line in found]
    more = [f"# {len(lines)} lines in all"] * (len(lines) > MOST_LINES)
    more += [f"# lines {last + 1} to {whole} of the object are not compared"] * (whole > last)
    return "\n".join(lines[:MOST_LINES] + more)


def comment(events, *, failed):
    """Return the Markdown of the events of a preview."""
    resources = resources_of(events)
    changed = {urn: each for urn, each in resources.items() if each["op"] not in ("same", "read")}
    stack = next(iter(resources), "urn:pulumi:a stack").split(":")[2]
    parts = [(0, f"## Preview of `{stack}`: {'refused' if failed else 'changes' if changed else 'no changes'}")]
    if failed:
        unknown = ["It failed without a message: see the log of this pipeline."]
        parts += [(1, fenced(text)) for text in messages_of(events, "error") or unknown]
    parts += [(3, fenced(text)) for text in messages_of(events, "info")]
    if changed:
        rows = [[each["op"], f"`{name_of(urn)}`", f"`{plain(each['type'])}`"] for urn, each in changed.items()]
        parts.append((2, table(["Change", "Resource", "Type"], *rows)))
    for urn, each in changed.items():
        if each["type"].startswith("kubernetes:"):
            summary = f"<details><summary>{each['op']} {name_of(urn)}</summary>"
            parts.append((4, "\n\n".join([summary, fenced(difference(each), "diff"), "</details>"])))
    if rows := totals(resources):
        parts.append((2, table(["Job", "State", "Replicas", "CPUs", "GPUs", "Memory in MB"], *rows)))
    parts += [(3, fenced(text)) for text in messages_of(events, "warning")]
    return "\n\n".join(fitted(parts)) + "\n"


if __name__ == "__main__":
    words = ["pulumi", "preview", "--json", "--non-interactive", *sys.argv[1:]]
    env = {**os.environ, "PULUMI_ENABLE_STREAMING_JSON_PREVIEW": "true"}
    try:
        done = subprocess.run(words, env=env, stdout=subprocess.PIPE, text=True, check=False)
    except OSError as error:
        sys.exit(f"preview_comment.py: cannot run pulumi: {error.strerror}; install the Pulumi CLI, and put it on PATH")
    sys.stdout.write(comment(events_of(done.stdout), failed=done.returncode != 0))
    sys.exit(done.returncode != 0)
