"""Headers that identify the user of a request: credentials and impersonation.

Credentials are in a kubeconfig or a token file, or come from an `exec` plugin of it (EKS, GKE, AKS, OIDC): a program
that logs in and prints credentials. Impersonation is `as`, `as-uid`,
`as-groups` and `as-user-extra` of a kubeconfig's user.
"""

from __future__ import annotations

import atexit
import base64
import copy
import json
import math
import os
import shutil
import signal
import string
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from torchx_pulumi.kube.kubeconfig import Fields, contents_of
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.object_fields import at
from torchx_pulumi.model.redaction import secret_variables, without_credentials
from torchx_pulumi.model.text import printable
from torchx_pulumi.model.timestamps import parse_time

EXPIRES_EARLY_S = 10.0
"""A token of an `auth-provider` counts as expired this long before its expiry, because clocks differ."""

REPLACEMENTS = {
    "azure": "kubelogin (`kubelogin convert-kubeconfig`)",
    "gcp": "gke-gcloud-auth-plugin (`gcloud container clusters get-credentials`)",
}
"""Replacements of the providers that Kubernetes 1.26 removed."""

GROUP = "client.authentication.k8s.io"

VERSIONS = (f"{GROUP}/v1", f"{GROUP}/v1beta1")
"""Supported versions of the ExecCredential."""

MODES = ("Never", "IfAvailable", "Always")
"""Values of `interactiveMode`."""

CLUSTER_FIELDS = ("server", "tls-server-name", "insecure-skip-tls-verify", "proxy-url", "disable-compression")
"""Fields of the cluster that a plugin receives with `provideClusterInfo`, next to the authority and the extension."""

LIMIT_S = 60.0
"""Time limit of a plugin that is not interactive."""

INTERACTIVE_LIMIT_S = 300.0
"""Time limit of a plugin that may ask the user."""

RETRY_AFTER_S = 10.0
"""Time until a plugin runs again that returned the refused credentials a second time."""

SHOWN = 1000
"""Characters of a plugin's error output that an error repeats, from its end."""

_HEADER_NAME = f"{string.ascii_letters}{string.digits}!#$&'*+-.^_`|~"
"""Characters that are allowed in the name of a header. All others, and `%`, are written as `%XX`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """Credentials of one request."""

    authorization: str | None = field(default=None, repr=False)
    """Value of the header `Authorization`. None: the header is not sent."""
    certificate_and_key: bytes | None = field(default=None, repr=False)
    """Client certificate and key of a plugin as PEM. None: those of the kubeconfig, if it has them."""
    expires_at: float | None = field(default=None, compare=False)
    """Seconds since 1970. None: valid until the API server refuses them."""


CredentialSource = Callable[[Credentials | None], Credentials]
"""Returns the credentials to send, given those that the API server refused (None: none were); many threads may call it.

The same ones again: there are no others. It raises a ClusterError if there are no valid credentials.
"""


def credentials_of(cluster: Fields, user: Fields, where: str) -> CredentialSource:
    """Return the source of a user's credentials. As in client-go, the user's own fields take precedence over a plugin.

    Raises:
        ClusterError: The user needs a login method that is not supported.
    """
    if user.get("tokenFile"):
        # It is read for each request, because tokens are renewed in place.
        return lambda _: Credentials(authorization=_token_in(user["tokenFile"], where))
    own = Credentials()
    if user.get("token"):
        own = Credentials(authorization=_bearer(user["token"], "its token", where))
    elif user.get("username") and user.get("password"):
        pair = f"{user['username']}:{user['password']}".encode()
        own = Credentials(authorization=f"Basic {base64.b64encode(pair).decode()}")
    elif not (user.get("client-certificate") or user.get("client-certificate-data")):
        if user.get("exec"):
            return _plugin_credentials(user["exec"], cluster, where)
        if user.get("auth-provider"):
            return _oidc_credentials(user["auth-provider"], where)
    return lambda _: own


def _token_in(path: str, where: str) -> str:
    try:
        token = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error if isinstance(error, OSError) else f"{path!r} is not text in UTF-8"
        raise ClusterError(f"{where} cannot be used: its token file: {reason}") from None
    return _bearer(token, f"its token file {path!r}", where)


def _oidc_credentials(provider: Fields, where: str) -> CredentialSource:
    """Return the token of an `auth-provider`, which kubectl renews in the kubeconfig and this package does not."""
    name, config = provider.get("name"), provider.get("config") or {}
    if name != "oidc":
        instead = f": use {REPLACEMENTS[name]}" if name in REPLACEMENTS else ", use a plugin with `exec`"
        raise ClusterError(
            f"{where} cannot be used: its kubeconfig has the auth-provider {name!r}, which Kubernetes 1.26 "
            f"removed{instead}"
        )
    token = str(config.get("id-token") or "")
    # The payload of a JSON Web Token may state when it expires, in seconds since 1970.
    payload = f"{token}..".split(".")[1]
    try:
        expires_at = float(json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))["exp"])
    except (ValueError, TypeError, KeyError):
        expires_at = None

    def current(_: Credentials | None) -> Credentials:
        if expires_at is not None and time.time() + EXPIRES_EARLY_S < expires_at:
            return Credentials(authorization=f"Bearer {token}")
        problem = "has expired" if expires_at is not None else "is missing or cannot be read"
        raise ClusterError(
            f"{where} cannot be used: the id-token of its auth-provider 'oidc' {problem}; any command of "
            "kubectl renews it in the kubeconfig; or use the plugin kubelogin with `exec`, which needs no kubectl"
        )

    return current


def _is_header_value(token: str) -> bool:
    """Return whether a token consists of characters that a header can hold, without blanks."""
    return all(32 < ord(letter) < 127 for letter in token)


def _bearer(token: str, what: str, where: str) -> str:
    """Return the value of the header. Other tokens are refused here, because urllib3 would repeat them in its error."""
    if token and _is_header_value(token):
        return f"Bearer {token}"
    problem = "has blanks, line breaks or other characters that no request can hold" if token else "is empty"
    raise ClusterError(f"{where} cannot be used: {what} {problem}")


def impersonation(user: Fields, where: str) -> list[tuple[str, str]]:
    """Return the impersonation headers of a kubeconfig's user; without any, requests are the authenticated user's.

    A name may occur several times.

    Raises:
        ClusterError: Groups without a user, or a value that no header can hold.
    """
    found = [("Impersonate-User", user.get("as") or None), ("Impersonate-Uid", user.get("as-uid") or None)]
    # The API server reads two names in one header as one group.
    found += [("Impersonate-Group", group) for group in user.get("as-groups") or ()]
    for key, values in (user.get("as-user-extra") or {}).items():
        found += [(f"Impersonate-Extra-{quote(str(key), safe=_HEADER_NAME)}", value) for value in values or ()]
    headers = [(name, value) for name, value in found if value is not None]
    if headers and not user.get("as"):
        raise ClusterError(
            f"{where} cannot be used: its kubeconfig has as-uid, as-groups or as-user-extra without `as`, "
            "which names the user to act for; add it, or remove the others"
        )
    for name, value in headers:
        if any(ord(letter) < 32 or ord(letter) == 127 for letter in value):
            raise ClusterError(
                f"{where} cannot be used: the value of {name} in its kubeconfig has a control character; "
                "write it as one line of text"
            )
    # A header holds bytes, which Python writes as Latin-1. The API server reads them as UTF-8.
    return [(name, value.encode().decode("latin-1")) for name, value in headers]


class ExecPlugin:
    """One program with its arguments. One thread runs it at a time; all threads use the result.

    Input, accepted output and caching follow client-go (`client-go/plugin/pkg/client/auth/exec`). Unlike client-go, a
    program that exceeds its time limit is ended. The text of a raised ClusterError completes a sentence that begins
    with the cluster: the clusters of several contexts may have one plugin.
    """

    def __init__(self, config: Fields, cluster: Fields) -> None:
        """Check the configuration, the field `exec` of a user. The program is not run.

        Raises:
            ClusterError: All problems of the configuration.
        """
        self._version = str(config.get("apiVersion"))
        self._command = str(config.get("command") or "")
        self._mode = config.get("interactiveMode") or ("IfAvailable" if self._version.endswith("beta1") else None)
        problems = list(_plugin_problems(config, self._version, self._mode))
        if problems:
            raise ClusterError(f"its kubeconfig's `exec` {'; '.join(problems)}", reason="Unauthorized")
        self._arguments = [str(argument) for argument in config.get("args") or ()]
        self._environment = {str(pair["name"]): str(pair.get("value") or "") for pair in config.get("env") or ()}
        self._hint = printable(str(config.get("installHint") or "")).strip()
        self._cluster = cluster if config.get("provideClusterInfo") else None
        self._lock = threading.Lock()
        self._kept: Credentials | None = None
        self._runs = 0
        """Number of runs, by which a thread knows that another one ran the program while it waited."""
        self._failure: ClusterError | None = None
        self._repeated_s = -math.inf
        """When the last run returned what had been refused. Before the start of the clock: it did not."""

    def credentials(self, refused: Credentials | None = None) -> Credentials:
        """Return the credentials of the last run. Run the program if there are none, or they expired or were refused.

        Args:
            refused: Credentials that the API server refused. None: there are none.

        Raises:
            ClusterError: The program is missing or failed, or its output is not an ExecCredential.
        """
        runs = self._runs
        with self._lock:
            kept = self._kept
            if kept is not None and (kept.expires_at is None or time.time() < kept.expires_at):
                repeated = time.monotonic() - self._repeated_s < RETRY_AFTER_S
                if kept != refused or repeated:
                    return kept
            if self._failure is not None and self._runs != runs:
                # The run of another thread failed while this one waited.
                raise copy.copy(self._failure)
            self._failure = None
            try:
                kept = self._kept = self._run()
            except ClusterError as error:
                self._failure = error
                raise
            finally:
                self._runs += 1
            self._repeated_s = time.monotonic() if kept == refused else -math.inf
            return kept

    def _run(self) -> Credentials:
        program = shutil.which(self._command)
        if program is None:
            hint = f": {self._hint}" if self._hint else "; install it, or put its folder on PATH"
            raise self._problem(f"is not there{hint}")
        interactive = sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()
        if self._mode == "Always" and not interactive:
            raise self._problem(
                "wants to talk to the user (interactiveMode Always), and standard input is no terminal; "
                "run this in a terminal, or use credentials for machines"
            )
        interactive = interactive and self._mode != "Never"
        spec: dict[str, Any] = {"interactive": interactive}
        if self._cluster is not None:
            spec["cluster"] = _cluster_info(self._cluster)
        told = json.dumps({"apiVersion": self._version, "kind": "ExecCredential", "spec": spec})
        environment = {**os.environ, **self._environment, "KUBERNETES_EXEC_INFO": told}
        output, code, errors = self._outcome([program, *self._arguments], environment, interactive)
        if code:
            errors = without_credentials(errors, secret_variables(environment))
            ended = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
            shown = f": {errors[-SHOWN:]}" if errors else "; see its output above" if interactive else ""
            raise self._problem(f"{ended}{shown}", retryable=True)
        return self._read(output)

    def _outcome(self, command: list[str], environment: dict[str, str], interactive: bool) -> tuple[bytes, int, str]:
        """Run the program. Return its output, its exit code, and its error output if the user has not seen it."""
        limit_s = INTERACTIVE_LIMIT_S if interactive else LIMIT_S
        try:
            with _running(
                command,
                env=environment,
                stdin=None if interactive else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=None if interactive else subprocess.PIPE,
                # Only the foreground process group may read from a terminal.
                start_new_session=not interactive,
            ) as process:
                output, errors = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            late = f"did not answer in {limit_s:g} s; run it by hand to see what it waits for"
            raise self._problem(late, retryable=True) from None
        except (OSError, ValueError) as error:
            # Python raises ValueError for an argument with a NUL.
            raise self._problem(f"cannot be started: {getattr(error, 'strerror', None) or error}") from None
        return output, process.returncode, printable((errors or b"").decode("utf-8", "replace")).strip()

    def _read(self, output: bytes) -> Credentials:
        """Read the output of the program. No message repeats it."""
        try:
            answer = json.loads(output)
        except ValueError:
            answer = None
        if at(answer, "kind") != "ExecCredential":
            raise self._problem("answered without an ExecCredential; run it by hand to see its output")
        if at(answer, "apiVersion") != self._version:
            raise self._problem(
                f"answered in apiVersion {at(answer, 'apiVersion')!r}; the kubeconfig wants {self._version!r}"
            )
        token, certificate, key = (
            str(at(answer, "status", name) or "") for name in ("token", "clientCertificateData", "clientKeyData")
        )
        if bool(certificate) != bool(key):
            raise self._problem("answered with a certificate or a key alone; both are needed")
        if not token and not certificate:
            raise self._problem("answered without credentials: status needs a token, or a certificate and its key")
        if not _is_header_value(token):
            raise self._problem("answered with a token that no request can hold")
        stated = at(answer, "status", "expirationTimestamp")
        expires_at = None if stated is None else parse_time(stated)
        if stated is not None and expires_at is None:
            raise self._problem(
                f"answered with the expirationTimestamp {str(stated)[:40]!r}, which is not a time as in RFC 3339"
            )
        return Credentials(
            authorization=f"Bearer {token}" if token else None,
            certificate_and_key=f"{certificate}\n{key}".encode() if certificate else None,
            expires_at=expires_at.timestamp() if expires_at else None,
        )

    def _problem(self, text: str, *, retryable: bool = False) -> ClusterError:
        return ClusterError(
            f"the plugin {self._command!r} of its kubeconfig {text}",
            retryable=retryable,
            reason="Unreachable" if retryable else "Unauthorized",
        )


_plugins: dict[str, ExecPlugin] = {}
"""Plugins by their configuration, so that a program runs once for all contexts that have the same one."""


def _plugin_credentials(config: Fields, cluster: Fields, where: str) -> CredentialSource:
    """Return the source of a plugin's credentials. They are kept until they expire or are refused."""
    shared = cluster if config.get("provideClusterInfo") else None
    # A forked process has its own plugin, because its copy of the lock may be held.
    key = json.dumps([os.getpid(), config, shared], sort_keys=True, default=str)

    def current(refused: Credentials | None) -> Credentials:
        try:
            plugin = _plugins.get(key) or _plugins.setdefault(key, ExecPlugin(config, cluster))
            return plugin.credentials(refused)
        except ClusterError as error:
            raise ClusterError(
                f"{where} cannot be used: {error}", retryable=error.retryable, reason=error.reason
            ) from None

    return current


def _plugin_problems(config: Fields, version: str, mode: Any) -> Iterator[str]:
    """Yield the problems of a field `exec` of a user, given its `apiVersion` and effective `interactiveMode`."""
    arguments, variables = config.get("args") or [], config.get("env") or []
    if not config.get("command"):
        yield "names no command"
    if version not in VERSIONS:
        yield f"has apiVersion {config.get('apiVersion')!r}, must be {' or '.join(VERSIONS)}"
    elif mode not in MODES:
        yield f"has interactiveMode {mode!r}, must be {', '.join(MODES)}"
    if not isinstance(arguments, list):
        yield "has args that is not a list"
    if not isinstance(variables, list):
        yield "has env that is not a list"
    elif not all(isinstance(pair, Mapping) and pair.get("name") for pair in variables):
        yield "has a variable without a name in env"


def _cluster_info(cluster: Fields) -> dict[str, Any]:
    info = {name: cluster[name] for name in CLUSTER_FIELDS if cluster.get(name)}
    try:
        authority = contents_of(cluster, "certificate-authority")
    except OSError as error:
        raise ClusterError(f"its certificates: {error}", reason="Unauthorized") from error
    if authority:
        info["certificate-authority-data"] = base64.b64encode(authority).decode()
    for extension in cluster.get("extensions") or ():
        if at(extension, "name") == f"{GROUP}/exec":
            info["config"] = extension.get("extension")
    return info


@contextmanager
def _running(command: list[str], *, start_new_session: bool, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program that ends with this process at the latest; in a session of its own, with its children."""
    owner, starting = os.getpid(), threading.Lock()
    process: subprocess.Popen[bytes] | None = None

    def end() -> None:
        # A forked process does not own it, and has a copy of a lock that another thread may hold.
        if os.getpid() != owner:
            return
        # While it is started, it is not known yet.
        with starting, suppress(ProcessLookupError):
            if process is not None and process.poll() is None:
                kill = partial(os.killpg, process.pid) if start_new_session else process.send_signal
                kill(signal.SIGKILL)

    atexit.register(end)
    try:
        with starting:
            process = subprocess.Popen(command, start_new_session=start_new_session, **options)
        with process:
            try:
                yield process
            finally:
                end()
    finally:
        atexit.unregister(end)
