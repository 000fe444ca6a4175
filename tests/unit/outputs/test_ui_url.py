"""A link is filled with quoted values, and a template that is none is refused with what is allowed."""

from __future__ import annotations

import pytest
from torchx_pulumi.model.errors import InvalidJobError
from torchx_pulumi.outputs.ui_url import check_ui_url, fill_ui_url


def test_values_are_quoted() -> None:
    url = fill_ui_url(
        "https://ui.example/{namespace}?job={name}&q={queue}&by={scheduler}",
        namespace="a/b", name="c&d", scheduler="mcad", queue=None,
    )  # fmt: skip
    assert url == "https://ui.example/a%2Fb?job=c%26d&q=&by=mcad"


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("https://ui.example/{pod}", "names {pod}"),
        ("https://ui.example/{name!r}", "names {name!r}"),
        ("https://ui.example/{0}", "names {0}"),
        ("https://ui.example/{name", "cannot be read"),
        ("ftp://ui.example/{name}", "is not a URL"),
        ("https:///{name}", "is not a URL"),
        ("https://ui.example/ {name}", "is not a URL"),
        ("https://[x/{name}", "is not a URL"),
        (7, "found int"),
    ],
)
def test_what_is_no_template_is_refused(template: object, said: str) -> None:
    problems = check_ui_url(template, "options.ui_url")
    assert [said in problem.message for problem in problems] == [True]
    assert problems[0].path == "options.ui_url"


def test_filling_a_bad_template_raises() -> None:
    with pytest.raises(InvalidJobError, match="allowed are"):
        fill_ui_url("https://ui.example/{pod}", namespace="a", name="b", scheduler="volcano", queue="q")
