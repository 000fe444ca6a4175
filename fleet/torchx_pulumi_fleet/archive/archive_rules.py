"""ArchiveRules: which archives a controller uses, and for which launches. Data in, data out.

A stack names its job object and its archive, and anybody who may write a backend may write a stack. So the archive of a
launch counts only if the controller's user allowed it, and if the cluster shows that the launch created the job object.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torchx_pulumi.apps.app import App
from torchx_pulumi.logs.archives import archive_place
from torchx_pulumi.model.options import Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveRules:
    """Which archives a controller uses."""

    own: str | None = None
    """URL of the controller's own archive. None: it has none."""
    allowed: Sequence[str] = field(default_factory=tuple)
    """URLs of further archives that launches may name. The controller's own is always allowed."""
    secret_pods: bool = False
    """Logs of pods with Secrets are archived in the controller's own archive too, and shown on pages."""

    def named(self, app: App) -> str | None:
        """Return the archive that a launch named. None: it named none, or one that is not allowed."""
        if app.log_archive is None:
            return None
        allowed = {archive_place(url) for url in (self.own, *self.allowed) if url is not None}
        return app.log_archive if archive_place(app.log_archive) in allowed else None

    def of_launch(self, app: App, job_object: Manifest | None) -> str | None:
        """Return the archive that a launch chose for the logs of its pods. None: none that counts.

        Args:
            app: The app.
            job_object: The job object of its name, as the cluster has it or had it last. None: not known.
        """
        return self.named(app) if app.owns(job_object) and app.launched(job_object) else None

    def having(self, app: App) -> list[str]:
        """Return the archives that may have logs of an app, in the order in which they are asked."""
        return [*dict.fromkeys(url for url in (self.named(app), self.own) if url is not None)]
