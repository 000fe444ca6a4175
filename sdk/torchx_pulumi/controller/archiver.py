"""The protocol by which the controller tells what archives logs of pods and containers that end."""

from __future__ import annotations

from typing import Protocol

from torchx_pulumi.controller.stack_apps import TrackedApp
from torchx_pulumi.kube import Cluster
from torchx_pulumi.model.options import Manifest


class Archiver(Protocol):
    """Copies the logs of tracked apps. Calls return at once and never raise; the work is done by its own threads."""

    def summary(self) -> str:
        """Return one line for the start of the controller: where logs go, and which are left out."""

    def start(self) -> None:
        """Start its threads."""

    def pod_changed(
        self, app: TrackedApp, cluster: Cluster, pod: Manifest, job_object: Manifest | None, *, deleted: bool
    ) -> None:
        """Take a pod of an app as it is now.

        Every pod is passed at least once after the start, and again after each change, and where the app's stack or
        its job object is read later than the pod.

        Args:
            app: The app, as its stack was last read. Its `uid` may be that of another run than the pod's.
            cluster: The real cluster with the pod.
            pod: The pod, without the fields that `kube.trimming.trim` drops. It must not be changed.
            job_object: The job object of the app's name as the cluster has it or had it last. None: it was not seen.
            deleted: The pod is gone, and this is what it was last.
        """

    def is_copying(self, uid: str) -> bool:
        """Return whether a log of the run of a job object is being copied, or is going to be."""

    def stop(self, timeout_s: float) -> None:
        """End; what is not copied by then is copied after the next start, as long as the pod exists."""

    def wait_until_idle(self, timeout_s: float) -> bool:
        """Wait until every log that can be copied now is copied; return whether that is so."""
