"""The `exec` plugins of kubeconfigs (EKS, GKE, AKS, OIDC): programs that log in and print credentials.

Follows client-go: what the program is told, which answers are accepted, and how long an answer is kept. Unlike there, a
program that does not end is stopped.
"""

from __future__ import annotations

import atexit
import base64
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torchx_pulumi.kube.credentials import Held
from torchx_pulumi.kube.kubeconfig_fields import GROUP, plugin_problems
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.redaction import secret_variables, without_credentials
from torchx_pulumi.model.text import printable
from torchx_pulumi.model.timestamps import parse_time

TOLD = ("server", "tls-server-name", "insecure-skip-tls-verify", "proxy-url", "disable-compression")
"""Fields of the cluster that a plugin is told with `provideClusterInfo`, with its authority and the extension."""

LIMIT_S = 60.0
"""Longest run of a plugin that does not talk to the user."""

TALK_LIMIT_S = 300.0
"""Longest run of a plugin that may talk to the user."""

PATIENCE_S = 10.0
"""A plugin that answered what the API server refused twice is not asked again for that long."""

SHOWN = 1000
"""Characters of a plugin's last words that an error repeats."""


class PluginError(Exception):
    """What is wrong with a plugin: the end of a sentence that begins with the cluster."""

    def __init__(self, text: str, *, retryable: bool = False) -> None:
        self.retryable = retryable
        super().__init__(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Credentials that a plugin printed."""

    token: str = field(repr=False)
    """Bearer token. Empty: there is none."""
    certificate_and_key: bytes | None = field(repr=False)
    """Client certificate and key as PEM. None: there is none."""
    expires_at: float | None = field(compare=False)
    """Seconds since 1970. None: valid until the API server refuses them."""


class ExecPlugin:
    """One program with its arguments. It is run by one thread at a time, and its answer serves all."""

    def __init__(self, config: Mapping[str, Any], cluster: Mapping[str, Any], *, limit_s: float = LIMIT_S) -> None:
        """Check the configuration; nothing is run.

        Args:
            config: The field `exec` of a user.
            cluster: The cluster of that kubeconfig.
            limit_s: Longest run where it does not talk to the user.

        Raises:
            PluginError: All that is wrong with it.
        """
        self._limit_s = limit_s
        self._version = str(config.get("apiVersion"))
        self._command = str(config.get("command") or "")
        self._mode = config.get("interactiveMode") or ("IfAvailable" if self._version.endswith("beta1") else None)
        problems = list(plugin_problems(config, self._version, self._mode))
        if problems:
            raise PluginError(f"its kubeconfig's `exec` {'; '.join(problems)}")
        self._arguments = [str(argument) for argument in config.get("args") or ()]
        self._environment = {str(pair["name"]): str(pair.get("value") or "") for pair in config.get("env") or ()}
        self._hint = printable(str(config.get("installHint") or "")).strip()
        self._cluster = cluster if config.get("provideClusterInfo") else None
        self._lock = threading.Lock()
        self._answer: Answer | None = None
        self._runs = 0
        self._failure: PluginError | None = None
        self._useless: tuple[float, Answer | None] = (0.0, None)

    def current(self) -> Answer:
        """Return the last answer, or run the program where there is none or it has expired.

        Raises:
            PluginError: The program is missing, failed, or did not answer with credentials.
        """
        seen = self._runs
        with self._lock:
            expires_at = self._answer.expires_at if self._answer else None
            if self._answer is None or (expires_at is not None and time.time() >= expires_at):
                self._answer = self._run_for_all(seen)
            return self._answer

    def ask_again(self, refused: Answer) -> Answer:
        """Run the program because the API server refused an answer, unless another thread did so since.

        Raises:
            PluginError: As of `current`.
        """
        seen = self._runs
        with self._lock:
            if self._answer is not refused:
                return self._answer or refused
            asked_at, useless = self._useless
            if useless == refused and time.monotonic() - asked_at < PATIENCE_S:
                return refused
            self._answer = self._run_for_all(seen)
            self._useless = (time.monotonic(), refused if self._answer == refused else None)
            return self._answer

    def _run_for_all(self, seen: int) -> Answer:
        """Run the program, unless another thread's run failed while this one waited: that is its failure as well.

        Args:
            seen: Number of runs when this thread began to wait.
        """
        if self._failure is not None and self._runs != seen:
            raise PluginError(str(self._failure), retryable=self._failure.retryable)
        self._failure = None
        try:
            return self._run()
        except PluginError as error:
            self._failure = error
            raise
        finally:
            self._runs += 1

    def _run(self) -> Answer:
        program = shutil.which(self._command)
        if program is None:
            hint = f": {self._hint}" if self._hint else "; install it, or put its folder on PATH"
            raise self._problem(f"is not there{hint}")
        interactive = self._is_interactive()
        environment = {**os.environ, **self._environment, "KUBERNETES_EXEC_INFO": self._told(interactive)}
        said, code, words = self._outcome([program, *self._arguments], environment, interactive)
        if code:
            words = without_credentials(words, secret_variables(environment))
            ended = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
            shown = f": {words[-SHOWN:]}" if words else "; what it said stands above" if interactive else ""
            raise self._problem(f"{ended}{shown}", retryable=True)
        return self._read(said)

    def _outcome(self, command: list[str], environment: dict[str, str], interactive: bool) -> tuple[bytes, int, str]:
        """Run the program; return its output, its exit code, and what it said where the user has not seen that."""
        limit_s = TALK_LIMIT_S if interactive else self._limit_s
        try:
            with _starting:
                process = subprocess.Popen(
                    command,
                    env=environment,
                    stdin=None if interactive else subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=None if interactive else subprocess.PIPE,
                    # A terminal lets only its own group read.
                    start_new_session=not interactive,
                )
                _running.add(process)
        except (OSError, ValueError) as error:
            # Python refuses what no program can be given, as NUL in an argument.
            raise self._problem(f"cannot be started: {getattr(error, 'strerror', None) or error}") from None
        with process, _noted(process):
            try:
                output, words = process.communicate(timeout=limit_s)
            except BaseException as error:
                _end(process)
                if isinstance(error, subprocess.TimeoutExpired):
                    late = f"did not answer in {limit_s:g} s; run it by hand to see what it waits for"
                    raise self._problem(late, retryable=True) from None
                raise
        return output, process.returncode, printable((words or b"").decode("utf-8", "replace")).strip()

    def _is_interactive(self) -> bool:
        terminal = sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()
        if self._mode == "Always" and not terminal:
            raise self._problem(
                "wants to talk to the user (interactiveMode Always), and standard input is no terminal; "
                "run this in a terminal, or use credentials for machines"
            )
        return terminal and self._mode != "Never"

    def _told(self, interactive: bool) -> str:
        """Return what the program is told in its environment."""
        spec: dict[str, Any] = {"interactive": interactive}
        if self._cluster is not None:
            try:
                spec["cluster"] = _cluster_info(self._cluster)
            except OSError as error:
                raise PluginError(f"its certificates: {error}") from error
        return json.dumps({"apiVersion": self._version, "kind": "ExecCredential", "spec": spec})

    def _read(self, output: bytes) -> Answer:
        """Read what the program printed, which is in no message."""
        try:
            answer = json.loads(output)
        except ValueError:
            answer = None
        if not isinstance(answer, dict) or answer.get("kind") != "ExecCredential":
            raise self._problem("answered what is no ExecCredential; run it by hand to see what it prints")
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
        if any(ord(letter) <= 32 or ord(letter) >= 127 for letter in token):
            raise self._problem("answered with a token that no request can hold")
        return Answer(
            token=token,
            certificate_and_key=f"{certificate}\n{key}".encode() if certificate else None,
            expires_at=self._expiry(status.get("expirationTimestamp")),
        )

    def _expiry(self, text: Any) -> float | None:
        if text is None:
            return None
        expires_at = parse_time(text)
        if expires_at is None:
            raise self._problem(
                f"answered with the expirationTimestamp {str(text)[:40]!r}, which is not a time as in RFC 3339"
            )
        return expires_at.timestamp()

    def _problem(self, text: str, *, retryable: bool = False) -> PluginError:
        return PluginError(f"the plugin {self._command!r} of its kubeconfig {text}", retryable=retryable)


_plugins: dict[str, ExecPlugin] = {}
"""One plugin for all contexts that have the same one, so that it is run once for them."""


def plugin_of(config: Any, cluster: Mapping[str, Any]) -> ExecPlugin:
    """Return the plugin of a kubeconfig's user.

    Args:
        config: The field `exec` of the user.
        cluster: The cluster of that kubeconfig.

    Raises:
        PluginError: All that is wrong with the configuration.
    """
    config = config if isinstance(config, Mapping) else {}
    told = cluster if config.get("provideClusterInfo") else None
    # Another process has its own, since a lock may have been held when it was forked.
    key = json.dumps([os.getpid(), config, told], sort_keys=True, default=str)
    found = _plugins.get(key)
    return found or _plugins.setdefault(key, ExecPlugin(config, cluster))


class Plugin:
    """Credentials that the kubeconfig's `exec` plugin answers; kept until they expire or are refused."""

    def __init__(self, config: Any, cluster: Mapping[str, Any], where: str) -> None:
        self._where = where
        with self._named():
            self._plugin = plugin_of(config, cluster)

    def current(self) -> Held:
        """Return what the plugin answered, asking it where nothing valid is kept."""
        with self._named():
            return _held(self._plugin.current())

    def renewed(self, refused: Held) -> Held | None:
        """Ask the plugin again, unless that has happened since."""
        with self._named():
            kept = self._plugin.current()
            now = _held(kept if _held(kept) != refused else self._plugin.ask_again(kept))
        return now if now != refused else None

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except PluginError as error:
            raise ClusterError(
                f"{self._where} cannot be used: {error}",
                retryable=error.retryable,
                reason="Unreachable" if error.retryable else "Unauthorized",
            ) from None


def _held(answer: Answer) -> Held:
    return Held(
        authorization=f"Bearer {answer.token}" if answer.token else None,
        certificate_and_key=answer.certificate_and_key,
    )


def _cluster_info(cluster: Mapping[str, Any]) -> dict[str, Any]:
    told = {name: cluster[name] for name in TOLD if cluster.get(name)}
    if cluster.get("certificate-authority-data"):
        told["certificate-authority-data"] = cluster["certificate-authority-data"]
    elif cluster.get("certificate-authority"):
        authority = Path(cluster["certificate-authority"]).read_bytes()
        told["certificate-authority-data"] = base64.b64encode(authority).decode()
    for extension in cluster.get("extensions") or ():
        if isinstance(extension, Mapping) and extension.get("name") == f"{GROUP}/exec":
            told["config"] = extension.get("extension")
    return told


_running: set[subprocess.Popen[bytes]] = set()
"""Programs that run now. A command that has its answer does not wait for them, and leaves none of them behind."""


_starting = threading.RLock()
"""Held while a program is started, so that a command that ends meanwhile knows of it."""


def _forget_running() -> None:
    """Leave the programs to the process that started them."""
    global _starting
    _running.clear()
    # A thread that the fork did not copy may hold it.
    _starting = threading.RLock()


os.register_at_fork(after_in_child=_forget_running)


@contextmanager
def _noted(process: subprocess.Popen[bytes]) -> Iterator[None]:
    try:
        yield
    finally:
        _running.discard(process)


@atexit.register
def _end_running() -> None:
    with _starting:
        for process in tuple(_running):
            _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a program, and what it started where it has a group of its own."""
    with suppress(ProcessLookupError):
        if os.getpgid(process.pid) == process.pid:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a program and give up what it would still print."""
    _kill(process)
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
