"""A run whose manifest is given, registered as VolcanoTrainingJob and MCADTrainingJob register theirs.

Same types, names, parents and notes: a program that later runs in the same stack, with a component of the same name,
finds the run and keeps it.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import pulumi
from torchx_pulumi.kube.kinds import Kind
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.model.registration_plan import APP_SUFFIX, COMPONENT_TYPES, UID, RegistrationPlan
from torchx_pulumi.schedulers.manifest_objects import objects_of

from torchx_pulumi_components.kubernetes_objects import ChildOptions, KubernetesObject, TrainingRole
from torchx_pulumi_components.resources import SKIP_AWAIT


class ReadyTrainingJob(pulumi.ComponentResource):
    """The component of a run whose manifest is given. It has the type of the component that renders its own."""

    head: KubernetesObject
    """The job object, or the PodGroup."""

    def __init__(self, run: RegistrationPlan) -> None:
        super().__init__(COMPONENT_TYPES[run.scheduler], run.name, {})
        intent = pulumi.Stash(f"{run.name}-intent", opts=pulumi.ResourceOptions(parent=self), input=dict(run.intent))
        options = ChildOptions(
            parent=self,
            depends_on=[intent],
            provider=_provider(run, self),
            # As a component with a fixed job_name has it: another run of that name replaces the object.
            replacement_trigger=str(run.record["hash"]),
        )
        self.head, *others = _register(run, options)
        uid = self.head.metadata.apply(lambda metadata: str((metadata or {}).get("uid") or ""))
        for role, outputs in run.roles.items():
            TrainingRole(f"{run.name}-{role}", _with_uid(outputs, uid), pulumi.ResourceOptions(parent=self))
        made = pulumi.ResourceOptions(parent=self, depends_on=[self.head, *others])
        pulumi.Stash(f"{run.name}-record", opts=made, input={**run.record, "uid": uid})
        pulumi.Stash(f"{run.name}{APP_SUFFIX}", opts=made, input={**run.entry, "uid": uid})
        self.register_outputs(_with_uid(run.outputs, uid))


def register_ready(run: RegistrationPlan) -> None:
    """Register a run and the outputs of its stack; a program in itself."""
    # What a program can say of a run just made does not depend on the cluster, so that it is there from the start.
    for name, value in run.exports.items():
        pulumi.export(name, value)
    ReadyTrainingJob(run)


def _register(run: RegistrationPlan, options: ChildOptions) -> list[KubernetesObject]:
    head_manifest, *manifests = run.objects
    head = KubernetesObject(_kind(head_manifest), run.names[0], head_manifest, options.of_head(()))
    made = [head]
    for manifest, name in zip(manifests, run.names[1:], strict=True):
        follower = options.of_object()
        follower.replace_on_changes = ["metadata"]
        made.append(KubernetesObject(_kind(manifest), name, _after(head, manifest), follower))
    return made


def _kind(manifest: Manifest) -> Kind:
    return objects_of(manifest)[0][0]


def _after(head: KubernetesObject, manifest: Manifest) -> Manifest:
    """Let an object take its name through the head, so that the engine deletes it before the head."""
    metadata = manifest["metadata"]
    name = head.metadata.apply(lambda _: metadata["name"])
    annotations = {**(metadata.get("annotations") or {}), **SKIP_AWAIT}
    return {**manifest, "metadata": {**metadata, "name": name, "annotations": annotations}}


def _provider(run: RegistrationPlan, component: pulumi.Resource) -> pulumi.ProviderResource | None:
    """Make the provider that a component makes of its own kubeconfig and context. None: the default one.

    The generated class costs half a second of imports and adds nothing to these two properties.
    """
    if run.kubeconfig is None and run.kube_context is None:
        return None
    given = {"kubeconfig": run.kubeconfig, "context": run.kube_context}
    return pulumi.ProviderResource(
        "kubernetes",
        f"{run.name}-kubernetes",
        {name: value for name, value in given.items() if value is not None},
        pulumi.ResourceOptions(parent=component, version=version("pulumi-kubernetes")),
    )


def _with_uid(value: Any, uid: pulumi.Output[str]) -> Any:
    """Put the uid in where it belongs; what has none of it stays as it is, and known before the object is there."""
    if isinstance(value, Mapping):
        return {key: _with_uid(item, uid) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_with_uid(item, uid) for item in value]
    if isinstance(value, str) and UID in value:
        return uid.apply(lambda known: value.replace(UID, known))
    return value
