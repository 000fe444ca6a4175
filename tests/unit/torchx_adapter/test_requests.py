"""The request of a dry run: read, changed, copied and submitted as TorchX's own is."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from kubernetes import client
from torchx import specs
from torchx_pulumi.kube import Reader, kinds
from torchx_pulumi.model.errors import ClusterError, InvalidJobError
from torchx_pulumi.runs.index import RunIndex
from torchx_pulumi.schedulers.appwrapper.objects import APP_WRAPPER, SIGS_POD_GROUP, X_K8S_POD_GROUP
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB
from torchx_pulumi.torchx_adapter.dryrun import PulumiJob

from tests.fakes import FakeCluster

from .conftest import CONFIG, World, app, role

GANG = {"coscheduler_name": "cosched"}


def pods_of(resource: Any) -> list[Any]:
    """Return the pods of a request, where TorchX's own schedulers have them."""
    if resource["kind"] == "Job":
        return [task["template"] for task in resource["spec"]["tasks"]]
    items = [item["generictemplate"] for item in resource["spec"]["resources"]["GenericItems"]]
    return [item for item in items if item["kind"] == "Pod"]


def test_a_request_has_the_fields_of_torchx_and_no_more(world: World, kind: str) -> None:
    info = world.scheduler(kind).submit_dryrun(app(), CONFIG[kind])
    shown = json.loads(json.dumps(dataclasses.asdict(info.request), default=str))
    assert list(shown) == ["images_to_push", "resource"]
    assert shown["resource"] == yaml.safe_load(str(info)) == info.request.resource


@pytest.mark.parametrize("through", [lambda it: it, copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))])
def test_a_request_is_submitted_without_its_dry_run(world: World, kind: str, through: Callable[[Any], Any]) -> None:
    scheduler = world.scheduler(kind)
    given = app(metadata={"team": "a"})
    job = through(scheduler.submit_dryrun(given, {**CONFIG[kind], "service_account": "sa"}).request)
    app_id = scheduler.schedule(specs.AppDryRunInfo(job, repr))
    (entry,) = RunIndex().all()
    assert (entry.app_id, entry.options["service_account"]) == (app_id, "sa")
    described = scheduler.describe(app_id)
    assert described is not None
    assert [item.args for item in described.roles] == [item.args for item in given.roles]
    with pytest.raises(ValueError, match="already exists"):
        scheduler.schedule(specs.AppDryRunInfo(job, repr))


@pytest.mark.parametrize("request_", [None, {}, PulumiJob(images_to_push={}, resource={"kind": "Job"})])
def test_what_is_of_no_dry_run_is_refused(world: World, request_: Any) -> None:
    with pytest.raises(InvalidJobError, match="not a result of submit_dryrun"):
        world.scheduler().schedule(specs.AppDryRunInfo(request_, repr))


@pytest.mark.parametrize("resource", [None, "text", [], {"kind": "List", "items": ["text"]}])
def test_a_resource_that_is_no_object_is_refused(world: World, resource: Any) -> None:
    scheduler = world.scheduler()
    info = scheduler.submit_dryrun(app(), CONFIG["volcano"])
    info.request.resource = resource
    with pytest.raises(InvalidJobError, match=r"request\.resource: is \w+, must be a mapping"):
        scheduler.schedule(info)


class HookedRole(specs.Role):  # type: ignore[misc]
    """A role whose hook changes the pods of the request."""

    def pre_proc(self, scheduler: str, dryrun_info: Any) -> Any:
        for pod in pods_of(dryrun_info.request.resource):
            pod["spec"]["nodeSelector"] = {"pool": scheduler}
            env = pod["spec"]["containers"][0]["env"]
            env += [client.V1EnvVar(name="HOOKED", value="1"), {"name": "PLAIN", "value": "2"}]
        return dryrun_info


def test_hooks_reach_pods_by_their_keys(world: World, kind: str) -> None:
    scheduler = world.scheduler(kind)
    hooked = HookedRole(**{item.name: getattr(role(), item.name) for item in dataclasses.fields(role())})
    app_id = scheduler.submit(app(hooked), CONFIG[kind])
    head = world.head(app_id, VOLCANO_JOB if kind == "volcano" else APP_WRAPPER)
    assert head is not None
    for pod in pods_of(head):
        assert type(pod) is dict
        assert pod["spec"]["nodeSelector"] == {"pool": f"pulumi_{kind}"}
        assert pod["spec"]["containers"][0]["env"][-2:] == [
            {"name": "HOOKED", "value": "1"},
            {"name": "PLAIN", "value": "2"},
        ]


def test_models_of_the_official_client_are_printed_and_submitted(world: World) -> None:
    scheduler = world.scheduler()
    info = scheduler.submit_dryrun(app(), CONFIG["volcano"])
    pod = client.V1PodTemplateSpec(
        metadata=client.V1ObjectMeta(labels={"a": "b"}),
        spec=client.V1PodSpec(
            containers=[client.V1Container(name="main", image="mine:2", resources=client.V1ResourceRequirements())]
        ),
    )
    info.request.resource["spec"]["tasks"][0]["template"] = pod
    wanted = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "main", "image": "mine:2", "resources": {}}]},
    }
    assert yaml.safe_load(str(info.request))["spec"]["tasks"][0]["template"] == wanted
    head = world.head(scheduler.schedule(info))
    assert head is not None
    assert head["spec"]["tasks"][0]["template"] == wanted
    assert info.request.resource["spec"]["tasks"][0]["template"] is pod


class Serving(FakeCluster):
    """A cluster that counts what it is asked for."""

    asked = 0

    def serves(self, kind: kinds.Kind) -> bool:
        self.asked += 1
        return super().serves(kind)


def pod_group_of(world: World, cluster: Reader, **config: Any) -> tuple[str, Any]:
    scheduler = world.scheduler("mcad", connect=lambda *_: cluster)
    info = scheduler.submit_dryrun(app(), {**GANG, **config})
    items = [item["generictemplate"] for item in info.request.resource["spec"]["resources"]["GenericItems"]]
    return next(item["apiVersion"] for item in items if item["kind"] == "PodGroup"), info


X_K8S, SIGS = "scheduling.x-k8s.io/v1alpha1", "scheduling.sigs.k8s.io/v1alpha1"


@pytest.mark.parametrize("given", [X_K8S, SIGS])
@pytest.mark.parametrize("served", [[], [SIGS_POD_GROUP], [X_K8S_POD_GROUP]])
def test_a_pod_group_api_that_was_given_is_kept(world: World, given: str, served: list[kinds.Kind]) -> None:
    cluster = Serving(served=[*served, APP_WRAPPER])
    found, _ = pod_group_of(world, cluster, pod_group_api=given)
    assert (found, cluster.asked) == (given, 0)


@pytest.mark.parametrize("validate", [True, False])
@pytest.mark.parametrize(("served", "wanted"), [(SIGS_POD_GROUP, SIGS), (X_K8S_POD_GROUP, X_K8S)])
def test_a_pod_group_api_that_was_not_given_is_asked_for_and_recorded(
    world: World, served: kinds.Kind, wanted: str, validate: bool
) -> None:
    cluster = Serving([*world.cluster.list(kinds.NAMESPACE, None)], served=[served, APP_WRAPPER])
    found, info = pod_group_of(world, cluster, validate_spec=validate)
    assert found == wanted
    assert info.request.plan.options.pod_group_api.value == wanted
    world.scheduler("mcad").schedule(info)
    (entry,) = RunIndex().all()
    assert entry.options["pod_group_api"] == wanted


def test_a_cluster_that_does_not_answer_leaves_a_warning(world: World, caplog: pytest.LogCaptureFixture) -> None:
    cluster = FakeCluster(error=ClusterError("no answer", retryable=True))
    found, _ = pod_group_of(world, cluster, validate_spec=False)
    assert found == X_K8S
    assert "the request was not completed: no answer" in caplog.text
    caplog.clear()
    world.scheduler("mcad", connect=lambda *_: cluster).submit_dryrun(app(), {"validate_spec": False})
    assert caplog.text == ""


def test_a_port_that_mcad_tolerates_is_not_among_the_problems(world: World) -> None:
    given = app(role(port_map={"x": 70000}))
    scheduler = world.scheduler("mcad")
    scheduler.submit_dryrun(given, {})
    for wrong in ({"priority": 1 << 40}, {"pod_group_api": "v1"}):
        with pytest.raises(InvalidJobError) as caught:
            scheduler.submit_dryrun(given, wrong)
        assert "70000" not in str(caught.value)
    with pytest.raises(InvalidJobError, match="70000"):
        world.scheduler().submit_dryrun(given, CONFIG["volcano"])


@pytest.mark.parametrize("contents", ["apiVersion: v1", "users:\n- token: abc", '{"users": []}'])
def test_contents_of_a_kubeconfig_are_refused_and_not_repeated(world: World, contents: str) -> None:
    with pytest.raises(InvalidJobError, match="must be the path of a file, found contents") as caught:
        world.scheduler().submit_dryrun(app(), {**CONFIG["volcano"], "kubeconfig": contents})
    assert contents not in str(caught.value)


@pytest.mark.parametrize("name", ["service_account", "priority_class"])
def test_an_empty_option_is_unset(world: World, name: str) -> None:
    unset, empty = (
        world.scheduler().submit_dryrun(app(), {**CONFIG["volcano"], name: value}).request for value in (None, "")
    )
    for request in (unset, empty):
        request.resource["metadata"]["name"] = "same"
    assert empty.plan.options == unset.plan.options


if hasattr(specs, "Workspace"):

    def test_a_mistake_is_found_before_an_image_is_built(world: World, kind: str) -> None:
        from torchx.runner import Runner

        class Building(Exception):
            """Building began."""

        scheduler = world.scheduler(kind)
        scheduler.build_workspaces = _raise(Building)
        runner = Runner("torchx", {f"pulumi_{kind}": lambda *_, **__: scheduler})
        for given, wrong, said in [
            (app(role(max_retries=-1)), {}, "max_retries"),
            (app(), {"reserved_memmb": -5}, "reserved_memmb"),
            (app(), {"ui_url": "http://{nowhere}"}, "nowhere"),
            (app(), {"log_archive": "ftp://logs"}, "log_archive"),
            (app(), {"quue": "x"}, "quue"),
        ]:
            with pytest.raises(Exception, match=said) as caught:
                runner.dryrun(given, f"pulumi_{kind}", {**CONFIG[kind], **wrong})
            assert not isinstance(caught.value, Building)
        with pytest.raises(Building):
            runner.dryrun(app(), f"pulumi_{kind}", CONFIG[kind])


def _raise(kind: type[Exception]) -> Any:
    def fail(*_: Any, **__: Any) -> None:
        raise kind

    return fail


def test_all_problems_of_a_job_and_of_its_options_are_in_one_message(world: World, kind: str) -> None:
    wrong = role(image="A B:1", num_replicas=0, args=["${app_idd}"], resource=specs.Resource(cpu=-2, gpu=-3, memMB=1))
    options = {
        **CONFIG[kind],
        "service_account": "No Name",
        "log_archive": "ftp://logs",
        "kubeconfig": "apiVersion: v1",
    }
    with pytest.raises(InvalidJobError) as caught:
        world.scheduler(kind).submit_dryrun(app(wrong), options)
    paths = {problem.path for problem in caught.value.problems}
    fields = ("image", "num_replicas", "args[0]", "resource.cpu", "resource.gpu")
    assert paths == {*(f"roles[0].{field}" for field in fields), "options.service_account", "log_archive", "kubeconfig"}
