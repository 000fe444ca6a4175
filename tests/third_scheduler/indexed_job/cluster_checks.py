"""What an Indexed Job needs of a cluster: objects that options name, and permissions."""

from __future__ import annotations

from collections.abc import Sequence

from torchx_pulumi.kube import Reader
from torchx_pulumi.kube.kinds import NAMESPACE, PRIORITY_CLASS, SERVICE_ACCOUNT
from torchx_pulumi.schedulers.permissions import READING, Permission, on_job_object
from torchx_pulumi.schedulers.protocol import NamedObject

from tests.third_scheduler.indexed_job.manifests import JOB
from tests.third_scheduler.indexed_job.options import IndexedJobOptions


# region cluster
def named_objects(options: IndexedJobOptions) -> list[NamedObject]:
    """Return the objects that options name. A component looks for them before it creates anything."""
    return [
        NamedObject(option="namespace", kind=NAMESPACE, name=options.namespace),
        NamedObject(option="priority_class", kind=PRIORITY_CLASS, name=options.priority_class),
        NamedObject(option="service_account", kind=SERVICE_ACCOUNT, name=options.service_account, required=False),
    ]


def permissions(_cluster: Reader) -> Sequence[Permission]:
    """Return the permissions that a launch needs; every cluster has the Job controller."""
    return (*on_job_object(JOB), *READING)


# endregion
