"""The platform program: a stack with namespace, queue, priority class, service account and pull secret for jobs.

With the key `controller` it also has the controller.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import pulumi
import pulumi_kubernetes as kubernetes
from torchx_pulumi.model.errors import TorchxPulumiError, invalid_job
from torchx_pulumi.planning.names import is_dns_label, is_dns_subdomain
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_QUEUE

from torchx_pulumi_stacks.controller_config import ControllerConfig, read_controller
from torchx_pulumi_stacks.controller_deployment import deploy_controller
from torchx_pulumi_stacks.controller_image import controller_image
from torchx_pulumi_stacks.owned_objects import owned
from torchx_pulumi_stacks.settings import Settings, key_of

QUEUE_FIELDS = ("weight", "capability", "deserved", "guarantee", "reclaimable", "parent", "priority", "type")
"""Fields of a Volcano Queue's spec that may be set."""

PRIORITY_FIELDS = ("value", "description", "preemptionPolicy")
"""Fields of a PriorityClass that may be set, in addition to its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformConfig:
    """What the configuration says. The text under a field describes its key, written in camelCase."""

    namespace: str = "default"
    """Namespace of service account and pull secret. Unset: `default`."""
    create_namespace: bool = False
    """true: the namespace is made, and destroyed, with the stack. Unset: it is there."""
    queue: Mapping[str, Any] = field(default_factory=dict)
    """Mapping: `name` and fields of a Volcano Queue (`weight`, `capability`, ...). Unset: no queue is made."""
    priority_class: Mapping[str, Any] = field(default_factory=dict)
    """Mapping: `name`, `value` and further fields of a PriorityClass. Unset: none is made."""
    service_account: str | None = None
    """Name of a service account that uses the pull secret, if there is one. Unset: none is made."""
    pull_secret: str | None = None
    """Name of a pull secret. Unset: none is made."""
    docker_config_json: pulumi.Output[str] | None = field(default=None, repr=False)
    """Contents of a Docker `config.json` for the pull secret; set it with `--secret`."""
    controller: ControllerConfig | None = None
    """Mapping: the controller, see `ControllerConfig`. Unset: none is deployed."""


KEYS = tuple(key_of(each.name) for each in fields(PlatformConfig))
"""All keys of the program."""


def main() -> None:
    """Run the program.

    Raises:
        pulumi.RunError: All that is wrong with the configuration, or the controller's image; nothing was registered.
    """
    try:
        deploy(read_config(pulumi.Config()))
    except TorchxPulumiError as error:
        # RunError is printed without a traceback.
        raise pulumi.RunError(str(error)) from None


def read_config(config: pulumi.Config) -> PlatformConfig:
    """Read the configuration.

    Raises:
        InvalidJobError: All that is wrong with it.
    """
    settings = Settings(config)
    settings.check_keys(KEYS)
    values = settings.values_of(PlatformConfig, without=("docker_config_json", "controller"))
    read = PlatformConfig(
        docker_config_json=settings.secret("dockerConfigJson"),
        controller=read_controller(settings, settings.data("controller")),
        **values,
    )
    if not is_dns_label(read.namespace):
        settings.refuse("namespace", f"is {read.namespace!r}, must be a DNS label (a-z, 0-9, -; at most 63)")
    for key, name in (("serviceAccount", read.service_account), ("pullSecret", read.pull_secret)):
        if name is not None:
            check_name(settings, key, name)
    if read.pull_secret and read.docker_config_json is None:
        how = "`pulumi config set --secret dockerConfigJson < ~/.docker/config.json`"
        settings.refuse("dockerConfigJson", f"is not set, the pull secret needs it; {how}")
    if read.docker_config_json is not None and not read.pull_secret:
        settings.refuse("pullSecret", "is not set, must be the name of the secret that dockerConfigJson goes into")
    check_object(settings, "queue", read.queue, QUEUE_FIELDS)
    check_object(settings, "priorityClass", read.priority_class, PRIORITY_FIELDS)
    if read.priority_class and not isinstance(read.priority_class.get("value"), int):
        settings.refuse("priorityClass.value", f"is {read.priority_class.get('value')!r}, must be a whole number")
    if settings.problems:
        raise invalid_job(pulumi.get_stack(), settings.problems)
    return read


def check_object(settings: Settings, key: str, given: Mapping[str, Any], known: tuple[str, ...]) -> None:
    """Refuse wrong names and unknown fields of a configured object."""
    if not given:
        return
    check_name(settings, f"{key}.name", given.get("name"))
    for field_name in given.keys() - {"name", *known}:
        settings.refuse(f"{key}.{field_name}", f"is unknown; known are name, {', '.join(known)}")


def check_name(settings: Settings, key: str, name: object) -> None:
    """Refuse a wrong name of an object."""
    if not isinstance(name, str) or not is_dns_subdomain(name):
        settings.refuse(key, f"is {name!r}, must be a DNS name (a-z, 0-9, - and .; at most 253)")


def deploy(config: PlatformConfig) -> None:
    """Register the configured objects, and export their names.

    Raises:
        ImageError: The controller's image cannot be planned, built or pushed; nothing was registered.
    """
    image = controller_image(config.controller) if config.controller else ""
    own = owned()
    before: list[pulumi.Resource] = []
    if config.create_namespace:
        before.append(kubernetes.core.v1.Namespace("namespace", metadata={"name": config.namespace}, opts=own))
    inside = pulumi.ResourceOptions.merge(own, pulumi.ResourceOptions(depends_on=before))
    secret = create_pull_secret(config, inside)
    create_queue(config, own)
    create_priority_class(config, own)
    if config.service_account:
        kubernetes.core.v1.ServiceAccount(
            "service-account",
            metadata={"name": config.service_account, "namespace": config.namespace},
            image_pull_secrets=[{"name": config.pull_secret}] if secret else None,
            opts=inside,
        )
    if config.controller:
        deploy_controller(config.controller, config.namespace, image, config.pull_secret, inside)
    names = {
        "namespace": config.namespace,
        "queue": config.queue.get("name"),
        "priority_class": config.priority_class.get("name"),
        "service_account": config.service_account,
        "pull_secret": config.pull_secret,
    }
    for output, name in names.items():
        if name is not None:
            pulumi.export(output, name)


def create_pull_secret(config: PlatformConfig, inside: pulumi.ResourceOptions) -> pulumi.Resource | None:
    """Register the pull secret; its contents are encrypted in the state."""
    if config.pull_secret is None or config.docker_config_json is None:
        return None
    secret: pulumi.Resource = kubernetes.core.v1.Secret(
        "pull-secret",
        metadata={"name": config.pull_secret, "namespace": config.namespace},
        type="kubernetes.io/dockerconfigjson",
        string_data={".dockerconfigjson": config.docker_config_json},
        opts=inside,
    )
    return secret


def create_queue(config: PlatformConfig, own: pulumi.ResourceOptions) -> None:
    """Register the queue."""
    if config.queue:
        kubernetes.apiextensions.CustomResource(
            "queue",
            api_version=VOLCANO_QUEUE.api_version,
            kind=VOLCANO_QUEUE.kind,
            metadata={"name": config.queue["name"]},
            spec={name: config.queue[name] for name in QUEUE_FIELDS if name in config.queue},
            opts=own,
        )


def create_priority_class(config: PlatformConfig, own: pulumi.ResourceOptions) -> None:
    """Register the priority class."""
    if config.priority_class:
        kubernetes.scheduling.v1.PriorityClass(
            "priority-class",
            metadata={"name": config.priority_class["name"]},
            value=config.priority_class["value"],
            description=config.priority_class.get("description"),
            preemption_policy=config.priority_class.get("preemptionPolicy"),
            opts=own,
        )
