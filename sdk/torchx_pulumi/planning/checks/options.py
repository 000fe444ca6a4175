"""Rules for the options that every scheduler has."""

from __future__ import annotations

from collections.abc import Iterator

from torchx_pulumi.model.errors import Problem
from torchx_pulumi.model.options import Options
from torchx_pulumi.planning import names
from torchx_pulumi.planning.checks.values import MAX_INT32, check_keys, check_labels, check_object_name, found


def check_shared_options(options: Options) -> Iterator[Problem]:
    """Check the options that every scheduler has."""
    if not names.is_dns_label(options.namespace):
        yield Problem(
            "options.namespace", f"{found(options.namespace)}, must be at most 63 of a-z, 0-9 and inner dashes"
        )
    if options.service_account is not None:
        yield from check_object_name("options.service_account", options.service_account)
    for field in ("reserved_millicpu", "reserved_memmb"):
        value = getattr(options, field)
        if value < 0:
            yield Problem(f"options.{field}", f"{found(value)}, must be a whole number, 0 or more")
    yield from check_amount("efa_device_count", options.efa_device_count)
    yield from check_labels("options.labels", options.labels)
    yield from check_keys("options.annotations", options.annotations)


def check_amount(option: str, value: int | None) -> Iterator[Problem]:
    """Check an amount that may be unset."""
    if value is not None and not 0 <= value <= MAX_INT32:
        yield Problem(f"options.{option}", f"{found(value)}, must be a whole number, 0 or more, or unset")
