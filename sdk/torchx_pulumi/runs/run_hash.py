"""The hash of a run: what is rendered of a job, without what names it and what may change while it runs. Pure.

Two jobs that render the same have one hash, however they are written down. A later release may render another
manifest, and with it another hash; a recorded run whose fields are unchanged stays the same run all the same
(`runs.decision.decide`), and keeps the hash that it was recorded with.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torchx_pulumi.inputs.rendering import render_plan
from torchx_pulumi.model.errors import InvalidJobError
from torchx_pulumi.model.job_spec import JobSpec
from torchx_pulumi.model.options import Options
from torchx_pulumi.planning import names
from torchx_pulumi.runs.identity import is_in_place, is_runner_env
from torchx_pulumi.runs.identity_fields import canonical, identity_rows
from torchx_pulumi.schedulers import plan_job, variant_of

NAME = "identity"
"""Stands for the names of app and job."""

REPLICAS = 2
"""Replicas of a role that are rendered: two differ wherever any two do, and gangs may be large."""


def run_hash(
    digests: Mapping[str, str],
    launched: Mapping[str, int],
    spec: JobSpec,
    options: Options,
    *,
    rerun: str | None = None,
    version: int,
) -> str:
    """Return 16 hex digits that are the same for one run, and other ones for any other run.

    Args:
        digests: `identity.field_digests` of the job, of the same version.
        launched: Replicas of each role at the launch; fewer of them later is the same run.
        spec: The job.
        options: Its options.
        rerun: Text by which a run is launched again. None: not set.
        version: Version of the identity.
    """
    try:
        counted = [canonical(_render(spec, options, launched, version), version), dict(launched), rerun]
    except InvalidJobError:
        # Nothing can be rendered of it, so that it is never launched. Planning reports why.
        counted = [{path: value for path, value in digests.items() if not is_in_place(path)}, dict(launched)]
    return hashlib.sha256(json.dumps(counted, sort_keys=True).encode()).hexdigest()[:16]


def _render(spec: JobSpec, options: Options, launched: Mapping[str, int], version: int) -> Any:
    """Render a job under a name of no meaning, with all that may change in place at its default."""
    fixed = {row.attribute: row.default for row in identity_rows(options, version) if is_in_place(row.path)}
    neutral: Any = replace(options, **fixed)
    roles = []
    for role in spec.roles:
        env = {name: value for name, value in role.env.items() if not is_runner_env(name)}
        replicas = min(launched.get(role.name, role.num_replicas), REPLICAS)
        roles.append(replace(role, env=env, image_digest=None, num_replicas=replicas, min_replicas=None))
    dns_names = names.role_names([role.name for role in roles])
    tasks = {names.task_name(name, REPLICAS): 1 for name in dns_names}
    name = names.job_name(NAME, NAME, tail=variant_of(neutral).name_tail(tasks))
    return render_plan(plan_job(JobSpec(name=NAME, roles=roles), neutral, name, tasks={}))
