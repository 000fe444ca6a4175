"""The apps in a stack: where they are, and how they stand by the stack. Text in, data out.

A stack of `torchx run` has one app; the stack of a user's own program may have several. Each is a component in the
stack's state.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from sys import intern
from typing import Any

from torchx_pulumi.apps.answer import Answer
from torchx_pulumi.apps.judge import latest
from torchx_pulumi.apps.ownership import Run, owns
from torchx_pulumi.model.app_entry import RunEntry, StackRef, read_entry
from torchx_pulumi.model.cluster_identity import ClusterIdentity, Match, compare
from torchx_pulumi.model.errors import DeployError, TorchxPulumiError
from torchx_pulumi.model.object_fields import mapping_at, number_at, text_at, time_at
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.model.registration_plan import APP_SUFFIX
from torchx_pulumi.model.requested import Requested
from torchx_pulumi.model.run_record import RunRecord, read_record
from torchx_pulumi.model.status import JobState, read_state
from torchx_pulumi.model.timestamps import parse_time
from torchx_pulumi.outputs.building import app_handle
from torchx_pulumi.outputs.reader import is_of_later_release
from torchx_pulumi.outputs.types import SCHEMA_VERSION
from torchx_pulumi.runs.identity import owner_digest
from torchx_pulumi.runs.variants import find_variant
from torchx_pulumi.runs.whereabouts import match_identity
from torchx_pulumi.schedulers import SchedulerBackend, Variant, find_backend, scheduler_names
from torchx_pulumi.schedulers.registry import component_type
from torchx_pulumi.stack_state.checkpoint import (
    DAMAGED,
    SECRET,
    STASH,
    Checkpoint,
    UnreadableStateError,
    is_object,
    output_in,
    parse_checkpoint,
    parse_components,
    record_in,
)
from torchx_pulumi.stack_state.stacks import StackName

from torchx_pulumi_fleet.views.row import StackApp

AppKey = tuple[str, StackName, str]
"""Backend, stack and URN of an app's component."""

SHARED_LENGTH = 64
"""Length of the longest text that is stored once for several apps, in characters."""

LATER = "a later release wrote its outputs; upgrade this one"
"""Why a stack of a later release is left alone."""

KEPT = ("state", "reason", "phase", "message", "uid", "resource_version", "queued_at", "started_at", "observed_at")
"""Texts of an observation that are kept of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedApp:
    """One app in a stack."""

    backend: str
    """URL of the backend, without credentials."""
    stack: StackName
    place: StackRef
    """The stack, as the driver takes it."""
    urn: str
    """URN of the app's component."""
    scheduler: str
    variant: Variant
    namespace: str
    job_name: str
    launches: frozenset[str]
    """Values that the label `torchx-pulumi/launch` of its job object may have."""
    uid: str | None
    """Uid of the job object. None: the launch has not written it yet."""
    run_hash: str | None = None
    """Hash of the run. None: not recorded."""
    expected: Mapping[str, tuple[str, ...]] | None = None
    """Role name to its created pods. None: unknown."""
    cluster: ClusterIdentity | None = None
    """The cluster of the launch. None: not recorded."""
    context: str | None = None
    """Context of the kubeconfig that the launch used. None: not known."""
    log_archive: str | None = None
    """URL of the archive that the launch named. None: it named none. Whether it counts is said by `ArchiveRules`."""
    entry: RunEntry | None = None
    """Note of the launch by `torchx run`, also in a program that took the app over; without AppDef, pods and what is
    declared. None: a program launched it."""
    has_secrets: bool = False
    """Values of its component's outputs are secret: the outputs are not written, and explanations not shown."""
    output: StackApp = field(default_factory=lambda: StackApp(output={}))
    """What the stack says of the app, in the shape of the output `torchx`."""
    observed: Mapping[str, Any] = field(default_factory=dict)
    """What `apps.judge` needs of the last observation in the stack. Empty: the stack has none."""
    requested: Requested | None = None
    """The last request to cancel or resume it that the stack has. None: it has none."""
    changing: bool = False
    """The stack had pending operations when it was read: a deployment runs, or was interrupted."""
    left_alone: str = ""
    """Why it is neither looked at nor written: a later release wrote its outputs or notes, or they were edited. Empty:
    it is not left alone."""

    @property
    def key(self) -> AppKey:
        """Return the key of the app."""
        return (self.backend, self.stack, self.urn)

    @property
    def by_torchx(self) -> bool:
        """Return whether `torchx run` launched it."""
        return self.entry is not None

    @property
    def app_id(self) -> str:
        """Return `namespace:job_name`."""
        return f"{self.namespace}:{self.job_name}"

    @property
    def scheduler_backend(self) -> SchedulerBackend[Any]:
        """Return the backend of its scheduler."""
        return find_backend(self.scheduler)

    @property
    def state(self) -> JobState:
        """Return the state in the stack."""
        return read_state(self.observed.get("state"))

    @property
    def run(self) -> Run:
        """Return the identity of its run in the cluster."""
        return Run(
            namespace=self.namespace,
            job_name=self.job_name,
            variant=self.variant,
            uid=self.uid,
            launches=self.launches,
            hash=self.run_hash,
            expected=self.expected,
        )

    def owns(self, found: Manifest) -> bool:
        """Return whether an object belongs to this run."""
        return owns(self.run, found)

    def match(self, present: ClusterIdentity) -> Match:
        """Return whether a cluster is the one of the launch."""
        if self.cluster is None and self.entry is not None:
            return match_identity(self.entry, present)
        return Match.UNDECIDED if self.cluster is None else compare(self.cluster, present)


@dataclass(frozen=True, slots=True, kw_only=True)
class StackContent:
    """What is read of a stack."""

    apps: Sequence[TrackedApp] = ()
    why: str = ""
    """Why its output `torchx` cannot be read. Empty: it can, or there is none."""


def read_stack(text: str, place: StackRef, name: StackName) -> StackContent:
    """Read the apps in a checkpoint.

    Args:
        text: The checkpoint.
        place: The stack.
        name: The same, as the backend lists it.

    Raises:
        UnreadableStateError: The text is not a checkpoint.
    """
    checkpoint, why = parse_components(text), ""
    try:
        output_in(checkpoint)
    except UnreadableStateError as error:
        why = str(error)
    schedulers = {component_type(scheduler): scheduler for scheduler in scheduler_names()}
    components = [item for item in checkpoint.resources if item.get("type") in schedulers and not item.get("delete")]
    found = (_read(item, schedulers[item["type"]], checkpoint, text, place, name) for item in components)
    return StackContent(apps=[app for app in found if app is not None], why=why)


def _read(
    component: Mapping[str, Any], scheduler: str, checkpoint: Checkpoint, text: str, place: StackRef, name: StackName
) -> TrackedApp | None:
    """Return the app of a component. None: no launch yet."""
    urn, outputs = str(component.get("urn")), mapping_at(component, "outputs")
    entry, record, left_alone = _notes(checkpoint, urn)
    namespace, job_name = text_at(outputs, "namespace"), text_at(outputs, "job_name")
    if record is not None:
        namespace, job_name = namespace or record.namespace, job_name or record.job_name
    if namespace is None or job_name is None:
        return None
    try:
        variant = find_variant(scheduler, None if entry is None else entry.choice, record)
    except DeployError as error:
        variant, left_alone = find_variant(scheduler, None), str(error)
    app_id, answer = f"{namespace}:{job_name}", Answer.of(outputs)
    exports = [*_exported(checkpoint, app_id)]
    exported = next((each for each in exports if not is_of_later_release(each)), None)
    output = exported or {
        # The program exports nothing of it, or its launch has not ended.
        "schema_version": SCHEMA_VERSION,
        "app": {
            "id": app_id,
            "handle": text_at(outputs, "app_handle") or app_handle(scheduler, namespace, job_name),
            "name": urn.rpartition("::")[2] if entry is None else entry.name,
            "scheduler": scheduler,
            "namespace": namespace,
            "queue": _queue(text, variant, job_name) if entry is None else entry.queue,
        },
        "declared": _declared(outputs, place) if entry is None else mapping_at(outputs, "declared") or entry.declared,
        "links": {"ui_url": None if entry is None else entry.ui_url},
    }
    observed, own = mapping_at(output, "observed"), answer.observed
    if observed != own:
        observed = latest(observed, own) if observed and own else own or observed
    launched = (record and record.launched_at) or (entry and entry.launched_at)
    launches = {owner_digest(place.organization, place.project, place.stack, urn)}
    expected = entry.made_pods if entry is not None else variant.recorded_pods(record) if record is not None else None
    return TrackedApp(
        backend=place.backend,
        stack=name,
        place=place,
        urn=urn,
        scheduler=scheduler,
        variant=variant,
        namespace=namespace,
        job_name=job_name,
        # The label is of the names at the launch, and the stack may have been renamed.
        launches=frozenset(launches if entry is None else {*launches, entry.launch}),
        uid=text_at(outputs, "uid") or (None if record is None else record.uid),
        run_hash=(record and record.hash) or (entry and entry.run) or None,
        expected=None if expected is None else {role: tuple(names) for role, names in expected.items()},
        cluster=(entry and entry.cluster_identity) or (record and record.cluster) or None,
        context=_context_of_command(text_at(exported, "links", "log_command") or "")
        if entry is None
        else entry.kube_context or entry.ambient_context,
        log_archive=text_at(exported, "links", "log_archive")
        if entry is None
        else text_at(entry.log_options, "log_archive"),
        entry=entry and replace(entry, app={}, pods={}, declared={}),
        has_secrets=SECRET in text and SECRET in json.dumps(outputs),
        output=StackApp(
            output=compact({**output, "observed": observed}),
            launched_at=parse_time(launched) if launched and time_at(observed, "queued_at") is None else None,
        ),
        observed=kept_of_observed(answer.observed),
        requested=answer.requested,
        changing=bool(checkpoint.pending),
        left_alone=LATER if any(map(is_of_later_release, exports)) else left_alone,
    )


def _context_of_command(log_command: str) -> str | None:
    """Return the context that the log command of a program's app names. None: it names none."""
    try:
        words = shlex.split(log_command)
    except ValueError:
        return None
    return words[words.index("--context") + 1] if "--context" in words[:-1] else None


def _declared(outputs: Mapping[str, Any], place: StackRef) -> dict[str, Any]:
    """Return the declaration of a program's job. Its stack stands for the user, as in what a program exports."""
    declared = mapping_at(outputs, "declared")
    return {**declared, "created_by": declared.get("created_by") or f"{place.project}/{place.stack}"}


def kept_of_observed(observed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a stack's observation that is kept in memory. Empty: the stack has none."""
    kept: dict[str, Any] = {name: text for name in KEPT if (text := text_at(observed, name)) is not None}
    return {**kept, "attempt": number_at(observed, "attempt") or 1} if kept else {}


def compact(value: Any) -> Any:
    """Return a JSON value in which short texts are shared with other apps, and secret ones are null."""
    if isinstance(value, str):
        return intern(str(value)) if len(value) <= SHARED_LENGTH else value
    # Of JSON, so that the quick test for this type is enough.
    if isinstance(value, dict):
        return None if SECRET in value else {intern(str(key)): compact(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [compact(item) for item in value]
    return value


def _notes(checkpoint: Checkpoint, urn: str) -> tuple[RunEntry | None, RunRecord | None, str]:
    """Return the note of a launch by `torchx run`, that of the last run, and why they cannot be read.

    None: the stack has none, or one cannot be read.
    """
    entry = record = None
    try:
        for item in checkpoint.resources:
            name = str(item.get("urn"))
            if name == urn:
                record = read_record(record_in(item))
            elif item.get("type") == STASH and item.get("parent") == urn and name.endswith(APP_SUFFIX):
                entry = read_entry((item.get("inputs") or {}).get("input"), f"resource {name.rpartition('::')[2]}")
    except TorchxPulumiError as error:
        return None, None, str(error)
    except DAMAGED as error:
        return None, None, f"its checkpoint is damaged: {error}"
    return entry, record, ""


def _exported(checkpoint: Checkpoint, app_id: str) -> Iterator[Mapping[str, Any]]:
    """Yield the exports of an app in the shape of `torchx`, under any name and of any version."""
    for item in checkpoint.resources:
        for output in mapping_at(item, "outputs").values() if not item.get("parent") else ():
            has_version = isinstance(output, Mapping) and number_at(output, "schema_version") is not None
            if has_version and text_at(output, "app", "id") == app_id:
                yield output


def _queue(text: str, variant: Variant, job_name: str) -> str | None:
    """Return the queue that a job object in a stack names. None: it names none.

    A launch writes its notes after the job object, and the run may have started by then.
    """
    kind = variant.job_object
    for item in parse_checkpoint(text).resources:
        made = mapping_at(item, "inputs") if is_object(item) else {}
        if (made.get("apiVersion"), made.get("kind"), text_at(made, "metadata", "name")) == (
            kind.api_version,
            kind.kind,
            job_name,
        ):
            return text_at(made, "spec", "queue")
    return None
