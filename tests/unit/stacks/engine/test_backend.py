import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.model.app_entry import StackRef
from torchx_pulumi.model.errors import DeployError
from torchx_pulumi.stack_state.backend import absolute_backend, backend_folder, choose_backend
from torchx_pulumi.stack_state.cli import (
    engine_environment,
    engine_url,
    find_cli,
    passphrase_file,
    wants_passphrase,
)
from torchx_pulumi_stacks.engine.work_dir import place_key

from tests.unit.runs.test_index import entry


def stack_environment(ref: StackRef) -> dict[str, str]:
    return engine_environment(entry(place=ref), "key")


def place(backend: str, provider: str | None = None) -> StackRef:
    return StackRef(backend=backend, project="torchx", stack="s", secrets_provider=provider)


@pytest.mark.parametrize(
    ("url", "root"),
    [
        ("file:///a/b", "/a/b"),
        ("file:///a%20b?metadata=skip", "/a b"),
        ("file://~", "{home}"),
        ("file://~/x", "{home}/x"),
        ("file://.", "{here}"),
        ("file://", "{here}"),
        ("file://./x?metadata=skip", "{here}/x"),
        ("file://../x", "{above}/x"),
        ("file://localhost/x", "{here}/localhost/x"),
        ("s3://bucket", None),
        ("https://api.pulumi.com", None),
    ],
)
def test_which_backend_is_a_folder(url: str, root: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, home = tmp_path / "my 50%? # work", tmp_path / "home"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("HOME", str(home))
    wanted = None if root is None else Path(root.format(here=here, home=home, above=tmp_path))
    chosen = choose_backend(url)
    monkeypatch.chdir(tmp_path)
    assert backend_folder(chosen) == wanted
    assert backend_folder(engine_url(chosen)) == wanted
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("url", ["file:///a/b", "file:///a/../b/?x=1", "file:///a%20b", "s3://bucket/~"])
def test_a_backend_with_an_absolute_url_keeps_its_name(url: str) -> None:
    assert absolute_backend(url) == url


def test_relative_paths_of_the_environment_mean_the_callers_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/own")
    given = {
        "PULUMI_CONFIG_PASSPHRASE_FILE": "pass",
        "PULUMI_HOME": "./home",
        "AWS_CONFIG_FILE": "~/aws",
        "KUBECONFIG": "a::b/c:/d",
        "PATH": "bin:/usr/bin",
    }
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    made = stack_environment(place("file:///a"))
    assert {name: made[name] for name in given} == {
        "PULUMI_CONFIG_PASSPHRASE_FILE": f"{tmp_path}/pass",
        "PULUMI_HOME": f"{tmp_path}/home",
        "AWS_CONFIG_FILE": "/own/aws",
        "KUBECONFIG": f"{tmp_path}/a::{tmp_path}/b/c:/d",
        "PATH": f"{tmp_path}/bin:/usr/bin",
    }


def test_variables_of_proxies_reach_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "NO_PROXY", "no_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"value of {name}")
    made = stack_environment(place("file:///a"))
    assert {name: value for name, value in made.items() if value == f"value of {name}"}.keys() >= {
        "HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "NO_PROXY", "no_proxy",
    }  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        "PULUMI_RUN_PROGRAM",
        "PULUMI_OPTION_TARGET",
        "PULUMI_OPTION_RUN_PROGRAM",
        "PULUMI_DIY_BACKEND_ZSTD",
        "PULUMI_STACK",
    ],
)
def test_variables_that_change_commands_do_not_reach_the_engine(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "true")
    monkeypatch.setenv("PULUMI_PARALLEL", "4")
    made = stack_environment(place("file:///a"))
    assert name not in made
    assert made["PULUMI_PARALLEL"] == "4"


def test_the_engine_writes_no_attributes_beside_its_files() -> None:
    assert engine_url("file:///a?x=1") == "file:///a?x=1&metadata=skip"
    assert engine_url("file:///a?metadata=skip") == "file:///a?metadata=skip"


@pytest.mark.parametrize(
    ("backend", "provider", "wanted"),
    [
        ("file:///a", None, True),
        ("s3://b", None, True),
        ("s3://b", "awskms://k", False),
        ("https://api.pulumi.com", None, False),
        ("https://api.pulumi.com", "passphrase", True),
    ],
)
def test_who_keeps_secrets(backend: str, provider: str | None, wanted: bool) -> None:
    assert wants_passphrase(place(backend, provider)) is wanted


def test_the_engine_alone_is_given_the_password(monkeypatch: pytest.MonkeyPatch, own_state: Path) -> None:
    del own_state
    monkeypatch.setenv("PULUMI_BACKEND_URL", "postgres://me:hunter22@db-3/x")
    chosen = choose_backend()
    assert chosen == "postgres://me:***@db-3/x"
    assert stack_environment(place(chosen))["PULUMI_BACKEND_URL"] == "postgres://me:hunter22@db-3/x"
    # Files of a stack are found by it.
    assert place_key(place("s3://bucket")) == "7493f9e56e6701499e59f916"


def test_a_passphrase_is_made_once_and_for_its_owner_only(own_state: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        files = set(pool.map(lambda _: passphrase_file().read_text(), range(16)))
    assert len(files) == 1
    path = own_state / "passphrase"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(own_state.stat().st_mode) == 0o700
    assert sorted(item.name for item in own_state.iterdir()) == [".lock", "passphrase"]


def test_a_passphrase_that_was_cut_off_is_named(own_state: Path) -> None:
    own_state.mkdir(parents=True)
    (own_state / "passphrase").touch()
    with pytest.raises(DeployError, match="passphrase is empty: remove it"):
        passphrase_file()


def test_an_empty_name_of_a_passphrase_file_names_none(own_state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE_FILE", "")
    assert stack_environment(place("file:///a"))["PULUMI_CONFIG_PASSPHRASE_FILE"] == str(own_state / "passphrase")


def test_a_passphrase_of_the_users_own_is_left_alone(own_state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "mine")
    assert "PULUMI_CONFIG_PASSPHRASE_FILE" not in stack_environment(place("file:///a"))
    assert not own_state.exists()


def test_the_cluster_of_the_launch_is_named_to_the_engine(make_order: Callable[..., Any]) -> None:
    env = engine_environment(make_order(ambient_kubeconfig="/k/config").entry, "key")
    assert (env["KUBECONFIG"], env["TORCHX_PULUMI_PLACE"]) == ("/k/config", "key")


def test_without_the_cli_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(DeployError, match="install Pulumi"):
        find_cli()
