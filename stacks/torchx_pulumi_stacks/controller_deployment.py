"""The controller in a cluster: its objects, with the least rights that it needs."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pulumi
import pulumi_kubernetes as kubernetes
from torchx_pulumi.schedulers.watching import forget_permissions, rbac_rules, watch_permissions
from torchx_pulumi.storage.owners import POD_VARIABLE

from torchx_pulumi_stacks.controller_config import ControllerConfig

USER: Final = 65532
"""User and group of the process, as of the nonroot images."""

TOKEN_FOLDER: Final = "/run/secrets/torchx-pulumi"  # noqa: S105  the place of the token
"""Folder that the Secret with the token is mounted at."""

TOKEN_KEY: Final = "token"  # noqa: S105  the name of a key
"""Key of the token in its Secret."""

TERMINATION_S: Final = 15
"""Seconds that a pod has to end: a controller ends within 5 s."""

RBAC: Final = "rbac.authorization.k8s.io"
"""API group of roles."""


def deploy_controller(
    config: ControllerConfig, namespace: str, image: str, pull_secret: str | None, inside: pulumi.ResourceOptions
) -> None:
    """Register the objects of the controller, and export its address.

    Args:
        config: What is asked for.
        namespace: Namespace of its objects.
        image: Its image.
        pull_secret: Pull secret of the platform. None: it has none.
        inside: Options of what is in the namespace.
    """
    name, rights = config.name, [*_register_rights(config, namespace, inside)]
    token_secret = config.token_secret or _register_token(config, namespace, inside)
    credentials: Any = config.backend_secret
    if credentials is None and config.backend_credentials:
        given = config.backend_credentials
        credentials = _register_secret("controller-credentials", config, namespace, given, inside)
    kubernetes.apps.v1.Deployment(
        "controller",
        metadata={"name": name, "namespace": namespace, "labels": labels_of(config)},
        spec=deployment_spec(
            config,
            namespace=namespace,
            image=image,
            pull_secret=config.image_pull_secret or pull_secret,
            token_secret=token_secret,
            credentials=credentials,
        ),
        # Without its rights it does not start.
        opts=pulumi.ResourceOptions.merge(inside, pulumi.ResourceOptions(depends_on=rights)),
    )
    kubernetes.core.v1.Service(
        "controller",
        metadata={"name": name, "namespace": namespace, "labels": labels_of(config)},
        spec={"selector": labels_of(config), "ports": [{"name": "http", "port": config.port, "targetPort": "http"}]},
        opts=inside,
    )
    if config.replicas > 1:
        kubernetes.policy.v1.PodDisruptionBudget(
            "controller",
            metadata={"name": name, "namespace": namespace, "labels": labels_of(config)},
            spec={"maxUnavailable": 1, "selector": {"matchLabels": labels_of(config)}},
            opts=inside,
        )
    pulumi.export("controller_url", f"http://{name}.{namespace}.svc:{config.port}")
    pulumi.export("controller_image", image)


def labels_of(config: ControllerConfig) -> dict[str, str]:
    """Return the labels of the objects, by which the pods are selected."""
    return {"app.kubernetes.io/name": "torchx-controller", "app.kubernetes.io/instance": config.name}


def arguments_of(config: ControllerConfig, namespace: str) -> list[str]:
    """Return the arguments of the command `torchx-pulumi`."""
    name = config.name
    hosts = [name, f"{name}.{namespace}", f"{name}.{namespace}.svc", f"{name}.{namespace}.svc.cluster.local"]
    words = ["controller", "--listen", f"0.0.0.0:{config.port}", "--token-file", f"{TOKEN_FOLDER}/{TOKEN_KEY}"]
    words += ["--lease", f"{namespace}/{name}"]
    several = {
        "--backend": config.backends,
        "--namespace": config.namespaces,
        "--allowed-host": [*hosts, *config.allowed_hosts],
        "--archive-allow": config.archive_allow,
    }
    for option, values in several.items():
        words += [word for value in dict.fromkeys(values) for word in (option, value)]
    single = {
        "--log-archive": config.log_archive,
        "--forget-after": config.forget_after,
        "--forget-failed-after": config.forget_failed_after,
    }
    words += [word for option, value in single.items() if value for word in (option, value)]
    flags = {"--program-stacks": config.program_stacks, "--archive-secret-pods": config.archive_secret_pods}
    return [*words, *(flag for flag, given in flags.items() if given)]


def deployment_spec(
    config: ControllerConfig,
    *,
    namespace: str,
    image: str,
    pull_secret: str | None,
    token_secret: pulumi.Input[str],
    credentials: pulumi.Input[str] | None,
) -> dict[str, Any]:
    """Return the spec of the Deployment.

    Args:
        config: What is asked for.
        namespace: Its namespace.
        image: Image of the container.
        pull_secret: Pull secret. None: the image needs none.
        token_secret: Name of the Secret with the token.
        credentials: Name of the Secret with the credentials of backends. None: no backend needs any.
    """
    volumes = [
        {"name": "tmp", "emptyDir": {}},
        # The group may read it: the process is not root.
        {"name": "token", "secret": {"secretName": token_secret, "defaultMode": 0o440}},
    ]
    mounts = [
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108  of the container
        {"name": "token", "mountPath": TOKEN_FOLDER, "readOnly": True},
    ]
    if config.volume_claim:
        volumes.append({"name": "state", "persistentVolumeClaim": {"claimName": config.volume_claim}})
        mounts.append({"name": "state", "mountPath": config.volume_path})
    container = {
        "name": "controller",
        "image": image,
        "command": ["torchx-pulumi"],
        "args": arguments_of(config, namespace),
        "env": [
            {"name": "HOME", "value": "/tmp"},  # noqa: S108  of the container
            # By it, a restarted container recognises the locks that it held when it was killed.
            {"name": POD_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
        ],
        **({"envFrom": [{"secretRef": {"name": credentials}}]} if credentials is not None else {}),
        "ports": [{"name": "http", "containerPort": config.port}],
        "resources": dict(config.resources),
        "startupProbe": _probe("/healthz", period_s=2, failures=60),
        "livenessProbe": _probe("/healthz", period_s=10, failures=6),
        "readinessProbe": _probe("/readyz", period_s=3, failures=3),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": mounts,
    }
    pod = {
        "serviceAccountName": config.name,
        # Variables of other Services could be taken for settings: TORCHX_CONTROLLER_PORT.
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": TERMINATION_S,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": config.fs_group,
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
                "labelSelector": {"matchLabels": labels_of(config)},
            }
        ],
        **({"imagePullSecrets": [{"name": pull_secret}]} if pull_secret else {}),
        **({"nodeSelector": dict(config.node_selector)} if config.node_selector else {}),
        **({"tolerations": [dict(each) for each in config.tolerations]} if config.tolerations else {}),
        **({"priorityClassName": config.priority_class_name} if config.priority_class_name else {}),
    }
    return {
        "replicas": config.replicas,
        "selector": {"matchLabels": labels_of(config)},
        # A new pod serves pages before an old one ends.
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
        "template": {"metadata": {"labels": labels_of(config)}, "spec": pod},
    }


def _probe(path: str, *, period_s: int, failures: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": path, "port": "http"},
        "periodSeconds": period_s,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }


def lease_rules(name: str) -> list[dict[str, Any]]:
    """Return the rules by which the pods elect the one that writes. The stack makes the Lease, and no pod may."""
    return [
        {
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "resourceNames": [name],
            "verbs": ["get", "update"],
        }
    ]


def roles_of(config: ControllerConfig, namespace: str) -> Iterator[tuple[str | None, str, list[dict[str, Any]]]]:
    """Yield the namespace, the name and the rules of each role. None as the namespace: a ClusterRole."""
    permissions = [*watch_permissions(), *(forget_permissions() if config.forget_after else ())]
    # Of no other namespace: names of namespaces have no colon.
    in_cluster = f"{namespace}:{config.name}"
    yield namespace, f"{config.name}-lease", lease_rules(config.name)
    yield None, in_cluster, rbac_rules(permissions, namespaced=False if config.namespaces else None)
    for watched in dict.fromkeys(config.namespaces):
        # The name says whose it is: other controllers may watch the same namespace.
        yield watched, in_cluster, rbac_rules(permissions, namespaced=True)


def _register_rights(
    config: ControllerConfig, namespace: str, inside: pulumi.ResourceOptions
) -> Iterator[pulumi.Resource]:
    yield kubernetes.core.v1.ServiceAccount(
        "controller",
        metadata={
            "name": config.name,
            "namespace": namespace,
            "labels": labels_of(config),
            **({"annotations": dict(config.service_account_annotations)} if config.service_account_annotations else {}),
        },
        opts=inside,
    )
    # Its spec is the pods' own.
    yield kubernetes.coordination.v1.Lease(
        "controller", metadata={"name": config.name, "namespace": namespace, "labels": labels_of(config)}, opts=inside
    )
    subject = {"kind": "ServiceAccount", "name": config.name, "namespace": namespace}
    for place, name, rules in roles_of(config, namespace):
        yield from _register_role(place, name, rules, subject, labels_of(config), inside)


def _register_role(
    namespace: str | None,
    name: str,
    rules: Sequence[Mapping[str, Any]],
    subject: dict[str, str],
    labels: Mapping[str, str],
    inside: pulumi.ResourceOptions,
) -> Iterator[pulumi.Resource]:
    own = kubernetes.rbac.v1
    role, binding = (own.ClusterRole, own.ClusterRoleBinding) if namespace is None else (own.Role, own.RoleBinding)
    metadata = {"name": name, "labels": dict(labels), **({} if namespace is None else {"namespace": namespace})}
    logical = f"controller-{name}" if namespace is None else f"controller-{name}-in-{namespace}"
    options = pulumi.ResourceOptions(transformations=inside.transformations) if namespace is None else inside
    yield role(logical, metadata=metadata, rules=[dict(rule) for rule in rules], opts=options)
    yield binding(
        logical,
        metadata=metadata,
        role_ref={"apiGroup": RBAC, "kind": role.__name__, "name": name},
        subjects=[subject],
        opts=options,
    )


def _register_token(config: ControllerConfig, namespace: str, inside: pulumi.ResourceOptions) -> pulumi.Output[str]:
    """Register a generated token. It stays until its Stash is replaced, and then the pods are replaced too."""
    token = pulumi.Stash(
        "controller-token",
        input=pulumi.Output.secret(secrets.token_urlsafe(32)),
        opts=pulumi.ResourceOptions(ignore_changes=["input"]),
    )
    pulumi.export("controller_token", token.output)
    return _register_secret("controller-token", config, namespace, {TOKEN_KEY: token.output}, inside)


def _register_secret(
    logical: str, config: ControllerConfig, namespace: str, values: Mapping[str, Any], inside: pulumi.ResourceOptions
) -> pulumi.Output[str]:
    """Register a Secret and return its name. Another content has another name, so that pods get it by a rollout."""
    secret = kubernetes.core.v1.Secret(
        logical, metadata={"namespace": namespace, "labels": labels_of(config)}, string_data=dict(values), opts=inside
    )
    name: pulumi.Output[str] = secret.metadata["name"]
    return name
