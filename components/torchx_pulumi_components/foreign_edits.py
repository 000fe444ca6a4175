"""Warn of fields of a job object that somebody has changed outside Pulumi, before the engine reports a conflict."""

from __future__ import annotations

from collections.abc import Sequence

from torchx_pulumi.kube.field_managers import PATCH_FORCE, find_foreign, written_edits
from torchx_pulumi.model.documentation import page
from torchx_pulumi.model.object_fields import at
from torchx_pulumi.runs.decision import Action
from torchx_pulumi.schedulers import variant_of

from torchx_pulumi_components.launch import Launch


def foreign_edits(launch: Launch, ignore_changes: Sequence[str]) -> str:
    """Return a warning about fields that others have set to another value than the program; empty without any.

    Args:
        launch: The decision.
        ignore_changes: Fields that the user's options leave to others.
    """
    live = launch.observed.job_object
    if launch.decision.action is not Action.KEEP or launch.run.imported or launch.imports or live is None:
        return ""
    wanted = launch.registration.objects()[0]
    found = find_foreign(live, wanted, (*variant_of(launch.plan.options).kept_fields, *ignore_changes))
    if not found or at(wanted, "metadata", "annotations", PATCH_FORCE) == "true":
        return ""
    fields = ", ".join(dict.fromkeys(f"'{one.path}'" for one in found))
    return (
        f"job {launch.run.namespace}/{launch.run.job_name} was changed outside Pulumi: "
        f"{'; '.join(written_edits(found))}. This program sets another value. Without a refresh it stays; after one, "
        "the Kubernetes provider refuses to change it (server-side apply field conflict), or overwrites it in `up`. "
        f'Take the value over into the program; or overwrite it, with the annotation {PATCH_FORCE}: "true"; or leave '
        f"it to others, with ignore_changes=[{fields}]: {page('infra-teams')}"
    )
