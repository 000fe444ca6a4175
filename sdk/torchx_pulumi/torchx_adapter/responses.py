"""Convert an observed app to TorchX's DescribeAppResponse, RoleStatus and ReplicaStatus."""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import Any

from torchx import specs
from torchx.schedulers.api import DescribeAppResponse

from torchx_pulumi.model.app_entry import RunEntry
from torchx_pulumi.model.object_fields import text_at
from torchx_pulumi.model.status import JobState, JobStatus, Reason, ReplicaStatus
from torchx_pulumi.planning import names
from torchx_pulumi.schedulers.diagnosis.evidence import ObservedObjects
from torchx_pulumi.torchx_adapter import compat
from torchx_pulumi.torchx_adapter.app_json import read_metadata, read_roles
from torchx_pulumi.torchx_adapter.observe import AppSnapshot


def app_state(state: JobState) -> Any:
    """Return TorchX's state of an app."""
    return specs.AppState[state.value]


def describe_app(entry: RunEntry, snapshot: AppSnapshot, now: datetime) -> Any:
    """Return TorchX's description of an app; its roles come back exactly as they were given."""
    status = snapshot.status
    fields = {
        "app_id": entry.app_id,
        "state": app_state(status.state),
        "num_restarts": max(status.attempt - 1, 0),
        "msg": message_of(status),
        "structured_error_msg": _error(status, now) if status.state is JobState.FAILED else specs.NONE,
        "ui_url": entry.ui_url,
        "metadata": read_metadata(entry.app),
        "roles": read_roles(entry.app),
        "roles_statuses": _role_statuses(entry, status, snapshot.seen, now),
    }
    return compat.make(DescribeAppResponse, fields)


def message_of(status: JobStatus) -> str:
    """Return state, reason and what to do in a few words."""
    reason = "" if status.reason.value.upper() == status.state.value else f"{status.reason.value}: "
    return f"{reason}{status.message}" + (f" ({status.advice})" if status.advice else "")


def _role_statuses(entry: RunEntry, status: JobStatus, seen: ObservedObjects, now: datetime) -> list[Any]:
    """Return every requested replica: its observed status, or the one that follows from the job's state."""
    by_pod = {replica.pod: replica for role in status.roles for replica in role.replicas if replica.pod}
    by_role = {role.name: {replica.id: replica for replica in role.replicas} for role in status.roles}
    addresses = {pod["metadata"]["name"]: text_at(pod, "status", "podIP") for pod in seen.pods or ()}
    addresses |= {name: row.address for name, row in (seen.rows or {}).items()}
    # What a replica whose pod is absent has come to.
    active = JobState.UNKNOWN if status.state.terminal else JobState.PENDING
    unseen = status.state if status.state in (JobState.SUCCEEDED, JobState.CANCELLED) else active
    statuses = []
    for role, dns_name in dns_names(entry).items():
        known = next((by_role[name] for name in (role, names.label_value(role), dns_name) if name in by_role), {})
        replicas = []
        for index, pod in enumerate(entry.pods[role]):
            absent = ReplicaStatus(
                id=index, pod=pod, state=unseen, reason=Reason.POD_GONE, message="its pod is not there"
            )
            replica = by_pod.get(pod) or known.get(index) or absent
            address = addresses.get(pod)
            replicas.append(
                specs.ReplicaStatus(
                    id=index,
                    role=role,
                    state=app_state(replica.state),
                    # The pod's name in the cluster's DNS, as TorchX has it.
                    hostname=f"{re.sub('[.:]', '-', address)}.{entry.namespace}.pod.cluster.local" if address else "",
                    structured_error_msg=_error(replica, now) if replica.state is JobState.FAILED else specs.NONE,
                )
            )
        statuses.append(specs.RoleStatus(role=role, replicas=replicas))
    return statuses


def dns_names(entry: RunEntry) -> dict[str, str]:
    """Return the app's roles in their order, with the names that they have in names of objects."""
    # An engine's state does not keep the order of keys; the AppDef's list of roles does.
    given = [role["name"] for role in entry.app.get("roles") or [] if role.get("name") in entry.pods] or [*entry.pods]
    return dict(zip(given, names.role_names(given), strict=True))


def _error(status: JobStatus | ReplicaStatus, now: datetime) -> str:
    """Return a failure in the form that TorchX prints."""
    text = f"{status.reason.value}: {status.message}"
    extra = {"timestamp": str(int(now.timestamp()))}
    return json.dumps({"message": {"message": text, "errorCode": status.exit_code or 0, "extraInfo": extra}})
