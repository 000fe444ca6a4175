"""Every golden Volcano Job, shown to the real webhooks in a server dry run: nothing is left behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from torchx_pulumi.inputs.rendering import plan_app, render_plan
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB

pytestmark = pytest.mark.e2e

GOLDEN = sorted((Path(__file__).parents[1] / "golden" / "volcano").glob("*.yaml"))


@pytest.fixture(scope="module")
def api(kubeconfig: Path) -> Iterator[Any]:
    from kubernetes import client, config

    with config.new_client_from_config(config_file=str(kubeconfig)) as connection:
        yield client.CustomObjectsApi(connection)


def stored(api: Any, job: dict[str, Any]) -> dict[str, Any]:
    """Return the object that the API server would store, after Volcano's webhooks."""
    # Namespace and queue of a golden file need not be there.
    job["metadata"]["namespace"] = job["spec"]["queue"] = "default"
    made: dict[str, Any] = api.create_namespaced_custom_object(
        VOLCANO_JOB.group, VOLCANO_JOB.version, "default", VOLCANO_JOB.plural, job, dry_run="All"
    )
    return made


def changed(ours: Any, theirs: Any, path: str = "") -> list[str]:
    """List what was written and is stored otherwise; what the server adds is its own."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return [line for key in ours for line in changed(ours[key], theirs.get(key), f"{path}.{key}")]
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        pairs = enumerate(zip(ours, theirs, strict=True))
        return [line for index, pair in pairs for line in changed(*pair, f"{path}[{index}]")]
    return [] if ours == theirs else [f"{path}: {ours!r} is stored as {theirs!r}"]


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_webhooks_take_the_job_and_store_it_as_written(api: Any, path: Path) -> None:
    job = yaml.safe_load(path.read_text())
    if job["kind"] == "List":
        pytest.skip("pods are the component's own tests")
    assert changed(job["spec"], stored(api, job)["spec"]) == []


def test_quantities_are_respelled_where_a_task_has_no_retries(api: Any) -> None:
    """The reason why every task says maxRetry: without it the stored job differs from the manifest."""
    job = yaml.safe_load(next(path for path in GOLDEN if path.stem == "plain").read_text())
    task = job["spec"]["tasks"][0]
    task["template"]["spec"]["containers"][0]["resources"]["limits"] = {"cpu": "2000m"}
    assert changed(job["spec"], stored(api, job)["spec"]) == []
    del task["maxRetry"]
    assert any("cpu: '2000m' is stored as '2'" in line for line in changed(job["spec"], stored(api, job)["spec"]))


def test_webhooks_take_10000_replicas_of_two_roles_and_refuse_a_gang_that_is_larger(api: Any) -> None:
    from kubernetes.client import ApiException

    role = {"image": "app:1", "entrypoint": "main", "args": ["$${${rank0_env}:=localhost}:29500"]}
    roles = [{**role, "name": "trainer", "num_replicas": 9000}, {**role, "name": "reader", "num_replicas": 1000}]
    options = {"queue": "default", "namespace": "default"}
    job = render_plan(plan_app({"name": "train", "roles": roles}, "volcano", options, app_id="train-x1"))
    assert [task["replicas"] for task in job["spec"]["tasks"]] == [1, *[1000] * 8, 999, 1000]
    assert changed(job["spec"], stored(api, job)["spec"]) == []
    job["spec"]["minAvailable"] = 10_001
    with pytest.raises(ApiException, match=r"admission webhook .* denied the request.*minAvailable"):
        stored(api, job)
