"""The command line: `python -m tools.demo`."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from torchx_pulumi.model.errors import TorchxPulumiError

from tools.bootstrap import BootstrapError
from tools.demo.errors import DemoError
from tools.demo.running import Wishes, alone, run, stop
from tools.demo.target import CLUSTER_NAME, current_target, local_target
from tools.images import ImageError
from tools.local_cluster import Cluster, LocalClusterError


def main(arguments: list[str] | None = None) -> int:
    """Run the demo and return the exit code: 0 the job succeeded, 1 anything else, an interruption included."""
    options = parser().parse_args(arguments)
    # A handler of our own, also where the caller ignores the signal: what we start then begins with the default one.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    wishes = Wishes(keep=options.keep, processes=options.processes, timeout_s=options.timeout)
    try:
        with alone():
            if options.stop:
                stop_demo(current=options.cluster == "current")
            elif options.cluster == "current":
                run(lambda: current_target(options.image, options.namespace, options.queue), wishes)
            else:
                run(local_target, wishes)
    except (DemoError, BootstrapError, LocalClusterError, ImageError, TorchxPulumiError) as error:
        print(f"demo: error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("demo: interrupted", file=sys.stderr)
        return 1
    return 0


def stop_demo(*, current: bool) -> None:
    """End a demo that was left running, and its cluster."""
    found = None if current else Cluster.find(CLUSTER_NAME)
    kubeconfig: Path | None = found.kubeconfig if found else None
    stop(kubeconfig, found.down if found else lambda: None)


def parser() -> argparse.ArgumentParser:
    """Make the parser."""
    made = argparse.ArgumentParser(
        prog="python -m tools.demo", description="A real PyTorch job, from preview to destroy."
    )
    made.add_argument("--keep", action="store_true", help="leave job, stack and cluster running, and say how to look")
    made.add_argument("--stop", action="store_true", help="end a demo that was left running")
    made.add_argument(
        "--cluster", choices=("local", "current"), default="local", help="`current`: where your kube context points"
    )
    made.add_argument("--image", help="with --cluster current: an image made by examples/ddp/Dockerfile")
    made.add_argument("--namespace", default="default", help="with --cluster current (default: default)")
    made.add_argument("--queue", default="default", help="with --cluster current: Volcano queue (default: default)")
    made.add_argument("--processes", type=int, default=2, choices=(1, 2), help="ranks in each replica (default: 2)")
    made.add_argument("--timeout", type=float, default=600, metavar="S", help="seconds the job may take (default: 600)")
    return made


if __name__ == "__main__":
    sys.exit(main())
