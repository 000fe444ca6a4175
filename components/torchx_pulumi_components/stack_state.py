"""Read what the stack's state has of a component: record, intent, job object and outputs.

The engine sends the state to the program; no checkpoint is read here.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi
from torchx_pulumi.apps.answer import Answer
from torchx_pulumi.kube.kinds import Kind
from torchx_pulumi.model.cluster_identity import ClusterIdentity, read_identity
from torchx_pulumi.model.errors import DeployError
from torchx_pulumi.model.redaction import texts_in
from torchx_pulumi.model.registration_plan import APP_SUFFIX, INTENT_SUFFIX, RECORD
from torchx_pulumi.model.run_record import RunRecord, read_record

from torchx_pulumi_components.pulumi_runtime import alias_urns, call_engine, former_urns, once_per_program
from torchx_pulumi_components.resources import STASH, type_token

STACK = "pulumi:pulumi:Stack"
PROVIDER = "pulumi:providers:kubernetes"

SIGNATURE = "4dabf18193072939515e22adb298388d"
SECRET = "1b47061264138c4ac30d75fd1eb44270"  # noqa: S105  # a mark, not a secret
"""Key and value by which Pulumi marks a secret on its way to a program."""

HALF_WRITTEN = ("EOF", "checksum did not match")
"""What the engine says of a checkpoint that is being written: in a folder, and in an object store on one."""

READ_ATTEMPTS = 40
READ_PAUSE_S = 0.05
"""A file backend is read while the engine writes it; a later attempt reads the whole file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackState:
    """A component and its children in the stack's state, under its present URN or a former one."""

    urn: str
    """The component's present URN."""
    former_urns: tuple[str, ...] = ()
    """URNs that it had, by its aliases and its parent's."""
    record: RunRecord | None = None
    """The last run whose launch was confirmed. None: there was none."""
    intent: RunRecord | None = None
    """The last launch that was begun. Newer than `record`: the launch was refused or interrupted."""
    job: Mapping[str, Any] | None = None
    """The job object as of the last deployment or refresh. None: it is not in the state."""
    outputs: Mapping[str, Any] = field(default_factory=dict)
    """The component's last outputs, with secrets marked as in the state. Empty: they were never registered."""
    children: Mapping[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict)
    """Outputs of each child, by its type and its name without the component's name at the beginning."""
    app: Mapping[str, Any] | None = None
    """Index entry of the app (`model.app_entry`). None: a program launched the run."""
    cluster: ClusterIdentity | None = None
    """Cluster of a run whose launch could read none; a later `up` found it. None: not known."""

    @property
    def interrupted(self) -> bool:
        """Return whether a launch was begun and never confirmed."""
        return self.intent is not None and (self.record is None or self.intent.attempt > self.record.attempt)

    @property
    def has_provider(self) -> bool:
        """Return whether the component registered a Kubernetes provider for itself."""
        return (PROVIDER, "-kubernetes") in self.children

    def secret_texts(self) -> set[str]:
        """Return the texts in secret values of the objects' `spec`. Empty: none is secret."""
        return {text for child in self.children.values() for text in texts_in([*_secrets_in(child.get("spec"))])}

    def answer(self, run: RunRecord) -> Answer:
        """Return the observation in the component's outputs. Empty: none, or the outputs are of another run."""
        is_known = run.uid is not None and plain(self.outputs.get("uid")) == run.uid
        return Answer.of(plain(self.outputs)) if is_known else Answer()


async def real_parent(opts: pulumi.ResourceOptions) -> pulumi.Resource | None:
    """Return the parent that is part of URNs. The stack, which other languages send as a parent, is not."""
    if opts.parent is None or f"{STACK}::" in str(await opts.parent.urn.future()):
        return None
    return opts.parent


async def component_urns(token: str, name: str, opts: pulumi.ResourceOptions) -> tuple[str, ...]:
    """Return the URN of a component that is not registered yet, and those that it had, by its and its parent's aliases.

    Args:
        token: Its type token.
        name: Its name.
        opts: Its options.
    """
    parent = await real_parent(opts)
    present = str(await pulumi.create_urn(name, token, parent).future())
    own = await alias_urns(opts.aliases or [], name, token, parent)
    inherited = _inherited(name, present, own, parent, await former_urns(parent))
    return present, *dict.fromkeys([*own, *inherited])


def read_stack_state(urns: Sequence[str], job_objects: Sequence[Kind]) -> StackState:
    """Read what the state has of a component.

    Args:
        urns: Its `component_urns`.
        job_objects: Kinds of its child that stands for the run, the one of the arguments first; the last run may have
            had another variant.

    Raises:
        DeployError: The state cannot be read.
    """
    present, *former = urns
    outputs = read_outputs()
    for urn in urns:
        children = dict(_children(urn, outputs))
        own_outputs, intent = outputs.get(urn) or {}, children.get((STASH, INTENT_SUFFIX))
        record = plain(own_outputs.get(RECORD))
        tokens = (type_token(kind.api_version, kind.kind) for kind in job_objects)
        job = next((children[token, ""] for token in tokens if (token, "") in children), None)
        if record is None and intent is None and job is None:
            continue
        app = plain((children.get((STASH, APP_SUFFIX)) or {}).get("input"))
        try:
            cluster = read_identity(plain(own_outputs.get("cluster")))
        except ValueError as error:
            raise DeployError(f"the state of {urn} cannot be read: {error}; it was changed by hand") from error
        return StackState(
            urn=present,
            former_urns=tuple(former),
            record=read_record(record),
            intent=read_record(plain((intent or {}).get("input"))),
            job=plain(job),
            outputs=own_outputs,
            children=children,
            app=app,
            cluster=cluster,
        )
    return StackState(urn=present, former_urns=tuple(former))


def read_outputs() -> Mapping[str, Mapping[str, Any]]:
    """Return the outputs of all resources in this stack's state, by URN; secrets are marked as Pulumi marks them.

    A program reads the state once, before it registers its first job: as the last deployment left it.

    Raises:
        DeployError: The state cannot be read.
    """
    return once_per_program(_read_outputs)


def _read_outputs() -> Mapping[str, Mapping[str, Any]]:
    stack = f"{pulumi.get_organization()}/{pulumi.get_project()}/{pulumi.get_stack()}"
    for attempt in range(READ_ATTEMPTS):
        try:
            found = call_engine("pulumi:pulumi:readStackResourceOutputs", {"stackName": stack})
        except DeployError as error:
            is_half = any(word in str(error) for word in HALF_WRITTEN)
            if not is_half or attempt == READ_ATTEMPTS - 1:
                raise DeployError(f"the state of stack {stack} cannot be read: {error}") from error
            time.sleep(READ_PAUSE_S)
            continue
        resources = unmarked(found.get("outputs")) or {}
        return {urn: unmarked(unmarked(resource).get("outputs")) or {} for urn, resource in resources.items()}
    raise AssertionError("unreachable: the last attempt returns or raises")


def last_exports() -> Mapping[str, Any]:
    """Return the exports of the last deployment, as they are exported again.

    Raises:
        DeployError: The state cannot be read.
    """
    stored = next((found for urn, found in read_outputs().items() if f"::{STACK}::" in urn), {})
    return {name: as_inputs(value) for name, value in stored.items()}


def is_marked(value: object) -> bool:
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


def _secrets_in(value: Any) -> Iterator[Any]:
    """Yield the secret values in a value of the state, without marks."""
    if is_marked(value):
        yield plain(value)
    elif isinstance(value, (Mapping, list)):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _secrets_in(item)


def as_inputs(value: Any) -> Any:
    """Return a value of the state as it is registered again: secrets stay secret."""
    if is_marked(value):
        return pulumi.Output.secret(plain(value))
    if isinstance(value, Mapping):
        return {key: as_inputs(item) for key, item in value.items()}
    return [as_inputs(item) for item in value] if isinstance(value, list) else value


def _inherited(
    name: str, urn: str, own: Sequence[str], parent: pulumi.Resource | None, former: Sequence[str]
) -> Iterator[str]:
    """Yield the URNs that a component had under the former URNs of its parent."""
    kind = urn.split("::")[-2].rpartition("$")[2]
    for parent_urn in former:
        prefix, _, old_parent = parent_urn.rpartition("::")
        parent_name = "" if parent is None else parent.pulumi_resource_name
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
