from __future__ import annotations

import io

from tools.bootstrap.progress import PLAIN_EVERY_S, Progress


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def test_plain_lines_are_few_and_say_what_is_left() -> None:
    output, clock = io.StringIO(), Clock()
    progress = Progress(output, terminal=False, now=clock)
    progress.plan({"kubelet": 90, "crane": 15})
    progress.start("kubelet", "building")
    for _ in range(70):
        clock.seconds += 1
        progress.tick()
    progress.finish("1.34.1, built from Go modules")
    progress.start("crane", "building")
    assert PLAIN_EVERY_S == 30
    assert output.getvalue().splitlines() == [
        "bootstrap: 2 parts to make, about 1 min 45 s: kubelet, crane",
        "bootstrap: [1/2] kubelet: building, 0 s of about 1 min 30 s, 1 more to come (about 15 s)",
        "bootstrap: [1/2] kubelet: building, 30 s of about 1 min 30 s, 1 more to come (about 15 s)",
        "bootstrap: [1/2] kubelet: building, 1 min 00 s of about 1 min 30 s, 1 more to come (about 15 s)",
        "bootstrap: kubelet: 1.34.1, built from Go modules, took 1 min 10 s",
        "bootstrap: [2/2] crane: building, 0 s of about 15 s",
    ]


def test_a_terminal_has_one_line_that_changes() -> None:
    output, clock = io.StringIO(), Clock()
    progress = Progress(output, terminal=True, now=clock)
    progress.plan({"kwok": 60})
    progress.start("kwok", "building")
    clock.seconds = 1
    progress.tick()
    progress.close()
    assert output.getvalue() == (
        "bootstrap: 1 part to make, about 1 min 00 s: kwok\n"
        "\r\x1b[Kbootstrap: [1/1] kwok: building, 0 s of about 1 min 00 s"
        "\r\x1b[Kbootstrap: [1/1] kwok: building, 1 s of about 1 min 00 s"
        "\r\x1b[K"
    )


def test_a_line_does_not_stand_behind_the_one_that_changes() -> None:
    output = io.StringIO()
    progress = Progress(output, terminal=True, now=Clock())
    progress.start("kwok", "building")
    progress.say("waiting for a build in another process")
    assert output.getvalue().endswith("\r\x1b[Kbootstrap: waiting for a build in another process\n")


def test_nothing_to_make_says_nothing() -> None:
    output = io.StringIO()
    Progress(output, terminal=False).plan({})
    assert output.getvalue() == ""
