"""The variant of a run: which object stands for it, and how it is read."""

from __future__ import annotations

from torchx_pulumi.model.errors import DeployError
from torchx_pulumi.model.options import Options
from torchx_pulumi.model.run_record import RunRecord, json_digest
from torchx_pulumi.schedulers import Variant, find_backend, scheduler_names, variant_of


def find_variant(scheduler: str, name: str | None, record: RunRecord | None = None) -> Variant:
    """Return the variant that a run was launched with.

    Args:
        scheduler: Name of its scheduler.
        name: Name of the variant, as an app's entry has it. None or empty: the record says it.
        record: Record of the run; the variant follows from the digest of the option that chooses it. None, or without
            the option: the scheduler's default.

    Raises:
        DeployError: This release does not have the scheduler or the variant.
    """
    if scheduler not in scheduler_names():
        known = ", ".join(scheduler_names())
        raise DeployError(f"its scheduler is {scheduler!r}; this release of torchx-pulumi knows {known}; {_NEWER}")
    backend = find_backend(scheduler)
    if name and name not in backend.variants:
        known = ", ".join(backend.variants)
        option = backend.variant_option or "variant"
        raise DeployError(f"its {option} is {name!r}; this release of torchx-pulumi knows {known}; {_NEWER}")
    if name:
        return backend.variants[name]
    default, *_ = backend.variants.values()
    recorded = None if record is None else record.digests.get(backend.variant_option or "")
    # A field at its default is in no record.
    return next((each for each in backend.variants.values() if recorded == json_digest(each.name)), default)


def variant_of_run(run: RunRecord | None, options: Options) -> Variant:
    """Return the variant that a recorded run was launched with, or without a record that of the options."""
    return variant_of(options) if run is None or not run.digests else find_variant(options.scheduler, None, run)


_NEWER = "install the release that launched it, or a newer one"
