"""Every way in which our AppWrapper may differ from TorchX 0.7.0's own. The page docs/decisions/0007 says why.

`explain` names the difference that a pair of values shows; a pair that it cannot name is a mistake of ours.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tests.parity.differences import ABSENT, LABEL_VALUE, Difference, Pair

ITEM = r"spec\.resources\.GenericItems\[\d+\]"
OBJECT = rf"{ITEM}\.generictemplate"
CONTAINER = rf"{OBJECT}\.spec\.containers\[0\]"

RANK0 = re.compile(r"TORCHX_MCAD_[A-Z0-9_]*?_0_HOSTS")


def _role_in_name(pair: Pair) -> bool:
    """The replica's number stays, the role comes before it."""
    theirs, ours = re.fullmatch(r"(.*)-(\d+)", pair.theirs), re.fullmatch(r"(.*)-.*?[a-z0-9-]+-(\d+)", pair.ours)
    return bool(theirs and ours and theirs[2] == ours[2] and pair.ours.startswith(f"{theirs[1]}-"))


def _label(pair: Pair) -> bool:
    cut = len(pair.theirs) < len(pair.ours) and pair.ours.startswith(pair.theirs[:50])
    invalid = LABEL_VALUE.fullmatch(pair.theirs) is None
    return (invalid or cut) and LABEL_VALUE.fullmatch(pair.ours) is not None


def _rank0_variable(pair: Pair) -> bool:
    """Theirs has the replica's own role in its name, ours the first one's; the hosts are named differently."""
    values = [side["value"] if isinstance(side, dict) else side for side in (pair.theirs, pair.ours) if side != ABSENT]
    return all(re.fullmatch(r"[a-z0-9-]+-0\.[a-z0-9-]+", value) for value in values)


def _same_but_for_a_hashed_role(pair: Pair) -> bool:
    """The variable's name is the only part that differs, and ours ends in the hash of the role's name."""
    hashed = RANK0.findall(pair.ours)
    return (
        RANK0.split(str(pair.theirs)) == RANK0.split(pair.ours)
        and bool(hashed)
        and all(re.fullmatch(r"TORCHX_MCAD_[A-Z0-9]*[0-9A-F]{8}_0_HOSTS", name) for name in hashed)
    )


def _is(theirs: Any, ours: Any) -> Callable[[Pair], bool]:
    return lambda pair: (pair.theirs, pair.ours) == (theirs, ours)


def _only_ours(pair: Pair) -> bool:
    return bool(pair.theirs == ABSENT)


def _any(pair: Pair) -> bool:
    return True


DIFFERENCES: dict[str, Difference] = {
    "names of pods": Difference(
        rf"{OBJECT}\.(metadata\.name|spec\.hostname|spec\.containers\[0\]\.name)", _role_in_name
    ),
    "no empty pull secret": Difference(rf"{OBJECT}\.spec\.imagePullSecrets", _is([{}], ABSENT)),
    "completion": Difference(rf"{ITEM}\.completionstatus", _is(ABSENT, "Ready")),
    "custom pod resources": Difference(rf"{ITEM}\.custompodresources", _only_ours),
    "rank 0 variable": Difference(rf"{CONTAINER}\.env\.TORCHX_MCAD_[A-Z0-9_]+(\.value)?", _rank0_variable),
    "rank 0 macro of a hashed role": Difference(
        rf"{CONTAINER}\.(command\[\d+\]|env\.M\d\.value)", _same_but_for_a_hashed_role
    ),
    "labels": Difference(rf"{OBJECT}\.metadata\.labels\.(torchx\.pytorch\.org|app\.kubernetes\.io)/.*name", _label),
    "group of PodGroups": Difference(
        rf"{OBJECT}\.apiVersion", _is("scheduling.sigs.k8s.io/v1alpha1", "scheduling.x-k8s.io/v1alpha1")
    ),
    "label of a pod's PodGroup": Difference(
        rf"{OBJECT}\.metadata\.labels\.(pod-group\.scheduling\.sigs\.k8s\.io|scheduling\.x-k8s\.io/pod-group)", _any
    ),
    "ports out of range": Difference(rf"{CONTAINER}\.ports", lambda pair: pair.ours == []),
    "TORCHX_IMAGE": Difference(rf"{CONTAINER}\.env\.TORCHX_IMAGE.*", _any),
    "field paths": Difference(rf"{CONTAINER}\.env\.IP\.value(From)?", _any),
    "overlays": Difference(
        rf"{OBJECT}(\.metadata\.(labels\.(team|l)|annotations\.(a|id))|\.spec\.(nodeSelector.*|tolerations|volumes.*|"
        r"hostNetwork|dnsPolicy|fieldOfTomorrow|terminationGracePeriodSeconds|containers(\[0\]\.tty|\[1\])))",
        _any,
    ),
}


def explain(pair: Pair) -> str | None:
    """Name the declared difference that a pair shows, None if it is none."""
    for name, difference in DIFFERENCES.items():
        if re.fullmatch(difference.path, pair.path) and difference.holds(pair):
            return name
    return None
