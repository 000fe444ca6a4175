"""A controller that runs once and forgets, in a process whose clock is some days ahead; it may be killed on the way.

Arguments: kubeconfig, namespace, log archive, days that the clock is ahead, and `dry-run`, `whole`, or the number of
the lock of a stack under which the process is killed.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from datetime import datetime, timedelta, timezone

from torchx_pulumi.controller import Controller, ControllerParts, ControllerSettings
from torchx_pulumi.controller.archive_rules import ArchiveRules
from torchx_pulumi.controller.reporting import Reporter
from torchx_pulumi.controller.settings import RetentionSettings
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.model.app_entry import StackRef
from torchx_pulumi.runs.driver import Forgotten
from torchx_pulumi.stack_state.backend import choose_backend
from torchx_pulumi_stacks.engine import AutomationDriver


class KilledDriver(AutomationDriver):
    """Ends the process under a lock, after what was decided there was done."""

    left = 0

    def forget_at(self, place: StackRef, may_go: Callable[[str], bool]) -> Forgotten:
        def decide(text: str) -> bool:
            decided = may_go(text)
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return decided

        return super().forget_at(place, decide)


def main(kubeconfig: str, namespace: str, archive: str, days: str, mode: str) -> None:
    """Run the controller."""
    retention = RetentionSettings(
        after=timedelta(days=30), failed_after=timedelta(days=60), archives=ArchiveRules(own=archive),
        dry_run=mode == "dry-run", again_s=0.2, pause_s=0.0, retry_s=0.2,
    )  # fmt: skip
    settings = ControllerSettings(backends=(choose_backend(),), namespaces=(namespace,), once=True, retention=retention)
    driver = KilledDriver()
    driver.left = int(mode) if mode.isdecimal() else 0
    ahead = timedelta(days=float(days))
    clusters = {"test": KubernetesCluster.connect(kubeconfig)}
    now = lambda: datetime.now(timezone.utc) + ahead  # noqa: E731
    parts = ControllerParts(settings=settings, driver=driver, reporter=Reporter(), now=now)
    Controller(parts, clusters).run(threading.Event())


if __name__ == "__main__":
    main(*sys.argv[1:])
