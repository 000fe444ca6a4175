"""What keeps pods from nodes, by the statements of schedulers: in words, with what to do, and whether room ends it.

The patterns are reasons of kube-scheduler 1.35 (`pkg/scheduler/framework/plugins`), of older releases where these
differ, and of Volcano 1.15 (`pkg/scheduler/api` and `plugins`), which runs the same plugins.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

MAX_WORDS: Final = 200
"""Characters of an unknown statement that a summary shows."""

NOW_ADVICE: Final = "wait until there is room, stop what runs there, or ask for less"


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """One cause for which pods have no node."""

    words: str
    advice: str
    lasts: bool = False
    """No room ends it: somebody has to change the job or the cluster."""
    unbound: bool = False
    """A claim has no volume. Its events may say why."""
    judged: bool = False
    """`nodes` judges it as well, and knows the nodes that could take the pods."""


STATEMENTS: Final[Sequence[tuple[str, Obstacle]]] = (
    (
        r'persistentvolumeclaim "([^"]+)" not found',
        Obstacle(
            words="PersistentVolumeClaim {0!r} does not exist",
            advice="create it in the job's namespace, or correct its name in the job's mounts",
            lasts=True,
        ),
    ),
    (
        r'persistentvolumeclaim "([^"]+)" is being deleted',
        Obstacle(
            words="PersistentVolumeClaim {0!r} is being deleted",
            advice="name another claim in the job's mounts, or create it again when it is gone",
            lasts=True,
        ),
    ),
    (
        r'bound to non-existent (?:persistentvolume|pv)|persistentvolume "[^"]+" not found',
        Obstacle(
            words="the PersistentVolume of its claim does not exist any more",
            advice="name another claim in the job's mounts, or have the volume restored",
            lasts=True,
        ),
    ),
    (
        r'(?:failed to find storage class|storageclass\S*) "([^"]+)"(?: not found)?',
        Obstacle(
            words="StorageClass {0!r} of its claim does not exist",
            advice="create the StorageClass, or create the claim again with one that exists",
            lasts=True,
            unbound=True,
        ),
    ),
    (
        r"had no pv name and storageClass name|no class for claim",
        Obstacle(
            words="its claim has neither a PersistentVolume nor a StorageClass",
            advice="create a PersistentVolume that fits, or create the claim again with a StorageClass",
            lasts=True,
            unbound=True,
        ),
    ),
    (
        r"waiting for ephemeral volume controller",
        Obstacle(
            words="the claim of its ephemeral volume is not created yet",
            advice="wait; if it lasts, check that kube-controller-manager runs",
        ),
    ),
    (
        r"unbound immediate PersistentVolumeClaims",
        Obstacle(
            words="a PersistentVolumeClaim has no volume yet",
            advice="see why with `kubectl describe pvc`: its class, and the provisioner of that class",
            unbound=True,
        ),
    ),
    (
        r"provisioning failed for PVC|binding volumes: ",
        Obstacle(
            words="the provisioner of its claim makes no volume",
            advice="see why with `kubectl describe pvc`, and check that the provisioner of its StorageClass runs",
            unbound=True,
        ),
    ),
    (
        r"find available persistent volumes to bind",
        Obstacle(
            words="no PersistentVolume fits its claim",
            advice="create a PersistentVolume of its class, size, access mode and node, or use a claim whose "
            "StorageClass has a provisioner",
            lasts=True,
        ),
    ),
    (
        r"PersistentVolume's node affinity|volume node affinity conflict|no available volume zone"
        r"|plugin\(s\) \[VolumeBinding",
        Obstacle(
            words="its volume can be used on other nodes only",
            advice="let it use the nodes of the volume (`kubectl describe pv` has their labels), or use another volume",
            lasts=True,
        ),
    ),
    (
        r"enough free storage",
        Obstacle(
            words="no node has enough free storage for its volumes",
            advice="delete volumes that nobody needs, ask for smaller ones, or use another StorageClass",
        ),
    ),
    (
        r"exceed max volume count",
        Obstacle(
            words="the nodes have as many volumes as they can attach",
            advice="wait until pods with volumes end, use fewer volumes, or add nodes",
        ),
    ),
    (
        r"ReadWriteOncePod|had no available disk",
        Obstacle(
            words="another pod uses its volume",
            advice="wait until that pod ends; replicas that share a claim need the access mode ReadWriteMany",
        ),
    ),
    (
        r"free ports for the requested pod ports",
        Obstacle(
            words="its host ports are in use",
            advice="wait until the pods that use them end, use other host ports or none, or add nodes: each replica "
            "with a host port needs a node of its own",
        ),
    ),
    (
        r"anti-affinity rules",
        Obstacle(
            words="pods run there that it must not be next to (podAntiAffinity)",
            advice="wait until these pods end, correct podAntiAffinity, or add nodes",
        ),
    ),
    (
        r"pod affinity rules",
        Obstacle(
            words="no pod runs there that it must be next to (podAffinity)",
            advice="start the pods that its podAffinity selects, or correct podAffinity",
        ),
    ),
    (
        r"topology spread constraints \(missing required label\)",
        Obstacle(
            words="no node has the topologyKey of its topologySpreadConstraints",
            advice="correct topologyKey, or label the nodes with it",
            lasts=True,
        ),
    ),
    (
        r"topology spread constraints",
        Obstacle(
            words="its topologySpreadConstraints leave no node with room",
            advice="wait until there is room in the other domains, raise maxSkew, or add nodes",
        ),
    ),
    (
        r"node affinity/selector|scheduler-enforced node affinity|pod affinity terms conflict|requested node name"
        r"|plugin\(s\) \[[^\]]*NodeAffinity",
        Obstacle(
            words="no node matches its node selector or node affinity",
            advice="correct node_selector, the capabilities of the resource, or the node affinity, or label a node so",
            lasts=True,
            judged=True,
        ),
    ),
    (
        r"node group",
        Obstacle(
            words="its queue may not use these nodes (node groups)",
            advice="use a queue that may, or have the affinity of the queue or the labels of nodes corrected",
            lasts=True,
        ),
    ),
    (
        r"taint \{((?:node\.kubernetes\.io|node\.cloudprovider\.kubernetes\.io)/[\w.-]+)",
        Obstacle(
            words="the nodes are not ready (taint {0})",
            advice="see why with `kubectl describe nodes`; a toleration would start it on a broken node",
            judged=True,
        ),
    ),
    (
        r"untolerated taint|had taints",
        Obstacle(
            words="the nodes have taints that it does not tolerate",
            advice="add tolerations for the taints of the nodes that the job should use (`kubectl describe nodes`); "
            "for a node that is not ready, see why",
            lasts=True,
            judged=True,
        ),
    ),
    (
        r"were unschedulable",
        Obstacle(
            words="the nodes are cordoned",
            advice="have a node uncordoned (`kubectl uncordon NODE`) or added, or let it use other nodes",
            lasts=True,
            judged=True,
        ),
    ),
    (
        r"Too many pods|pod number exceeded",
        Obstacle(words="the nodes have as many pods as they take", advice=NOW_ADVICE, judged=True),
    ),
    (r"resource fit failed", Obstacle(words="not enough resources", advice=NOW_ADVICE, judged=True)),
    (
        r"device class (\S+) does not exist",
        Obstacle(
            words="DeviceClass {0!r} does not exist",
            advice="correct the device class of its resource claim, or have it created",
            lasts=True,
        ),
    ),
    (
        r'resourceclaim "([^"]+)" (?:not found|is being deleted)',
        Obstacle(
            words="ResourceClaim {0!r} does not exist, or is being deleted",
            advice="create it in the job's namespace, or correct its name in the pod overlay",
            lasts=True,
        ),
    ),
    (
        r"resourceclaim (?:in use|not available)|cannot allocate all claims|being allocated|extended resource claim"
        r"|cannot fit resource",
        Obstacle(words="the devices that it claims are in use, or on other nodes", advice=NOW_ADVICE),
    ),
    (
        r"waiting for the preemption",
        Obstacle(words="pods of lower priority make room for it", advice="wait until they have ended"),
    ),
)
"""Pattern of a statement -> the obstacle; the first that matches counts. `{0}` is what its group matches."""

_SHORT = re.compile(r"(?:Insufficient|overused) ([a-z0-9][\w./-]*\w)")

_HEAD = re.compile(r"nodes are (?:un)?available: ")
"""What precedes the statements about the nodes."""

_NOTHING = re.compile(
    r"\d+/\d+ (?:nodes[^:]*|tasks in gang unschedulable.*)|pod group is (?:not )?ready, .*", re.DOTALL
)
"""Text that only counts nodes, or pods of the gang. Volcano says no more if no node counts a resource of the pod."""

_TAIL = re.compile(r"\.\s+(?:no new claims to deallocate|still not schedulable|preemption:).*", re.DOTALL)
"""What kube-scheduler writes about preemption, which says nothing new about the nodes."""


def find_obstacles(said: str) -> tuple[Obstacle, ...]:
    """Return the obstacles in a scheduler's message, resources that are short first; empty if it has none.

    >>> said = "0/5 nodes are available: 3 Insufficient cpu, 2 node(s) were unschedulable."
    >>> [one.words for one in find_obstacles(said)]
    ['not enough cpu', 'the nodes are cordoned']
    """
    if not said or _NOTHING.fullmatch(said):
        return ()
    head = _HEAD.search(said)
    text = _TAIL.sub("", said[head.end() :] if head else said)
    short: dict[str, None] = {}
    found: dict[Obstacle, None] = {}
    for statement in re.split(r",\s+(?=\d+\s)", text):
        if resources := _SHORT.findall(statement):
            short.update(dict.fromkeys(resources))
        else:
            found[_obstacle_of(statement)] = None
    if not short:
        return tuple(found)
    return (Obstacle(words=f"not enough {', '.join(short)}", advice=NOW_ADVICE, judged=True), *found)


def _obstacle_of(statement: str) -> Obstacle:
    for pattern, obstacle in STATEMENTS:
        if match := re.search(pattern, statement):
            words = obstacle.words.format(*match.groups())
            return obstacle if words == obstacle.words else replace(obstacle, words=words)
    return Obstacle(
        words=re.sub(r"^\d+\s+", "", statement).strip(" .")[:MAX_WORDS],
        advice="see what the scheduler says: wait if it is about what else runs there, else correct the job",
    )
