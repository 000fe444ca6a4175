"""What an Indexed Job cannot run. Each rule yields problems and never raises."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from torchx_pulumi.model.errors import Problem
from torchx_pulumi.model.job_spec import JobSpec
from torchx_pulumi.planning import names
from torchx_pulumi.planning.checks.options import check_amount, check_shared_options
from torchx_pulumi.planning.checks.values import check_object_name, found, is_text
from torchx_pulumi.planning.macros import substitute

from tests.third_scheduler.indexed_job.options import IndexedJobOptions

LONGEST_SUFFIX = len("-99999")
"""Characters that the index of a replica adds to the job's name in a host name."""

LONGEST_NAME = names.MAX_LABEL - LONGEST_SUFFIX
"""Characters of the longest name of a job."""


# region checks
def check_options(options: IndexedJobOptions) -> Iterator[Problem]:
    """Check every option by itself. Types have been checked when the options were read."""
    yield from check_shared_options(options)
    yield from check_amount("active_deadline_s", options.active_deadline_s)
    if options.priority_class is not None:
        yield from check_object_name("options.priority_class", options.priority_class)


def check_launch(
    spec: JobSpec, options: IndexedJobOptions, app_id: object, tasks: Mapping[str, int]
) -> Iterator[Problem]:
    """Refuse a job whose pods differ in more than their index: an Indexed Job has one pod template."""
    yield from check_app_id(app_id, options)
    if len(spec.roles) > 1:
        yield Problem("roles", f"has {len(spec.roles)} roles, must have 1: the pods of an Indexed Job are alike")
    for index, role in enumerate(spec.roles):
        if any(_names_replica(word) for word in (*role.args, *role.env.values())):
            text = "uses ${replica_id}, and all pods have the same command; read JOB_COMPLETION_INDEX instead"
            yield Problem(f"roles[{index}].args", text)


def check_app_id(app_id: object, options: IndexedJobOptions) -> Iterator[Problem]:
    """Require a name for the Job and its Service that leaves room for the index of a replica."""
    if not is_text(app_id) or not names.is_service_name(app_id) or len(app_id) > LONGEST_NAME:
        text = f"{found(app_id)}, must be at most {LONGEST_NAME} of a-z, 0-9 and '-', a letter first"
        yield Problem("app_id", text)


# endregion


def _names_replica(text: str) -> bool:
    """Return whether a text uses the macro of the replica's number."""
    return substitute(text, {"replica_id": "0"}) != substitute(text, {"replica_id": "1"})
