"""What needs the real parts, on one cluster: `python -m tools.e2e [--nightly] [--extended] [pytest's arguments]`.

Without arguments all but the long and rare tests run with TorchX 0.7.0, and what differs also with nightly.
`--nightly` runs what is named with nightly. `--extended` runs the long and rare tests (the mark `extended`), and those
for whose number of cases a variable stands (`counted`); of tests that are named it runs all.

The tests of a file run one after the other, files side by side. Tests that measure times (the mark `idle`) run at the
end, one after the other, on a machine that does nothing else.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.bootstrap import BootstrapError, provisioner, stand_in_provider
from tools.bootstrap.parts import part_named
from tools.local_cluster import Cluster

ROOT = Path(__file__).resolve().parents[1]
WORKERS = 4
"""Files whose tests run side by side. More than the cores of small machines: most of the time the tests wait."""
TESTS = ("tests/e2e", "tests/contract")
"""Where real tests are."""
NO_TESTS = 5
"""Exit code of pytest if no test is chosen."""
NIGHTLY_TESTS = (
    "tests/e2e/test_torchx_schedulers.py",
    "tests/e2e/test_other_schedulers.py",
    "tests/e2e/test_handover.py::test_a_job_of_any_kind_goes_over_and_torchx_goes_on_with_it",
    "tests/e2e/test_images_torchx.py::test_what_one_process_planned_or_built_another_one_launches",
)
"""What differs between the versions of TorchX, on a real cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """Tests, and the Python that runs them."""

    name: str
    python: Path
    words: tuple[str, ...]
    marks: str
    """Expression that chooses the tests."""


def main(arguments: Sequence[str]) -> int:
    """Run the suites; return the first exit code that is not 0."""
    # A shell in the background ignores Ctrl-C, and so would the tests that send it to themselves.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    named = tuple(word for word in arguments if word not in ("--nightly", "--extended"))
    marks = "e2e and not extended"
    if "--extended" in arguments:
        marks = "e2e" if named else "e2e and (extended or counted)"
    whole = Suite(name="TorchX 0.7.0", python=ROOT / ".venv/bin/python", words=named or TESTS, marks=marks)
    nightly = Suite(
        name="TorchX nightly",
        python=ROOT / ".venv-nightly/bin/python",
        words=named or NIGHTLY_TESTS,
        # What differs between the versions does not depend on the scheduler.
        marks=marks if named else f"{marks} and not mcad",
    )
    suites = [nightly] if "--nightly" in arguments else [whole] if arguments else [whole, nightly]
    try:
        provider = provisioner().choose(part_named("kubernetes-provider"))
    except BootstrapError as error:
        say(str(error))
        return 1
    say(f"Kubernetes provider: {provider.origin}")
    if not arguments:
        # Building takes minutes: here it is seen, in a test it would be the test's time.
        subprocess.run([whole.python, "-m", "tools.bootstrap", "ensure"], cwd=ROOT, check=True)
        stand_in_provider()
    given = os.environ.get("TORCHX_PULUMI_TEST_CLUSTER")
    cluster = None if given else Cluster.up(name=f"e2e-{os.getpid()}")
    env = {**os.environ, "TORCHX_PULUMI_TEST_CLUSTER": given or f"e2e-{os.getpid()}"}
    # The tests fork next to engines that talk gRPC, which is not made for that.
    env["GRPC_ENABLE_FORK_SUPPORT"] = "false"
    try:
        codes = [run_suite(suite, env) for suite in suites]
    finally:
        if cluster is not None:
            cluster.down()
    return next((code for code in codes if code), 0)


def run_suite(suite: Suite, env: dict[str, str]) -> int:
    """Run a suite: what runs side by side, then what needs an idle machine. Return the first code that is not 0."""
    say(f"with {suite.name}")
    begin = time.monotonic()
    spread = ("-n", str(WORKERS), "--dist", "loadgroup", "--no-loadscope-reorder")
    codes = [
        pytest(suite.python, env, "-m", f"{suite.marks} and not idle", *spread, *suite.words),
        pytest(suite.python, env, "-m", f"{suite.marks} and idle", *suite.words),
    ]
    code = next((code for code in codes if code not in (0, NO_TESTS)), min(codes))
    if code == NO_TESTS:
        say(why_none(suite, env))
    say(f"with {suite.name}: {'passed' if code == 0 else f'exit code {code}'}, {time.monotonic() - begin:.0f} s")
    return code


def why_none(suite: Suite, env: dict[str, str]) -> str:
    """Return why no test was chosen, and what to do."""
    if "not extended" in suite.marks:
        say("no test was chosen; those with the mark extended are:")
        if pytest(suite.python, env, "-m", "e2e and extended", "--collect-only", *suite.words) == 0:
            given = shlex.join(["--extended", *suite.words])
            return f"all of them have the mark extended; run them with `make e2e ARGS={shlex.quote(given)}`"
    return "there is no real test of these names; check the files, and -k if it is given"


def pytest(python: Path, env: dict[str, str], *words: str) -> int:
    """Run pytest to its end."""
    command = [str(python), "-m", "pytest", "-q", "-rf", "--durations", "15", *words]
    return subprocess.run(command, cwd=ROOT, env=env, check=False).returncode


def say(text: str) -> None:
    """Tell what is going on, among pytest's lines."""
    print(f"e2e: {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
