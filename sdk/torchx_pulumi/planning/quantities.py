"""Numbers of an AppDef -> Kubernetes quantity texts. Pure; the spelling is TorchX's (`4000m`, `16000M`)."""

from __future__ import annotations

from collections.abc import Mapping

from torchx_pulumi.model.job_spec import ResourceSpec
from torchx_pulumi.model.labels import EFA, GPU


def cpu_milli(cores: float, *, reserved_milli: int = 0) -> str:
    """Write cores in millicores, less what the node keeps; what is below a millicore is dropped.

    >>> cpu_milli(4), cpu_milli(0.5), cpu_milli(4, reserved_milli=100), cpu_milli(0.05, reserved_milli=100)
    ('4000m', '500m', '3900m', '0m')
    """
    return f"{max(int(cores * 1000) - reserved_milli, 0)}m"


def memory_mb(mb: float, *, reserved_mb: int = 0) -> str:
    """Write memory in MB (10^6 bytes), less what the node keeps.

    >>> memory_mb(16000), memory_mb(16000, reserved_mb=1024), memory_mb(512, reserved_mb=1024)
    ('16000M', '14976M', '0M')
    """
    return f"{max(int(mb) - reserved_mb, 0)}M"


def canonical(quantity: str) -> str:
    """Write a quantity of ours as the API server stores it in its own kinds.

    >>> [canonical(text) for text in ("2000m", "1500m", "0m", "16000M", "1500M", "0M", "8")]
    ['2', '1500m', '0', '16G', '1500M', '0', '8']
    """
    digits, suffix = quantity.rstrip("mM"), quantity[-1:]
    if not digits.isdigit() or suffix not in ("m", "M"):
        return quantity
    number = int(digits)
    if number == 0:
        return "0"
    scale = ["m", ""] if suffix == "m" else ["M", "G", "T", "P", "E"]
    while len(scale) > 1 and number % 1000 == 0:
        number, scale = number // 1000, scale[1:]
    return f"{number}{scale[0]}"


def limits(resource: ResourceSpec, *, efa_device_count: int | None) -> dict[str, str]:
    """Write the upper bounds of a replica; what is None, zero or less is left out.

    >>> limits(ResourceSpec(cpu=2, gpu=0, devices={"vpc.amazonaws.com/efa": 4}), efa_device_count=None)
    {'cpu': '2000m', 'vpc.amazonaws.com/efa': '4'}
    >>> limits(ResourceSpec(devices={"vpc.amazonaws.com/efa": 4}), efa_device_count=0)
    {}
    """
    found: dict[str, str] = {}
    if resource.cpu is not None and resource.cpu > 0:
        found["cpu"] = cpu_milli(resource.cpu)
    if resource.memory_mb is not None and resource.memory_mb > 0:
        found["memory"] = memory_mb(resource.memory_mb)
    found.update(_gpus(resource))
    found.update({name: str(count) for name, count in resource.devices.items()})
    if efa_device_count is not None:
        found.pop(EFA, None)
        if efa_device_count > 0:
            found[EFA] = str(efa_device_count)
    return found


def requests(resource: ResourceSpec, *, reserved_cpu_milli: int, reserved_memory_mb: int) -> dict[str, str]:
    """Write what the scheduler sets aside for a replica: the limits less the node's own share, without devices.

    >>> requests(ResourceSpec(cpu=2, memory_mb=4000, gpu=1), reserved_cpu_milli=100, reserved_memory_mb=1024)
    {'cpu': '1900m', 'memory': '2976M', 'nvidia.com/gpu': '1'}
    """
    found: dict[str, str] = {}
    if resource.cpu is not None and resource.cpu > 0:
        found["cpu"] = cpu_milli(resource.cpu, reserved_milli=reserved_cpu_milli)
    if resource.memory_mb is not None and resource.memory_mb > 0:
        found["memory"] = memory_mb(resource.memory_mb, reserved_mb=reserved_memory_mb)
    found.update(_gpus(resource))
    return found


def _gpus(resource: ResourceSpec) -> Mapping[str, str]:
    return {GPU: str(int(resource.gpu))} if resource.gpu is not None and resource.gpu > 0 else {}
