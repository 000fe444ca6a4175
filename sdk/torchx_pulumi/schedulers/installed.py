"""The version of a scheduler that a cluster runs, for the doctor."""

from __future__ import annotations

import re
from typing import Final

from torchx_pulumi.kube import Reader
from torchx_pulumi.kube.kinds import Kind
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.finding import Finding, ok
from torchx_pulumi.model.object_fields import items_at, text_at
from torchx_pulumi.model.versions import VERSIONS, read_version

DEPLOYMENT = Kind(group="apps", version="v1", kind="Deployment", plural="deployments")
"""Not among the kinds of `kube`: no job has one."""

_RELEASE: Final = re.compile(r"v?\d{1,2}\.\d+\.\d+(-.+)?")
"""Tags of releases of Volcano, MCAD and the AppWrapper operator; mirrors may leave out the `v`.

Numbers in others are dates, builds or commits.
"""


def installed(check: str, detail: str, part: str, tag: str | None) -> Finding:
    """Return the finding of an installed scheduler: its version, and a warning if that is outside the supported range.

    Args:
        check: Name of the check.
        detail: What else was seen.
        part: Name of the scheduler in the table of versions.
        tag: Tag of its image. None: not visible, and the finding has no version.
    """
    known = VERSIONS[part]
    if tag is None:
        return ok(check, detail)
    version = read_version(tag) if _RELEASE.fullmatch(tag) else None
    if version is None:
        return ok(check, f"{detail}; {known.title} of unknown version, with the image tag {tag}")
    return ok(check, f"{detail}; {known.title} {tag}", known.warning(version))


def deployed_tag(cluster: Reader, namespace: str, image: str) -> str | None:
    """Return the tag of an image that a Deployment runs, found by one request. None: it cannot be seen.

    Args:
        cluster: The cluster to ask.
        namespace: Namespace in which the scheduler's own manifests install it.
        image: Last part of the image's name.
    """
    try:
        deployments = cluster.list(DEPLOYMENT, namespace)
    except ClusterError:
        # The permission is not needed for a launch.
        return None
    for deployment in deployments:
        for container in items_at(deployment, "spec", "template", "spec", "containers"):
            found = re.match(rf"(?:.*/)?{re.escape(image)}:([^@]+)", text_at(container, "image") or "")
            if found:
                return found[1]
    return None
