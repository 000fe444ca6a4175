"""Checks of a controller's options before it starts. All problems are reported at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torchx_pulumi.kube import Cluster
from torchx_pulumi.kube.kinds import LEASE
from torchx_pulumi.logs.archives import check_archive_url
from torchx_pulumi.model.documentation import page
from torchx_pulumi.model.errors import BackendAbsentError, ClusterError, Problem, TorchxPulumiError
from torchx_pulumi.model.object_schemes import URLS
from torchx_pulumi.model.redaction import without_password
from torchx_pulumi.model.text import in_words
from torchx_pulumi.planning.names import is_dns_label, is_dns_subdomain
from torchx_pulumi.runs.whereabouts import Connect
from torchx_pulumi.schedulers.diagnosis.nodes import amount
from torchx_pulumi.stack_state.backend import FILE_SCHEME, backend_folder
from torchx_pulumi.stack_state.stacks import check_there, open_stacks
from torchx_pulumi.storage.files import os_error_reason

from torchx_pulumi_fleet.archive import open_archive
from torchx_pulumi_fleet.archive.archive_rules import ArchiveRules
from torchx_pulumi_fleet.writer.settings import ControllerSettings

WRITABLE = in_words((FILE_SCHEME, *URLS), "and")
"""Backends whose stacks are written without the engine."""

SMALLEST_LIMIT = 64 << 10
"""Fewest bytes of a log that may be asked for."""


def check_settings(
    settings: ControllerSettings, connect: Connect, *, pages: bool = False, further: Sequence[Problem] = ()
) -> dict[str, Cluster]:
    """Return the clusters to watch, by their names in messages.

    Args:
        settings: What is asked for.
        connect: Connects to a cluster. No request is sent.
        pages: Pages are served, which show also the apps of stacks that cannot be written.
        further: Problems of what is checked elsewhere.

    Raises:
        TorchxPulumiError: There are problems.
    """
    problems = [*further, *_check_backends(settings.backends, pages=pages)]
    clusters: dict[str, Cluster] = {}
    for context in settings.contexts or (None,):
        option = "--context" if context else "kubeconfig"
        try:
            cluster = connect(settings.kubeconfig, context)
            name = f"context {context}" if context else cluster.api_server
            clusters[name] = cluster
        except ClusterError as error:
            problems.append(Problem(option, str(error)))
    if problems:
        raise _refusal(problems)
    return clusters


def _refusal(problems: Sequence[Problem]) -> TorchxPulumiError:
    lines = "\n".join(f"  - {problem}" for problem in problems)
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    return TorchxPulumiError(f"the controller cannot start: {count}:\n{lines}")


def check_archives(rules: ArchiveRules, limit: str, *, pages: bool) -> tuple[list[Problem], int]:
    """Check the options of the log archives; return the problems, and the limit in bytes.

    Args:
        rules: Which archives are used.
        limit: Most bytes of one log, as a Kubernetes quantity.
        pages: Pages are served.
    """
    problems: list[Problem] = []
    own = [] if rules.own is None else [("--log-archive", rules.own)]
    for option, url in (*own, *(("--archive-allow", url) for url in rules.allowed)):
        wrong = check_archive_url(url, option)
        try:
            if not wrong:
                open_archive(url).check_writable()
        except OSError as error:
            why = os_error_reason(error, "name another archive")
            wrong = [Problem(option, f"{without_password(url)} cannot be written: {why}")]
        problems += wrong
    if rules.secret_pods and rules.own is None and not pages:
        text = (
            "there is neither --log-archive nor --listen; name one, or leave this out: an archive of --archive-allow "
            "has these logs anyway"
        )
        problems.append(Problem("--archive-secret-pods", text))
    limit_bytes = int(amount(limit.removesuffix("B")))
    if limit_bytes < SMALLEST_LIMIT:
        text = f"found {limit!r}, allowed is 64Ki or more, for example 64Mi or 1G"
        problems.append(Problem("--archive-limit", text))
    return problems, limit_bytes


def check_lease(text: str | None, *, once: bool) -> tuple[list[Problem], tuple[str | None, str]]:
    """Check `--lease`; return the problems, and namespace and name of the Lease; no namespace is the context's.

    Args:
        text: The option. None: it is not given.
        once: The controller ends by itself.

    >>> check_lease("ops/controller", once=False)
    ([], ('ops', 'controller'))
    """
    if text is None:
        return [], (None, "")
    namespace, slash, name = text.rpartition("/")
    problems = []
    if not is_dns_subdomain(name) or (slash and not is_dns_label(namespace)):
        why = "allowed is [NAMESPACE/]NAME of lower-case letters, digits and '-', for example torchx-controller"
        problems.append(Problem("--lease", f"found {text!r}, {why}"))
    if once:
        why = "--once writes what is missing and ends, and does not wait for a Lease; leave one of them out"
        problems.append(Problem("--lease", why))
    return problems, (namespace or None, name)


def check_lease_access(cluster: Cluster, namespace: str, name: str) -> None:
    """Check that a Lease can be read; a cluster that does not answer may do so later.

    Raises:
        TorchxPulumiError: It cannot.
    """
    try:
        cluster.get(LEASE, namespace, name)
    except ClusterError as error:
        if not error.retryable:
            needs = "get, update and create on leases.coordination.k8s.io in that namespace"
            raise _refusal([Problem(f"--lease {namespace}/{name}", f"{error}; it needs {needs}")]) from error


def different_backends(urls: Iterable[str]) -> tuple[str, ...]:
    """Return each backend once, by its first URL: two trackers of one folder would take each other for other writers.

    >>> different_backends(["file:///srv/state", "file:///srv/./state/", "s3://bucket/", "s3://bucket"])
    ('file:///srv/state', 's3://bucket/')
    """
    found: dict[str, str] = {}
    for url in urls:
        folder = backend_folder(url)
        found.setdefault(url.rstrip("/") if folder is None else str(folder.resolve()), url)
    return tuple(found.values())


def check_words(
    backends: Sequence[str], contexts: Sequence[str], namespaces: Sequence[str], kubeconfig: str | None
) -> list[Problem]:
    """Return the problems of options as they were given: an empty text is a variable that is not set, not a default.

    Args:
        backends: Values of `--backend`.
        contexts: Values of `--context`.
        namespaces: Values of `--namespace`.
        kubeconfig: Value of `--kubeconfig`. None: it is not given.
    """
    given = {"--backend": backends, "--context": contexts, "--kubeconfig": () if kubeconfig is None else (kubeconfig,)}
    empty = [option for option, values in given.items() if not all(value.strip() for value in values)]
    problems = [Problem(option, "is empty; give a value, or leave the option out for the default") for option in empty]
    text = "found {!r}, allowed are lower-case letters, digits and '-', at most 63; leave the option out for all"
    return problems + [Problem("--namespace", text.format(name)) for name in namespaces if not is_dns_label(name)]


def _check_backends(backends: Sequence[str], *, pages: bool) -> list[Problem]:
    """Return the problems of backends. If one answers, those that are away are left out and asked again later."""
    problems: list[Problem] = []
    away: list[Problem] = []
    for backend in backends:
        option = f"--backend {without_password(backend)}"
        try:
            stacks = open_stacks(backend)
        except TorchxPulumiError as error:
            problems.append(Problem(option, str(error)))
            continue
        if stacks.only_cli_writes and (stacks.notice or not pages):
            # Those with a notice can be written as soon as its advice is followed.
            advice = (
                "the controller cannot write its stacks, which only the Pulumi CLI can; give --listen [HOST:]PORT, and "
                f"page, API and metrics show how their jobs stand now ({page('live-state')}); or name a backend that "
                f"it writes: {WRITABLE}"
            )
            problems.append(Problem(option, stacks.notice or advice))
            continue
        try:
            if not stacks.versions(None):
                check_there(backend)
        except TorchxPulumiError as error:
            # It may answer later: its folder is not mounted, or its store does not answer.
            cause = error.__cause__
            unreachable = isinstance(cause, OSError) and not isinstance(cause, PermissionError)
            is_away = unreachable or isinstance(error, BackendAbsentError) or stacks.only_cli_writes
            (away if is_away else problems).append(Problem(option, str(error)))
    return problems + (away if len(problems) + len(away) == len(backends) else [])
