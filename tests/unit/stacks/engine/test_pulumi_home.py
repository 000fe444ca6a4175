"""The PULUMI_HOME of engines: the user's own entries, without Pulumi's automatic log."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from torchx_pulumi_stacks.engine.pulumi_home import without_log


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A home that has been used."""
    home = tmp_path / "theirs"
    (home / "plugins").mkdir(parents=True)
    (home / "logs").mkdir()
    (home / "workspaces").mkdir()
    (home / "credentials.json").write_text("{}")
    return home


def made(root: Path, theirs: Path, **more: str) -> dict[str, str]:
    return without_log({"PULUMI_HOME": str(theirs), "X": "1", **more}, root)


def test_the_engine_has_the_users_plugins_and_credentials_and_no_folder_for_logs(tmp_path: Path, theirs: Path) -> None:
    env = made(tmp_path / "engine", theirs)
    ours = Path(env["PULUMI_HOME"])
    assert ours.is_relative_to(tmp_path / "engine")
    assert {path.name for path in ours.iterdir()} == {"logs", "plugins", "workspaces"}
    assert (ours / "plugins").resolve() == theirs / "plugins"
    with pytest.raises(FileExistsError):
        (ours / "logs").mkdir()
    assert env["PULUMI_CREDENTIALS_PATH"] == str(theirs)
    assert env["X"] == "1"


def test_credentials_that_a_login_replaced_and_entries_that_came_later_are_seen(tmp_path: Path, theirs: Path) -> None:
    made(tmp_path / "engine", theirs)
    new = theirs / "new.json"
    new.write_text('{"current": "s3://b"}')
    new.replace(theirs / "credentials.json")
    (theirs / "policies").mkdir()
    env = made(tmp_path / "engine", theirs)
    assert (Path(env["PULUMI_CREDENTIALS_PATH"]) / "credentials.json").read_text() == '{"current": "s3://b"}'
    assert (Path(env["PULUMI_HOME"]) / "policies").resolve() == theirs / "policies"


def test_plugins_that_an_engine_installs_are_the_users(tmp_path: Path) -> None:
    env = made(tmp_path / "engine", tmp_path / "unused")
    (Path(env["PULUMI_HOME"]) / "plugins" / "resource-kubernetes").mkdir()
    assert (tmp_path / "unused" / "plugins" / "resource-kubernetes").is_dir()


def test_credentials_elsewhere_stay_there(tmp_path: Path, theirs: Path) -> None:
    env = made(tmp_path / "engine", theirs, PULUMI_CREDENTIALS_PATH="/elsewhere")
    assert env["PULUMI_CREDENTIALS_PATH"] == "/elsewhere"


def test_each_home_of_a_user_has_one_of_ours(tmp_path: Path, theirs: Path) -> None:
    one, other = made(tmp_path / "engine", theirs), made(tmp_path / "engine", tmp_path / "other")
    assert one["PULUMI_HOME"] != other["PULUMI_HOME"]
    assert made(tmp_path / "engine", theirs) == one


def test_without_a_home_in_the_environment_it_is_the_one_of_the_users_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real" / ".pulumi" / "plugins").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "set"))
    monkeypatch.setattr("pwd.getpwuid", lambda _uid: type("Entry", (), {"pw_dir": str(tmp_path / "real")}))
    env = without_log({}, tmp_path / "engine")
    assert env["PULUMI_CREDENTIALS_PATH"] == str(tmp_path / "real" / ".pulumi")


def test_a_variable_keeps_the_log(tmp_path: Path, theirs: Path) -> None:
    given = {"PULUMI_HOME": str(theirs), "TORCHX_PULUMI_ENGINE_LOG": "1"}
    assert without_log(given, tmp_path / "engine") == given
    assert not (tmp_path / "engine").exists()


def test_a_folder_that_cannot_be_written_keeps_the_log(tmp_path: Path, theirs: Path) -> None:
    (tmp_path / "engine").write_text("a file")
    given = {"PULUMI_HOME": str(theirs)}
    assert without_log(given, tmp_path / "engine") == given


def test_a_service_without_credentials_in_the_home_keeps_the_log(tmp_path: Path, theirs: Path) -> None:
    service = {"PULUMI_HOME": str(theirs), "PULUMI_BACKEND_URL": "https://api.pulumi.com"}
    assert without_log(service, tmp_path / "engine") != service
    (theirs / "credentials.json").unlink()
    assert without_log(service, tmp_path / "engine") == service


def test_engines_that_start_at_once_have_the_same_home(tmp_path: Path, theirs: Path) -> None:
    for number in range(50):
        (theirs / f"entry-{number}").mkdir()
    together = Barrier(8)

    def start(_: int) -> str:
        together.wait()
        return made(tmp_path / "engine", theirs)["PULUMI_HOME"]

    with ThreadPoolExecutor(together.parties) as threads:
        (ours,) = set(threads.map(start, range(together.parties)))
    names = {path.name for path in theirs.iterdir()} | {"logs"}
    assert {path.name for path in Path(ours).iterdir()} == names - {"credentials.json"}


def test_pulumi_makes_a_folder_again_that_the_user_removed(tmp_path: Path, theirs: Path) -> None:
    ours = Path(made(tmp_path / "engine", theirs)["PULUMI_HOME"])
    (theirs / "workspaces").rmdir()
    assert made(tmp_path / "engine", theirs)["PULUMI_HOME"] == str(ours)
    (ours / "workspaces").mkdir()
    assert (ours / "plugins").resolve() == theirs / "plugins"
