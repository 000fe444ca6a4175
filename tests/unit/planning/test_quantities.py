from __future__ import annotations

import pytest
from torchx_pulumi.model.job_spec import ResourceSpec
from torchx_pulumi.planning import quantities

EFA = "vpc.amazonaws.com/efa"


@pytest.mark.parametrize(("cores", "text"), [(1, "1000m"), (0.5, "500m"), (1.5, "1500m"), (0.0004, "0m")])
def test_cores_become_millicores(cores: float, text: str) -> None:
    assert quantities.cpu_milli(cores) == text


@pytest.mark.parametrize(("mb", "text"), [(1500, "1500M"), (1500.9, "1500M"), (16000, "16000M")])
def test_memory_is_in_mb(mb: float, text: str) -> None:
    assert quantities.memory_mb(mb) == text


@pytest.mark.parametrize("nothing", [None, 0, -1])
def test_what_is_not_wanted_is_not_written(nothing: int | None) -> None:
    resource = ResourceSpec(cpu=nothing, gpu=nothing, memory_mb=nothing)
    assert quantities.limits(resource, efa_device_count=None) == {}
    assert quantities.requests(resource, reserved_cpu_milli=100, reserved_memory_mb=1024) == {}


def test_reserved_share_is_never_below_zero() -> None:
    resource = ResourceSpec(cpu=0.05, memory_mb=512)
    requests = quantities.requests(resource, reserved_cpu_milli=100, reserved_memory_mb=1024)
    assert requests == {"cpu": "0m", "memory": "0M"}


@pytest.mark.parametrize(("count", "found"), [(None, {EFA: "2"}), (0, {}), (4, {EFA: "4"})])
def test_efa_option_keeps_removes_or_sets(count: int | None, found: dict[str, str]) -> None:
    assert quantities.limits(ResourceSpec(devices={EFA: 2}), efa_device_count=count) == found


def test_devices_are_limits_only() -> None:
    resource = ResourceSpec(gpu=1, devices={EFA: 2})
    assert EFA not in quantities.requests(resource, reserved_cpu_milli=0, reserved_memory_mb=0)
