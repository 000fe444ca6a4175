"""What the stack's own state says of a component: its last record, the launch that was begun, the job object.

Reads only. The record is written by `records`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
from torchx_pulumi.errors import DeployError
from torchx_pulumi.kinds import Kind
from torchx_pulumi.relaunch.record import Memory, read_record
from torchx_pulumi.runs.ready_run import APP_SUFFIX

from torchx_pulumi_components.leaves import wait_for
from torchx_pulumi_components.objects import type_token

STASH = "pulumi:index:Stash"

READ_ATTEMPTS = 40
READ_PAUSE_S = 0.05
"""A file backend is read while the engine writes it; the next look finds it whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What the state holds of a component and its children, under its present name or a former one."""

    urn: str
    """The component's present URN."""
    former_urns: tuple[str, ...]
    """URNs that it had, by its aliases and its parent's."""
    memory: Memory
    observed: Mapping[str, Any] | None
    """The component's last output `observed`."""
    app: Mapping[str, Any] | None = None
    """What `torchx run` noted of the app (`runs.entry`). None: it was launched by a program."""


def real_parent(opts: pulumi.ResourceOptions) -> pulumi.Resource | None:
    """Return the parent as far as URNs are concerned: the stack, which other languages send, is none."""
    if opts.parent is None or "pulumi:pulumi:Stack::" in str(wait_for(opts.parent.urn.future())):
        return None
    return opts.parent


def read_past(
    urn: pulumi.Output[str],
    aliases: Sequence[pulumi.Output[str]],
    name: str,
    parent: pulumi.Resource | None,
    head: Kind,
) -> Past:
    """Read what the state holds of a component that is not registered yet.

    Args:
        urn: Its URN.
        aliases: URNs that its options say it had.
        name: Its name.
        parent: Its parent. None: the stack.
        head: Kind of the child that stands for the run.

    Raises:
        DeployError: The state cannot be read.
    """
    present = str(wait_for(urn.future()))
    own = [str(wait_for(alias.future())) for alias in aliases]
    former = tuple(dict.fromkeys([*own, *_inherited(name, present, own, parent)]))
    outputs = _state_outputs()
    for known in (present, *former):
        record = outputs.get(_child(known, STASH, "-record"))
        intent = outputs.get(_child(known, STASH, "-intent"))
        job = outputs.get(_child(known, type_token(head), ""))
        if record is None and intent is None and job is None:
            continue
        memory = Memory(
            record=read_record((record or {}).get("input")), intent=read_record((intent or {}).get("input")), job=job
        )
        observed = (outputs.get(known) or {}).get("observed")
        app = (outputs.get(_child(known, STASH, APP_SUFFIX)) or {}).get("input")
        return Past(urn=present, former_urns=former, memory=memory, observed=observed, app=app)
    return Past(urn=present, former_urns=former, memory=Memory(), observed=None)


def _state_outputs() -> Mapping[str, Any]:
    """Return the outputs of all resources in this stack's state, by URN."""
    stack = f"{pulumi.get_organization()}/{pulumi.get_project()}/{pulumi.get_stack()}"
    for attempt in range(READ_ATTEMPTS):
        try:
            result = pulumi.runtime.invoke("pulumi:pulumi:readStackResourceOutputs", {"stackName": stack})
        except Exception as error:
            if "EOF" not in str(error) or attempt == READ_ATTEMPTS - 1:
                raise DeployError(f"the state of stack {stack} cannot be read: {error}") from error
            time.sleep(READ_PAUSE_S)
            continue
        resources = (result.value or {}).get("outputs") or {}
        return {urn: resource.get("outputs") or {} for urn, resource in resources.items()}
    raise AssertionError("unreachable: the last attempt returns or raises")


def _inherited(name: str, urn: str, own: Sequence[str], parent: pulumi.Resource | None) -> Iterator[str]:
    """Yield the URNs that a component had under the former names of its parent."""
    kind = urn.split("::")[-2].rpartition("$")[2]
    for alias in getattr(parent, "_aliases", []):
        parent_urn = str(wait_for(pulumi.Output.from_input(alias).future()))
        prefix, _, old_parent = parent_urn.rpartition("::")
        parent_name = str(getattr(parent, "_name", ""))
        # As the engine does it: a child named after its parent was named after the parent's former name.
        renamed = old_parent + name[len(parent_name) :] if parent_name and name.startswith(parent_name) else name
        for child in dict.fromkeys((renamed, *(item.rpartition("::")[2] for item in own))):
            yield f"{prefix}${kind}::{child}"


def _child(urn: str, kind: str, suffix: str) -> str:
    prefix, _, name = urn.rpartition("::")
    return f"{prefix}${kind}::{name}{suffix}"
