"""What the stack's own state says of a component: its last record, the launch that was begun, the job object.

Reads only. The record is written by `records`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc
import pulumi
from google.protobuf.json_format import MessageToDict  # type: ignore[import-untyped]  # no stubs
from google.protobuf.struct_pb2 import Struct  # type: ignore[import-untyped]  # no stubs
from pulumi.runtime.proto.resource_pb2 import ResourceInvokeRequest
from pulumi.runtime.settings import get_monitor
from torchx_pulumi.kube.kinds import Kind
from torchx_pulumi.model.cluster_identity import read_identity
from torchx_pulumi.model.errors import DeployError
from torchx_pulumi.model.registration_plan import APP_SUFFIX
from torchx_pulumi.model.run_record import RunHistory, RunRecord, read_record
from torchx_pulumi.outputs.newer import is_newer, read_state

from torchx_pulumi_components.input_resolution import wait_for
from torchx_pulumi_components.kubernetes_objects import type_token
from torchx_pulumi_components.whereabouts import Origin

STASH = "pulumi:index:Stash"
PROVIDER = "pulumi:providers:kubernetes"

SIGNATURE = "4dabf18193072939515e22adb298388d"
SECRET = "1b47061264138c4ac30d75fd1eb44270"  # noqa: S105  # the mark of a secret, no secret itself
"""Key and value by which Pulumi marks a secret on its way to a program."""

READ_ATTEMPTS = 40
READ_PAUSE_S = 0.05
"""A file backend is read while the engine writes it; the next look finds it whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackState:
    """What the state holds of a component and its children, under its present name or a former one."""

    urn: str
    """The component's present URN."""
    former_urns: tuple[str, ...]
    """URNs that it had, by its aliases and its parent's."""
    memory: RunHistory
    outputs: Mapping[str, Any] = field(default_factory=dict)
    """The component's last outputs, secrets marked as in the state. Empty: it never came as far."""
    children: Mapping[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict)
    """Type and end of the name (what follows the component's own) of each child to its outputs."""
    app: Mapping[str, Any] | None = None
    """What `torchx run` noted of the app (`runs.entry`). None: it was launched by a program."""
    origin: Origin = field(default_factory=Origin)
    """Where the last run was launched, as far as its record does not say it."""

    @property
    def observed(self) -> Mapping[str, Any] | None:
        """Return the component's last output `observed`."""
        found: Mapping[str, Any] | None = plain(self.outputs.get("observed"))
        return found

    def end_of(self, run: RunRecord) -> Mapping[str, Any] | None:
        """Return the end of a run as it was last seen. None: it was not seen.

        It is in the component's output `observed`. 0.1.0 kept it in the record; the newer one counts.
        """
        output = self.observed if run.uid is not None and plain(self.outputs.get("uid")) == run.uid else None
        looks = [seen for seen in (run.observed, output) if seen is not None]
        if len(looks) == 2:
            # A cancelled run that was seen active later was resumed.
            looks = [looks[1] if is_newer(looks[1], looks[0]) else looks[0]]
        return next((seen for seen in looks if read_state(seen.get("state")).terminal), None)


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
) -> StackState:
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
    outputs = read_outputs()
    for known in (present, *former):
        children = dict(_children(known, outputs))
        record, intent = children.get((STASH, "-record")), children.get((STASH, "-intent"))
        job = children.get((type_token(head), ""))
        if record is None and intent is None and job is None:
            continue
        memory = RunHistory(
            record=read_record(plain((record or {}).get("input"))),
            intent=read_record(plain((intent or {}).get("input"))),
            job=plain(job),
        )
        app = plain((children.get((STASH, APP_SUFFIX)) or {}).get("input"))
        own_outputs = outputs.get(known) or {}
        try:
            noted = read_identity(plain(own_outputs.get("cluster")) or (app or {}).get("cluster_identity"))
        except ValueError as error:
            raise DeployError(f"the state of {known} cannot be read: {error}; it was changed by hand") from error
        origin = Origin(
            cluster=noted,
            address=(app or {}).get("cluster"),
            job=job is not None,
            own_provider=(PROVIDER, "-kubernetes") in children,
        )
        return StackState(
            urn=present,
            former_urns=former,
            memory=memory,
            outputs=own_outputs,
            children=children,
            app=app,
            origin=origin,
        )
    return StackState(urn=present, former_urns=former, memory=RunHistory())


def recorded_images() -> frozenset[str]:
    """Return the digests of the images of the runs in this stack's state (`relaunch.identity.digest`).

    Raises:
        DeployError: The state cannot be read.
    """
    notes = [
        plain(outputs.get("input"))
        for urn, outputs in read_outputs().items()
        if f"{STASH}::" in urn and urn.endswith(("-record", "-intent"))
    ]
    digests = [
        note["digests"] for note in notes if isinstance(note, Mapping) and isinstance(note.get("digests"), Mapping)
    ]
    return frozenset(str(value) for each in digests for path, value in each.items() if path.endswith("].image"))


def read_outputs() -> Mapping[str, Mapping[str, Any]]:
    """Return the outputs of all resources in this stack's state, by URN; secrets are marked as Pulumi marks them.

    Pulumi's own `invoke` only says that something in the whole state is secret.

    Raises:
        DeployError: The state cannot be read.
    """
    stack = f"{pulumi.get_organization()}/{pulumi.get_project()}/{pulumi.get_stack()}"
    monitor: Any = get_monitor()
    arguments = Struct()
    arguments["stackName"] = stack
    request = ResourceInvokeRequest(tok="pulumi:pulumi:readStackResourceOutputs", args=arguments)
    for attempt in range(READ_ATTEMPTS):
        try:
            answer: Any = monitor.Invoke(request)
        except grpc.RpcError as error:
            said = str(error.details() if isinstance(error, grpc.Call) else error)
            if "EOF" not in said or attempt == READ_ATTEMPTS - 1:
                raise DeployError(f"the state of stack {stack} cannot be read: {said}") from error
            time.sleep(READ_PAUSE_S)
            continue
        resources = unmarked(MessageToDict(getattr(answer, "return")).get("outputs")) or {}
        return {urn: unmarked(unmarked(resource).get("outputs")) or {} for urn, resource in resources.items()}
    raise AssertionError("unreachable: the last attempt returns or raises")


def is_marked(value: Any) -> bool:
    """Return whether a value of the state is a secret."""
    return isinstance(value, Mapping) and value.get(SIGNATURE) == SECRET


def unmarked(value: Any) -> Any:
    """Return a value of the state, without the mark if it is a secret as a whole."""
    return value["value"] if is_marked(value) else value


def plain(value: Any) -> Any:
    """Return a value of the state without any marks of secrets."""
    value = unmarked(value)
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


def as_inputs(value: Any) -> Any:
    """Return a value of the state as it is registered again: secrets stay secret."""
    if is_marked(value):
        return pulumi.Output.secret(plain(value))
    if isinstance(value, Mapping):
        return {key: as_inputs(item) for key, item in value.items()}
    return [as_inputs(item) for item in value] if isinstance(value, list) else value


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


def _children(
    urn: str, outputs: Mapping[str, Mapping[str, Any]]
) -> Iterator[tuple[tuple[str, str], Mapping[str, Any]]]:
    """Yield type, end of the name and outputs of a component's children.

    A URN names the type of the parent, not the parent: children of another component, whose name begins with this
    one's, are among them.
    """
    prefix, _, name = urn.rpartition("::")
    for child, found in outputs.items():
        above, _, child_name = child.rpartition("::")
        if above.startswith(f"{prefix}$") and child_name.startswith(name):
            yield (above.removeprefix(f"{prefix}$"), child_name.removeprefix(name)), found
