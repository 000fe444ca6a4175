"""The demo from beginning to end, and what becomes of it when something fails."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.status import JobState, JobStatus

from tools.bootstrap import pulumi_environment
from tools.demo.errors import DemoError
from tools.demo.pulumi_cli import ROOT, PulumiCli
from tools.demo.target import SCRIPT, Job, Target
from tools.demo.telling import say, show
from tools.demo.watching import Watch, describe

QUIET: Final = ("--suppress-progress", "--suppress-outputs")
"""Flags of all commands that change something: the outputs are shown once, by themselves."""

RESOURCES: Final = ("--cpu", "1", "--memMB", "2000", "--env", "OMP_NUM_THREADS=1")
"""Two replicas of this fit on a node of two cores, since a part of each is left to the node; a thread for each rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What the user chose."""

    keep: bool = False
    """Leave everything running."""
    processes: int = 2
    """Ranks in each of the two replicas."""
    timeout_s: float = 600
    """How long the job may take."""


def demo_folder() -> Path:
    """Return the folder of the demo's project and state."""
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser().absolute() / "torchx-pulumi" / "demo"


@contextmanager
def alone() -> Iterator[None]:
    """Keep other demos of this user away: they have the same cluster and the same stack.

    Raises:
        DemoError: Another one is running.
    """
    folder = demo_folder().parent
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (folder / "demo.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DemoError("another demo of yours is running; wait for its end") from None
        yield


def run(find_target: Callable[[], Target], wishes: Wishes) -> None:
    """Preview, launch, follow, report, destroy.

    Raises:
        DemoError: The job or a step failed; it has been cleaned up.
    """
    target = find_target()
    pulumi = PulumiCli(demo_folder(), pulumi_environment(), target.kubeconfig)
    if pulumi.exists:
        say("an earlier demo was left running: clearing it first")
        clear(pulumi)
    ended: list[str] = []
    with cleaned_up(pulumi, target, keep=wishes.keep):
        for job in target.jobs:
            job.prepare()
            status = launch_and_follow(pulumi.of(job.stack), target, wishes, job, shows_outputs=not ended)
            ended.append(f"{job.scheduler} {status.state.value}")
    if wishes.keep:
        explain_how_to_look(pulumi, target)
    left = "stacks and cluster are left running" if wishes.keep else "nothing is left running"
    say(f"passed: {', '.join(ended)}; {left}")


def launch_and_follow(pulumi: PulumiCli, target: Target, wishes: Wishes, job: Job, *, shows_outputs: bool) -> JobStatus:
    """Run a job through the stack program, show what happens, and return how it ended.

    Raises:
        DemoError: The job did not succeed, or a step failed.
    """
    arguments = ["-j", f"2x{wishes.processes}", "--script", SCRIPT, "--image", target.image, *RESOURCES]
    component = torch_component()
    say(f"the job, on {job.scheduler}: torchx component {component} {' '.join(arguments)}")
    pulumi.create(
        {
            "component": component,
            "arguments": arguments,
            "scheduler": job.scheduler,
            "options": dict(job.options),
            "createNamespace": target.create_namespace,
        }
    )
    pulumi.run("preview", *QUIET)
    pulumi.run("up", "--yes", "--skip-preview", *QUIET)
    app = pulumi.outputs()["torchx"]["app"]
    kubeconfig = str(target.kubeconfig) if target.kubeconfig else None
    namespace, _, job_name = str(app["id"]).partition(":")
    watch = Watch(KubernetesCluster.connect(kubeconfig), job.scheduler, namespace, job_name)
    try:
        status = watch.until_done(wishes.timeout_s)
    except BaseException:
        try_to(lambda: describe(watch.status()), "the job's status")
        raise
    describe(status)
    pulumi.run("refresh", "--yes", "--skip-preview", "--run-program", *QUIET)
    if shows_outputs:
        say("$ pulumi stack output --json")
        show(json.dumps(pulumi.outputs(), indent=2))
    if status.state is not JobState.SUCCEEDED:
        raise DemoError(f"the job ended {status.state.value} ({status.reason.value}): {status.message}")
    return status


def torch_component() -> str:
    """Return TorchX's component for PyTorch: `dist.torchrun`, which TorchX 0.7.0 calls `dist.ddp`."""
    from torchx.components import dist

    return "dist.torchrun" if hasattr(dist, "torchrun") else "dist.ddp"


@contextmanager
def cleaned_up(pulumi: PulumiCli, target: Target, *, keep: bool) -> Iterator[None]:
    """Clean up at the end, and always after a failure."""
    try:
        yield
    except BaseException as error:
        say("interrupted: cleaning up" if isinstance(error, KeyboardInterrupt) else "failed: cleaning up")
        try_to(lambda: clear(pulumi), "the stack")
        try_to(target.down, "the cluster")
        raise
    if not keep:
        clear(pulumi)
        target.down()


def clear(pulumi: PulumiCli) -> None:
    """Destroy what the stacks made, all at the same time, and forget the stacks.

    Raises:
        DemoError: A stack could not be destroyed; the others are.
    """
    with ThreadPoolExecutor() as pool:
        cleared = [pool.submit(clear_stack, stack) for stack in pulumi.stacks()]
    for each in cleared:
        each.result()
    shutil.rmtree(pulumi.folder, ignore_errors=True)


def clear_stack(stack: PulumiCli) -> None:
    """Destroy what a stack made, and forget the stack.

    Raises:
        DemoError: A command failed.
    """
    try_to(partial(stack.run, "cancel", "--yes", quiet=True), None)
    stack.run("destroy", "--yes", "--skip-preview", *QUIET)
    stack.run("stack", "rm", "--yes", quiet=True)


def try_to(act: Callable[[], Any], what: str | None) -> None:
    """Do something on the way out of a failure; say what went wrong and go on."""
    try:
        act()
    except (DemoError, ClusterError, OSError, LookupError) as error:
        if what is not None:
            say(f"{what} could not be cleaned up or read: {error}")


def explain_how_to_look(pulumi: PulumiCli, target: Target) -> None:
    """Say what can be done with a demo that was left running."""
    run = (
        f"torchx run -s pulumi_volcano -cfg queue=default --workspace '' utils.echo --image {target.image} --msg hello"
    )
    show(
        f"""
The stacks and their cluster are left as they are. To look around, in a shell:

  source {pulumi.folder}/env.sh            # kubeconfig, Pulumi, torchx, and the project as the current folder
  pulumi stack ls                          # the stacks, one a job
  pulumi stack output --json               # what a dashboard reads
  pulumi up                                # no change: the job keeps its uid and is not run again
  pulumi config set rerun 2 && pulumi up   # runs the job again, on purpose
  kubectl get vcjob,appwrapper,pod -A      # if you have kubectl
  {run}

Image that its pods can pull: {target.image}

To stop: cd {ROOT} && make demo ARGS=--stop
"""
    )


def stop(kubeconfig: Path | None, down: Callable[[], Any]) -> None:
    """End a demo that was left running.

    Raises:
        DemoError: Its stack could not be destroyed.
    """
    pulumi = PulumiCli(demo_folder(), pulumi_environment(), kubeconfig)
    if pulumi.exists:
        clear(pulumi)
    down()
    say("stopped; nothing is left running")
