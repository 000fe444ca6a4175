import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.errors import DeployError
from torchx_pulumi.runs.entry import Place
from torchx_pulumi.runs.place import choose_backend
from torchx_pulumi_stacks.automation.backend import (
    engine_environment,
    engine_url,
    file_root,
    find_cli,
    passphrase_file,
    place_environment,
    wants_passphrase,
)
from torchx_pulumi_stacks.automation.workplace import place_key


def place(backend: str, provider: str | None = None) -> Place:
    return Place(backend=backend, project="torchx", stack="s", secrets_provider=provider)


@pytest.mark.parametrize(
    ("url", "root"),
    [
        ("file:///a/b", Path("/a/b")),
        ("file:///a%20b?metadata=skip", Path("/a b")),
        ("file://~/x", Path("~/x").expanduser()),
        ("file://./x", Path.cwd() / "x"),
        ("s3://bucket", None),
        ("https://api.pulumi.com", None),
    ],
)
def test_which_backend_is_a_folder(url: str, root: Path | None) -> None:
    assert file_root(url) == root


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
    assert place_environment(place(chosen))["PULUMI_BACKEND_URL"] == "postgres://me:hunter22@db-3/x"
    # As 0.1.0 has it: the key of a URL without credentials, and of one that it stored whole.
    assert place_key(place("s3://bucket")) == "7493f9e56e6701499e59f916"
    assert place_key(place("postgres://me:pw@db/x")) == "f329a139876b37c18ed4af2a"


def test_a_passphrase_is_made_once_and_for_its_owner_only(own_state: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        files = set(pool.map(lambda _: passphrase_file().read_text(), range(16)))
    assert len(files) == 1
    path = own_state / "passphrase"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(own_state.stat().st_mode) == 0o700
    assert [item.name for item in own_state.iterdir()] == ["passphrase"]


def test_a_passphrase_of_the_users_own_is_left_alone(own_state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "mine")
    assert "PULUMI_CONFIG_PASSPHRASE_FILE" not in place_environment(place("file:///a"))
    assert not own_state.exists()


def test_the_cluster_of_the_launch_is_named_to_the_engine(make_order: Callable[..., Any]) -> None:
    env = engine_environment(make_order(ambient_kubeconfig="/k/config").entry, "key")
    assert (env["KUBECONFIG"], env["TORCHX_PULUMI_PLACE"]) == ("/k/config", "key")


def test_without_the_cli_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(DeployError, match="install Pulumi"):
        find_cli()
