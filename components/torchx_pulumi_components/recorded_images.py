"""The digests that the pods of a run name after the tags of their images.

A run that is kept names the digests of its record, whatever is planned now. The digests are no part of the identity.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from torchx_pulumi.model import labels
from torchx_pulumi.model.object_fields import items_at, mapping_at, number_at, text_at
from torchx_pulumi.model.run_record import RunRecord
from torchx_pulumi.runs.registration import as_recorded
from torchx_pulumi.schedulers import ObservedObjects, variant_of

from torchx_pulumi_components.read_args import ParsedArgs


def args_of_run(args: ParsedArgs, run: RunRecord) -> ParsedArgs:
    """Return arguments with the digests that the pods of a run name: in its roles, and in the job object's annotation.

    Args:
        args: The arguments.
        run: A run that is kept, or a new one.
    """
    spec, options = as_recorded(args.spec, args.options, run)
    return replace(args, spec=spec, options=options)


def digests_as_launched(wanted: ParsedArgs, observed: ObservedObjects) -> Mapping[str, str] | None:
    """Return the digests in the pods of a job without a record, by the names of its roles. None: they name none.

    Args:
        wanted: The arguments. Only the digest after the image that they name is taken.
        observed: The objects of the run.
    """
    templates = variant_of(wanted.options).pod_templates(dict(observed.job_object or {}))
    live: dict[int | None, str] = {}
    for pod in [pod for _, pod in templates] or observed.pods or ():
        position = number_at(mapping_at(pod, "metadata", "labels"), labels.ROLE_INDEX)
        main = next(iter(items_at(pod, "spec", "containers")), None)
        live.setdefault(position, text_at(main, "image") or "")
    found = {}
    for position, role in enumerate(wanted.spec.roles):
        image, _, pinned = live.get(position, "").rpartition("@")
        if image == role.image:
            found[role.name] = pinned
    return found or None
