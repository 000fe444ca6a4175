"""Options of a job that runs as an Indexed Job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from torchx_pulumi.model.options import Options, option, option_table


# region options
@option_table
class IndexedJobOptions(Options):
    """Options of a job that runs as an Indexed Job."""

    scheduler: ClassVar[str] = "indexed_job"

    active_deadline_s: int | None = option(
        "Seconds after which the job is stopped and counts as failed. Unset: no limit", default=None
    )
    priority_class: str | None = option("The name of the PriorityClass to set on the pod specs", default=None)
    image_secrets: Sequence[str] = option("Names of pull secrets to set on the pod specs. Empty: none", default=())


# endregion
