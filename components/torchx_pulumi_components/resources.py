"""Registration of a run in Pulumi: its Kubernetes objects, and the notes in the stack's state.

The only module that registers resources. `register_objects` and `register_notes` do so for components and for apps that
`torchx run` launches.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pulumi
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.model.registration_plan import APP_SUFFIX, INTENT_SUFFIX
from torchx_pulumi.model.versions import provider_version

STASH = "pulumi:index:Stash"

STORED_POD_FIELDS = ("metadata.labels", "metadata.annotations", "spec")
"""Fields that a kept Pod or Service keeps. Not the name, which is an Output of the job object."""

SKIP_AWAIT = {"pulumi.com/skipAwait": "true"}
"""A gang may wait for hours in its queue: the deployment does not wait for its pods."""


# The classes of children have no constructors of their own: the SDK would then send a trace of the calls in here with
# each, which the engine keeps, a fifth of the state of a job.


class Note(pulumi.CustomResource):
    """A `pulumi.Stash`."""

    @property
    @pulumi.getter
    def input(self) -> pulumi.Output[Any]:
        """What was registered last."""
        return pulumi.get(self, "input")  # type: ignore[no-any-return]  # untyped in the SDK


class KubernetesObject(pulumi.CustomResource):
    """One object of any kind. Unlike the Kubernetes SDK's class for custom resources it has a `status`."""

    @classmethod
    def register(cls, name: str, manifest: Manifest, opts: pulumi.ResourceOptions) -> KubernetesObject:
        """Register an object."""
        # Outputs are resolved only for names that are among the properties, hence the empty status.
        props = {**{key: manifest[key] for key in ("apiVersion", "kind", "metadata", "spec")}, "status": None}
        return cls(type_token(manifest["apiVersion"], manifest["kind"]), name, props, opts)

    @property
    @pulumi.getter
    def metadata(self) -> pulumi.Output[dict[str, Any]]:
        """Metadata as the API server has it."""
        return pulumi.get(self, "metadata")  # type: ignore[no-any-return]  # untyped in the SDK

    async def read_uid(self) -> str | None:
        """Return the uid once the object is created. None: the engine did not create it."""
        return ((await self.metadata.future()) or {}).get("uid")

    @property
    def uid(self) -> pulumi.Output[str | None]:
        """Uid of the object, not secret even if its metadata is. Unknown in a preview.

        There the provider has the metadata of the server's dry run, which makes up another uid each time.
        """
        is_preview = pulumi.runtime.is_dry_run()

        def read(metadata: dict[str, Any] | None) -> Any:
            return pulumi.output.UNKNOWN if is_preview else (metadata or {}).get("uid")

        return pulumi.Output.unsecret(self.metadata.apply(read))

    @property
    def name(self) -> pulumi.Output[Any]:
        """Name of the object, not secret even if its metadata is."""
        return pulumi.Output.unsecret(self.metadata["name"])

    @property
    @pulumi.getter
    def status(self) -> pulumi.Output[dict[str, Any] | None]:
        """Status as of the last deployment or refresh. None: it had none yet."""
        return pulumi.get(self, "status")  # type: ignore[no-any-return]  # untyped in the SDK


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildOptions:
    """Resource options of the objects that a component registers."""

    depends_on: Sequence[pulumi.Resource] = ()
    provider: pulumi.ProviderResource | None = None
    """Provider that the component registered for itself. None: the inherited one."""
    ignore_changes: Sequence[str] = ()
    """Fields that the user's options name; they are ignored in all objects."""
    kept_fields: Sequence[str] = ()
    """Fields of the job object that keep their stored values."""
    kept_companion_fields: Sequence[str] = ()
    """The same for the objects next to the job object."""
    custom_timeouts: pulumi.CustomTimeouts | None = None
    imports: Mapping[str, str] = field(default_factory=dict)
    """Existing objects to import: resource name -> import id."""
    replacement_trigger: str | None = None
    """Replaces the objects when it changes. None: a new name does that."""
    replaces_job_object: bool = False
    """Another run has the job object's name: any change of the object is a replacement."""
    retain_on_delete: bool | None = None
    secret_outputs: Sequence[str] = ()
    """Outputs that are secret in any case: the managed fields in a pod's metadata repeat its ports and the places of
    its mounts, its status the image."""

    def of_job_object(self, parent: pulumi.Resource, name: str) -> pulumi.ResourceOptions:
        """Return the options of the job object, by its resource name."""
        options = self._of_object(parent, name, self.kept_fields)
        if self.replaces_job_object:
            # The engine compares triggers only if the state has one; a run without a fixed name has none.
            options.replace_on_changes = ["metadata", "spec"]
        return options

    def of_companion(self, parent: pulumi.Resource, name: str) -> pulumi.ResourceOptions:
        """Return the options of an object next to the job object, by its resource name."""
        if name in self.imports:
            # Pulumi compares it with the program at once. A replacement would end the pod.
            return self._of_object(parent, name, STORED_POD_FIELDS)
        options = self._of_object(parent, name, self.kept_companion_fields)
        options.replace_on_changes = ["metadata"]
        return options

    def _of_object(self, parent: pulumi.Resource, name: str, kept_fields: Sequence[str]) -> pulumi.ResourceOptions:
        """Return the options of an object. It is deleted before its successor is created: two runs never overlap."""
        return pulumi.ResourceOptions(
            parent=parent,
            depends_on=list(self.depends_on),
            provider=self.provider,
            version=provider_version(),
            ignore_changes=[*kept_fields, *self.ignore_changes] or None,
            custom_timeouts=self.custom_timeouts,
            delete_before_replace=True,
            replacement_trigger=self.replacement_trigger,
            retain_on_delete=self.retain_on_delete,
            additional_secret_outputs=list(self.secret_outputs) or None,
            import_=self.imports.get(name),
        )


def register_objects(
    component: pulumi.ComponentResource,
    name: str,
    intent: Mapping[str, Any],
    objects: Mapping[str, Manifest],
    children: ChildOptions,
    *,
    before_companions: Callable[[], Awaitable[None] | None] = lambda: None,
) -> tuple[Note, list[KubernetesObject]]:
    """Register the intent of a run and its objects, below its component.

    Args:
        component: The run's component, already registered.
        name: Name of the component.
        intent: The record as it is registered before the objects.
        objects: Resource name to manifest, the job object first. Empty: the run has ended and its objects are gone.
        children: Options of the objects.
        before_companions: Called, and awaited, after the job object was created and before the objects next to it are.

    Returns:
        The intent, and the objects, the job object first.
    """
    noted = _stash(f"{name}{INTENT_SUFFIX}", intent, pulumi.ResourceOptions(parent=component))
    if not objects:
        return noted, []
    children = replace(children, depends_on=[*children.depends_on, noted])
    first, *companions = objects.items()
    job_object = KubernetesObject.register(*first, children.of_job_object(component, first[0]))
    made = [job_object]
    # The other objects take their names through the job object: the engine then deletes them before the job object, and
    # all of the last run before it creates anything of the next one.
    created = pulumi.Output.unsecret(job_object.metadata.apply(lambda _: before_companions())) if companions else None
    for resource, manifest in companions:
        metadata = manifest["metadata"]
        # The name may be unknown itself.
        given = pulumi.Output.all(metadata["name"], created).apply(lambda known: known[0])
        annotations = with_annotations(metadata.get("annotations") or {}, SKIP_AWAIT)
        named = {**manifest, "metadata": {**metadata, "name": given, "annotations": annotations}}
        made.append(KubernetesObject.register(resource, named, children.of_companion(component, resource)))
    return noted, made


async def are_made(intent: Note, objects: Sequence[KubernetesObject], attempt: int) -> bool:
    """Wait for a run's objects and return whether the engine registered all of them as asked.

    It leaves resources out that `--target` does not name, and goes on after an error with `--continue-on-error`. The
    outputs of their component are written nevertheless.

    Args:
        intent: The registered intent.
        objects: The registered objects.
        attempt: Attempt number in the intent.
    """
    for item in objects:
        await item.urn.future()
    if pulumi.runtime.is_dry_run():
        return True
    # For an intent that was left out, the engine returns the last one.
    noted = await intent.input.future()
    uids = [await item.read_uid() for item in objects]
    return all(uids) and isinstance(noted, Mapping) and noted.get("attempt") == attempt


def register_notes(
    component: pulumi.ComponentResource,
    name: str,
    objects: Sequence[KubernetesObject],
    *,
    outputs: Mapping[str, Any],
    entry: Mapping[str, Any] | None,
) -> None:
    """Register what is noted of a run after its objects: its index entry and the component's outputs.

    Args:
        component: The run's component.
        name: Name of the component.
        objects: Its registered objects. The notes are written once all of them are created.
        outputs: Outputs of the component, the record of the run among them if there is one.
        entry: The app's index entry (`app_entry.write_entry`). None: a program launched the run.
    """
    if entry is not None:
        _stash(f"{name}{APP_SUFFIX}", entry, pulumi.ResourceOptions(parent=component, depends_on=list(objects)))
    component.register_outputs(dict(outputs))


def _stash(name: str, value: Mapping[str, Any], opts: pulumi.ResourceOptions) -> Note:
    """Register a note, whose digests `pulumi preview --diff` does not list before the change that they come from."""
    opts.hide_diffs = ["input", "output"]
    return Note(STASH, name, {"input": dict(value), "output": None}, opts)


def with_annotations(annotations: Any, more: Mapping[str, Any]) -> Any:
    """Return annotations with more of them, also if all of them are secret or unknown."""
    if isinstance(annotations, Mapping):
        return {**annotations, **more}
    return pulumi.Output.all(annotations, more).apply(lambda known: {**(known[0] or {}), **known[1]})


def provider_inputs(kubeconfig: Any, context: Any) -> dict[str, Any]:
    """Return the access that a provider for a kubeconfig and a context gets. Empty: the default provider is used."""
    return {key: value for key, value in (("kubeconfig", kubeconfig), ("context", context)) if value is not None}


def create_provider(
    component: pulumi.Resource, name: str, settings: Mapping[str, Any]
) -> pulumi.ProviderResource | None:
    """Register the Kubernetes provider of a component. None: the inherited one is used.

    The generated class adds the environment of the machine to the settings, and takes 0.5 s to import.

    Args:
        component: Its parent.
        name: Name of the component.
        settings: Inputs of the provider. Empty: no provider is registered.
    """
    if not settings:
        return None
    opts = pulumi.ResourceOptions(parent=component, version=provider_version())
    return pulumi.ProviderResource("kubernetes", f"{name}-kubernetes", dict(settings), opts)


def type_token(api_version: str, kind: str) -> str:
    """Return the token by which Pulumi's Kubernetes provider knows a kind.

    >>> type_token("v1", "Pod"), type_token("batch/v1", "Job")
    ('kubernetes:core/v1:Pod', 'kubernetes:batch/v1:Job')
    """
    return f"kubernetes:{api_version if '/' in api_version else f'core/{api_version}'}:{kind}"


async def dependencies(given: Any) -> list[Any]:
    """Return `depends_on` of a component as a list of resources, in whatever form it was given."""
    if isinstance(given, pulumi.Output) or inspect.isawaitable(given):
        output = pulumi.Output.from_input(given)
        value = await output.future()
        # Unknown in a preview: the resources that it comes from stand for it.
        return list(await output.resources()) if value is None else await dependencies(value)
    if given is None:
        return []
    if not isinstance(given, (list, tuple)):
        return [given]
    return [resource for item in given for resource in await dependencies(item)]
