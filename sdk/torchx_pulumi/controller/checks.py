"""Checks of a controller's options before it starts. All problems are reported at once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import timedelta

from torchx_pulumi.controller.archive_rules import ArchiveRules
from torchx_pulumi.controller.settings import ControllerSettings, RetentionSettings
from torchx_pulumi.kube import Cluster
from torchx_pulumi.kube.kinds import LEASE
from torchx_pulumi.log_archive import check_archive_url, open_archive
from torchx_pulumi.model.documentation import page
from torchx_pulumi.model.errors import BackendAbsentError, ClusterError, Problem, TorchxPulumiError
from torchx_pulumi.model.redaction import without_password
from torchx_pulumi.planning.names import is_dns_label, is_dns_subdomain
from torchx_pulumi.runs.whereabouts import Connect
from torchx_pulumi.schedulers.diagnosis.nodes import amount
from torchx_pulumi.schedulers.watching import forget_permissions
from torchx_pulumi.stack_state.backend import backend_folder
from torchx_pulumi.stack_state.stacks import check_there, open_stacks
from torchx_pulumi.storage.files import os_error_reason

WRITABLE = "file://, s3://, gs:// and azblob://"
"""Backends whose stacks are written without the engine."""

SMALLEST_LIMIT = 64 << 10
"""Fewest bytes of a log that may be asked for."""

AGE_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}

SHORTEST_AGE = timedelta(hours=1)
"""Shortest age: waits for the end of an app and the archiving of its logs are over long before that."""

ALLOWED_AGE = "a number with h, d or w, at least 1h, for example 12h or 30d"


def check_settings(
    settings: ControllerSettings, connect: Connect, *, pages: bool = False, further: Sequence[Problem] = ()
) -> dict[str, Cluster]:
    """Return the clusters to watch, by their names in messages.

    Args:
        settings: What is asked for.
        connect: Connects to a cluster. A request is sent only where apps are forgotten: whether that is permitted.
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
            if settings.retention is not None and not settings.retention.dry_run:
                problems += check_permissions(name, cluster, settings.namespaces)
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
    """Return what is wrong with the options of the log archives, and the limit in bytes.

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


def check_retention(
    after: str | None, failed_after: str | None, *, dry_run: bool, once: bool, archives: ArchiveRules | None = None
) -> tuple[list[Problem], RetentionSettings | None]:
    """Return the problems of the options, and the settings. None: no app is forgotten.

    Args:
        after: Value of `--forget-after`. None: it is not given.
        failed_after: Value of `--forget-failed-after`. None: it is not given.
        dry_run: `--dry-run` is given.
        once: `--once` is given.
        archives: Archives that the controller uses. None: it has none.
    """
    given = {"--forget-after": after, "--forget-failed-after": failed_after}
    ages = {option: read_age(text) for option, text in given.items() if text is not None}
    problems = [
        Problem(option, f"found {given[option]!r}, allowed is {ALLOWED_AGE}")
        for option, age in ages.items()
        if age is None
    ]
    if after is None:
        needs = {"--forget-failed-after": failed_after is not None, "--dry-run": dry_run}
        text = "it needs --forget-after; give an age, or leave this out"
        problems += [Problem(option, text) for option, is_given in needs.items() if is_given]
    if dry_run and not once:
        problems.append(Problem("--dry-run", "it shows what would be forgotten now, and ends; give --once with it"))
    age = ages.get("--forget-after")
    failed = ages.get("--forget-failed-after", None if age is None else 2 * age)
    if age is not None and failed is not None and failed < age:
        text = f"found {failed_after!r}, which is less than --forget-after {after}; failed apps stay at least as long"
        problems.append(Problem("--forget-failed-after", text))
    if problems or age is None or failed is None:
        return problems, None
    return [], RetentionSettings(after=age, failed_after=failed, dry_run=dry_run, archives=archives or ArchiveRules())


def read_age(text: str) -> timedelta | None:
    """Return an age. None: the text is not an age, or the age is too short.

    >>> read_age("36h"), read_age("30d"), read_age("30"), read_age("0d")
    (datetime.timedelta(days=1, seconds=43200), datetime.timedelta(days=30), None, None)
    """
    found = re.fullmatch(r"(\d{1,4})([hdw])", text, re.ASCII)
    age = None if found is None else int(found[1]) * AGE_UNITS[found[2]]
    return None if age is None or age < SHORTEST_AGE else age


def check_permissions(name: str, cluster: Cluster, namespaces: Sequence[str]) -> list[Problem]:
    """Return the permissions that forgetting lacks in a cluster. A cluster that does not answer has no problem.

    Args:
        name: What messages call the cluster.
        cluster: The cluster.
        namespaces: The watched namespaces. Empty: all.
    """
    missing: list[str] = []
    try:
        needed = [one for one in forget_permissions() if not one.kind.group or cluster.serves(one.kind)]
        for namespace in namespaces or (None,):
            where = f"in namespace {namespace}" if namespace else "in all namespaces"
            missing += [f"{one} {where}" for one in needed if not cluster.allowed(one.verb, one.kind, namespace)]
    except ClusterError:
        # What is forgotten is decided when it answers again; a verb that is missing is reported then.
        return []
    if not missing:
        return []
    text = f"no permission in {name} to {', to '.join(missing)}; {page('permissions')} has the rules"
    return [Problem("--forget-after", text)]


def check_lease(text: str | None, *, once: bool) -> tuple[list[Problem], tuple[str | None, str]]:
    """Return what is wrong with `--lease`, and namespace and name of the Lease; no namespace is the context's.

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
    """Return what is wrong with options as they were given: an empty text is a variable that is not set, not a default.

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
