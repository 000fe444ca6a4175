"""Kubernetes objects as Pulumi resources, and the options that they share."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

import pulumi
from torchx_pulumi.kube.kinds import Kind
from torchx_pulumi.model.options import Manifest

from torchx_pulumi_components.input_resolution import wait_for

ROLE_TYPE = "torchx:index:TrainingRole"


class KubernetesObject(pulumi.CustomResource):
    """One object of any kind; unlike the Kubernetes SDK's own class for custom resources it has a `status`."""

    def __init__(self, kind: Kind, name: str, manifest: Manifest, opts: pulumi.ResourceOptions) -> None:
        # Outputs are resolved only for what is among the properties, hence the empty status.
        props = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": manifest["metadata"],
            "spec": manifest["spec"],
            "status": None,
        }
        own = pulumi.ResourceOptions(version=version("pulumi-kubernetes"))
        super().__init__(type_token(kind), name, props, pulumi.ResourceOptions.merge(own, opts))

    @property
    @pulumi.getter
    def metadata(self) -> pulumi.Output[dict[str, Any]]:
        """Metadata as the API server has it."""
        return pulumi.get(self, "metadata")  # type: ignore[no-any-return]  # untyped in the SDK

    @property
    def uid(self) -> pulumi.Output[str | None]:
        """Uid of the object; not secret where its metadata is."""
        found: pulumi.Output[str | None] = self.metadata.apply(lambda metadata: (metadata or {}).get("uid"))
        return pulumi.Output.unsecret(found)

    @property
    def name(self) -> pulumi.Output[Any]:
        """Name of the object; not secret where its metadata is."""
        return pulumi.Output.unsecret(self.metadata["name"])

    @property
    @pulumi.getter
    def status(self) -> pulumi.Output[dict[str, Any] | None]:
        """Status as of the last deployment or refresh. None: it had none yet."""
        return pulumi.get(self, "status")  # type: ignore[no-any-return]  # untyped in the SDK


class TrainingRole(pulumi.ComponentResource):
    """One role of a job in the resource tree: its objects by kind and name. It creates nothing."""

    def __init__(self, name: str, outputs: dict[str, Any], opts: pulumi.ResourceOptions) -> None:
        super().__init__(ROLE_TYPE, name, {}, opts)
        self.register_outputs(outputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildOptions:
    """What the options of a component mean for the objects that it makes."""

    parent: pulumi.Resource
    depends_on: Sequence[pulumi.Resource] = ()
    provider: pulumi.ProviderResource | None = None
    """Provider of the component's own. None: as inherited."""
    ignore_changes: Sequence[str] = ()
    custom_timeouts: pulumi.CustomTimeouts | None = None
    import_id: str | None = None
    """Existing object to take over, for the head of the run."""
    replacement_trigger: str | None = None
    """Replaces the object when it changes. None: a new name does that."""
    replaces_head: bool = False
    """The head is another run's under the same name: any change of it is a replacement."""
    retain_on_delete: bool | None = None
    transforms: Sequence[Any] = field(default_factory=tuple)
    secret_outputs: Sequence[str] = ()
    """Outputs that are secret whatever the provider says of them: the managed fields in a pod's metadata repeat its
    ports and the places of its mounts, its status the image."""

    def of_head(self, ignore_changes: Sequence[str]) -> pulumi.ResourceOptions:
        """Return the options of the object that stands for the run."""
        options = self.of_object(ignore_changes)
        options.import_ = self.import_id
        if self.replaces_head:
            # The engine compares triggers only where the state has one; a run without a fixed name has none.
            options.replace_on_changes = ["metadata", "spec"]
        return options

    def of_object(
        self, ignore_changes: Sequence[str] = (), *, depends_on: Sequence[pulumi.Resource] = ()
    ) -> pulumi.ResourceOptions:
        """Return the options of an object. It is gone before its successor is made: two runs never overlap."""
        return pulumi.ResourceOptions(
            parent=self.parent,
            depends_on=[*self.depends_on, *depends_on],
            provider=self.provider,
            ignore_changes=[*ignore_changes, *self.ignore_changes] or None,
            custom_timeouts=self.custom_timeouts,
            delete_before_replace=True,
            replacement_trigger=self.replacement_trigger,
            retain_on_delete=self.retain_on_delete,
            additional_secret_outputs=list(self.secret_outputs) or None,
        )


def type_token(kind: Kind) -> str:
    """Return the token by which Pulumi's Kubernetes provider knows a kind.

    >>> from torchx_pulumi.kube.kinds import POD, VOLCANO_JOB
    >>> type_token(POD), type_token(VOLCANO_JOB)
    ('kubernetes:core/v1:Pod', 'kubernetes:batch.volcano.sh/v1alpha1:Job')
    """
    return f"kubernetes:{kind.group or 'core'}/{kind.version}:{kind.kind}"


def dependencies(opts: pulumi.ResourceOptions) -> list[Any]:
    """Return `depends_on` of a component as a list, in whatever form it was given."""
    given: Any = opts.depends_on
    if given is None:
        return []
    if isinstance(given, pulumi.Output) or inspect.isawaitable(given):
        output = pulumi.Output.from_input(given)
        found = wait_for(output.future())
        # Not known yet in a preview: then what it comes from stands for it.
        return _listed(found) if found is not None else list(wait_for(output.resources()))
    return _listed(given)


def _listed(given: Any) -> list[Any]:
    return list(given) if isinstance(given, (list, tuple)) else [given]
