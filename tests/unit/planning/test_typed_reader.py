"""The typed reader."""

from __future__ import annotations

from torchx_pulumi.model.errors import Problem
from torchx_pulumi.planning.typed_reader import uncovered


def test_a_value_that_cannot_be_read_is_one_problem_in_either_spelling_of_its_path() -> None:
    known = [Problem("roles[0].port_map[c10d]", "must be a whole number")]
    rules = [Problem("roles[0].port_map['c10d']", "must be 1 to 65535"), Problem("roles[0].env['A']", "is empty")]
    assert [problem.path for problem in uncovered(rules, known)] == ["roles[0].env['A']"]
