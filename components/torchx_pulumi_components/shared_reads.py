"""Reads of a cluster that the jobs of one program share while they are planned."""

from __future__ import annotations

import math

from torchx_pulumi.kube import CachedReader, PodReader


def shared_reads(cluster: PodReader) -> PodReader:
    """Return a cluster of which each answer about the cluster itself is read once, for any number of threads.

    Shared are its identity, the kinds that it serves, and objects without a namespace, for example queues. What does
    not exist is read again by the next job: a program may create it meanwhile. Everything in a namespace, and with it
    all objects of runs, is read whenever it is asked for.
    """
    return CachedReader(
        cluster,
        kept_s=math.inf,
        is_fresh=lambda kind: kind is not None and kind.namespaced,
        keeps_absence=False,
    )
