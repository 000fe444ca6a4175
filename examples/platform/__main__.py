"""What the training jobs of a team need: namespace, queues, priorities, service account, pull secret, rights.

One stack per team. The program is meant to be edited; everything in it is a plain Kubernetes object.
"""

import pulumi
import pulumi_kubernetes as kubernetes

config = pulumi.Config()
team = config.require("team")
namespace = kubernetes.core.v1.Namespace("namespace", metadata={"name": team}).metadata["name"]

kubernetes.scheduling.v1.PriorityClass("priority-class", metadata={"name": team}, value=1000)

# Which schedulers the cluster has: Volcano unless `volcano` is false, Kueue if there is a `quota`.
volcano, quota = config.require_bool("volcano"), config.get_object("quota")
if volcano:
    # Without a capability, the queue may use all of the cluster that other queues leave.
    queue = {"weight": config.require_int("weight")}
    if capability := config.get_object("capability"):
        queue["capability"] = capability
    kubernetes.apiextensions.CustomResource(
        "queue", api_version="scheduling.volcano.sh/v1beta1", kind="Queue", metadata={"name": team}, spec=queue
    )
    pulumi.export("queue", team)
if quota:
    KUEUE = "kueue.x-k8s.io/v1beta2"
    # Labels of its nodes, and tolerations that Kueue adds to pods. Empty: any node.
    flavor = kubernetes.apiextensions.CustomResource(
        "resource-flavor",
        api_version=KUEUE,
        kind="ResourceFlavor",
        metadata={"name": team},
        spec=config.get_object("flavor") or {},
    )
    # A resource that is not in the quota cannot be asked for. Each object goes before the one that it names.
    resources = [{"name": name, "nominalQuota": str(most)} for name, most in quota.items()]
    cluster_queue = kubernetes.apiextensions.CustomResource(
        "cluster-queue",
        api_version=KUEUE,
        kind="ClusterQueue",
        metadata={"name": team},
        spec={
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": team}},
            "resourceGroups": [
                {"coveredResources": [*quota], "flavors": [{"name": team, "resources": resources}]},
            ],
        },
        opts=pulumi.ResourceOptions(depends_on=[flavor]),
    )
    kubernetes.apiextensions.CustomResource(
        "local-queue",
        api_version=KUEUE,
        kind="LocalQueue",
        metadata={"name": team, "namespace": namespace},
        spec={"clusterQueue": team},
        opts=pulumi.ResourceOptions(depends_on=[cluster_queue]),
    )

    def with_value(args: pulumi.ResourceTransformationArgs) -> pulumi.ResourceTransformationResult:
        """Add the field that it has in place of a `spec`, which is all that CustomResource takes."""
        return pulumi.ResourceTransformationResult({**args.props, "value": 1000}, args.opts)

    # A job has it by its label kueue.x-k8s.io/priority-class.
    kubernetes.apiextensions.CustomResource(
        "workload-priority-class",
        api_version=KUEUE,
        kind="WorkloadPriorityClass",
        metadata={"name": team},
        opts=pulumi.ResourceOptions(transformations=[with_value]),
    )
    pulumi.export("local_queue", team)
    pulumi.export("workload_priority_class", team)

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

# Launch, look at, cancel and delete jobs: docs/permissions.md says what each permission is for.
jobs = ["create", "get", "list", "watch", "patch", "delete"]
rules = [
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
    {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["list"]},
]
if volcano:
    rules += [
        {"apiGroups": ["batch.volcano.sh"], "resources": ["jobs"], "verbs": jobs},
        {"apiGroups": ["batch.volcano.sh"], "resources": ["jobs/status"], "verbs": ["patch", "update"]},
        {"apiGroups": ["bus.volcano.sh"], "resources": ["commands"], "verbs": ["create"]},
        {"apiGroups": ["scheduling.volcano.sh"], "resources": ["podgroups"], "verbs": ["get"]},
    ]
if quota:
    groups = ["scheduling.x-k8s.io", "scheduling.sigs.k8s.io"]
    rules += [
        {"apiGroups": ["workload.codeflare.dev"], "resources": ["appwrappers"], "verbs": jobs},
        # The webhook of AppWrappers asks whether their creator may create what is in them.
        {"apiGroups": [""], "resources": ["pods", "services"], "verbs": ["create"]},
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create", "list"]},
        {"apiGroups": groups, "resources": ["podgroups"], "verbs": ["create", "get"]},
        {"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads"], "verbs": ["list"]},
        {"apiGroups": ["kueue.x-k8s.io"], "resources": ["localqueues"], "verbs": ["get"]},
    ]
kubernetes.rbac.v1.Role("users", metadata={"name": "torchx-users", "namespace": namespace}, rules=rules)
if group := config.get("members"):
    kubernetes.rbac.v1.RoleBinding(
        "users",
        metadata={"name": "torchx-users", "namespace": namespace},
        role_ref={"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "torchx-users"},
        subjects=[{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}],
    )

if quota and group:
    # How much quota there is, and what a job can ever have, is in objects of the whole cluster.
    kinds = ["clusterqueues", "cohorts", "resourceflavors"]
    kubernetes.rbac.v1.ClusterRole(
        "quota",
        metadata={"name": f"{team}-quota"},
        rules=[{"apiGroups": ["kueue.x-k8s.io"], "resources": kinds, "verbs": ["list"]}],
    )
    kubernetes.rbac.v1.ClusterRoleBinding(
        "quota",
        metadata={"name": f"{team}-quota"},
        role_ref={"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": f"{team}-quota"},
        subjects=[{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}],
    )

pulumi.export("namespace", team)
pulumi.export("priority_class", team)
pulumi.export("service_account", "trainer")
