"""One job per feature; each has a golden file `mcad/<case>.yaml`. What Volcano has too is the same job as there."""

from __future__ import annotations

from typing import Any

from tests.golden.cases import CASES as VOLCANO_CASES
from tests.golden.cases import PLAIN, one

_ALIKE = (
    "plain",
    "roles",
    "macros",
    "role-names",
    "field-path",
    "resources",
    "no-resources",
    "efa-removed",
    "node-selection",
    "mounts",
    "ports",
    "secret-env",
    "env-order",
    "overlay",
    "overlay-every-replica",
    "app-name",
)

TWO_ROLES = [*one(num_replicas=2, args=["${rank0_env}"]), {**PLAIN, "name": "reader", "args": ["${rank0_env}"]}]

CASES: dict[str, dict[str, Any]] = {
    **{name: VOLCANO_CASES[name] for name in _ALIKE},
    "coscheduler": {"roles": TWO_ROLES, "options": {"coscheduler_name": "coscheduler"}},
    "coscheduler-sigs": {
        "roles": one(),
        "options": {"coscheduler_name": "coscheduler", "pod_group_api": "scheduling.sigs.k8s.io/v1alpha1"},
    },
    "retries": {"roles": one(num_replicas=2, max_retries=3)},
    "retries-mixed": {"roles": [*one(name="a", max_retries=5), *one(name="b")]},
    "requeuing": {
        "roles": one(max_retries=1),
        "options": {"requeuing_time_s": 60, "requeuing_max_time_s": 600, "requeuing_growth": "linear"},
    },
    "options": {
        "roles": one(),
        "options": {
            "namespace": "team-a",
            "service_account": "runner",
            "priority": 5,
            "priority_class_name": "high",
            "image_secret": "pull",
            "network": "fast-net",
            "labels": {"team": "x"},
            "annotations": {"ticket": "1"},
        },
    },
    "long-name": {"roles": TWO_ROLES, "app_id": "n" * 60, "options": {"coscheduler_name": "coscheduler"}},
    "port-out-of-range": {"roles": one(port_map={"c10d": 29500, "bad": 70000})},
    "v1beta2": {"roles": TWO_ROLES, "options": {"api_version": "v1beta2"}},
    "v1beta2-role": {
        "roles": [
            *one(num_replicas=20, args=["${rank0_env}"]),
            {**PLAIN, "name": "reader", "num_replicas": 3, "args": ["${replica_id}"]},
        ],
        "options": {"api_version": "v1beta2"},
    },
    "v1beta2-kueue": {
        "roles": one(max_retries=2),
        "options": {
            "api_version": "v1beta2",
            "local_queue": "team-a",
            "labels": {"team": "x"},
            "annotations": {"workload.codeflare.dev.appwrapper/warmupGracePeriodDuration": "1h"},
        },
    },
    "v1beta2-coscheduler": {
        "roles": one(num_replicas=2),
        "options": {"api_version": "v1beta2", "coscheduler_name": "coscheduler", "suspend": True},
    },
}
