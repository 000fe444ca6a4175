"""One job per feature; each has a golden file `volcano/<case>.yaml`. No TorchX needed, so that both versions agree."""

from __future__ import annotations

from typing import Any

PLAIN: dict[str, Any] = {"name": "trainer", "image": "img:1", "entrypoint": "main", "args": ["--lr", "1e-4"]}


def one(**changes: Any) -> list[dict[str, Any]]:
    return [{**PLAIN, **changes}]


RDMA = {
    "spec": {
        "__join__:containers:name": [
            {
                "name": "trainer-${replica_id}",
                "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}},
                "workingDir": "/data",
            },
            {"name": "trainer", "image": "sidecar:1"},
        ],
        "__join__:volumes:name": [{"name": "dshm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}}],
    }
}
"""Fields of the main container of every replica, next to one that is called as the role."""

CASES: dict[str, dict[str, Any]] = {
    "plain": {"roles": one()},
    "roles": {"roles": [*one(num_replicas=2), {**PLAIN, "name": "reader", "image": "img:2"}]},
    "macros": {
        "roles": one(
            name="my-train",
            num_replicas=2,
            args=["$${${rank0_env}:=localhost}:29500", "${app_id}", "${replica_id}", "${img_root}", "${other} $$HOME"],
            env={"REPLICA": "${replica_id}"},
        )
    },
    "role-names": {"roles": [*one(name="a_b", args=["${rank0_env}"]), *one(name="ab", args=["${rank0_env}"])]},
    "field-path": {"roles": one(env={"POD_IP": "[FIELD_PATH]status.podIP"})},
    "resources": {
        "roles": one(resource={"cpu": 1.5, "gpu": 8, "memory_mb": 1500, "devices": {"vpc.amazonaws.com/efa": 4}}),
        "options": {"reserved_millicpu": 200, "reserved_memmb": 500},
    },
    "no-resources": {"roles": one(resource={"cpu": -1, "gpu": -1, "memory_mb": -1})},
    "efa-removed": {
        "roles": one(resource={"gpu": 1, "devices": {"vpc.amazonaws.com/efa": 4}}),
        "options": {"efa_device_count": 0},
    },
    "node-selection": {
        "roles": one(
            resource={"capabilities": {"node.kubernetes.io/instance-type": "p4d.24xlarge"}},
            node_selector={"zone": "a"},
            tolerations=[{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        )
    },
    "retries-application": {"roles": one(max_retries=3)},
    "retries-replica": {"roles": one(max_retries=3, retry_policy="REPLICA")},
    "retries-mixed": {"roles": [*one(name="a", max_retries=5), *one(name="b", max_retries=2), *one(name="c")]},
    "elastic": {"roles": one(num_replicas=3, min_replicas=1)},
    "elastic-shrunk": {"roles": one(num_replicas=1, min_replicas=1), "launched": {"trainer": 3}},
    "layout-role": {
        "roles": one(num_replicas=2003, args=["--nnodes", "2003", "$${${rank0_env}:=localhost}:29500"]),
        "options": {"layout": "role"},
    },
    "layout-role-replica-id": {
        "roles": [
            *one(num_replicas=2, args=["$${${rank0_env}:=localhost}:29500"]),
            *one(name="reader", num_replicas=1000, args=["--shard=${replica_id}"], env={"SHARD": "s-${replica_id}"}),
            *one(name="log", args=["${replica_id}"]),
        ],
        "options": {"layout": "role"},
    },
    "ends-with-a-role": {
        "roles": [*one(name="master"), *one(name="worker", num_replicas=2, max_retries=2)],
        "options": {"success_roles": ["master"]},
    },
    "ends-with-a-role-of-several": {
        "roles": [*one(name="ps"), *one(name="worker", num_replicas=3, max_retries=2)],
        "options": {"success_roles": ["worker"], "start_after": {"worker": ["ps"]}},
    },
    "starts-after": {
        "roles": [
            *one(name="launcher"),
            *one(name="worker", num_replicas=3, min_replicas=2),
            *one(name="proxy", max_retries=2, retry_policy="REPLICA"),
        ],
        "options": {"start_after": {"launcher": ["worker", "proxy"], "proxy": ["worker"]}},
    },
    "layout-role-retries": {"roles": one(num_replicas=4, max_retries=3), "options": {"layout": "role"}},
    "layout-role-elastic": {"roles": one(num_replicas=9, min_replicas=3), "options": {"layout": "role"}},
    "layout-role-shrunk": {
        "roles": one(num_replicas=3, min_replicas=2),
        "options": {"layout": "role"},
        "launched": {"trainer": 9},
    },
    "layout-auto": {"roles": one(num_replicas=101)},
    "mounts": {
        "roles": one(
            mounts=[
                {"kind": "bind", "src": "/data", "dst": "/data", "read_only": True},
                {"kind": "volume", "src": "claim", "dst": "/claim"},
                {"kind": "device", "src": "/dev/fuse", "dst": "/dev/fuse", "permissions": "r"},
                {"kind": "secret", "src": "tokens", "dst": "/tokens"},
            ]
        )
    },
    "ports": {"roles": one(port_map={"c10d": 29500, "http": 8080})},
    "secret-env": {"roles": one(secret_env={"TOKEN": {"name": "tokens", "key": "hub"}})},
    "env-order": {
        "roles": one(
            env={"URL": "db://$(PASSWORD)@x/$(POD)", "POD": "[FIELD_PATH]metadata.name"},
            secret_env={"PASSWORD": {"name": "db", "key": "password"}},
        )
    },
    "overlay": {
        "roles": one(
            pod_overlay={
                "metadata": {"annotations": {"team": "x"}},
                "spec": {
                    "terminationGracePeriodSeconds": 5,
                    "hostNetwork": True,
                    "__put__:volumes": [{"name": "dshm", "emptyDir": {}}],
                    "__join__:containers:name": [{"name": "trainer-0", "tty": True}],
                    "__del__:nodeSelector": None,
                },
            }
        )
    },
    "overlay-every-replica": {"roles": one(num_replicas=2, pod_overlay=RDMA)},
    "overlay-every-replica-layout-role": {
        "roles": one(num_replicas=3, pod_overlay=RDMA),
        "options": {"layout": "role"},
    },
    "options": {
        "roles": one(),
        "options": {
            "namespace": "team-a",
            "queue": "gpu",
            "service_account": "runner",
            "priority_class": "high",
            "ttl_seconds_after_finished": 600,
            "network_topology": {"mode": "hard", "highest_tier_allowed": 2},
            "plugins": {"svc": [], "env": [], "ssh": []},
            "labels": {"team": "x"},
            "annotations": {"ticket": "1"},
            "image_secrets": ["pull"],
        },
    },
    "app-name": {"name": "Team/My App", "roles": one()},
    "gang-pods": {
        "roles": one(num_replicas=2, min_replicas=1, args=["${rank0_env}"], port_map={"c10d": 29500}),
        "options": {"gang": "pods", "priority_class": "high", "labels": {"team": "x"}},
    },
}
