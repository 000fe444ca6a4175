"""Preview a stack and write what a reviewer wants to know as Markdown: refusals, changes, totals, warnings.

    python preview_comment.py [words for `pulumi preview`, such as --stack acme/prod] > comment.md

Exit code 1: the preview was refused or failed. It needs Python 3.10 and the Pulumi CLI, and sends nothing anywhere.
"""

import difflib
import json
import math
import re
import subprocess
import sys
from collections import Counter

NOISE = ("using pulumi-resource-", "an unhandled error occurred: program exited", "preview failed", "resource plugin")
SCALES = {"m": 1e-3, "": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
MOST_LINES = 80  # of one diff


def number(quantity):
    """Return a Kubernetes quantity as a number. nan (`?` in the table): secret, or known after the update only."""
    found = re.fullmatch(r"([0-9.]+)([A-Za-z]*)", str(quantity))
    return float(found[1]) * SCALES[found[2]] if found and found[2] in SCALES else math.nan


def requested(manifest, times=1.0):
    """Yield what the pods of a manifest ask for, as pairs of resource and amount; each pod is one of `replicas`."""
    if isinstance(manifest, list):
        for item in manifest:
            yield from requested(item, times)
    elif isinstance(manifest, dict):
        times *= number(manifest.get("replicas", 1))
        if isinstance(manifest.get("containers"), list):
            yield "replicas", times
            for resources in (container.get("resources", {}) for container in manifest["containers"]):
                for name, quantity in {**resources.get("requests", {}), **resources.get("limits", {})}.items():
                    yield "gpu" if name.endswith("/gpu") else name, times * number(quantity)
        else:
            yield from requested(list(manifest.values()), times)


def totals(resources):
    """Return the rows of a table: what the replicas of each job ask for together, and the sum of all jobs."""
    jobs = {"**all**": Counter()}
    for new in (each["new"] for each in resources if each["new"]):
        owner = new["parent"] if "::torchx:" in new.get("parent", "") else new["urn"]
        for name, amount in requested(new.get("inputs")):
            for job in (name_of(owner), "**all**"):
                jobs.setdefault(job, Counter())[name] += amount
    rows = [(job, of["replicas"], of["cpu"], of["gpu"], of["memory"] / 1e9) for job, of in jobs.items()]
    return [
        f"| {' | '.join([job, *(f'{one:g}'.replace('nan', '?') for one in of)])} |" for job, *of in rows[1:] + rows[:1]
    ]


def resources_of(digest):
    """Return the resources of a preview; a replacement has several steps."""
    found = {}
    for step in digest.get("steps", []):
        each = found.setdefault(step["urn"], {"urn": step["urn"], "op": "", "old": None, "new": None})
        each["op"] = "replace" if "replace" in step["op"] else step["op"]
        each["old"], each["new"] = step.get("oldState") or each["old"], step.get("newState") or each["new"]
    return [each for each in found.values() if not re.search("pulumi:(pulumi:Stack|providers:)", each["urn"])]


def name_of(urn):
    return urn.rpartition("::")[2]


def type_of(urn):
    return urn.split("::")[2].rpartition("$")[2]


def fenced(text, language="text"):
    return f"~~~~~~{language}\n{text}\n~~~~~~"


def difference(each):
    """Return the changed inputs of an object as a diff. Secrets are `[secret]` in previews."""
    old, new = (json.dumps((each[key] or {}).get("inputs", {}), indent=1).splitlines() for key in ("old", "new"))
    lines = list(difflib.unified_diff(old, new, lineterm="", n=2))[2:]
    return "\n".join(lines[:MOST_LINES] + [f"# {len(lines)} lines in all"] * (len(lines) > MOST_LINES))


def comment(digest, *, failed):
    """Return the Markdown of the digest that `pulumi preview --json` prints."""
    said = {"error": {}, "warning": {}}  # each text once, in order
    for each in digest.get("diagnostics", []):
        text = re.sub("^(error|warning): ", "", each["message"].strip())
        if each["severity"] in said and text and not text.startswith(NOISE):
            said[each["severity"]][text] = None
    resources = resources_of(digest)
    changed = [each for each in resources if each["op"] not in ("same", "read")]
    stack = next((step["urn"].split(":")[2] for step in digest.get("steps", [])), "a stack")
    parts = [f"## Preview of `{stack}`: {'refused' if failed else 'changes' if changed else 'no changes'}"]
    if failed:
        parts += map(fenced, said["error"] or ["It failed before the program ran: see the log of this pipeline."])
    if changed:
        rows = [f"| {each['op']} | `{name_of(each['urn'])}` | `{type_of(each['urn'])}` |" for each in changed]
        parts.append("\n".join(["| Change | Resource | Type |", "|---|---|---|", *rows]))
    for each in changed:
        if type_of(each["urn"]).startswith("kubernetes:"):
            summary = f"<details><summary>{each['op']} {name_of(each['urn'])}</summary>"
            parts += [summary, fenced(difference(each), "diff"), "</details>"]
    rows = totals(resources)
    parts.append("\n".join(["| Job | Replicas | CPUs | GPUs | Memory in GB |", "|---|---|---|---|---|", *rows]))
    parts += map(fenced, said["warning"])
    return "\n\n".join(parts)[:65_000] + "\n"


if __name__ == "__main__":
    words = ["pulumi", "preview", "--json", "--non-interactive", *sys.argv[1:]]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
    sys.stdout.write(comment(json.loads(done.stdout or "{}"), failed=done.returncode != 0))
    sys.exit(done.returncode != 0)
