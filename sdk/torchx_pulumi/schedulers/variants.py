"""The table of the ways to make a run: which one options choose, and which one a recorded run was made in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

from torchx_pulumi.model.options import AppWrapperApi, Gang, Options
from torchx_pulumi.model.run_record import RunRecord
from torchx_pulumi.planning import names
from torchx_pulumi.runs.identity import digest
from torchx_pulumi.schedulers.appwrapper import observe
from torchx_pulumi.schedulers.protocol import Form
from torchx_pulumi.schedulers.registry import scheduler_of
from torchx_pulumi.schedulers.volcano import observe as volcano

FORMS: Mapping[str, tuple[str, Mapping[Enum, Form]]] = {
    "volcano": ("gang", {Gang.JOB: volcano.JOB, Gang.PODS: volcano.PODS}),
    "mcad": (
        "api_version",
        {AppWrapperApi.V1BETA1: observe.V1BETA1, AppWrapperApi.V1BETA2: observe.V1BETA2},
    ),
}
"""Scheduler to the option that chooses, and its values to their forms, the default first."""


def chooser(options: Options) -> str:
    """Name the option that chooses the form."""
    return FORMS[scheduler_of(options).name][0]


def choice_of(options: Options) -> Enum:
    """Return the value of the option that chooses the form."""
    option, forms = FORMS[scheduler_of(options).name]
    value = getattr(options, option)
    return next(choice for choice in forms if choice.value == value or choice is value)


def choice_of_run(run: RunRecord | None, options: Options) -> Enum:
    """Return the value by which a recorded run was made, which the wanted one may differ from."""
    if run is None or not run.digests:
        return choice_of(options)
    option, forms = FORMS[scheduler_of(options).name]
    default, *_ = forms
    # A field at its default is in no record.
    recorded = run.digests.get(option)
    return next((choice for choice in forms if recorded == digest(choice, run.identity_version)), default)


def form_of(options: Options) -> Form:
    """Return the form that options choose."""
    return FORMS[scheduler_of(options).name][1][choice_of(options)]


def pods_of_run(run: RunRecord) -> Mapping[str, Sequence[str]]:
    """Return role name to the pods that a recorded run on Volcano has."""
    roles = names.role_names([*run.replicas])
    return {
        name: [names.pod_name(run.job_name, names.task_name(role, index)) for index in range(count)]
        for role, (name, count) in zip(roles, run.replicas.items(), strict=True)
    }


def form_of_run(run: RunRecord | None, options: Options) -> Form:
    """Return the form that a recorded run was made in."""
    return FORMS[scheduler_of(options).name][1][choice_of_run(run, options)]
