"""What this project needs most: Volcano's Jobs, judged by Volcano's webhooks."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from tests.contract.provider.conftest import Api, wait_until
from tests.contract.provider.driver import InitFailedError, Properties, Provider, Resource
from tests.contract.provider.objects import urn

JOB = "batch.volcano.sh/v1alpha1:Job"
JOBS = "/apis/batch.volcano.sh/v1alpha1"


@pytest.fixture(autouse=True)
def _volcano(api: Api) -> None:
    if api.get("/apis/batch.volcano.sh/v1alpha1") is None:
        pytest.skip("the cluster has no Volcano")


def job(namespace: str, *, queue: str = "default", image: str = "example.test/i:1", minimum: int = 1) -> Properties:
    container: dict[str, Any] = {"name": "main", "image": image, "resources": {"requests": {"cpu": "1000m"}}}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    tasks = [{"name": f"t-{n}", "replicas": 1, "minAvailable": 1, "maxRetry": 3, "template": template} for n in (0, 1)]
    spec = {"schedulerName": "volcano", "queue": queue, "minAvailable": minimum, "maxRetry": 1, "tasks": tasks}
    metadata = {"name": "j", "namespace": namespace}
    return {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": metadata, "spec": spec}


@pytest.fixture
def made(provider: Provider, api: Api) -> Resource:
    return provider.create(urn(JOB), job(api.namespace))


def test_no_change_after_create_refresh_and_update(provider: Provider, api: Api, made: Resource) -> None:
    inputs = job(api.namespace)
    assert provider.diff(made, inputs).is_empty
    seen = provider.read(made)
    assert seen is not None
    assert provider.diff(seen, inputs).is_empty


@pytest.mark.parametrize("preview", [True, False])
def test_the_webhook_s_refusal_is_told(provider: Provider, api: Api, preview: bool) -> None:
    expected = (
        r'was not successfully created by the Kubernetes API server: .*queue.scheduling.volcano.sh "nosuch" not found'
    )
    with pytest.raises(grpc.RpcError, match=expected):
        provider.create(urn(JOB), job(api.namespace, queue="nosuch"), preview=preview)
    assert any(text.startswith("Retry #0; creation failed: ") for text in provider.engine.texts())


def test_the_minimum_changes_in_place(provider: Provider, api: Api, made: Resource) -> None:
    inputs = job(api.namespace, minimum=2)
    assert list(provider.diff(made, inputs).detailed) == ["spec.minAvailable"]
    updated = provider.update(made, inputs)
    assert updated.outputs["metadata"]["uid"] == made.outputs["metadata"]["uid"]


@pytest.mark.parametrize("preview", [True, False])
def test_another_image_is_refused(provider: Provider, api: Api, made: Resource, preview: bool) -> None:
    inputs = job(api.namespace, image="example.test/i:2")
    paths = {f"spec.tasks[{n}].template.spec.containers[0].image" for n in (0, 1)}
    assert set(provider.diff(made, inputs).detailed) == paths
    with pytest.raises(InitFailedError, match="job updates may not change fields") as failed:
        provider.update(made, inputs, preview=preview)
    assert failed.value.reasons[0].startswith(f'the Kubernetes API server reported that "{made.id}" failed')


def test_a_preview_under_a_name_that_is_taken_is_judged_by_the_webhook_alone(
    provider: Provider, api: Api, made: Resource
) -> None:
    changed = job(api.namespace, image="example.test/i:2")
    preview = provider.create(urn(JOB), changed, preview=True)
    assert preview.outputs == preview.inputs
    with pytest.raises(grpc.RpcError, match=r'queue.scheduling.volcano.sh "nosuch" not found'):
        provider.create(urn(JOB), job(api.namespace, queue="nosuch"), preview=True)


def test_a_job_goes_with_all_that_it_has(provider: Provider, api: Api, made: Resource) -> None:
    provider.delete(made)
    assert api.get(api.path("jobs", "j", JOBS)) is None
    # Volcano may have made a pod at the moment of the deletion, which goes after the job then.
    wait_until(lambda: not api.call("GET", api.path("pods"))["items"])
