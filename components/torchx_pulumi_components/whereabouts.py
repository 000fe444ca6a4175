"""Whether a component may act where it looks: in the cluster of its last run, and by a provider that keeps that run.

docs/decisions/0011 has the rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torchx_pulumi.kube import Cluster
from torchx_pulumi.model.cluster_identity import ClusterIdentity, Match, compare, compare_address, mismatch_words
from torchx_pulumi.model.errors import ClusterError, RelaunchRefusedError
from torchx_pulumi.model.run_record import RunRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What the state says, beside the record, of where the last run was launched."""

    cluster: ClusterIdentity | None = None
    """Noted by a later `up` for a run of 0.1.0, whose record names no cluster. None: not noted."""
    address: str | None = None
    """Digest of the API server's address, as `torchx run` of 0.1.0 noted it. None: not noted."""
    job: bool = False
    """The job object is in the state."""
    own_provider: bool = False
    """The component made a provider of its own for it."""


def find_cluster(
    name: str, cluster: Cluster | None, run: RunRecord | None, origin: Origin, head: Mapping[str, Any] | None
) -> ClusterIdentity | None:
    """Return the cluster of the last run, and refuse one that is not known to be it.

    Args:
        name: The component's name.
        cluster: The cluster that is looked at. None: nothing is looked at.
        run: The last run, or the launch that was begun. None: there is none.
        origin: What else is known of it.
        head: What was found under the name of its object. The object itself proves the cluster, without a request.

    Returns:
        None: it is not known.

    Raises:
        ClusterError: The cluster is another one, that is not known, or it does not answer.
    """
    recorded = origin.cluster if run is None or run.cluster is None else run.cluster
    if cluster is None or run is None:
        return recorded
    if run.uid is not None and ((head or {}).get("metadata") or {}).get("uid") == run.uid:
        return recorded or cluster.identify()
    if recorded is None and origin.address is None:
        return None
    present = cluster.identify()
    match = compare_address(origin.address or "", present) if recorded is None else compare(recorded, present)
    if match is Match.SAME:
        return recorded
    what = mismatch_words(f"run {run.namespace}/{run.job_name}", recorded, present, match)
    raise ClusterError(
        f"job {name!r}: {what}. Nothing was changed. Let the kubeconfig, its current context or kube_context name the "
        "cluster of the launch; to give that run up, remove it from the state (`pulumi state delete`, or "
        "`pulumi destroy` where its cluster still answers), then run `pulumi up` again"
    )


def check_provider(
    name: str,
    run: RunRecord,
    origin: Origin,
    *,
    given: Mapping[str, Any],
    own_provider: bool,
    cluster: Cluster | None,
) -> None:
    """Refuse an access by which the engine would replace the Kubernetes provider, and delete the run that is kept.

    Args:
        name: The component's name.
        run: The run that is kept.
        origin: What the state says of it.
        given: The component's arguments.
        own_provider: The program brings a provider of its own.
        cluster: The cluster that is looked at. None: nothing is looked at.

    Raises:
        RelaunchRefusedError: The run would be deleted.
    """
    if not origin.job:
        return
    named = [option for option in ("kubeconfig", "kube_context") if given.get(option) is not None]
    makes_own = bool(named) and not own_provider
    if makes_own and not origin.own_provider:
        what = f"{' and '.join(named)} set"
        remedy = f"remove {' and '.join(named)} from the arguments"
    elif origin.own_provider and not makes_own:
        what, remedy = "kubeconfig or kube_context removed", "set what was set when the run was launched"
    elif makes_own and "kubeconfig" in named and cluster is not None and run.cluster is not None:
        present = cluster.identify()
        if (present.address, present.ca) == (run.cluster.address, run.cluster.ca):
            return
        what = f"the cluster reached as {present} in place of {run.cluster}"
        remedy = "set the kubeconfig that the run was launched with"
    else:
        return
    raise RelaunchRefusedError(
        f"job {name!r}: with {what}, Pulumi would replace the Kubernetes provider, and delete run {run.job_name} with "
        f"it. Nothing was changed. To keep the run, {remedy}; to change the access, set it together with a new value "
        "of `rerun` once the run has finished"
    )
