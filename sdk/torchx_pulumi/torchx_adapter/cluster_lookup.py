"""Find an app that is in neither the index nor a backend: read from its objects in the cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torchx_pulumi.kube import LiveCluster
from torchx_pulumi.model import labels
from torchx_pulumi.model.app_entry import RunEntry, UnknownStack
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.object_fields import items_at, text_at
from torchx_pulumi.schedulers import ObservedObjects, Variant, find_backend


def find_in_cluster(cluster: LiveCluster, scheduler: str, app_id: str) -> RunEntry | None:
    """Return an app of torchx-pulumi by its objects. None: no object of that name was launched by this package.

    Raises:
        ClusterError: The cluster cannot be reached.
    """
    namespace, _, name = app_id.partition(":")
    for variant in find_backend(scheduler).variants.values():
        try:
            seen = variant.observe(cluster, namespace, name)
        except ClusterError as error:
            if error.retryable:
                raise
            # The cluster does not serve the kind, or the user may not read it.
            continue
        metadata = (seen.job_object or {}).get("metadata") or {}
        if (metadata.get("labels") or {}).get(labels.LAUNCH) and not metadata.get("ownerReferences"):
            return _entry(cluster, scheduler, variant, app_id, seen)
    return None


def _entry(cluster: LiveCluster, scheduler: str, variant: Variant, app_id: str, seen: ObservedObjects) -> RunEntry:
    head: Mapping[str, Any] = seen.job_object or {}
    metadata = head["metadata"]
    own: Mapping[str, str] = metadata.get("labels") or {}
    name = app_id.partition(":")[2]
    pods: dict[str, list[str]] = {}
    images: dict[str, str] = {}
    for role, pod, image in _replicas(variant, seen):
        pods.setdefault(role, []).append(pod)
        images.setdefault(role, image)
    roles = [{"name": role, "image": images[role], "num_replicas": len(names)} for role, names in pods.items()]
    return RunEntry(
        app_id=app_id,
        scheduler=scheduler,
        choice=variant.name,
        place=UnknownStack(),
        cluster=cluster.identity,
        kubeconfig=None,
        kube_context=None,
        session=own.get(labels.SESSION, ""),
        user="",
        name=own.get(labels.KUBE_APP_NAME) or name,
        queue=(head.get("spec") or {}).get("queue"),
        app={"name": name, "roles": roles, "metadata": {}},
        pods=pods,
        declared={},
        launch=own[labels.LAUNCH],
        run=(metadata.get("annotations") or {}).get(labels.RUN, ""),
        launched_at=str(metadata.get("creationTimestamp") or ""),
        uid=metadata.get("uid"),
    )


def _replicas(variant: Variant, observed: ObservedObjects) -> Iterator[tuple[str, str, str]]:
    """Yield role, pod and image of every replica: of the job object, or of the observed pods."""
    templates = variant.pod_templates(observed.job_object or {})
    for pod, template in templates or [(pod["metadata"]["name"], pod) for pod in observed.pods or ()]:
        role = text_at(template, "metadata", "labels", labels.ROLE_NAME)
        if role:
            container = next(iter(items_at(template, "spec", "containers")), {})
            yield role, pod, str(container.get("image", ""))
