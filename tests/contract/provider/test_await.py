"""What a provider waits for, and what it says when that does not come."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import pytest

from tests.contract.provider.conftest import Api, wait_until
from tests.contract.provider.driver import InitFailedError, Properties, Provider
from tests.contract.provider.objects import WIDGETS, pod, urn, widget

NOWHERE: Properties = {"nodeSelector": {"contract.torchx-pulumi.test/no-such-node": "true"}}


AT_ONCE_S = 30
"""Far less than an operation waits before it gives up, and enough for a provider that starts on a busy machine."""


def status_later(api: Api, path: str, status: dict[str, Any], delay_s: float = 1) -> threading.Timer:
    timer = threading.Timer(delay_s, lambda: when_there(api, path, status))
    timer.start()
    return timer


def when_there(api: Api, path: str, status: dict[str, Any]) -> None:
    wait_until(lambda: api.get(path))
    api.patch(path + "/status", {"status": status})


def ready_pod() -> dict[str, Any]:
    true = [{"type": kind, "status": "True"} for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")]
    return {"phase": "Running", "conditions": true}


def test_a_custom_resource_is_ready_at_once(provider: Provider, api: Api) -> None:
    started = time.monotonic()
    provider.create(urn(WIDGETS), widget(api.namespace))
    assert time.monotonic() - started < AT_ONCE_S


def test_a_pod_is_awaited(provider: Provider, api: Api) -> None:
    timer = status_later(api, api.path("pods", "p"), ready_pod())
    made = provider.create(urn("core/v1:Pod"), pod(api.namespace, **NOWHERE))
    timer.join()
    assert made.outputs["status"]["phase"] == "Running"


def test_a_pod_that_ran_to_a_good_end_is_ready(provider: Provider, api: Api) -> None:
    done = [
        {"type": "PodScheduled", "status": "True"}, {"type": "Initialized", "status": "True"},
        {"type": "Ready", "status": "False", "reason": "PodCompleted"},
    ]  # fmt: skip
    timer = status_later(api, api.path("pods", "p"), {"phase": "Succeeded", "conditions": done})
    made = provider.create(urn("core/v1:Pod"), pod(api.namespace, **NOWHERE))
    timer.join()
    assert made.outputs["status"]["phase"] == "Succeeded"
    seen = provider.read(made)
    assert seen is not None


def test_a_pod_that_does_not_come_up_is_kept_with_its_state(provider: Provider, api: Api) -> None:
    unschedulable = {
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/4 nodes are available",
    }  # fmt: skip
    timer = status_later(api, api.path("pods", "p"), {"phase": "Pending", "conditions": [unschedulable]})
    with pytest.raises(InitFailedError, match="timed out waiting to be Ready") as failed:
        provider.create(urn("core/v1:Pod"), pod(api.namespace, **NOWHERE), timeout_s=4)
    timer.join()
    assert failed.value.id == f"{api.namespace}/p"
    assert failed.value.properties["metadata"]["name"] == "p"


def test_skip_await_does_not_wait(provider: Provider, api: Api) -> None:
    started = time.monotonic()
    provider.create(urn("core/v1:Pod"), pod(api.namespace, annotations={"pulumi.com/skipAwait": "true"}, **NOWHERE))
    assert time.monotonic() - started < AT_ONCE_S


def test_a_headless_service_is_ready_at_once(provider: Provider, api: Api) -> None:
    spec = {"clusterIP": "None", "selector": {"a": "b"}, "ports": [{"port": 29500}]}
    metadata = {"name": "s", "namespace": api.namespace}
    inputs = {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}
    started = time.monotonic()
    provider.create(urn("core/v1:Service"), inputs)
    assert time.monotonic() - started < AT_ONCE_S


@pytest.mark.parametrize(
    "wish", ["jsonpath={.status.phase}=Done", json.dumps(["jsonpath={.status.phase}", "condition=Fine"])]
)
def test_an_annotation_says_what_to_wait_for(provider: Provider, api: Api, wish: str) -> None:
    done = {"phase": "Done", "conditions": [{"type": "Fine", "status": "True"}]}
    timer = status_later(api, api.widget("w"), done)
    made = provider.create(urn(WIDGETS), widget(api.namespace, annotations={"pulumi.com/waitFor": wish}))
    timer.join()
    assert made.outputs["status"]["phase"] == "Done"


def test_all_of_several_wishes_must_hold(provider: Provider, api: Api) -> None:
    wish = json.dumps(["jsonpath={.status.phase}=Done", "jsonpath={.status.phase}=Failed"])
    timer = status_later(api, api.widget("w"), {"phase": "Done"}, delay_s=0.2)
    with pytest.raises(InitFailedError, match="timed out"):
        provider.create(urn(WIDGETS), widget(api.namespace, annotations={"pulumi.com/waitFor": wish}), timeout_s=3)
    timer.join()


def test_a_timeout_may_be_an_annotation(provider: Provider, api: Api) -> None:
    annotations = {"pulumi.com/waitFor": "jsonpath={.status.phase}=Done", "pulumi.com/timeoutSeconds": "1"}
    started = time.monotonic()
    with pytest.raises(InitFailedError, match="timed out"):
        provider.create(urn(WIDGETS), widget(api.namespace, annotations=annotations), timeout_s=0)
    # Without the annotation it waits for minutes.
    assert time.monotonic() - started < 60


def test_cancel_ends_a_wait_with_the_state_kept(provider: Provider, api: Api) -> None:
    wish = {"pulumi.com/waitFor": "jsonpath={.status.phase}=Done"}
    cancelled: list[float] = []

    def cancel() -> None:
        wait_until(lambda: api.get(api.widget("w")))
        cancelled.append(time.monotonic())
        provider.cancel()

    timer = threading.Timer(1, cancel)
    timer.start()
    with pytest.raises(InitFailedError) as failed:
        provider.create(urn(WIDGETS), widget(api.namespace, annotations=wish))
    ended = time.monotonic()
    timer.join()
    assert ended - cancelled[0] < AT_ONCE_S
    assert failed.value.id == f"{api.namespace}/w"
