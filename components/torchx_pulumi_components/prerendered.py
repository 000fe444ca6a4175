"""The component of an app that `torchx run` launches; its manifests and outputs are given.

It has the type, names, parents and notes of the component that a program registers: a program that later runs in the
same stack, with a component of the same name, finds the run and keeps it.
"""

from __future__ import annotations

import json

import pulumi
from torchx_pulumi.model.registration_plan import RECORD, UID, RegistrationPlan, replace_uid
from torchx_pulumi.schedulers.registry import component_type

from torchx_pulumi_components.resources import (
    ChildOptions,
    create_provider,
    provider_inputs,
    register_notes,
    register_objects,
)

LARGE_SPEC = 50_000
"""Characters of a spec, as JSON, above which it bypasses the SDK's conversion. A replica has about 1,200."""


class PrerenderedTrainingJob(pulumi.ComponentResource):
    """The run of an app, for any scheduler."""

    def __init__(self, run: RegistrationPlan) -> None:
        """Register the run; see `resources`."""
        super().__init__(component_type(run.scheduler), run.name, {})
        provider = create_provider(self, run.name, provider_inputs(run.kubeconfig, run.kube_context))
        # As with a fixed `job_name`: another run of that name replaces the object.
        children = ChildOptions(provider=provider, replacement_trigger=str(run.record["hash"]))
        manifests = dict(zip(run.names, run.objects, strict=True))
        job_object = manifests[run.names[0]]
        if len(json.dumps(job_object["spec"])) > LARGE_SPEC:
            from torchx_pulumi_components.pulumi_runtime import (
                bypass_conversion,  # takes longer than it saves for small ones
            )

            if bypass_conversion(run.names[0], "spec", job_object["spec"]):
                manifests[run.names[0]] = {**job_object, "spec": {}}
        _, objects = register_objects(self, run.name, run.intent, manifests, children)
        uid = objects[0].uid.apply(lambda known: str(known or ""))

        def with_uid(text: str) -> pulumi.Output[str]:
            return uid.apply(lambda known: text.replace(UID, known))

        outputs, roles = replace_uid(run.outputs, with_uid), replace_uid(run.roles, with_uid)
        # Known once all objects are created, and with it the record.
        hash_ = pulumi.Output.all(run.record["hash"], *(item.urn for item in objects)).apply(lambda known: known[0])
        outputs |= {"roles": list(roles.values()), RECORD: {**run.record, "uid": uid, "hash": hash_}}
        register_notes(self, run.name, objects, outputs=outputs, entry={**run.entry, "uid": uid})


def register_app(run: RegistrationPlan) -> None:
    """Register the run of an app and the outputs of its stack; a whole Pulumi program."""
    # These do not depend on the cluster. A program that fails later has exported them.
    for name, value in run.exports.items():
        pulumi.export(name, value)
    PrerenderedTrainingJob(run)
