"""The command `torchx-pulumi doctor`: checks that everything exists that a launch needs."""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial

from torchx_pulumi.schedulers.registry import scheduler_names

EXIT_PROBLEM = 1
"""Exit code if a launch lacks something."""


def add_doctor(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to a parser."""
    doctor = commands.add_parser(
        "doctor",
        help="check that everything exists that a launch needs",
        description="Check this machine and the cluster, without a change. Exit code 1 if there is a problem.",
    )
    doctor.add_argument("--scheduler", choices=scheduler_names(), help="default: whichever the cluster has")
    doctor.add_argument("--queue", help="Volcano queue; default: default. With --scheduler mcad: Kueue's LocalQueue")
    doctor.add_argument("--namespace", default="default", help="namespace of the jobs; default: default")
    doctor.add_argument("--kube-context", metavar="NAME", help="context; default: the current one")
    doctor.add_argument("--kubeconfig", metavar="FILE", help="default: KUBECONFIG, else ~/.kube/config")
    doctor.add_argument("--image-repo", metavar="NAME", help="repository that patched images are pushed to")
    doctor.add_argument(
        "--timeout", metavar="SECONDS", type=seconds, default=5.0, help="that a check may take; default: 5"
    )
    doctor.add_argument("--json", action="store_true", help="print JSON")
    doctor.set_defaults(command=doctor_command)


def doctor_command(arguments: argparse.Namespace) -> int:
    """Run the checks and print their findings; return 1 if there is a problem."""
    from torchx_pulumi.doctor import DoctorClients, DoctorScope, examine, finding_values, to_lines
    from torchx_pulumi.doctor.machine import run_program
    from torchx_pulumi.kube import KubernetesCluster

    asked = DoctorScope(
        scheduler=arguments.scheduler,
        queue=arguments.queue,
        namespace=arguments.namespace,
        image_repo=arguments.image_repo,
    )
    connect = partial(KubernetesCluster.connect, arguments.kubeconfig, arguments.kube_context)
    # A program that hangs is ended before its check is given up.
    run = partial(run_program, timeout_s=arguments.timeout * 0.9)
    findings = examine(asked, DoctorClients(connect=connect, run=run), limit_s=arguments.timeout)
    values = finding_values(findings)
    text = json.dumps(values, indent=2) if arguments.json else "\n".join(to_lines(findings))
    sys.stdout.write(text + "\n")
    return 0 if values["ok"] else EXIT_PROBLEM


def seconds(text: str) -> float:
    """Read a number of seconds, more than 0 and at most an hour.

    Raises:
        argparse.ArgumentTypeError: It is not such a number.
    """
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 3600:
        raise argparse.ArgumentTypeError(f"is {text!r}, must be a number above 0 and at most 3600")
    return value
