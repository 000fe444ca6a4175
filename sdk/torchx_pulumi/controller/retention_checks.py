"""Checks of the options of retention before a controller starts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta

from torchx_pulumi.controller.archive_rules import ArchiveRules
from torchx_pulumi.controller.settings import RetentionSettings
from torchx_pulumi.kube import Cluster
from torchx_pulumi.model.errors import ClusterError, Problem
from torchx_pulumi.schedulers.watching import forget_permissions

UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}

SHORTEST = timedelta(hours=1)
"""Shortest age: waits for the end of an app and the archiving of its logs are over long before that."""

ALLOWED = "a number with h, d or w, at least 1h, for example 12h or 30d"


def check_retention(
    after: str | None, failed_after: str | None, *, dry_run: bool, once: bool, archives: ArchiveRules | None = None
) -> tuple[list[Problem], RetentionSettings | None]:
    """Return what is wrong with the options, and the settings. None: nothing is forgotten.

    Args:
        after: Value of `--forget-after`. None: it is not given.
        failed_after: Value of `--forget-failed-after`. None: it is not given.
        dry_run: `--dry-run` is given.
        once: `--once` is given.
        archives: Archives that the controller uses. None: it has none.
    """
    given = {"--forget-after": after, "--forget-failed-after": failed_after}
    ages = {option: read_age(text) for option, text in given.items() if text is not None}
    problems = [
        Problem(option, f"found {given[option]!r}, allowed is {ALLOWED}") for option, age in ages.items() if age is None
    ]
    if after is None:
        needs = {"--forget-failed-after": failed_after is not None, "--dry-run": dry_run}
        text = "there is no --forget-after, without which nothing is forgotten; give an age, or leave this out"
        problems += [Problem(option, text) for option, is_given in needs.items() if is_given]
    if dry_run and not once:
        problems.append(Problem("--dry-run", "it shows what would be forgotten now, and ends; give --once with it"))
    age = ages.get("--forget-after")
    failed = ages.get("--forget-failed-after", None if age is None else 2 * age)
    if age is not None and failed is not None and failed < age:
        text = f"found {failed_after!r}, which is less than --forget-after {after}; failed apps stay at least as long"
        problems.append(Problem("--forget-failed-after", text))
    if problems or age is None or failed is None:
        return problems, None
    return [], RetentionSettings(after=age, failed_after=failed, dry_run=dry_run, archives=archives or ArchiveRules())


def read_age(text: str) -> timedelta | None:
    """Return an age. None: the text is not an age, or the age is too short.

    >>> read_age("36h"), read_age("30d"), read_age("30"), read_age("0d")
    (datetime.timedelta(days=1, seconds=43200), datetime.timedelta(days=30), None, None)
    """
    found = re.fullmatch(r"(\d{1,4})([hdw])", text, re.ASCII)
    age = None if found is None else int(found[1]) * UNITS[found[2]]
    return None if age is None or age < SHORTEST else age


def check_permissions(name: str, cluster: Cluster, namespaces: Sequence[str]) -> list[Problem]:
    """Return what is not permitted that forgetting needs in a cluster. A cluster that does not answer has no problem.

    Args:
        name: What messages call the cluster.
        cluster: The cluster.
        namespaces: The watched namespaces. Empty: all.
    """
    missing: list[str] = []
    try:
        needed = [one for one in forget_permissions() if not one.kind.group or cluster.serves(one.kind)]
        for namespace in namespaces or (None,):
            where = f"in namespace {namespace}" if namespace else "in all namespaces"
            missing += [f"{one} {where}" for one in needed if not cluster.allowed(one.verb, one.kind, namespace)]
    except ClusterError:
        # What is forgotten is decided when it answers again; a verb that is missing is reported then.
        return []
    if not missing:
        return []
    text = f"no permission in {name} to {', to '.join(missing)}; docs/permissions.md has the rules"
    return [Problem("--forget-after", text)]
