"""Problems of values that a test made: their types, as readers find them, then the rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from torchx_pulumi.model.errors import Problem
from torchx_pulumi.model.job_spec import JobSpec
from torchx_pulumi.planning.checks.job import check_job_rules
from torchx_pulumi.planning.typed_reader import TypedReader, uncovered


def check_typed(kind: type, value: Any, path: str, rules: Callable[[Any], Iterable[Problem]]) -> Iterator[Problem]:
    reader = TypedReader()
    read = reader.read(kind, value, path)
    yield from reader.problems
    yield from uncovered(rules(read), reader.problems)


def check_job(spec: JobSpec) -> Iterator[Problem]:
    return check_typed(JobSpec, spec, "", check_job_rules)
