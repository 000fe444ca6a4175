"""What every test may use: the one local cluster of an e2e session, and the environment of a `pulumi` process.

Generated examples are the same on every run and on every machine, however busy it is. `TORCHX_PULUMI_EXAMPLES` sets how
many there are of each test that does not say it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.s3_server import S3Backend, serve_s3

TESTS = Path(__file__).parent

settings.register_profile(
    "steady",
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=int(os.environ.get("TORCHX_PULUMI_EXAMPLES", "100")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("steady")

TOOL_TESTS = ("tools", "contract/provider", "e2e/test_local_cluster.py")
"""Tests of the tools and of the stand-in provider. What the tools use of the product has tests elsewhere."""

collect_ignore = list(TOOL_TESTS) if os.environ.get("TORCHX_PULUMI_TOOL_TESTS") == "no" else []

LONGEST = (
    "mcad",
    "test_volcano_training_job.py",
    "test_handover.py",
    "test_demo.py",
    "test_second_users.py",
    "test_secrets.py",
    "test_docs.py",
    "provider",
    "test_ends.py",
    "test_retention.py",
    "test_torchx_schedulers.py",
    "test_stack_program.py",
    "test_controller_deployment.py",
    "test_app_wrapper_operator.py",
    "test_killed_deployments.py",
)
"""Groups of real tests that take longest; they begin first, so that no worker is left alone with one in the end."""


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups when its own turn comes
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep together, on one worker, the real tests of a file, of a contract, and of MCAD.

    A contract's fixtures make definitions that are the whole cluster's. One job can block MCAD's line for all others.
    """
    ranks: dict[str, int] = {}
    for item in items:
        if item.get_closest_marker("e2e"):
            file = item.path.parent if "contract" in item.path.parts else item.path
            group = "mcad" if item.get_closest_marker("mcad") else file.relative_to(TESTS).as_posix()
            item.add_marker(pytest.mark.xdist_group(group))
            name = "mcad" if group == "mcad" else file.name
            ranks[item.nodeid] = LONGEST.index(name) if name in LONGEST else len(LONGEST)
    items.sort(key=lambda item: ranks.get(item.nodeid, len(LONGEST)))


@pytest.fixture(scope="session", autouse=True)
def nothing_outlives_the_machine(request: pytest.FixtureRequest) -> Iterator[None]:
    """Files are not waited for until they are on the disk, but by real tests."""
    with pytest.MonkeyPatch.context() as patch:
        if request.config.option.markexpr == "not e2e":
            patch.setattr(os, "fsync", lambda _: None)
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
