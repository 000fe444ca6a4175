"""The `exec` plugins of kubeconfigs (EKS, GKE, AKS, OIDC): programs that log in and print credentials.

Input, accepted output and caching follow client-go (`client-go/plugin/pkg/client/auth/exec`). Unlike client-go, this
module stops a program that exceeds its time limit.
"""

from __future__ import annotations

import atexit
import base64
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from torchx_pulumi.kube.credentials import Credentials, CredentialSource, is_header_value
from torchx_pulumi.kube.kubeconfig import contents_of
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.redaction import secret_variables, without_credentials
from torchx_pulumi.model.text import printable
from torchx_pulumi.model.timestamps import parse_time

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


class PluginError(Exception):
    """A plugin cannot be used. The text completes a sentence that begins with the cluster."""

    def __init__(self, text: str, *, retryable: bool = False) -> None:
        self.retryable = retryable
        super().__init__(text)


class ExecPlugin:
    """One program with its arguments. One thread runs it at a time; all threads use the result."""

    def __init__(self, config: Mapping[str, Any], cluster: Mapping[str, Any], *, limit_s: float = LIMIT_S) -> None:
        """Check the configuration. The program is not run.

        Args:
            config: The field `exec` of a user.
            cluster: The cluster of that kubeconfig.
            limit_s: Time limit of a run that is not interactive.

        Raises:
            PluginError: All problems of the configuration.
        """
        self._limit_s = limit_s
        self._version = str(config.get("apiVersion"))
        self._command = str(config.get("command") or "")
        self._mode = config.get("interactiveMode") or ("IfAvailable" if self._version.endswith("beta1") else None)
        problems = list(_problems(config, self._version, self._mode))
        if problems:
            raise PluginError(f"its kubeconfig's `exec` {'; '.join(problems)}")
        self._arguments = [str(argument) for argument in config.get("args") or ()]
        self._environment = {str(pair["name"]): str(pair.get("value") or "") for pair in config.get("env") or ()}
        self._hint = printable(str(config.get("installHint") or "")).strip()
        self._cluster = cluster if config.get("provideClusterInfo") else None
        self._lock = threading.Lock()
        self._kept: Credentials | None = None
        self._runs = 0
        """Number of runs, by which a thread knows that another one ran the program while it waited."""
        self._failure: PluginError | None = None
        self._repeated_s = -math.inf
        """When the last run returned what had been refused. Before the start of the clock: it did not."""

    def credentials(self, refused: Credentials | None = None) -> Credentials:
        """Return the credentials of the last run. Run the program if there are none, or they expired or were refused.

        Args:
            refused: What the API server refused. None: nothing.

        Raises:
            PluginError: The program is missing or failed, or its output is not an ExecCredential.
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
                raise PluginError(str(self._failure), retryable=self._failure.retryable)
            self._failure = None
            try:
                kept = self._kept = self._run()
            except PluginError as error:
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
        interactive = self._is_interactive()
        environment = {**os.environ, **self._environment, "KUBERNETES_EXEC_INFO": self._exec_info(interactive)}
        output, code, errors = self._outcome([program, *self._arguments], environment, interactive)
        if code:
            errors = without_credentials(errors, secret_variables(environment))
            ended = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
            shown = f": {errors[-SHOWN:]}" if errors else "; see its output above" if interactive else ""
            raise self._problem(f"{ended}{shown}", retryable=True)
        return self._read(output)

    def _outcome(self, command: list[str], environment: dict[str, str], interactive: bool) -> tuple[bytes, int, str]:
        """Run the program. Return its output, its exit code, and its error output if the user has not seen it."""
        limit_s = INTERACTIVE_LIMIT_S if interactive else self._limit_s
        try:
            with subprocess.Popen(
                command,
                env=environment,
                stdin=None if interactive else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=None if interactive else subprocess.PIPE,
                # Only the foreground process group may read from a terminal.
                start_new_session=not interactive,
            ) as process:
                end = partial(_end, process, os.getpid(), with_children=not interactive)
                # It ends with this process at the latest.
                atexit.register(end)
                try:
                    output, errors = process.communicate(timeout=limit_s)
                finally:
                    atexit.unregister(end)
                    end()
        except subprocess.TimeoutExpired:
            late = f"did not answer in {limit_s:g} s; run it by hand to see what it waits for"
            raise self._problem(late, retryable=True) from None
        except (OSError, ValueError) as error:
            # Python raises ValueError for an argument with a NUL.
            raise self._problem(f"cannot be started: {getattr(error, 'strerror', None) or error}") from None
        return output, process.returncode, printable((errors or b"").decode("utf-8", "replace")).strip()

    def _is_interactive(self) -> bool:
        terminal = sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()
        if self._mode == "Always" and not terminal:
            raise self._problem(
                "wants to talk to the user (interactiveMode Always), and standard input is no terminal; "
                "run this in a terminal, or use credentials for machines"
            )
        return terminal and self._mode != "Never"

    def _exec_info(self, interactive: bool) -> str:
        """Return the value of the variable KUBERNETES_EXEC_INFO."""
        spec: dict[str, Any] = {"interactive": interactive}
        if self._cluster is not None:
            spec["cluster"] = _cluster_info(self._cluster)
        return json.dumps({"apiVersion": self._version, "kind": "ExecCredential", "spec": spec})

    def _read(self, output: bytes) -> Credentials:
        """Read the output of the program. No message repeats it."""
        try:
            answer = json.loads(output)
        except ValueError:
            answer = None
        if not isinstance(answer, dict) or answer.get("kind") != "ExecCredential":
            raise self._problem("answered without an ExecCredential; run it by hand to see its output")
        if answer.get("apiVersion") != self._version:
            raise self._problem(
                f"answered in apiVersion {answer.get('apiVersion')!r}; the kubeconfig wants {self._version!r}"
            )
        status = answer.get("status")
        status = status if isinstance(status, dict) else {}
        token, certificate, key = (
            str(status.get(name) or "") for name in ("token", "clientCertificateData", "clientKeyData")
        )
        if bool(certificate) != bool(key):
            raise self._problem("answered with a certificate or a key alone; both are needed")
        if not token and not certificate:
            raise self._problem("answered without credentials: status needs a token, or a certificate and its key")
        if not is_header_value(token):
            raise self._problem("answered with a token that no request can hold")
        stated = status.get("expirationTimestamp")
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

    def _problem(self, text: str, *, retryable: bool = False) -> PluginError:
        return PluginError(f"the plugin {self._command!r} of its kubeconfig {text}", retryable=retryable)


_plugins: dict[str, ExecPlugin] = {}
"""Plugins by their configuration, so that a program runs once for all contexts that have the same one."""


def plugin_credentials(config: Mapping[str, Any], cluster: Mapping[str, Any], where: str) -> CredentialSource:
    """Return the source of a plugin's credentials. They are kept until they expire or are refused.

    Args:
        config: The field `exec` of a user.
        cluster: The cluster of that kubeconfig.
        where: Name of the cluster in messages.

    Raises:
        ClusterError: All problems of the configuration.
    """
    shared = cluster if config.get("provideClusterInfo") else None
    # A forked process has its own plugin, because its copy of the lock may be held.
    key = json.dumps([os.getpid(), config, shared], sort_keys=True, default=str)

    def current(refused: Credentials | None) -> Credentials:
        try:
            return _plugins[key].credentials(refused)
        except PluginError as error:
            raise _cluster_error(error, where) from None

    try:
        if key not in _plugins:
            _plugins.setdefault(key, ExecPlugin(config, cluster))
    except PluginError as error:
        raise _cluster_error(error, where) from None
    return current


def _cluster_error(error: PluginError, where: str) -> ClusterError:
    reason = "Unreachable" if error.retryable else "Unauthorized"
    return ClusterError(f"{where} cannot be used: {error}", retryable=error.retryable, reason=reason)


def _problems(config: Mapping[str, Any], version: str, mode: Any) -> Iterator[str]:
    """Yield the problems of a field `exec` of a user, given its `apiVersion` and effective `interactiveMode`."""
    command, arguments, variables = config.get("command"), config.get("args") or [], config.get("env") or []
    if not command:
        yield "names no command"
    elif not isinstance(command, str):
        yield "has a command that is not a text"
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


def _cluster_info(cluster: Mapping[str, Any]) -> dict[str, Any]:
    info = {name: cluster[name] for name in CLUSTER_FIELDS if cluster.get(name)}
    try:
        authority = contents_of(cluster, "certificate-authority")
    except OSError as error:
        raise PluginError(f"its certificates: {error}") from error
    if authority:
        info["certificate-authority-data"] = base64.b64encode(authority).decode()
    for extension in cluster.get("extensions") or ():
        if isinstance(extension, Mapping) and extension.get("name") == f"{GROUP}/exec":
            info["config"] = extension.get("extension")
    return info


def _end(process: subprocess.Popen[bytes], owner: int, *, with_children: bool) -> None:
    """Kill a program that still runs. A forked process does not own it."""
    if os.getpid() != owner or process.poll() is not None:
        return
    with suppress(ProcessLookupError):
        if with_children:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
