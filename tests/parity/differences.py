"""Every way in which our Volcano Job may differ from TorchX's own. The page docs/decisions/0003 says why.

`explain` names the difference that a pair of values shows; a pair that it cannot name is a mistake of ours.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

ABSENT = "<absent>"

ITEM_BY_ITEM = ("containers", "volumes", "tasks", "command", "GenericItems")
"""Lists that are walked; others are compared whole."""


@dataclass(frozen=True)
class Pair:
    """Two values found at the same place."""

    path: str
    theirs: Any
    ours: Any


@dataclass(frozen=True)
class Difference:
    """A declared difference: where it may show, and how the two values are then related."""

    path: str
    """Regular expression of the whole path."""
    holds: Callable[[Pair], bool]
    versions: tuple[str, ...] = ("0.7.0", "nightly")


TASK = r"spec\.tasks\[\d+\]"
POD = rf"{TASK}\.template"
CONTAINER = rf"{POD}\.spec\.containers\[0\]"
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


def _torchx_invalid_or_cut(pair: Pair) -> bool:
    cut = len(pair.theirs) == 63 and pair.ours.startswith(pair.theirs[:54])
    return (cut or LABEL_VALUE.fullmatch(pair.theirs) is None) and LABEL_VALUE.fullmatch(pair.ours) is not None


def _same_but_for_volcano_names(pair: Pair) -> bool:
    """The variable's name is the only part that differs, and ours is made as Volcano makes it."""
    theirs, ours = re.split(r"VC_.*?_0_HOSTS", str(pair.theirs)), re.split(r"VC_[A-Z0-9_]+_0_HOSTS", pair.ours)
    return theirs == ours


DIFFERENCES: dict[str, Difference] = {
    "namespace": Difference(r"metadata\.namespace", lambda pair: pair.theirs == ABSENT),
    "minAvailable of the job": Difference(r"spec\.minAvailable", lambda pair: pair.theirs == ABSENT),
    "minAvailable of a task": Difference(rf"{TASK}\.minAvailable", lambda p: (p.theirs, p.ours) == (ABSENT, 1)),
    "maxRetry of a task": Difference(rf"{TASK}\.maxRetry", lambda pair: (pair.theirs, pair.ours) == (ABSENT, 3)),
    "maxRetry of the job, none": Difference(r"spec\.maxRetry", lambda pair: (pair.theirs, pair.ours) == (0, ABSENT)),
    "maxRetry of the job, mixed": Difference(r"spec\.maxRetry", lambda p: p.theirs == 0 and p.ours != ABSENT),
    "policies of REPLICA": Difference(
        rf"{TASK}\.policies",
        lambda pair: pair.theirs == [] and pair.ours == [{"event": "PodFailed", "action": "RestartTask"}],
    ),
    "rank 0 variable": Difference(rf"{CONTAINER}\.(command\[\d+\]|env\.M\d\.value)", _same_but_for_volcano_names),
    "labels": Difference(
        rf"{POD}\.metadata\.labels\.(torchx\.pytorch\.org|app\.kubernetes\.io)/.*name", _torchx_invalid_or_cut
    ),
    "names of roles": Difference(
        rf"({TASK}|{CONTAINER})\.name",
        lambda pair: (
            re.fullmatch(r"(ab|role|r{31})-[0-9a-f]{8}-\d", pair.ours) is not None
            or (pair.theirs, pair.ours) in {("--train-0", "train-0"), ("--train-1", "train-1")}
        ),
    ),
    "TORCHX_IMAGE": Difference(rf"{CONTAINER}\.env\.TORCHX_IMAGE.*", lambda pair: True, ("0.7.0",)),
    "field paths": Difference(rf"{CONTAINER}\.env\.IP\.value(From)?", lambda pair: True, ("0.7.0",)),
    "deprecated macro": Difference(
        rf"{CONTAINER}\.command\[\d+\]",
        lambda pair: (pair.theirs, pair.ours) == ("${base_img_root}", "DEPRECATED"),
        ("nightly",),
    ),
    "DNS policy on the host's network": Difference(
        rf"{POD}\.spec\.dnsPolicy", lambda p: (p.theirs, p.ours) == (ABSENT, "ClusterFirstWithHostNet")
    ),
    "fields unknown to TorchX's client": Difference(rf"{POD}\.spec\.fieldOfTomorrow", lambda p: p.theirs == ABSENT),
    # 0.7.0 has no overlays at all: whatever an overlay of our cases writes.
    "overlays": Difference(
        rf"{POD}(\.metadata\.(labels\.(team|l)|annotations\.(a|id))|\.spec\.(nodeSelector.*|tolerations|volumes.*|"
        r"hostNetwork|terminationGracePeriodSeconds|containers(\[0\]\.tty|\[1\])))",
        lambda pair: True,
        ("0.7.0",),
    ),
}


def explain(pair: Pair, version: str) -> str | None:
    """Name the declared difference that a pair shows, None if it is none."""
    for name, difference in DIFFERENCES.items():
        known = version in difference.versions and re.fullmatch(difference.path, pair.path)
        if known and difference.holds(pair):
            return name
    return None


def compare(theirs: Any, ours: Any, path: str = "") -> Iterator[Pair]:
    """Walk two manifests and yield what differs; environments are compared by name, their order apart."""
    if path.endswith(".env"):
        theirs, ours = ({env["name"]: env for env in side} for side in (theirs, ours))
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in {**theirs, **ours}:
            inner = f"{path}.{key}" if path else key
            yield from compare(theirs.get(key, ABSENT), ours.get(key, ABSENT), inner)
    elif isinstance(theirs, list) and isinstance(ours, list) and path.endswith(ITEM_BY_ITEM):
        for index in range(max(len(theirs), len(ours))):
            sides = (side[index] if index < len(side) else ABSENT for side in (theirs, ours))
            yield from compare(*sides, f"{path}[{index}]")
    elif theirs != ours or type(theirs) is not type(ours):
        yield Pair(path, theirs, ours)
