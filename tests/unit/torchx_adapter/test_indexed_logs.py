"""Logs of replicas whose pods Indexed Jobs make: by observed pods, across a retry, and of pods that are gone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from torchx_pulumi.kube.kinds import POD
from torchx_pulumi.model import labels
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.schedulers.appwrapper.objects import APP_WRAPPER_V1BETA2, COMPLETION_INDEX, JOB_NAME, OPERATOR_LABEL

from tests.unit.torchx_adapter.conftest import World, app, role


def put(world: World, app_id: str, letters: str, code: int, line: str) -> tuple[str, str]:
    """Put a pod of replica 1 that has ended; return namespace and name."""
    namespace, _, name = app_id.partition(":")
    pod, job = f"{name}-trainer-1-0-{letters}", f"{name}-trainer-1"
    found = {labels.ROLE_NAME: "trainer", labels.UNIQUE_NAME: name, OPERATOR_LABEL: name}
    end = {"terminated": {"exitCode": code, "containerID": letters}}
    own = {
        "name": pod,
        "namespace": namespace,
        "uid": letters,
        "labels": {**found, JOB_NAME: job, COMPLETION_INDEX: "0"},
    }
    world.cluster.put(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": own,
            "spec": {"containers": [{"name": "trainer-1"}], "restartPolicy": "Never"},
            "status": {
                "phase": "Failed" if code else "Succeeded",
                "containerStatuses": [{"name": "trainer-1", "state": end}],
            },
        }
    )
    world.cluster._logs[namespace, pod] = [line]
    return namespace, pod


def phase(world: World, app_id: str, word: str) -> None:
    head = world.head(app_id, APP_WRAPPER_V1BETA2)
    assert head is not None
    world.cluster.put({**head, "status": {"phase": word}})


@pytest.fixture
def app_id(submit: Callable[..., str]) -> str:
    alike = app(role(args=["--id", "${app_id}"]))
    return submit("mcad", alike, api_version="v1beta2", layout="role")


def test_a_followed_log_goes_on_with_the_pod_of_the_next_attempt(world: World, app_id: str) -> None:
    phase(world, app_id, "Running")
    first = put(world, app_id, "aaaaa", 1, "first attempt")
    log = iter(world.scheduler("mcad").log_iter(app_id, "trainer", 1, should_tail=True))
    assert next(log).endswith("first attempt\n")
    world.cluster.remove(POD, *first)
    put(world, app_id, "bbbbb", 0, "second attempt")
    phase(world, app_id, "Succeeded")
    assert [line.endswith("second attempt\n") for line in log] == [True]


def test_the_log_of_a_pod_that_is_gone_is_an_error_that_names_its_replica(world: World, app_id: str) -> None:
    phase(world, app_id, "Failed")
    with pytest.raises(ClusterError, match=r"replica trainer/1 of app .* has no pod") as caught:
        list(world.scheduler("mcad").log_iter(app_id, "trainer", 1))
    assert caught.value.reason == "NotFound"


def test_roles_whose_name_is_no_label_are_found(world: World, submit: Callable[..., Any]) -> None:
    odd = submit("mcad", app(role(name="team/trainer", num_replicas=1)), api_version="v1beta2")
    phase(world, odd, "Running")
    with pytest.raises(ClusterError, match="the app has no pods"):
        list(world.scheduler("mcad").log_iter(odd, "team/trainer", 0))
