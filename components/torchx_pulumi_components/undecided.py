"""Fields whose values are not known yet: which ones they are, and what they count as until then."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

from torchx_pulumi.runs.identity import changed_fields, field_digests

from torchx_pulumi_components.input_resolution import PLACEHOLDER
from torchx_pulumi_components.read_args import ParsedArgs


def undecided_fields(digests: Mapping[str, str], other: ParsedArgs | None, version: int) -> set[str]:
    """Return the paths of the fields that are not known: those that differ with other stand-ins.

    Args:
        digests: Of what is wanted.
        other: What is wanted with other stand-ins. None: it is refused, and nothing tells which fields differ.
        version: Version of the identity.
    """
    if other is None:
        return set(digests)
    others = field_digests(other.spec, other.options, rerun=other.settings.rerun, version=version)
    return set(changed_fields(digests, others))


def as_recorded(digests: Mapping[str, str], paths: Set[str], recorded: Mapping[str, str]) -> dict[str, str]:
    """Return digests with those of some fields, and of all entries of mappings among them, as a run recorded them."""
    taken = _with_entries(paths, recorded)
    kept = {path: digest for path, digest in digests.items() if path not in taken}
    return kept | {path: recorded[path] for path in taken & recorded.keys()}


def _with_entries(paths: Set[str], recorded: Iterable[str]) -> set[str]:
    """Return paths, and the recorded ones of all entries of a mapping that is not known as a whole."""
    maps = {path[: path.rindex("[")] for path in paths if PLACEHOLDER in path}
    return {*paths, *(path for path in recorded if path.rpartition("[")[0] in maps or path in maps)}
