"""What every test may use: the one local cluster of an e2e session, and the environment of a `pulumi` process.

Generated examples are the same on every run and on every machine, however busy it is. `TORCHX_PULUMI_EXAMPLES` sets how
many there are of each test that does not say it.
"""

from __future__ import annotations

import gc
import io
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.s3_server import S3Backend, serve_s3

TESTS = Path(__file__).parent

# The thousands of tests stay in memory. With searches for garbage as frequent as usual, which look at all of them, the
# same tests take a sixth more CPU time.
gc.set_threshold(50_000, 20, 20)

settings.register_profile(
    "steady",
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=int(os.environ.get("TORCHX_PULUMI_EXAMPLES", "100")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("steady")

GROUPS = {"tools": ("tools", "contract/provider", "e2e/test_local_cluster.py"), "fleet": ("e2e/fleet",)}
"""Tests that are left out where `TORCHX_PULUMI_LEFT_OUT` names them: those of the tools and of the stand-in provider,
and the real ones of the fleet. What they use of the rest has tests elsewhere."""

collect_ignore = [path for group in os.environ.get("TORCHX_PULUMI_LEFT_OUT", "").split() for path in GROUPS[group]]

LONGEST = (
    "mcad",
    "kueue",
    "test_volcano_training_job.py",
    "test_handover.py",
    "test_demo.py",
    "test_second_users.py",
    "test_secrets.py",
    "test_docs.py",
    "provider",
    "test_ends.py",
    "test_prune.py",
    "test_torchx_schedulers.py",
    "test_stack_program.py",
    "test_controller_deployment.py",
    "test_app_wrapper_operator.py",
    "test_killed_deployments.py",
)
"""Groups of real tests that take longest; they begin first, so that no worker is left alone with one in the end."""


def pytest_collection_finish() -> None:
    """A search for garbage that a test asks for leaves out what was loaded and collected."""
    gc.freeze()


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups when its own turn comes
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep together, on one worker, the real tests of a file, of a contract, of MCAD, and of Kueue.

    A contract's fixtures make definitions that are the whole cluster's. One job can block MCAD's line for all others.
    Those of Kueue have a cluster of their own.
    """
    ranks: dict[str, int] = {}
    for item in items:
        if item.get_closest_marker("e2e"):
            file = item.path.parent if "contract" in item.path.parts else item.path
            marked = next((name for name in ("mcad", "kueue") if item.get_closest_marker(name)), None)
            item.add_marker(pytest.mark.xdist_group(marked or file.relative_to(TESTS).as_posix()))
            name = marked or file.name
            ranks[item.nodeid] = LONGEST.index(name) if name in LONGEST else len(LONGEST)
    items.sort(key=lambda item: ranks.get(item.nodeid, len(LONGEST)))


@pytest.fixture(scope="session", autouse=True)
def nothing_outlives_the_machine(request: pytest.FixtureRequest) -> Iterator[None]:
    """Files are not waited for until they are on the disk, but by real tests."""
    with pytest.MonkeyPatch.context() as patch:
        if request.config.option.markexpr == "not e2e":
            patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def no_source_positions(request: pytest.FixtureRequest) -> Iterator[None]:
    """Registrations do not say where the program makes them, but in real tests: Pulumi reads all frames for that."""
    source, resource = (sys.modules.get(f"pulumi.runtime.{name}") for name in ("proto.source_pb2", "resource"))
    with pytest.MonkeyPatch.context() as patch:
        if source is not None and resource is not None and request.config.option.markexpr == "not e2e":
            patch.setattr(resource, "_get_stack_trace", source.StackTrace, raising=False)
        yield


@pytest.fixture(scope="session")
def cluster() -> Iterator[object]:
    """One local cluster for the whole session; TORCHX_PULUMI_TEST_CLUSTER names a running one to use instead."""
    from tools.local_cluster import Cluster

    name = os.environ.get("TORCHX_PULUMI_TEST_CLUSTER")
    if name:
        found = Cluster.find(name)
        if found is None:
            pytest.exit(f"no local cluster {name!r}; `make cluster-status` lists those there are", returncode=2)
        yield found
        return
    started = Cluster.up(name=f"e2e-{os.getpid()}")
    yield started
    started.down()


@pytest.fixture(scope="session")
def kubeconfig(cluster: object) -> Path:
    """Kubeconfig of the session's cluster."""
    return Path(cluster.kubeconfig)  # type: ignore[attr-defined]


@pytest.fixture(scope="session")
def pulumi_tools() -> dict[str, str]:
    """Environment in which `pulumi` finds its hosts and the Kubernetes provider; says which provider that is."""
    from tools.bootstrap import pulumi_environment

    return pulumi_environment()


@pytest.fixture(scope="session")
def s3_program() -> Path:
    """The S3 server; built by the first session that asks for it."""
    from tools.bootstrap import ensure

    return ensure(["versitygw"])["versitygw"] / "versitygw"


@pytest.fixture
def s3_backend(s3_program: Path, tmp_path: Path) -> Iterator[S3Backend]:
    """A Pulumi backend on a real S3 server; `env` goes into the environment of whoever uses it."""
    with serve_s3(s3_program, tmp_path / "s3") as backend:
        yield backend


@pytest.fixture
def pulumi_env(pulumi_tools: dict[str, str], kubeconfig: Path, tmp_path: Path) -> dict[str, str]:
    """Environment of one test's `pulumi` processes: its own file backend, the session's cluster."""
    backend = tmp_path / "pulumi-state"
    backend.mkdir()
    return {
        **os.environ,
        **pulumi_tools,
        "KUBECONFIG": str(kubeconfig),
        "PULUMI_BACKEND_URL": f"file://{backend}",
        "PULUMI_CONFIG_PASSPHRASE": "correct horse battery staple",
        "PULUMI_SKIP_UPDATE_CHECK": "true",
    }


@pytest.fixture
def unreadable(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path, int], None]:
    """Let the file system refuse to say anything of a path; root is refused nothing. `Path` is as in Python 3.14."""
    refused: dict[str, int] = {}

    def refusing(real: Any) -> Any:
        def call(path: Any, *args: Any, **kwargs: Any) -> Any:
            number = refused.get(os.fspath(path)) if isinstance(path, (str, os.PathLike)) else None
            if number is not None:
                raise OSError(number, os.strerror(number), os.fspath(path))
            return real(path, *args, **kwargs)

        return call

    for name in ("stat", "lstat", "listdir", "scandir", "open"):
        monkeypatch.setattr(os, name, refusing(getattr(os, name)))
    monkeypatch.setattr(io, "open", refusing(io.open))
    if sys.version_info < (3, 11):  # its pathlib keeps the functions that it found when it was imported
        for name, home in (("stat", os), ("listdir", os), ("scandir", os), ("open", io)):
            monkeypatch.setattr(f"pathlib._NormalAccessor.{name}", staticmethod(getattr(home, name)))
    for name, real in (("is_file", os.path.isfile), ("is_dir", os.path.isdir), ("exists", os.path.exists)):
        monkeypatch.setattr(Path, name, lambda path, ask=real: ask(path))
    return lambda path, number: refused.update({os.fspath(path): number})
