"""The guard of active runs: what the Kubernetes provider compares, and URNs that a program does not have any more."""

from __future__ import annotations

import base64
import contextlib
import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pulumi
import pytest
import yaml
from torchx_pulumi.model.cluster_identity import ClusterIdentity
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.runs.run_hash import run_hash
from torchx_pulumi.testing import FakeCluster, cluster_for_tests
from torchx_pulumi_components import MCADTrainingJob, VolcanoTrainingJob, launch
from torchx_pulumi_components.guard import UNKNOWN, find_replacement, own_settings

from .test_clusters import cluster
from .test_volcano_training_job import JOB, PREFIX, args, remember, stashed

PROVIDERS = "urn:pulumi:dev::proj::pulumi:providers:kubernetes"
OWN = f"{PREFIX}$pulumi:providers:kubernetes::train-kubernetes"
PEM = base64.b64encode(b"authority").decode()


def config(name: str = "lab", *, context: Any = None, user: Any = None, current: str | None = "", **entry: Any) -> str:
    fields = {"server": "https://lab:6443", "certificate-authority-data": PEM, **entry}
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": name if current == "" else current,
            "contexts": [
                {"name": name, "context": {"cluster": name, "user": name, **(context or {})}},
                {"name": "other", "context": {"cluster": "other", "user": name}},
            ],
            "clusters": [
                {"name": name, "cluster": fields},
                {"name": "other", "cluster": {"server": "https://other:6443"}},
            ],
            "users": [{"name": name, "user": user or {"token": "t"}}],
        }
    )


REPLACED = {
    "server": {"server": "https://lab:6443/"},
    "tls-server-name": {"tls-server-name": "lab"},
    "insecure-skip-tls-verify": {"insecure-skip-tls-verify": True},
    "proxy-url": {"proxy-url": "http://proxy:1"},
    "disable-compression": {"disable-compression": True},
    "extensions": {"extensions": [{"name": "a", "extension": {"b": 1}}]},
    "certificate-authority-data": {"certificate-authority-data": base64.b64encode(b"authority\n").decode()},
    "certificate-authority": {"certificate-authority-data": None, "certificate-authority": "/ca.pem"},
}


@pytest.mark.parametrize("field", REPLACED)
def test_a_provider_replaces_itself_for_any_other_field_of_its_cluster(field: str) -> None:
    before, after = {"kubeconfig": config()}, {"kubeconfig": config(**REPLACED[field])}
    for found in (find_replacement(before, after), find_replacement(after, before)):
        assert found is not None
        assert found.startswith("with its kubeconfig, ")
        assert field in found.removeprefix("with its kubeconfig, ").removesuffix(
            " of the cluster in the kubeconfig changes"
        ).split(", ")
    identified = {"clusterIdentifier": "lab"}
    assert find_replacement(before | identified, after | identified) is None
    # The identifier counts once both have it.
    assert find_replacement(before, after | identified) is not None


HARMLESS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "equal": ({"kubeconfig": config()}, {"kubeconfig": config()}),
    "names": ({"kubeconfig": config()}, {"kubeconfig": config("renamed")}),
    "namespace": ({"kubeconfig": config()}, {"kubeconfig": config(context={"namespace": "ml"})}),
    "credentials": ({"kubeconfig": config()}, {"kubeconfig": config(user={"token": "u"})}),
    "default written out": ({"kubeconfig": config()}, {"kubeconfig": config(**{"disable-compression": False})}),
    "unknown field": ({"kubeconfig": config()}, {"kubeconfig": config(acme=1)}),
    "as an object": ({"kubeconfig": config()}, {"kubeconfig": yaml.safe_load(config())}),
    "none before": ({}, {"kubeconfig": config()}),
    "none after": ({"kubeconfig": config()}, {}),
    "only a context": ({"context": "a"}, {"context": "b"}),
    "no such context": ({"kubeconfig": config()}, {"kubeconfig": config(current="missing", server="https://x")}),
    "a path that stays": ({"kubeconfig": "/nowhere"}, {"kubeconfig": "/nowhere"}),
    "identifier added": ({"kubeconfig": config()}, {"kubeconfig": config(), "clusterIdentifier": "1"}),
    "identifier removed": ({"kubeconfig": config(), "clusterIdentifier": "1"}, {"kubeconfig": config()}),
    "known in up only": ({"kubeconfig": config()}, {"kubeconfig": UNKNOWN}),
    "identifier known in up only": ({"clusterIdentifier": "1"}, {"clusterIdentifier": UNKNOWN}),
    "a name that is none": ({"kubeconfig": config()}, {"kubeconfig": "contexts:\n- {name: [a], context: {}}\n"}),
    "namespace of the provider": ({"namespace": "a"}, {"namespace": "b"}),
}


@pytest.mark.parametrize("change", HARMLESS)
def test_a_provider_stays_where_its_cluster_does(change: str) -> None:
    assert find_replacement(*HARMLESS[change]) is None


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ({"kubeconfig": config()}, {"kubeconfig": config(), "context": "other"}, "with its context, certificate-"),
        ({"kubeconfig": config()}, {"kubeconfig": config(), "cluster": "other"}, "with its cluster, certificate-"),
        ({"kubeconfig": config(), "clusterIdentifier": "1"}, {"clusterIdentifier": "2"}, "its clusterIdentifier"),
        ({}, {"renderYamlToDirectory": "d"}, "its renderYamlToDirectory"),
    ],
)
def test_other_settings_that_choose_a_cluster_replace_a_provider(before: Any, after: Any, reason: str) -> None:
    assert (find_replacement(before, after) or "").startswith(reason)


def test_a_kubeconfig_that_is_gone_cannot_be_compared(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(config())
    assert find_replacement({"kubeconfig": str(path)}, {"kubeconfig": config()}) is None
    with pytest.raises(ClusterError, match="is not on this machine"):
        find_replacement({"kubeconfig": str(tmp_path / "gone")}, {"kubeconfig": config()})


HERE = ClusterIdentity(uid="here", address="a")


@pytest.mark.parametrize(
    ("given", "before", "cluster", "launching", "settings"),
    [
        ({}, {"context": "c"}, HERE, True, {}),
        ({"context": "c"}, None, HERE, True, {"context": "c", "clusterIdentifier": HERE.key}),
        ({"context": "c"}, None, None, True, {"context": "c"}),
        # An earlier release registered it without: the run that is kept shows no change.
        ({"context": "c"}, {"context": "c"}, HERE, False, {"context": "c"}),
        ({"context": "c"}, {"context": "c"}, HERE, True, {"context": "c", "clusterIdentifier": HERE.key}),
        ({"context": "c"}, {"clusterIdentifier": "old"}, HERE, False, {"context": "c", "clusterIdentifier": "old"}),
        # What was known at the first launch: the address alone.
        ({"context": "c"}, {"clusterIdentifier": "a"}, HERE, True, {"context": "c", "clusterIdentifier": "a"}),
        ({"context": "c"}, {"clusterIdentifier": "old"}, None, True, {"context": "c", "clusterIdentifier": "old"}),
        # The generated class of a provider takes KUBECONFIG of the machine.
        ({"context": "c"}, {"kubeconfig": "/env"}, HERE, False, {"context": "c", "kubeconfig": "/env"}),
        ({"context": "c"}, {"kubeconfig": "/other"}, HERE, False, {"context": "c"}),
    ],
)
def test_a_component_names_the_cluster_to_its_provider(
    given: Any, before: Any, cluster: Any, launching: bool, settings: Any
) -> None:
    assert own_settings(given, before, cluster, "/env", launching=launching) == settings


def launched(engine: Any, **options: Any) -> FakeCluster:
    """Launch a run in a cluster; the state remembers it."""
    here = cluster(uid="here")
    with cluster_for_tests(here):
        engine.run(lambda: VolcanoTrainingJob("train", args(**options)))
    job = remember(engine)
    engine.mocks.state[f"{PREFIX}$kubernetes:batch.volcano.sh/v1alpha1:Job::train"] = job
    here.put(job)
    return here


def refusal(engine: Any, here: FakeCluster, program: Callable[[], Any], *, preview: bool) -> str:
    with cluster_for_tests(here), pytest.raises(pulumi.RunError) as caught:
        engine.run(program, preview=preview)
    assert not engine.mocks.of_type(JOB)
    return str(caught.value)


@pytest.mark.parametrize("policy", ["fail", "replace", "ignore"])
@pytest.mark.parametrize("preview", [True, False])
def test_a_provider_that_would_replace_itself_is_refused_while_a_run_is_kept(
    engine: Any, policy: str, preview: bool
) -> None:
    other = config(**{"tls-server-name": "lab"})
    here = launched(engine)
    engine.mocks.state[OWN] = {"kubeconfig": config()}
    given = args(on_running_change=policy, kubeconfig=other)
    text = refusal(engine, here, lambda: VolcanoTrainingJob("train", given), preview=preview)
    assert "(that of kubeconfig and kube_context), because with its kubeconfig, tls-server-name of the cluster" in text
    assert "and delete run train-" in text
    engine.mocks.state[OWN] = {"kubeconfig": config(), "clusterIdentifier": "lab"}
    with cluster_for_tests(here):
        engine.run(lambda: VolcanoTrainingJob("train", given), preview=preview)
    assert engine.mocks.one("pulumi:providers:kubernetes").inputs["clusterIdentifier"] == "lab"


def test_the_providers_of_the_program_and_of_the_configuration_are_compared(engine: Any) -> None:
    import pulumi_kubernetes

    other = config(**{"tls-server-name": "lab"})

    def program(kubeconfig: str, name: str = "p") -> Callable[[], Any]:
        def run() -> Any:
            provider = pulumi_kubernetes.Provider(name, kubeconfig=kubeconfig)
            return VolcanoTrainingJob("train", args(), pulumi.ResourceOptions(provider=provider))

        return run

    here = launched(engine)
    (urn,) = [each for each in engine.mocks.state if each.endswith("VolcanoTrainingJob::train")]
    engine.mocks.state[f"{PROVIDERS}::p"] = {"kubeconfig": config()}
    engine.mocks.state[f"{PROVIDERS}::q"] = {"kubeconfig": other}
    record = engine.mocks.state[urn]["record"]
    for recorded, chosen, kubeconfig, is_refused in (
        (None, "p", config(), False),
        (None, "p", other, True),
        (f"{PROVIDERS}::p", "p", other, True),
        (f"{PROVIDERS}::p", "q", other, True),
        # The stack had another name.
        (f"{PROVIDERS}::p".replace(":dev:", ":old:"), "p", other, True),
        (f"{PROVIDERS}::q", "q", other, False),
        (f"{PROVIDERS}::p", "new", config(), False),
    ):
        known = {key: value for key, value in record.items() if key != "cluster"}
        engine.mocks.state[urn]["record"] = known if recorded is None else {**known, "provider": recorded}
        written = recorded and f"{PROVIDERS}::{chosen}"
        if is_refused:
            assert f"(that of the program, {chosen})" in refusal(
                engine, here, program(kubeconfig, chosen), preview=True
            )
        else:
            with cluster_for_tests(here):
                engine.run(program(kubeconfig, chosen))
            # A record of an earlier release shows no change.
            assert engine.record().get("provider") == written
    engine.mocks.state[urn]["record"] = record
    engine.mocks.state[f"{PROVIDERS}::default_4_34_2"] = {"kubeconfig": config()}

    def configured() -> None:
        pulumi.runtime.set_all_config({"kubernetes:kubeconfig": other}, [])
        VolcanoTrainingJob("train", args())

    try:
        assert "(that of the configuration)" in refusal(engine, here, configured, preview=True)
    finally:
        pulumi.runtime.set_all_config({}, [])


# URNs.


@pytest.mark.parametrize("fixed", [{}, {"job_name": "mine"}], ids=["generated name", "fixed name"])
@pytest.mark.parametrize("preview", [True, False])
def test_a_component_with_another_urn_is_refused_while_its_run_is_active(
    engine: Any, fixed: dict[str, str], preview: bool
) -> None:
    here = launched(engine, **fixed)
    name = engine.mocks.one(JOB).inputs["metadata"]["name"]
    changed: list[Callable[[], Any]] = [
        lambda: VolcanoTrainingJob("renamed", args(**fixed)),
        lambda: VolcanoTrainingJob("renamed", args(job_name=name), pulumi.ResourceOptions(import_=f"default/{name}")),
        lambda: VolcanoTrainingJob(
            "train", args(**fixed), pulumi.ResourceOptions(parent=pulumi.ComponentResource("acme:ml:Team", "team"))
        ),
    ]
    for program in changed:
        text = refusal(engine, here, program, preview=preview)
        assert f"`aliases` with '{PREFIX}::train'" in text
        assert "Nothing was changed" in text
    alias = pulumi.ResourceOptions(aliases=[f"{PREFIX}::train"])
    with cluster_for_tests(here):
        engine.run(lambda: VolcanoTrainingJob("renamed", args(**fixed), alias), preview=preview)
    assert engine.mocks.one(JOB).inputs["metadata"]["name"] == name


def test_a_component_of_another_scheduler_is_refused_in_the_place_of_an_active_run(engine: Any) -> None:
    here = launched(engine)
    role = args()["roles"]
    # No alias moves a run to another scheduler.
    alias = pulumi.ResourceOptions(aliases=[f"{PREFIX}::train"])
    for name, opts in (("train", None), ("train", alias), ("renamed", alias)):
        text = refusal(engine, here, lambda n=name, o=opts: MCADTrainingJob(n, {"roles": role}, o), preview=True)  # type: ignore[misc]
        assert "component 'train' (VolcanoTrainingJob)" in text
        assert "cannot go over to another scheduler" in text


def test_a_job_next_to_its_equal_and_a_changed_one_in_its_place_are_no_renames(engine: Any) -> None:
    here = launched(engine)

    def equal() -> None:
        VolcanoTrainingJob("first", args())
        VolcanoTrainingJob("train", args())

    with cluster_for_tests(here):
        engine.run(equal)
        assert len(engine.mocks.of_type(JOB)) == 2
        engine.run(lambda: VolcanoTrainingJob("another", args(rerun="1")))
        assert len(engine.mocks.of_type(JOB)) == 1


def test_a_finished_run_under_another_urn_is_launched_again_with_a_warning(
    engine: Any, caplog: pytest.LogCaptureFixture
) -> None:
    here = launched(engine)
    name = engine.mocks.one(JOB).inputs["metadata"]["name"]
    ended = copy.deepcopy(engine.mocks.state[f"{PREFIX}$kubernetes:batch.volcano.sh/v1alpha1:Job::train"])
    ended["status"] = {"state": {"phase": "Completed"}}
    here.put(ended)
    with cluster_for_tests(here):
        engine.run(lambda: VolcanoTrainingJob("renamed", args()))
    assert engine.mocks.one(JOB).inputs["metadata"]["name"] != name
    assert f"run {name} of component 'train' (VolcanoTrainingJob) in the state of this stack has ended" in caplog.text
    caplog.clear()
    with cluster_for_tests(here):
        engine.run(lambda: MCADTrainingJob("train", {"roles": args()["roles"]}))
    # Of another scheduler it is not the same job.
    assert "has ended" not in caplog.text


def test_an_interrupted_launch_of_another_component_counts(engine: Any) -> None:
    here = launched(engine)
    engine.mocks.state[f"{PREFIX}::train"] = {}
    assert "aliases" in refusal(engine, here, lambda: VolcanoTrainingJob("renamed", args()), preview=True)


def test_a_later_launch_of_another_component_that_was_interrupted_counts(engine: Any) -> None:
    here = launched(engine)
    with cluster_for_tests(here):
        engine.run(lambda: VolcanoTrainingJob("train", args(rerun="2", on_running_change="replace")))
    job = copy.deepcopy(engine.mocks.one(JOB).inputs)
    job["metadata"] |= {"uid": "later", "creationTimestamp": "2026-01-01T00:00:00Z"}
    here.put({**job, "status": {"state": {"phase": "Running"}}})
    engine.mocks.state[f"{PREFIX}$pulumi:index:Stash::train-intent"] = {"input": stashed(engine, "-intent")}
    name = job["metadata"]["name"]
    engine.mocks.state[f"{PREFIX}::train"]["observed"] = {"state": "SUCCEEDED"}
    # Without a cluster too: what the state says is of the run before.
    for where in (here, None):
        with cluster_for_tests(where) if where else contextlib.nullcontext(), pytest.raises(pulumi.RunError) as caught:
            engine.run(lambda: VolcanoTrainingJob("renamed", args(rerun="2")), preview=True)
        assert f"run {name} of component 'train'" in str(caught.value)


def test_a_component_with_a_run_of_its_own_does_not_take_the_object_of_another_one(engine: Any) -> None:
    here = launched(engine, job_name="mine")
    first = engine.mocks.state
    engine.mocks.state = {}
    with cluster_for_tests(cluster(uid="here")):
        engine.run(lambda: VolcanoTrainingJob("second", args(job_name="other")))
    ended = remember(engine, "second")
    here.put({**ended, "status": {"state": {"phase": "Completed"}}})
    # Resources of any provider have metadata of any shape.
    engine.mocks.state |= {**first, "urn:pulumi:dev::proj::acme:index:Thing::t": {"metadata": ["a"]}}
    for opts in (None, pulumi.ResourceOptions(import_="default/mine")):
        text = refusal(
            engine,
            here,
            lambda o=opts: VolcanoTrainingJob("second", args(job_name="mine"), o),  # type: ignore[misc]
            preview=True,
        )
        assert "job default/mine is that of component 'train'" in text
        assert "take it over" not in text


def test_many_new_jobs_are_compared_with_many_runs_without_rendering_each_pair(
    engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = launched(engine)
    engine.mocks.state = {
        urn.replace("::train", f"::old{number}"): found
        for number in range(20)
        for urn, found in engine.mocks.state.items()
    }
    rendered = []

    def counted(*given: Any, **options: Any) -> str:
        rendered.append(given)
        return run_hash(*given, **options)

    monkeypatch.setattr(launch, "run_hash", counted)
    with cluster_for_tests(here):
        engine.run(
            lambda: [VolcanoTrainingJob(f"new{number}", args(rerun=str(number))) for number in range(5)] and None
        )
    assert len(engine.mocks.of_type(JOB)) == 5
    assert len(rendered) == 5
