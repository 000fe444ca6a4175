"""What the CLI is asked for on a Pulumi service. The CLI is a script: there is no service here."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.model.app_entry import RunEntry, StackRef, Stage, read_entry, write_entry
from torchx_pulumi.model.errors import DeployError, InvalidJobError
from torchx_pulumi.stack_state import cli as cli_module
from torchx_pulumi.stack_state.cli import check_organization, choose_organization
from torchx_pulumi.stack_state.stacks import StackName
from torchx_pulumi_fleet import read_fleet
from torchx_pulumi_stacks.engine import AutomationDriver
from torchx_pulumi_stacks.engine.work_dir import place_key

from tests.fakes import FakeCluster

SERVICE = "https://api.pulumi.com"

SCRIPT = f"""#!{sys.executable}
import json, os, sys
words = [word for word in sys.argv[1:] if word not in ("--non-interactive", "--color", "never")]
with open({{log!r}}, "a") as file:
    file.write(json.dumps([os.environ["PULUMI_BACKEND_URL"], *words]) + "\\n")
answers = json.load(open({{answers!r}}))
for start, (code, text) in answers.items():
    if " ".join(words).startswith(start):
        (sys.stdout if code == 0 else sys.stderr).write(text)
        sys.exit(code)
sys.stderr.write("error: no stack named " + repr(words[-1]) + " found")
sys.exit(255)
"""


class Cli:
    """A script in the place of the CLI: it notes how it was called, and answers by the first words."""

    def __init__(self, folder: Path) -> None:
        self._log, self._answers = folder / "calls", folder / "answers"
        self._answers.write_text("{}")
        script = folder / "bin/pulumi"
        script.parent.mkdir()
        script.write_text(SCRIPT.format(log=str(self._log), answers=str(self._answers)))
        script.chmod(0o755)

    def answer(self, words: str, text: str, code: int = 0) -> None:
        known = json.loads(self._answers.read_text())
        self._answers.write_text(json.dumps({**known, words: [code, text]}))

    def calls(self) -> list[list[str]]:
        """Return the calls since the last time, without the variables and files of a run."""
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        self._log.unlink(missing_ok=True)
        return [json.loads(line) for line in lines]


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    made = Cli(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(cli_module, "_default_organizations", {})
    return made


def test_the_default_organization_is_asked_once(cli: Cli) -> None:
    cli.answer("org get-default", "acme\n")
    assert [choose_organization(SERVICE) for _ in range(3)] == ["acme"] * 3
    assert cli.calls() == [[SERVICE, "org", "get-default"]]
    assert choose_organization(SERVICE, "other") == "other"
    assert cli.calls() == []


def test_without_a_default_organization_it_is_the_users_own_account(cli: Cli) -> None:
    cli.answer("org get-default", "No Default Org Specified\n")
    cli.answer("whoami", "ann\n")
    assert choose_organization(SERVICE) == "ann"


def test_a_service_that_does_not_answer_is_told(cli: Cli) -> None:
    cli.answer("org get-default", "error: PULUMI_ACCESS_TOKEN must be set", 255)
    with pytest.raises(DeployError, match=r"PULUMI_ACCESS_TOKEN must be set; log in.*pulumi_organization"):
        choose_organization(SERVICE)


@pytest.mark.parametrize("backend", ["file:///a", "s3://bucket", "postgres://db/x"])
def test_other_backends_have_no_organizations(backend: str, cli: Cli) -> None:
    assert choose_organization(backend) == "organization"
    assert choose_organization(backend, "organization") == "organization"
    with pytest.raises(InvalidJobError, match=r"pulumi_organization: is 'acme', and .* has no organizations"):
        choose_organization(backend, "acme")
    with pytest.raises(InvalidJobError, match="pulumi_organization"):
        read_fleet(backend, organization="acme")
    assert cli.calls() == []


@pytest.mark.parametrize("read", [choose_organization, read_fleet])
def test_a_backend_that_is_no_url_is_no_service(read: Callable[[str], Any], cli: Cli) -> None:
    with pytest.raises(InvalidJobError, match=r"pulumi_backend: is '/nope', must be a URL: file:///folder, s3://"):
        read("/nope")
    assert cli.calls() == []


def test_a_name_that_no_organization_has_is_refused() -> None:
    with pytest.raises(InvalidJobError, match="must be the name of an organization"):
        check_organization(SERVICE, "acme/torchx")


@pytest.fixture
def entry(make_order: Callable[..., Any]) -> RunEntry:
    place = StackRef(backend=SERVICE, project="torchx", stack="default.train-1", organization="acme")
    made: RunEntry = replace(make_order().entry, place=place, stage=Stage.LAUNCHED)
    return made


def test_every_command_names_the_organization(cli: Cli, entry: RunEntry, make_order: Callable[..., Any]) -> None:
    driver = AutomationDriver(connect=lambda *_: FakeCluster())
    full = "acme/torchx/default.train-1"
    assert driver.find(entry.place) is None
    stash = {"type": "pulumi:index:Stash", "urn": "urn:pulumi:s::torchx::torchx:index:VolcanoTrainingJob$x::train-app"}
    note = {**stash, "outputs": {"input": write_entry(entry)}}
    job = {"type": "kubernetes:batch.volcano.sh/v1alpha1:Job", "urn": "a::b"}
    cli.answer("stack export", json.dumps({"deployment": {"resources": [note, job]}}))
    found = driver.find(entry.place)
    assert found is not None
    assert found.place == entry.place
    cli.answer("destroy", "")
    driver.destroy(replace(entry, stage=Stage.DELETING, cluster=""), print)
    cli.answer("stack init", "error: refused", 255)
    with pytest.raises(DeployError, match="refused"):
        driver.launch(replace(make_order(), entry=replace(entry, stage=Stage.LAUNCHING)), print)
    calls = cli.calls()
    assert {call[0] for call in calls} == {SERVICE}
    named = [call[call.index("--stack") + 1] for call in calls if "--stack" in call]
    assert named == [full] * 4
    assert calls[-1][1:4] == ["stack", "init", full]


def test_a_stack_without_an_organization_is_that_of_the_default_one(cli: Cli, entry: RunEntry) -> None:
    AutomationDriver().find(replace(entry.place, organization="organization"))
    assert [call[1:] for call in cli.calls()] == [["stack", "export", "--stack", "default.train-1"]]


def test_the_organization_of_a_listed_stack_is_known(cli: Cli) -> None:
    names = ["bare", "torchx/own", "acme/theirs", "acme/torchx/far", "organization/torchx/diy"]
    cli.answer("stack ls", json.dumps([{"name": name} for name in names]))
    places = {place.stack: place.organization for place in AutomationDriver().places(SERVICE, "torchx")}
    assert places == {
        "bare": "organization",
        "own": "organization",
        "theirs": "acme",
        "far": "acme",
        "diy": "organization",
    }


def test_an_entry_keeps_the_organization_of_its_stack(entry: RunEntry) -> None:
    default = replace(entry, place=replace(entry.place, organization="organization"))
    for one in (entry, default):
        assert read_entry(json.loads(json.dumps(write_entry(one))), "here") == one
    assert place_key(default.place) != place_key(entry.place)


def test_a_fleet_of_a_service_is_read_by_organization(cli: Cli) -> None:
    cli.answer("org get-default", "mine\n")
    names = ["torchx/own", "acme/torchx/far"]
    cli.answer("stack ls", json.dumps([{"name": name} for name in names]))
    fleet = read_fleet(SERVICE)
    assert {broken.stack for broken in fleet.broken} == {
        StackName(project="torchx", stack="own"),
        StackName(project="torchx", stack="acme/far"),
    }
    calls = [call[1:] for call in cli.calls()]
    assert calls[0] == ["stack", "ls", "--json", "--all"]
    assert sorted(call[3] for call in calls if call[1] == "export") == ["acme/torchx/far", "own"]
    read_fleet(SERVICE, project="torchx", organization="acme")
    calls = [call[1:] for call in cli.calls()]
    assert calls[0] == ["stack", "ls", "--json", "--project", "torchx", "--organization", "acme"]
    assert "acme/torchx/own" in [call[3] for call in calls if call[1] == "export"]
