"""Built-in workloads, brought to life by real controllers and Volcano's scheduler."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.contract.provider.conftest import Api, wait_until
from tests.contract.provider.driver import Properties, Provider
from tests.contract.provider.objects import pod, urn


@pytest.fixture(autouse=True)
def _scheduler(api: Api) -> None:
    if api.get("/apis/batch.volcano.sh/v1alpha1") is None:
        pytest.skip("the cluster has no scheduler")


def template(**spec: Any) -> Properties:
    """Return pods for fake nodes: on a real one there is no such image."""
    containers = [{"name": "main", "image": "example.test/image:1"}]
    placed = {"nodeSelector": {"torchx-pulumi/node": "fake"}, "tolerations": [{"operator": "Exists"}]}
    return {
        "metadata": {"labels": {"app": "x"}},
        "spec": {"schedulerName": "volcano", "containers": containers, **placed, **spec},
    }


def made_of(api_version: str, kind: str, namespace: str, spec: Properties) -> Properties:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "x", "namespace": namespace}, "spec": spec}


def test_a_pod_that_is_scheduled_becomes_ready(provider: Provider, api: Api) -> None:
    spec = template()["spec"]
    made = provider.create(urn("core/v1:Pod"), pod(api.namespace, **{**spec, "terminationGracePeriodSeconds": 0}))
    assert made.outputs["spec"]["nodeName"]
    provider.delete(made)
    assert api.get(api.path("pods", "p")) is None


def test_a_deployment_is_ready_with_its_replicas_and_a_service_with_them(provider: Provider, api: Api) -> None:
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "x"}}, "template": template()}
    deployment = made_of("apps/v1", "Deployment", api.namespace, spec)
    made = provider.create(urn("apps/v1:Deployment"), deployment)
    assert made.outputs["status"]["availableReplicas"] == 2
    assert provider.diff(made, deployment).is_empty

    ports = {"selector": {"app": "x"}, "ports": [{"port": 80}]}
    service = provider.create(urn("core/v1:Service"), made_of("v1", "Service", api.namespace, ports))
    assert service.outputs["spec"]["clusterIP"]
    seen = provider.read(service)
    assert seen is not None

    more = {**deployment, "spec": {**spec, "replicas": 3}}
    assert provider.diff(made, more).replaces == []
    # The official provider may take the readiness before the update for that after it; the stand-in waits.
    assert provider.update(made, more).outputs["status"]["availableReplicas"] in (2, 3)


def test_a_service_without_pods_is_ready_at_once(provider: Provider, api: Api) -> None:
    spec = {"selector": {"app": "nobody"}, "ports": [{"port": 80}]}
    made = provider.create(urn("core/v1:Service"), made_of("v1", "Service", api.namespace, spec))
    assert made.outputs["spec"]["clusterIP"]
    seen = provider.read(made)
    assert seen is not None


def finish_pods(api: Api) -> None:
    """Let the pods that no node runs come to a good end."""
    wait_until(lambda: api.call("GET", api.path("pods"))["items"])
    for item in api.call("GET", api.path("pods"))["items"]:
        api.patch(api.path("pods", item["metadata"]["name"]) + "/status", {"status": {"phase": "Succeeded"}})


def test_a_job_is_ready_when_it_is_complete(provider: Provider, api: Api) -> None:
    spec = {"template": template(restartPolicy="Never", nodeSelector={"no-such": "node"}), "backoffLimit": 0}
    job = made_of("batch/v1", "Job", api.namespace, spec)
    timer = threading.Timer(0.5, finish_pods, (api,))
    timer.start()
    made = provider.create(urn("batch/v1:Job"), job)
    timer.join()
    assert made.outputs["status"]["succeeded"] == 1
    assert provider.diff(made, job).is_empty
    provider.delete(made)
    wait_until(lambda: not api.call("GET", api.path("pods"))["items"])


def test_a_replacement_that_immutability_forces_is_previewed_under_the_old_name(provider: Provider, api: Api) -> None:
    spec = {"template": template(restartPolicy="Never", nodeSelector={"no-such": "node"})}
    job = made_of("batch/v1", "Job", api.namespace, spec)
    job["metadata"]["annotations"] = {"pulumi.com/skipAwait": "true"}
    made = provider.create(urn("batch/v1:Job"), job)
    changed = {**job, "spec": {"template": template(restartPolicy="Never", hostname="other")}}
    found = provider.diff(made, changed)
    assert found.replaces
    assert found.delete_before_replace
    preview = provider.create(urn("batch/v1:Job"), changed, preview=True)
    assert (preview.id, preview.outputs) == ("", preview.inputs)
    assert len(api.call("GET", api.path("jobs", group="/apis/batch/v1"))["items"]) == 1
