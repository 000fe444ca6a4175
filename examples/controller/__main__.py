"""The controller of torchx-pulumi in a cluster: two pods, one of which writes, with the least rights that they need.

docs/controller-deployment.md has the configuration. The program is meant to be edited; everything in it is a plain
Kubernetes object.
"""

import pulumi
import pulumi_kubernetes as kubernetes

NAME = "torchx-controller"
PORT = 8080
RBAC = "rbac.authorization.k8s.io"
LABELS = {"app.kubernetes.io/name": "torchx-controller", "app.kubernetes.io/instance": NAME}

config = pulumi.Config()
control = config.require("namespace")
watched = config.get_object("namespaces") or []
claim = config.get("volumeClaim")
namespace = kubernetes.core.v1.Namespace("controller", metadata={"name": control}).metadata["name"]
own = {"name": NAME, "namespace": namespace, "labels": LABELS}

# What the controller reads of the watched namespaces, and of what is in none: docs/permissions.md.
READ = ["get", "list", "watch"]
IN_NAMESPACES = [
    {"apiGroups": ["batch.volcano.sh"], "resources": ["jobs"], "verbs": READ},
    {"apiGroups": ["workload.codeflare.dev"], "resources": ["appwrappers"], "verbs": READ},
    # Those of AppWrappers v1beta2.
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": READ},
    {
        "apiGroups": ["scheduling.volcano.sh", "scheduling.x-k8s.io", "scheduling.sigs.k8s.io"],
        "resources": ["podgroups"],
        "verbs": READ,
    },
    {"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads", "localqueues"], "verbs": READ},
    {"apiGroups": [""], "resources": ["pods", "events"], "verbs": READ},
    {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
]
IN_NO_NAMESPACE = [
    {"apiGroups": ["scheduling.volcano.sh"], "resources": ["queues"], "verbs": READ},
    {"apiGroups": ["kueue.x-k8s.io"], "resources": ["clusterqueues", "cohorts"], "verbs": READ},
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]},
    {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]},
]
# The pods elect the one that writes. The program makes the Lease, and they may change this one only.
ELECT = [
    {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "resourceNames": [NAME],
        "verbs": ["get", "update"],
    }
]

account = kubernetes.core.v1.ServiceAccount(
    "controller", metadata={**own, "annotations": config.get_object("serviceAccountAnnotations") or {}}
)
lease = kubernetes.coordination.v1.Lease("controller", metadata=own)
bound = {"subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": namespace}]}
roles = [
    kubernetes.rbac.v1.Role("elect", metadata=own, rules=ELECT),
    kubernetes.rbac.v1.RoleBinding(
        "elect", metadata=own, role_ref={"apiGroup": RBAC, "kind": "Role", "name": NAME}, **bound
    ),
]
for name, rules in (("apps", IN_NAMESPACES), ("cluster", IN_NO_NAMESPACE)):
    # The name says whose it is; names of namespaces have no colon.
    metadata = {"name": f"{control}:{NAME}:{name}", "labels": LABELS}
    reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": metadata["name"]}
    roles.append(kubernetes.rbac.v1.ClusterRole(name, metadata=metadata, rules=rules))
    if name == "cluster" or not watched:
        roles.append(kubernetes.rbac.v1.ClusterRoleBinding(name, metadata=metadata, role_ref=reference, **bound))
        continue
    for each in watched:
        inside = {**metadata, "namespace": each}
        roles.append(kubernetes.rbac.v1.RoleBinding(f"in-{each}", metadata=inside, role_ref=reference, **bound))

# Pulumi names them: another content is another Secret, and the pods are replaced.
unnamed = {"namespace": namespace, "labels": LABELS}
token = kubernetes.core.v1.Secret("token", metadata=unnamed, string_data={"token": config.require_secret("token")})
credentials = kubernetes.core.v1.Secret(
    "credentials", metadata=unnamed, string_data=config.get_secret_object("credentials") or {}
)

hosts = [NAME, f"{NAME}.{control}", f"{NAME}.{control}.svc", f"{NAME}.{control}.svc.cluster.local"]
options = {
    "--listen": [f"0.0.0.0:{PORT}"],
    "--token-file": ["/run/secrets/torchx-pulumi/token"],
    "--lease": [f"{control}/{NAME}"],
    "--backend": config.require_object("backends"),
    "--namespace": watched,
    "--log-archive": [archive] if (archive := config.get("logArchive")) else [],
    "--archive-allow": config.get_object("archiveAllow") or [],
    "--allowed-host": [*hosts, *(config.get_object("allowedHosts") or [])],
}
volumes = [
    {"name": "tmp", "emptyDir": {}},
    # The group of the process may read it.
    {"name": "token", "secret": {"secretName": token.metadata["name"], "defaultMode": 0o440}},
]
mounts = [
    {"name": "tmp", "mountPath": "/tmp"},
    {"name": "token", "mountPath": "/run/secrets/torchx-pulumi", "readOnly": True},
]
if claim:
    # For backends and archives in folders: file:///state, /state/logs. On several nodes it must be ReadWriteMany.
    volumes.append({"name": "state", "persistentVolumeClaim": {"claimName": claim}})
    mounts.append({"name": "state", "mountPath": "/state"})


def probe(path: str, period_s: int, failures: int) -> dict:
    """Return a probe by HTTP."""
    asked = {"path": path, "port": "http"}
    return {"httpGet": asked, "periodSeconds": period_s, "timeoutSeconds": 5, "failureThreshold": failures}


container = {
    "name": "controller",
    "image": config.require("image"),
    "args": ["controller", *(f"{option}={value}" for option, values in options.items() for value in values)],
    "env": [
        {"name": "HOME", "value": "/tmp"},
        # By it, a restarted container recognises the locks that it held when it was killed.
        {"name": "TORCHX_PULUMI_POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
    ],
    "envFrom": [{"secretRef": {"name": credentials.metadata["name"]}}],
    "ports": [{"name": "http", "containerPort": PORT}],
    "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}},
    "startupProbe": probe("/healthz", period_s=2, failures=60),
    "livenessProbe": probe("/healthz", period_s=10, failures=6),
    "readinessProbe": probe("/readyz", period_s=3, failures=3),
    "securityContext": {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    },
    "volumeMounts": mounts,
}
pod = {
    "serviceAccountName": NAME,
    # Variables of other Services could be taken for settings.
    "enableServiceLinks": False,
    "terminationGracePeriodSeconds": 15,
    "securityContext": {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "fsGroup": 65532,
        # Without this, the ownership of a large shared folder is set at each start.
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    },
    "containers": [container],
    "volumes": volumes,
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": LABELS},
        }
    ],
}
kubernetes.apps.v1.Deployment(
    "controller",
    metadata=own,
    spec={
        "replicas": 2,
        "selector": {"matchLabels": LABELS},
        # A new pod serves pages before an old one ends.
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
        "template": {"metadata": {"labels": LABELS}, "spec": pod},
    },
    opts=pulumi.ResourceOptions(depends_on=[account, lease, *roles]),
)
kubernetes.core.v1.Service(
    "controller",
    metadata=own,
    spec={"selector": LABELS, "ports": [{"name": "http", "port": PORT, "targetPort": "http"}]},
)
kubernetes.policy.v1.PodDisruptionBudget(
    "controller", metadata=own, spec={"maxUnavailable": 1, "selector": {"matchLabels": LABELS}}
)

pulumi.export("url", f"http://{NAME}.{control}.svc:{PORT}")
