"""What the training jobs of a team need: namespace, queue, priority class, service account, pull secret, rights.

One stack per team. The program is meant to be edited; everything in it is a plain Kubernetes object.
"""

import pulumi
import pulumi_kubernetes as kubernetes

config = pulumi.Config()
team = config.require("team")
namespace = kubernetes.core.v1.Namespace("namespace", metadata={"name": team}).metadata["name"]

# Without a capability, the queue may use all of the cluster that other queues leave.
queue = {"weight": config.require_int("weight")}
if capability := config.get_object("capability"):
    queue["capability"] = capability
kubernetes.apiextensions.CustomResource(
    "queue", api_version="scheduling.volcano.sh/v1beta1", kind="Queue", metadata={"name": team}, spec=queue
)
kubernetes.scheduling.v1.PriorityClass("priority-class", metadata={"name": team}, value=1000)

# pulumi config set --secret dockerConfigJson < ~/.docker/config.json
pull_secrets = []
if login := config.get_secret("dockerConfigJson"):
    kubernetes.core.v1.Secret(
        "pull-secret",
        metadata={"name": "registry", "namespace": namespace},
        type="kubernetes.io/dockerconfigjson",
        string_data={".dockerconfigjson": login},
    )
    pull_secrets.append({"name": "registry"})
kubernetes.core.v1.ServiceAccount(
    "service-account", metadata={"name": "trainer", "namespace": namespace}, image_pull_secrets=pull_secrets
)

# Launch, look at, cancel and delete jobs on Volcano: docs/permissions.md says what each permission is for.
kubernetes.rbac.v1.Role(
    "users",
    metadata={"name": "torchx-users", "namespace": namespace},
    rules=[
        {
            "apiGroups": ["batch.volcano.sh"],
            "resources": ["jobs"],
            "verbs": ["create", "get", "list", "watch", "patch", "delete"],
        },
        {"apiGroups": ["batch.volcano.sh"], "resources": ["jobs/status"], "verbs": ["patch", "update"]},
        {"apiGroups": ["bus.volcano.sh"], "resources": ["commands"], "verbs": ["create"]},
        {"apiGroups": ["scheduling.volcano.sh"], "resources": ["podgroups"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
        {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["events"], "verbs": ["list"]},
    ],
)
if group := config.get("members"):
    kubernetes.rbac.v1.RoleBinding(
        "users",
        metadata={"name": "torchx-users", "namespace": namespace},
        role_ref={"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "torchx-users"},
        subjects=[{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}],
    )

pulumi.export("namespace", team)
pulumi.export("queue", team)
pulumi.export("priority_class", team)
pulumi.export("service_account", "trainer")
