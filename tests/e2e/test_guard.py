"""The guard of active runs, on the real engine: what a program may change, and what is refused in its preview.

Each change is deployed with `pulumi up`, whose preview comes first. The object of the run keeps its uid through all of
them. docs/states.md has the table.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.kube.kubeconfig import find_access
from torchx_pulumi.schedulers.appwrapper.objects import APP_WRAPPER
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB

from tests.e2e.project import FAKE_NODE, Project, changes

pytestmark = pytest.mark.e2e

PROGRAM = """\
import json
import pathlib

import pulumi
import pulumi_kubernetes
from torchx_pulumi_components import MCADTrainingJob, VolcanoTrainingJob

given = json.loads(pathlib.Path("program.json").read_text())
providers = {name: pulumi_kubernetes.Provider(name, **args) for name, args in given["providers"].items()}
parents = {
    name: pulumi.ComponentResource(kind, name, {}, pulumi.ResourceOptions(aliases=aliases))
    for name, (kind, aliases) in given["parents"].items()
}
for name, job in given["jobs"].items():
    make = {"volcano": VolcanoTrainingJob, "mcad": MCADTrainingJob}[job["scheduler"]]
    options = {key: job.get(key) for key in ("aliases", "import_")}
    provider, parent = providers.get(job.get("provider")), parents.get(job.get("parent"))
    made = make(name, job["args"], pulumi.ResourceOptions(provider=provider, parent=parent, **options))
    pulumi.export(name, made.job_name)
"""

KINDS = {"volcano": VOLCANO_JOB, "mcad": APP_WRAPPER}


class Program:
    """A program of training jobs, and the objects that it deployed."""

    def __init__(self, project: Project, look: KubernetesCluster, kubeconfig: Path, scheduler: str) -> None:
        self.project, self._look, self.scheduler = project, look, scheduler
        self.config: dict[str, Any] = json.loads(find_access(str(kubeconfig)).config)

    def write(self, *, providers: Any = None, parents: Any = None, **jobs: Mapping[str, Any]) -> None:
        """Write the program; each job is the same but for the arguments and options that are given."""
        written = {name.replace("_", "-"): self._job(**job) for name, job in jobs.items()}
        program = {"providers": providers or {}, "parents": parents or {}, "jobs": written}
        (self.project.folder / "program.json").write_text(json.dumps(program))

    def _job(self, scheduler: str | None = None, args: Any = None, **options: Any) -> dict[str, Any]:
        scheduler = scheduler or self.scheduler
        role = {"name": "trainer", "image": "app:1", "entrypoint": "sleep", "args": ["600"], **FAKE_NODE}
        queue = {"queue": "default"} if scheduler == "volcano" else {}
        whole = {**queue, "namespace": self.project.namespace, "roles": [role], **(args or {})}
        return {"scheduler": scheduler, "args": whole, **options}

    def up(self, *words: str) -> str:
        """Deploy, with a preview."""
        return self.project.run("up", "--yes", *words)

    def refused(self, *words: str) -> str:
        """Deploy, with a preview that refuses; return why, in one line."""
        text = self.project.run("up", "--yes", *words, fails=True)
        assert "Nothing was changed" in " ".join(text.split()), text
        assert "Resources:" not in text.rpartition("Updating")[2] or "Updating" not in text, text
        return " ".join(text.split())

    def uids(self) -> dict[str, str]:
        """Return the uid of each object that stands for a run, by its name."""
        kinds = KINDS.values() if self.scheduler == "mcad" else [VOLCANO_JOB]
        found = [item for kind in kinds for item in self._look.list(kind, self.project.namespace)]
        return {item["metadata"]["name"]: item["metadata"]["uid"] for item in found}

    def kubeconfig(self, *, name: str = "lab", context: Any = None, **cluster: Any) -> str:
        """Return the kubeconfig of the cluster with other names, or other fields of the cluster; None removes one."""
        (found,), (user,) = self.config["clusters"], self.config["users"]
        fields = {key: value for key, value in {**found["cluster"], **cluster}.items() if value is not None}
        return yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": name,
                "contexts": [{"name": name, "context": {"cluster": name, "user": name, **(context or {})}}],
                "clusters": [{"name": name, "cluster": fields}],
                "users": [{"name": name, "user": user["user"]}],
            }
        )

    def other_ways(self) -> dict[str, str]:
        """Return kubeconfigs that lead to the same cluster in another way, by what they change in its entry."""
        (found,) = self.config["clusters"]
        entry = found["cluster"]
        authority = base64.b64decode(entry["certificate-authority-data"])
        file = self.project.folder / "authority.pem"
        file.write_bytes(authority)
        more = base64.b64encode(authority + b"\n").decode()
        by_file = {"certificate-authority-data": None, "certificate-authority": str(file)}
        return {
            "tls-server-name": self.kubeconfig(**{"tls-server-name": "localhost"}),
            "extensions": self.kubeconfig(extensions=[{"name": "acme", "extension": {"by": "acme"}}]),
            "disable-compression": self.kubeconfig(**{"disable-compression": True}),
            "server": self.kubeconfig(server=f"{entry['server']}/"),
            "certificate-authority-data": self.kubeconfig(**{"certificate-authority-data": more}),
            "certificate-authority": self.kubeconfig(**by_file),
        }

    def same_entry(self) -> dict[str, str]:
        """Return kubeconfigs that leave the entry of the cluster as it is."""
        path = self.project.folder / "kubeconfig.yaml"
        path.write_text(self.kubeconfig())
        return {
            "other names": self.kubeconfig(name="renamed"),
            "namespace": self.kubeconfig(context={"namespace": "elsewhere"}),
            "path": str(path),
        }


@pytest.fixture
def program(
    make_project: Callable[..., Project], look: KubernetesCluster, kubeconfig: Path
) -> Callable[[str], Program]:
    """Make the project of a scheduler."""
    return lambda scheduler: Program(make_project(program=PROGRAM), look, kubeconfig, scheduler)


SCHEDULERS = ["volcano", pytest.param("mcad", marks=pytest.mark.mcad)]


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_a_kubeconfig_that_leads_to_the_same_cluster_in_another_way_keeps_the_run(
    program: Callable[[str], Program], scheduler: str
) -> None:
    made = program(scheduler)
    made.write(train={"args": {"kubeconfig": made.kubeconfig()}})
    made.up()
    uids = made.uids()
    assert len(uids) == 1
    ways = {**made.same_entry(), **made.other_ways()}
    for kubeconfig in ways.values() if scheduler == "volcano" else [ways["tls-server-name"]]:
        made.write(train={"args": {"kubeconfig": kubeconfig}})
        text = made.up()
        assert changes(text).keys() <= {"unchanged", "updated"}, text
        assert made.uids() == uids
    # The provider goes, and the default one has the cluster of the environment.
    made.write(train={})
    made.up()
    made.write(train={"args": {"kube_context": made.config["current-context"]}})
    made.up()
    made.write(train={"args": {"kubeconfig": made.kubeconfig(server="https://127.0.0.1:1")}})
    made.project.run("preview", fails=True)
    assert made.uids() == uids


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_a_provider_without_an_identifier_of_its_cluster_keeps_the_run_by_a_refusal(
    program: Callable[[str], Program], scheduler: str
) -> None:
    made = program(scheduler)
    made.write(train={"args": {"kubeconfig": made.kubeconfig()}})
    made.up()
    uids = made.uids()
    # As a release without the identifier registered the provider.
    state = json.loads(made.project.run("stack", "export"))
    for resource in state["deployment"]["resources"]:
        if resource["type"] == "pulumi:providers:kubernetes":
            for part in ("inputs", "outputs"):
                resource[part].pop("clusterIdentifier", None)
    (made.project.folder / "state.json").write_text(json.dumps(state))
    made.project.run("stack", "import", "--file", "state.json")
    assert changes(made.up()).keys() == {"unchanged"}
    ways = made.other_ways()
    for field, kubeconfig in ways.items() if scheduler == "volcano" else [("server", ways["server"])]:
        made.write(train={"args": {"kubeconfig": kubeconfig}})
        text = made.refused()
        assert (
            f"with its kubeconfig, {field}" in text
            or f"certificate-authority-data, {field}" in text
            or (field == "certificate-authority" and "with its kubeconfig, certificate-authority, " in text)
        ), text
        assert made.uids() == uids
    for kubeconfig in made.same_entry().values():
        made.write(train={"args": {"kubeconfig": kubeconfig}})
        made.up()
        assert made.uids() == uids


def test_a_provider_of_the_program_or_of_the_configuration_keeps_the_run(program: Callable[[str], Program]) -> None:
    made = program("volcano")
    here, there = made.kubeconfig(), made.kubeconfig(**{"tls-server-name": "localhost"})
    made.write(providers={"p": {"kubeconfig": here}}, train={"provider": "p"})
    made.up()
    uids = made.uids()

    def keeps(**changed: Any) -> None:
        made.write(**changed)
        text = made.up()
        assert not {"replaced", "deleted"} & changes(text).keys() or "provider" in text, text
        assert made.uids() == uids

    # The record names the provider by the old name of the stack.
    made.project.run("stack", "rename", "renamed")
    made.write(providers={"p": {"kubeconfig": there}}, train={"provider": "p"})
    assert "that of the program, p" in made.refused()
    made.write(providers={"p": {"kubeconfig": here}, "q": {"kubeconfig": there}}, train={"provider": "q"})
    assert "that of the program, q" in made.refused()
    keeps(providers={"renamed": {"kubeconfig": here}}, train={"provider": "renamed"})
    # What the refusal advises: first the identifier alone, then another way to the cluster.
    keeps(providers={"renamed": {"kubeconfig": here, "cluster_identifier": "lab"}}, train={"provider": "renamed"})
    keeps(providers={"renamed": {"kubeconfig": there, "cluster_identifier": "lab"}}, train={"provider": "renamed"})
    keeps(train={})
    made.project.run("config", "set", "kubernetes:kubeconfig", here, "--secret")
    keeps(train={})
    made.project.run("config", "set", "kubernetes:kubeconfig", there, "--secret")
    assert "that of the configuration" in made.refused()
    assert made.uids() == uids
    made.project.run("config", "set", "kubernetes:kubeconfig", here, "--secret")
    assert changes(made.up()).keys() == {"unchanged"}


@pytest.mark.parametrize(
    ("scheduler", "fixed"),
    [
        pytest.param("volcano", {}, id="volcano-generated name"),
        pytest.param("volcano", {"job_name": "fixed"}, marks=pytest.mark.extended, id="volcano-fixed name"),
        pytest.param("mcad", {}, marks=[pytest.mark.mcad, pytest.mark.extended], id="mcad-generated name"),
        pytest.param("mcad", {"job_name": "fixed"}, marks=pytest.mark.mcad, id="mcad-fixed name"),
    ],
)
def test_another_urn_keeps_the_run_by_an_alias_or_a_refusal(
    program: Callable[[str], Program], scheduler: str, fixed: dict[str, str]
) -> None:
    made = program(scheduler)
    made.write(train={"args": fixed})
    made.up()
    uids = made.uids()
    assert len(uids) == 1
    urn = next(item["urn"] for item in made.project.resources() if item["urn"].endswith("TrainingJob::train"))
    (job_name,) = uids
    existing = f"{made.project.namespace}/{job_name}"
    team = {"team": ("acme:ml:Team", [])}
    refusals: list[dict[str, Any]] = [
        {"renamed": {"args": fixed}},
        {"renamed": {"args": {"job_name": job_name}, "import_": existing}},
        {"train": {"args": fixed, "parent": "team"}, "parents": team},
    ]
    for refusal in refusals:
        made.write(**refusal)
        text = made.refused()
        assert f"aliases` with '{urn}'" in text, text
        assert made.uids() == uids
    if scheduler == "volcano" and not fixed:
        # Deployed without a preview, as the Automation API does.
        made.write(renamed={"args": fixed})
        assert f"aliases` with '{urn}'" in " ".join(
            made.project.run("up", "--yes", "--skip-preview", fails=True).split()
        )
        assert made.uids() == uids
    # What the refusals advise.
    made.write(renamed={"args": fixed, "aliases": [urn]})
    made.up()
    assert made.uids() == uids
    renamed = urn.replace("::train", "::renamed")
    made.write(train={"args": fixed, "parent": "team", "aliases": [renamed]}, parents=team)
    made.up()
    made.write(
        train={"args": fixed, "parent": "team"},
        parents={"team": ("acme:ml:Group", [next(u["urn"] for u in made.project.resources() if "Team::" in u["urn"])])},
    )
    made.up()
    assert made.uids() == uids
    assert changes(made.up()).keys() == {"unchanged"}


def test_a_job_of_another_scheduler_does_not_take_the_place_of_an_active_run(program: Callable[[str], Program]) -> None:
    made = program("volcano")
    made.write(train={})
    made.up()
    uids = made.uids()
    urn = next(item["urn"] for item in made.project.resources() if item["urn"].endswith("TrainingJob::train"))
    for changed in ({"train": {}}, {"train": {"aliases": [urn]}}, {"renamed": {"aliases": [urn]}}):
        made.write(**{name: {"scheduler": "mcad", **options} for name, options in changed.items()})
        assert "cannot go over to another scheduler" in made.refused()
        assert made.uids() == uids


def test_equal_jobs_new_jobs_and_removed_ones_are_no_renames(program: Callable[[str], Program]) -> None:
    made = program("volcano")
    made.write(a={})
    made.up()
    first = made.uids()
    # The new one is created before the one that is there, and after it.
    made.write(new={}, a={}, other={})
    made.up()
    assert len(made.uids()) == 3
    assert first.items() <= made.uids().items()
    made.write(a={}, fresh={"args": {"rerun": "fresh"}})
    made.up()
    assert len(made.uids()) == 2
    assert first.items() <= made.uids().items()
    made.write()
    made.up()
    assert made.uids() == {}
