"""Checks before a controller starts, and the clusters that it watches. All problems are reported at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torchx_pulumi.controller.settings import ControllerSettings
from torchx_pulumi.kube import LiveCluster
from torchx_pulumi.model.errors import ClusterError, Problem, TorchxPulumiError
from torchx_pulumi.model.redaction import without_password
from torchx_pulumi.runs.whereabouts import Connect
from torchx_pulumi.stack_state.backend import backend_folder
from torchx_pulumi.stack_state.folder_stack import check_there
from torchx_pulumi.stack_state.stacks import CliStacks, Stacks, open_stacks

WRITABLE = "file://, s3://, gs:// and azblob://"
"""Backends whose stacks are written without the engine."""


def check_settings(
    settings: ControllerSettings,
    connect: Connect,
    *,
    opened: Callable[[str], Stacks] = open_stacks,
    further: Sequence[Problem] = (),
) -> dict[str, LiveCluster]:
    """Return the clusters to watch, by their names in messages.

    Args:
        settings: What is asked for.
        connect: Connects to a cluster; no request is sent.
        opened: Returns the stacks of a backend.
        further: Problems of what is checked elsewhere.

    Raises:
        TorchxPulumiError: There are problems.
    """
    problems = list(further)
    for backend in settings.backends:
        problems += _check_backend(backend, opened)
    clusters: dict[str, LiveCluster] = {}
    for context in settings.contexts or (None,):
        option = "--context" if context else "kubeconfig"
        try:
            cluster = connect(settings.kubeconfig, context)
            clusters[f"context {context}" if context else cluster.api_server] = cluster
        except ClusterError as error:
            problems.append(Problem(option, str(error)))
    if problems:
        lines = "\n".join(f"  - {problem}" for problem in problems)
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        raise TorchxPulumiError(f"the controller cannot start: {count}:\n{lines}")
    return clusters


def _check_backend(backend: str, opened: Callable[[str], Stacks]) -> list[Problem]:
    option = f"--backend {without_password(backend)}"
    try:
        stacks = opened(backend)
        if isinstance(stacks, CliStacks):
            why = stacks.notice or "its stacks are written by the Pulumi CLI only"
            return [Problem(option, f"{why}; allowed are {WRITABLE}: name one of them, or do without a controller")]
        folder = backend_folder(backend)
        if not stacks.versions(None) and folder is not None:
            check_there(folder, backend)
    except TorchxPulumiError as error:
        return [Problem(option, str(error))]
    return []
