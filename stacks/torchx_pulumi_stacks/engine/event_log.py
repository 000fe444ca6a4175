"""Event log of the engine: convert its lines to progress messages, uids and errors."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torchx_pulumi.model.errors import ClusterError, DeployError, RefusedError, TorchxPulumiError
from torchx_pulumi.model.progress import ProgressCallback
from torchx_pulumi.stack_state.backend import without_credentials
from torchx_pulumi.stack_state.checkpoint import is_object

_COLOUR = re.compile(r"<\{%[^%]*%\}>|\x1b\[[0-9;]*m")

_NOISE = ("update failed", "resource plugin", "preview failed")
"""Prefixes of errors without information."""

_UNREACHABLE = (
    "cluster is unreachable",
    "cluster unreachable",
    "unable to load schema information from the API server",
    "connection refused",
    "no such host",
    "i/o timeout",
    "context deadline exceeded",
    "no configuration has been provided",
    "unable to load Kubernetes client configuration",
    "certificate signed by unknown authority",
)
"""Messages of the Kubernetes client if the cluster cannot be reached."""

LAUNCHED = "launched"
"""Word for a launch in the message of an error."""

_LOCKED = ("is currently locked by", "Another update is currently in progress")
_PASSPHRASE = ("incorrect passphrase", "passphrase must be set")
_ENGINE = (*_LOCKED, *_PASSPHRASE, "no space left on device")
"""Messages of the CLI that `error_of` distinguishes."""

_DONE = {"create": "created", "update": "updated", "delete": "deleted", "replace": "replaced"}
_BEGUN = {"create": "creating", "update": "updating", "delete": "deleting", "replace": "replacing"}


@dataclass(slots=True)
class EngineNotes:
    """Events of one run of the engine."""

    progress: ProgressCallback
    """Receives progress messages."""
    uids: dict[str, str] = field(default_factory=dict)
    """URN of a Kubernetes object to its uid."""
    errors: list[str] = field(default_factory=list)
    """Distinct errors in order."""
    has_events: bool = False
    """The engine wrote an event, so backend and credentials work."""

    def take(self, line: str) -> None:
        """Process one line of the event log."""
        try:
            event = json.loads(line)
        except ValueError:
            # The last line of a killed process may be cut off. The state records what was done.
            return
        self.has_events = True
        if diagnostic := event.get("diagnosticEvent"):
            self._take_diagnostic(diagnostic)
        elif begun := event.get("resourcePreEvent"):
            self._take_step(begun.get("metadata") or {}, _BEGUN)
        elif done := event.get("resOutputsEvent"):
            self._take_outputs(done.get("metadata") or {})

    def _take_diagnostic(self, event: Mapping[str, Any]) -> None:
        message = tidy(str(event.get("message") or ""))
        if not message:
            return
        if event.get("severity") == "error":
            if message not in self.errors and not message.startswith(_NOISE):
                self.errors.append(message)
        elif event.get("severity") in ("warning", "info") and not event.get("ephemeral") and event.get("urn"):
            # Messages without a resource are about the engine itself.
            self.progress(message)

    def _take_outputs(self, step: Mapping[str, Any]) -> None:
        new = step.get("new") or {}
        if is_object(step):
            uid = ((new.get("outputs") or {}).get("metadata") or {}).get("uid")
            if uid:
                self.uids[str(step.get("urn"))] = str(uid)
            self._take_step(step, _DONE)

    def _take_step(self, step: Mapping[str, Any], words: Mapping[str, str]) -> None:
        word = words.get(str(step.get("op")))
        if word is None or not is_object(step):
            return
        state = step.get("new") or step.get("old") or {}
        metadata = (state.get("inputs") or {}).get("metadata") or {}
        kind = str(step.get("type")).rpartition(":")[2]
        name = metadata.get("name") or str(step.get("urn")).rpartition("::")[2]
        self.progress(f"{word} {kind} {metadata.get('namespace') or 'default'}/{name}")

    def error(self, app: str, doing: str, said: str = "", *, code: int = 1) -> TorchxPulumiError:
        """Return the error of a failed run.

        Args:
            app: The app's id.
            doing: Past participle of the operation: `launched`, `deleted`.
            said: Output of the process, for errors before the first event.
            code: Its exit code; negative: the number of the signal that ended it.
        """
        if code < 0:
            return _killed(app, doing, code, self.errors)
        if self.errors:
            return error_of(app, doing, self.errors)
        words = _last_words(said)
        if any(sign in words for sign in _ENGINE):
            return error_of(app, doing, [words])
        if self.has_events:
            return DeployError(f"app {app} cannot be {doing}: the Pulumi engine ended with exit code {code}: {words}")
        # Without an event and a known message, the CLI failed before it used a cluster.
        return DeployError(
            f"app {app} cannot be {doing}: Pulumi could not begin: {words}; check the backend (option pulumi_backend, "
            "PULUMI_BACKEND_URL), its credentials and the secrets provider"
        )


def error_of(app: str, doing: str, errors: list[str]) -> TorchxPulumiError:
    """Return the error for messages of the engine."""
    text = "; ".join(errors)
    if any(sign in text for sign in _UNREACHABLE) and "webhook" not in text:
        return ClusterError(
            f"app {app} cannot be {doing}: the cluster cannot be reached: {text}; check that it runs and that "
            "kubeconfig and context are the right ones",
            retryable=True,
        )
    if any(sign in text for sign in _LOCKED):
        return DeployError(f"app {app} cannot be {doing}: another process works on it: {text}", retryable=True)
    if "no space left on device" in text:
        return DeployError(f"app {app} cannot be {doing}: the disk is full: {text}; free some space")
    if any(sign in text for sign in _PASSPHRASE):
        return DeployError(
            f"app {app} cannot be {doing}: its state was written with another passphrase: {text}; "
            "set PULUMI_CONFIG_PASSPHRASE_FILE or PULUMI_CONFIG_PASSPHRASE to that one"
        )
    # Its modules are loaded for an error only.
    from torchx_pulumi.schedulers.diagnosis.refusals import diagnose_refusal, refused_status

    diagnosis = diagnose_refusal(text) if doing == LAUNCHED else None
    if diagnosis is not None:
        return RefusedError(
            f"app {app} cannot be {doing}: it was refused ({diagnosis.reason.value}): {diagnosis.summary}; what to do: "
            f"{diagnosis.resolution}. The cluster says: {text}",
            status=refused_status(diagnosis),
        )
    return DeployError(f"app {app} cannot be {doing}: {text}")


def _killed(app: str, doing: str, code: int, errors: list[str]) -> DeployError:
    """Return the error of an engine that a signal ended."""
    try:
        number = f"{signal.Signals(-code).name} ({-code})"
    except ValueError:
        number = str(-code)
    before = f"; before that it reported: {'; '.join(errors)}" if errors else ""
    return DeployError(
        f"app {app} cannot be {doing}: the Pulumi engine was ended by signal {number}{before}; find out what ended it "
        "(the system does when memory runs out), and try again"
    )


def is_of_other_passphrase(said: str) -> bool:
    """Return whether the CLI failed because another passphrase encrypts the secrets of the state."""
    return any(sign in said for sign in _PASSPHRASE)


def tidy(message: str) -> str:
    r"""Return a message of the engine as one line of plain text.

    >>> tidy("<{%reset%}>error: no\n  queue<{%reset%}>\n")
    'no queue'
    """
    plain = without_credentials(_COLOUR.sub("", message))
    line = " ".join(part.strip() for part in plain.splitlines() if part.strip())
    return line.removeprefix("error: ").strip()


def _last_words(said: str) -> str:
    """Return the error in the output of a process without events."""
    lines = [_COLOUR.sub("", line).rstrip() for line in said.splitlines()]
    for number, line in enumerate(lines):
        if line.startswith("error: "):
            return tidy("\n".join(lines[number:]))
    return tidy("\n".join(lines[-3:])) or "the Pulumi CLI printed no error"
