"""App: one app as its stack or its entry knows it. `read_apps` and `App.of` are its only makers. Data in, data out.

A stack of `torchx run` has one app; the stack of a user's own program may have several. Each is a component in the
stack's state.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from torchx_pulumi.apps.answer import Answer
from torchx_pulumi.apps.judge import latest
from torchx_pulumi.apps.ownership import Run, is_of_launch, owns
from torchx_pulumi.apps.variants import find_variant
from torchx_pulumi.model.app_entry import RunEntry, StackRef, read_entry
from torchx_pulumi.model.cluster_identity import ClusterIdentity, Match, compare
from torchx_pulumi.model.errors import DeployError, TorchxPulumiError
from torchx_pulumi.model.object_fields import mapping_at, number_at, text_at
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.model.registration_plan import APP_SUFFIX
from torchx_pulumi.model.run_record import RunRecord, read_record
from torchx_pulumi.model.status import JobState, read_state
from torchx_pulumi.outputs.building import app_handle
from torchx_pulumi.outputs.reader import is_of_later_release
from torchx_pulumi.outputs.types import SCHEMA_VERSION
from torchx_pulumi.planning.names import owner_digest
from torchx_pulumi.schedulers import find_backend, scheduler_names
from torchx_pulumi.schedulers.registry import component_type
from torchx_pulumi.stack_state.checkpoint import DAMAGED, SECRET, STASH, Checkpoint, record_in
from torchx_pulumi.stack_state.stacks import StackName

AppKey = tuple[str, StackName, str]
"""Backend, stack and URN of an app's component."""

LATER = "a later release wrote its outputs; upgrade this one"
"""Why a stack of a later release is left alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class App:
    """One app, without a look at its cluster."""

    place: StackRef
    """Its stack."""
    urn: str = ""
    """URN of its component. Empty: its entry was read, not its stack."""
    run: Run
    """Its present run."""
    cluster: ClusterIdentity | None = None
    """The cluster of the launch. None: not recorded."""
    context: str | None = None
    """Context of the kubeconfig that the launch used. None: not known."""
    launched_at: str | None = None
    """When the launch was asked for, ISO 8601. None: not known."""
    entry: RunEntry | None = None
    """Note of the launch by `torchx run`, also in a program that took the app over. None: a program launched it."""
    output: Mapping[str, Any] = field(default_factory=dict)
    """In the shape of the output `torchx`: what its stack exports of it, else what its component and its entry say."""
    answer: Answer = field(default_factory=Answer)
    """What its component says of how the run stands, and was asked."""
    has_secrets: bool = False
    """Values of its component's outputs are secret: the outputs are not written, and explanations not shown."""
    quotes_secrets: bool = False
    """Messages of the cluster may quote a secret value of the run: explanations are neither shown nor written."""
    changing: bool = False
    """The stack had pending operations when it was read: a deployment runs, or was interrupted."""
    left_alone: str = ""
    """Why it is neither looked at nor written: a later release wrote its outputs or notes, or they were edited. Empty:
    it is not left alone."""

    @classmethod
    def of(cls, entry: RunEntry) -> App:
        """Return the app of an entry, also of one whose launch has not ended.

        Raises:
            DeployError: This release does not have its scheduler or its variant.
        """
        run = Run(
            namespace=entry.namespace,
            job_name=entry.job_name,
            variant=find_variant(entry.scheduler, entry.choice),
            uid=entry.uid,
            launches=frozenset(filter(None, (entry.launch,))),
            hash=entry.run or None,
            expected=entry.made_pods,
        )
        return cls(
            place=entry.place,
            run=run,
            cluster=entry.cluster_identity,
            context=entry.access[1],
            launched_at=entry.launched_at,
            entry=entry,
            output=_own_output(
                run, name=entry.name, queue=_noted_queue(entry), declared=entry.declared, ui_url=entry.ui_url
            ),
            answer=Answer(requested=entry.requested),
        )

    @property
    def key(self) -> AppKey:
        """Return the key that no other app has."""
        return (self.place.backend, self.stack, self.urn)

    @property
    def stack(self) -> StackName:
        """Return the name of its stack in the backend."""
        return StackName.of(self.place)

    @property
    def app_id(self) -> str:
        """Return `namespace:job_name`."""
        return self.run.app_id

    @property
    def uid(self) -> str | None:
        """Return the uid of the job object. None: not known yet."""
        return self.run.uid

    @property
    def state(self) -> JobState:
        """Return the state that its component has."""
        return read_state(self.answer.observed.get("state"))

    @property
    def declared(self) -> Mapping[str, Any]:
        """Return the requested roles and resources, in the shape of the output `declared`. Empty: not known."""
        return mapping_at(self.output, "declared")

    @property
    def log_archive(self) -> str | None:
        """Return the URL of the archive that the launch named. None: it named none."""
        return text_at(self.output, "links", "log_archive") if self.entry is None else self.entry.log_archive

    def owns(self, found: Manifest | None) -> bool:
        """Return whether an object, if there is one, belongs to its run, and not to another one of its name."""
        return owns(self.run, found or {})

    def launched(self, found: Manifest | None) -> bool:
        """Return whether its stack made an object, if there is one: in the run that is known here, or in another."""
        return is_of_launch(self.run.launches, found or {})

    def match(self, present: ClusterIdentity) -> Match:
        """Return whether a cluster is the one of the launch."""
        if self.cluster is None and self.entry is not None:
            return self.entry.match(present)
        return Match.UNDECIDED if self.cluster is None else compare(self.cluster, present)


def read_apps(checkpoint: Checkpoint, place: StackRef) -> list[App]:
    """Return the apps in the state of a stack. A component without a launch is left out.

    Args:
        checkpoint: The state; its Kubernetes objects may be left out.
        place: The stack.
    """
    schedulers = {component_type(scheduler): scheduler for scheduler in scheduler_names()}
    components = [item for item in checkpoint.resources if item.get("type") in schedulers and not item.get("delete")]
    found = (_read(item, schedulers[item["type"]], checkpoint, place) for item in components)
    return [app for app in found if app is not None]


def _read(component: Mapping[str, Any], scheduler: str, checkpoint: Checkpoint, place: StackRef) -> App | None:
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
    # The label is of the names at the launch, and the stack may have been renamed.
    launches = {owner_digest(place.organization, place.project, place.stack, urn), *((entry.launch,) if entry else ())}
    run = Run(
        namespace=namespace,
        job_name=job_name,
        variant=variant,
        uid=text_at(outputs, "uid") or (None if record is None else record.uid),
        launches=frozenset(launches),
        hash=(record and record.hash) or (entry and entry.run) or None,
        expected=entry.made_pods if entry is not None else None if record is None else variant.recorded_pods(record),
    )
    exports, answer = [*_exported(checkpoint, run.app_id)], Answer.of(outputs)
    exported = next((each for each in exports if not is_of_later_release(each)), None)
    # Without one, the program exports nothing of it, or its launch has not ended.
    output = exported or _own_output(
        run,
        name=urn.rpartition("::")[2] if entry is None else entry.name,
        queue=_queue(checkpoint, run) if entry is None else _noted_queue(entry),
        declared=_declared(outputs, place) if entry is None else mapping_at(outputs, "declared") or entry.declared,
        ui_url=None if entry is None else entry.ui_url,
    )
    if entry is not None and text_at(output, "app", "queue") is None:
        # `torchx run` exports the queues of Volcano only.
        output = {**output, "app": {**mapping_at(output, "app"), "queue": _noted_queue(entry)}}
    last = mapping_at(output, "observed")
    observed = answer.observed or last
    if last and last != observed:
        observed = latest(last, observed)
    return App(
        place=place,
        urn=urn,
        run=run,
        cluster=(entry and entry.cluster_identity) or (record and record.cluster) or None,
        context=_context_of_command(text_at(exported, "links", "log_command") or "")
        if entry is None
        else entry.access[1],
        launched_at=(record and record.launched_at) or (entry and entry.launched_at) or None,
        entry=entry,
        output={**output, "observed": observed},
        answer=answer,
        has_secrets=checkpoint.may_have_secrets and SECRET in json.dumps(outputs),
        quotes_secrets=record is not None and record.quotes_secrets is True,
        changing=bool(checkpoint.pending),
        left_alone=LATER if any(map(is_of_later_release, exports)) else left_alone,
    )


def _own_output(
    run: Run, *, name: str, queue: str | None, declared: Mapping[str, Any], ui_url: str | None
) -> dict[str, Any]:
    """Return the output `torchx` of an app that is not observed yet."""
    return {
        "schema_version": SCHEMA_VERSION,
        "app": {
            "id": run.app_id,
            "handle": app_handle(run.variant.scheduler, run.namespace, run.job_name),
            "name": name,
            "scheduler": run.variant.scheduler,
            "namespace": run.namespace,
            "queue": queue,
        },
        "declared": declared,
        "links": {"ui_url": ui_url},
    }


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


def _queue(checkpoint: Checkpoint, run: Run) -> str | None:
    """Return the queue that the job object in a stack names. None: it names none, or is gone.

    A launch writes its notes after the job object, and the run may have started by then.
    """
    kind = run.variant.job_object
    wanted = (kind.api_version, kind.kind, run.job_name)
    for made in (mapping_at(item, "inputs") for item in checkpoint.objects()):
        if (made.get("apiVersion"), made.get("kind"), text_at(made, "metadata", "name")) == wanted:
            return text_at(made, *find_backend(run.variant.scheduler).queue_field)
    return None


def _noted_queue(entry: RunEntry) -> str | None:
    """Return the queue in the note of a launch. None: the app names none."""
    return entry.queue or text_at(entry.options, find_backend(entry.scheduler).queue_option)


def _exported(checkpoint: Checkpoint, app_id: str) -> Iterator[Mapping[str, Any]]:
    """Yield the exports of an app in the shape of `torchx`, under any name and of any version."""
    for item in checkpoint.resources:
        for output in mapping_at(item, "outputs").values() if not item.get("parent") else ():
            has_version = isinstance(output, Mapping) and number_at(output, "schema_version") is not None
            if has_version and text_at(output, "app", "id") == app_id:
                yield output
