"""The guard of active runs: a step of the engine that deletes or replaces the object of one is refused.

A program causes such a step without naming it in two ways. A Kubernetes provider replaces itself, and with it all
objects that it made. A component with another URN is a new component next to one that is removed. This module predicts
both from what the engine compares: the settings of the provider in the stack's state with those of now, and the URNs in
the state with those of the program. docs/states.md has the table of all such steps.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from torchx_pulumi.kube.kubeconfig import chosen_cluster
from torchx_pulumi.model.cluster_identity import ClusterIdentity
from torchx_pulumi.model.errors import ClusterError, DeployError, RelaunchRefusedError
from torchx_pulumi.model.registration_plan import INTENT_SUFFIX, RECORD
from torchx_pulumi.model.run_record import RunRecord, read_record
from torchx_pulumi.schedulers import find_backend, scheduler_names
from torchx_pulumi.schedulers.registry import component_type

from torchx_pulumi_components.pulumi_runtime import call_engine, once_per_program
from torchx_pulumi_components.resources import STASH
from torchx_pulumi_components.stack_state import PROVIDER, StackState, plain, read_outputs, unmarked

CLUSTER_IDENTIFIER = "clusterIdentifier"
"""Setting of a provider that decides alone whether it replaces itself, once the state has it."""

CHOOSING = ("kubeconfig", "context", "cluster")
"""Settings that choose the cluster of a provider."""

RENDERING = "renderYamlToDirectory"
"""Setting by which a provider writes files in place of objects. A change of it replaces all of them."""

UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
"""What the engine sends in a preview for a value that only `up` knows."""

StackOutputs = Mapping[str, Mapping[str, Any]]
"""URN to the outputs of a resource in the stack's state."""

Settings = Mapping[str, Any]
"""Inputs of a Kubernetes provider, without marks of secrets. The engine keeps them as its outputs."""


# The provider.


def find_replacement(before: Settings, after: Settings) -> str | None:
    """Return why the Kubernetes provider replaces itself when its settings change, as it decides itself.

    None: it stays, possibly with other settings.

    Raises:
        ClusterError: A kubeconfig cannot be read, so that the provider cannot compare them either.
    """
    had, has = before.get(CLUSTER_IDENTIFIER), after.get(CLUSTER_IDENTIFIER)
    if had and has:
        return None if has in (had, UNKNOWN) else f"its {CLUSTER_IDENTIFIER} changes"
    if before.get(RENDERING) != after.get(RENDERING):
        return f"its {RENDERING} changes"
    changed = [name for name in CHOOSING if before.get(name) != after.get(name)]
    if not changed or any(after.get(name) == UNKNOWN for name in CHOOSING):
        return None
    old, new = (chosen_cluster(_text(each.get("kubeconfig")), *map(each.get, CHOOSING[1:])) for each in (before, after))
    if old is None or new is None or old == new:
        return None
    fields = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
    return f"with its {' and '.join(changed)}, {', '.join(fields)} of the cluster in the kubeconfig changes"


def _text(kubeconfig: Any) -> str | None:
    return kubeconfig if kubeconfig is None or isinstance(kubeconfig, str) else json.dumps(kubeconfig)


def own_settings(
    given: Settings, before: Settings | None, cluster: ClusterIdentity | None, ambient: str | None, *, launching: bool
) -> dict[str, Any]:
    """Return the settings of the provider that a component registers. Empty: it registers none.

    `clusterIdentifier` lets the provider stay when the kubeconfig names its cluster in another way. A provider that was
    registered without it gets it with the next run, since any change of a provider shows in previews.

    Args:
        given: Kubeconfig and context of the arguments.
        before: The provider in the state. None: there is none.
        cluster: The cluster of the run. None: not known.
        ambient: The variable KUBECONFIG. None: not set.
        launching: A new run is launched.
    """
    if not given:
        return {}
    known = before or {}
    settings = dict(given)
    if "kubeconfig" not in given and ambient is not None and known.get("kubeconfig") == ambient:
        settings["kubeconfig"] = ambient
    had = known.get(CLUSTER_IDENTIFIER)
    if (before is None or launching) and cluster is not None and had not in cluster.keys:
        had = cluster.key
    return settings if had is None else {**settings, CLUSTER_IDENTIFIER: had}


def registered(urn: str) -> Mapping[str, Any] | None:
    """Return the outputs of a resource that the program has registered in this deployment. None: it has not."""
    try:
        found = call_engine("pulumi:pulumi:getResource", {"urn": urn})
    except DeployError:
        return None
    outputs: Mapping[str, Any] = unmarked(found.get("state")) or {}
    return outputs


def settings_of(outputs: Any) -> Settings:
    """Return the settings of a provider from its outputs."""
    found: Settings = plain(outputs) or {}
    return found


def settings_before(
    state: StackState, run: RunRecord, provider_urn: str | None, outputs: StackOutputs
) -> Sequence[Settings]:
    """Return the settings of the providers in the state that may have made the objects of a run.

    Args:
        state: The component in the state.
        run: The run.
        provider_urn: URN of the provider that the program chose. None: it chose none.
        outputs: Outputs of the state.
    """
    if state.has_provider:
        return [settings_of(state.children[PROVIDER, "-kubernetes"])]
    found = {urn: settings_of(each) for urn, each in outputs.items() if urn.split("::")[-2].endswith(PROVIDER)}
    if run.provider is not None:
        # Not by its stack and project: `pulumi stack rename` changes the URNs in the state, and not the record.
        return [each for urn, each in found.items() if urn.split("::")[2:] == run.provider.split("::")[2:]]
    default = [each for urn, each in found.items() if re.search("::default(_[0-9_]+)?$", urn)]
    if default and run.cluster is not None:
        return default
    # The record is of an earlier release, and does not say which provider the program chose.
    return [found[provider_urn]] if provider_urn in found else default or list(found.values())


def check_provider(name: str, run: RunRecord, before: Sequence[Settings], after: Settings, *, whose: str) -> None:
    """Refuse settings with which the provider would replace itself, and delete the run that is kept.

    Args:
        name: Name of the component.
        run: The run that is kept.
        before: Settings of the providers that may have made its objects.
        after: Settings of the provider that the objects get now.
        whose: Where these come from, in words.

    Raises:
        RelaunchRefusedError: The run would be deleted.
    """
    if not before:
        return
    try:
        reasons = [find_replacement(each, after) for each in before]
    except ClusterError as error:
        raise RelaunchRefusedError(
            f"job {name!r}: whether Pulumi would replace the Kubernetes provider, and delete run {run.job_name} with "
            f"it, cannot be told: {error}. Nothing was changed. The provider compares two kubeconfigs: let the file of "
            "the last deployment be there for this one"
        ) from error
    reason = reasons[0]
    if reason is None or None in reasons:
        return
    raise RelaunchRefusedError(
        f"job {name!r}: Pulumi would replace the Kubernetes provider ({whose}), because {reason}, and delete run "
        f"{run.job_name} with it. Nothing was changed. To keep the run, undo that change; to make it, set `rerun` to a "
        f"new value together with it once the run has finished. A provider that has {CLUSTER_IDENTIFIER} from an "
        "earlier deployment is not replaced by another way to the same cluster"
    )


# URNs.


def stack_runs() -> Mapping[str, RunRecord]:
    """Return URN to last run of all training jobs in the stack's state; a launch that was begun counts.

    Raises:
        DeployError: The state, or a record in it, cannot be read.
    """
    return once_per_program(_stack_runs)


def _stack_runs() -> Mapping[str, RunRecord]:
    outputs, runs = read_outputs(), {}
    for urn, found in outputs.items():
        if scheduler_of(urn) is None:
            continue
        above, _, name = urn.rpartition("::")
        begun = outputs.get(f"{above}${STASH}::{name}{INTENT_SUFFIX}", {}).get("input")
        record, intent = read_record(plain(found.get(RECORD))), read_record(plain(begun))
        run = intent if record is None or (intent is not None and intent.attempt > record.attempt) else record
        if run is not None:
            runs[urn] = run
    return runs


def scheduler_of(urn: str) -> str | None:
    """Return the scheduler of a component by its URN. None: it is no training job."""
    token = urn.split("::")[-2].rpartition("$")[2]
    if not token.startswith("torchx:index:"):
        return None
    components = (name for name in scheduler_names() if find_backend(name).component_module)
    return next((name for name in components if component_type(name) == token), None)


def has_object(run: RunRecord, outputs: StackOutputs) -> bool:
    """Return whether the state has the object of another component's run, which the engine would delete."""
    places = (plain(found["metadata"]) for found in outputs.values() if "metadata" in found)
    objects = (each for each in places if isinstance(each, Mapping))
    return any((each.get("namespace"), each.get("name")) == (run.namespace, run.job_name) for each in objects)


def is_next_to(urn: str, other: str) -> bool:
    """Return whether two components have the same parents and name."""
    (above, name), (others, other_name) = (
        (each.split("::")[-2].rpartition("$")[0], each.rpartition("::")[2]) for each in (urn, other)
    )
    return (above, name) == (others, other_name)


def renamed(name: str, urn: str, run: RunRecord) -> RelaunchRefusedError:
    """Return the refusal of a component that would launch the job of an active run again.

    Args:
        name: Name of the component.
        urn: URN of the component that has the run, which the program does not have any more.
        run: The run.
    """
    return RelaunchRefusedError(
        f"job {name!r}: run {run.job_name} of {_title(urn)} in the state of this stack has not finished, and the "
        "program does not have that component any more: `up` would launch the same job again, and end that run. "
        f"Nothing was changed. {_alias_advice(urn)}. If it is another job, set `rerun` to a text of its own. To end "
        "that run, run `pulumi up` once without this component"
    )


def retyped(name: str, urn: str, run: RunRecord) -> RelaunchRefusedError:
    """Return the refusal of a component that takes the place of one of another scheduler; arguments as `renamed`."""
    return RelaunchRefusedError(
        f"job {name!r}: run {run.job_name} of {_title(urn)} in the state of this stack has not finished. A run cannot "
        "go over to another scheduler: `up` would launch the job there, and end that run. Nothing was changed. Wait "
        "for its end, or keep its class. To end it, run `pulumi up` once without this component"
    )


def repeated(name: str, urn: str, run: RunRecord) -> str:
    """Return the warning that a component launches the job of a finished run again; arguments as `renamed`."""
    return (
        f"job {name!r}: run {run.job_name} of {_title(urn)} in the state of this stack has ended, and is the same job. "
        f"This launches it again. {_alias_advice(urn)} over"
    )


def taken(name: str, urn: str, run: RunRecord) -> DeployError:
    """Return the refusal of a component that asks for the job object of another one; arguments as `renamed`."""
    return DeployError(
        f"job {name!r}: job {run.namespace}/{run.job_name} is that of {_title(urn)} in the state of this stack, and "
        f"`up` would delete it with that component. Nothing was changed. {_alias_advice(urn)}; remove the resource "
        "option `import`, which does not do that. If it is another job, choose another job_name"
    )


def _title(urn: str) -> str:
    kind, name = urn.split("::")[-2:]
    return f"component {name!r} ({kind.rpartition(':')[2]})"


def _alias_advice(urn: str) -> str:
    return (
        "If it is that component under another name or parent, give it the resource option `aliases` with "
        f"'{urn}' (or its parent the alias of the former parent), and the run stays"
    )
