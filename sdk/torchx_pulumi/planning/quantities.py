"""Numbers of an AppDef as Kubernetes quantities, in TorchX's spelling (`4000m`, `16000M`), and its ports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torchx_pulumi.model.job_spec import ResourceSpec
from torchx_pulumi.model.labels import EFA, GPU

DEFAULT_PORT = 29500
"""Port of PyTorch's rendezvous, used if no role has a port."""


def cpu_milli(cores: float, *, reserved_milli: int = 0) -> str:
    """Return cores in millicores, less those reserved for the node. Fractions of a millicore are dropped.

    >>> cpu_milli(4), cpu_milli(0.5), cpu_milli(4, reserved_milli=100), cpu_milli(0.05, reserved_milli=100)
    ('4000m', '500m', '3900m', '0m')
    """
    return f"{max(int(cores * 1000) - reserved_milli, 0)}m"


def memory_mb(mb: float, *, reserved_mb: int = 0) -> str:
    """Return memory in MB (10^6 bytes), less that reserved for the node.

    >>> memory_mb(16000), memory_mb(16000, reserved_mb=1024), memory_mb(512, reserved_mb=1024)
    ('16000M', '14976M', '0M')
    """
    return f"{max(int(mb) - reserved_mb, 0)}M"


def canonical(quantity: str) -> str:
    """Return a quantity as the API server stores it in its own kinds.

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
    """Return the resource limits of a replica. An amount of None, zero or less is left out.

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
    """Return the resource requests of a replica: the limits less those reserved for the node, without devices.

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


def is_port(number: int) -> bool:
    """Return whether a number can be a TCP port.

    >>> is_port(1), is_port(65535), is_port(0), is_port(65536)
    (True, True, False, False)
    """
    return 1 <= number <= 65535


def service_port(port_maps: Iterable[Mapping[str, int]]) -> int:
    """Return the port of the Service as TorchX does: the last of the last role with ports, else the default.

    >>> service_port([{"a": 1, "b": 2}, {"c": 3}, {}]), service_port([{}]), service_port([{"a": 8080}, {"b": 70000}])
    (3, 29500, 29500)
    """
    ports = [port for ports in port_maps for port in ports.values()]
    return ports[-1] if ports and is_port(ports[-1]) else DEFAULT_PORT
