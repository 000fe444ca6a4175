import json
from typing import Any

import pytest
from torchx_pulumi.model.errors import ClusterError, DeployError, RefusedError
from torchx_pulumi.model.status import JobState, JobStatus, Reason
from torchx_pulumi_stacks.engine.event_log import EngineNotes, error_of, tidy

JOB = "kubernetes:batch.volcano.sh/v1alpha1:Job"


def feed(*events: dict[str, Any]) -> tuple[EngineNotes, list[str]]:
    told: list[str] = []
    notes = EngineNotes(told.append)
    for event in events:
        notes.take(json.dumps(event))
    return notes, told


def step(key: str, kind: str = JOB, op: str = "create", **new: Any) -> dict[str, Any]:
    inputs = {"metadata": {"name": "train-1", "namespace": "team"}}
    return {key: {"metadata": {"op": op, "urn": "u::train", "type": kind, "new": {"inputs": inputs, **new}}}}


def test_progress_and_uid_come_from_events() -> None:
    notes, told = feed(
        step("resourcePreEvent"),
        step("resourcePreEvent", kind="pulumi:index:Stash"),
        step("resOutputsEvent", outputs={"metadata": {"uid": "1-2"}}),
    )
    assert told == ["creating Job team/train-1", "created Job team/train-1"]
    assert notes.uids == {"u::train": "1-2"}


def test_the_webhooks_words_are_the_error() -> None:
    text = '<{%reset%}>error: admission webhook "validatejob.volcano.sh" denied the request: no queue;<{%reset%}>\n'
    notes, _ = feed(
        {"diagnosticEvent": {"severity": "error", "message": text, "urn": "u"}},
        {"diagnosticEvent": {"severity": "error", "message": text, "urn": "u"}},
        {"diagnosticEvent": {"severity": "error", "message": "update failed", "urn": "s"}},
    )
    error = notes.error("a:b", "launched", "error: something else", code=1)
    assert isinstance(error, DeployError)
    assert str(error).count("denied the request: no queue;") == 1
    assert "something else" not in str(error)


def test_warnings_of_resources_are_told_and_the_engines_own_are_not() -> None:
    _, told = feed(
        {"diagnosticEvent": {"severity": "warning", "message": "slow", "urn": "u"}},
        {"diagnosticEvent": {"severity": "warning", "message": "using plugin x"}},
    )
    assert told == ["slow"]


def test_a_line_cut_off_is_left_out() -> None:
    notes = EngineNotes(print)
    notes.take('{"diagnosticEvent": {"sev')
    assert notes.errors == []


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("configured Kubernetes cluster is unreachable: x", ClusterError, "cannot be reached"),
        ("the stack is currently locked by 1 lock(s)", DeployError, "another process works on it"),
        ("write /x: no space left on device", DeployError, "disk is full"),
        ("incorrect passphrase", DeployError, "PULUMI_CONFIG_PASSPHRASE_FILE"),
        ("odd", DeployError, "odd"),
    ],
)
def test_messages_become_our_errors(text: str, kind: type[Exception], words: str) -> None:
    error = error_of("a:b", "launched", [text])
    assert isinstance(error, kind)
    assert words in str(error)


@pytest.mark.parametrize(
    ("text", "reason", "words"),
    [
        (
            'admission webhook "validatejob.volcano.sh" denied the request: unable to find job queue: '
            'queue.scheduling.volcano.sh "nosuch" not found',
            Reason.QUEUE_MISSING,
            "queue 'nosuch' does not exist; what to do: correct the option queue",
        ),
        (
            'failed calling webhook "mutatejob.volcano.sh": dial tcp 10.0.0.1:443: connect: connection refused',
            Reason.REFUSED,
            "webhook 'mutatejob.volcano.sh' does not answer",
        ),
        ('namespaces "x" not found', Reason.REFUSED, "namespace 'x' does not exist"),
    ],
)
def test_a_refused_launch_is_failed_and_refused_with_its_diagnosis(text: str, reason: Reason, words: str) -> None:
    error = error_of("a:b", "launched", [text])
    assert isinstance(error, RefusedError)
    assert isinstance(error.status, JobStatus)
    assert (error.status.state, error.status.reason) == (JobState.FAILED, Reason.REFUSED)
    assert error.status.diagnoses[0].reason is reason
    assert f"it was refused ({reason.value}): {words}" in str(error)
    assert text in str(error)
    assert not isinstance(error_of("a:b", "deleted", [text]), RefusedError)


def test_before_the_engine_starts_the_process_has_the_last_word() -> None:
    notes = EngineNotes(print)
    said = "Updating\nerror: unable to open bucket s3://b:\n  no credentials\n"
    assert "unable to open bucket s3://b: no credentials" in str(notes.error("a", "launched", said, code=1))
    assert "printed no error" in str(notes.error("a", "launched", "", code=1))


def test_tidy_is_one_line() -> None:
    assert tidy("\x1b[31merror: a\n   b\x1b[0m\n\n") == "a b"


def test_a_backend_that_does_not_answer_is_no_cluster_and_its_password_is_not_shown() -> None:
    said = 'error: unable to open state database "postgres://me:secret@db/x": connection refused'
    error = EngineNotes(print).error("a", "launched", said, code=1)
    assert isinstance(error, DeployError)
    assert "pulumi_backend" in str(error)
    assert "secret@" not in str(error)


@pytest.mark.parametrize(
    ("code", "begun", "said", "parts"),
    [
        (-9, True, "", ("cannot be launched: the Pulumi engine was ended by signal SIGKILL (9)", "memory")),
        (-15, False, "", ("was ended by signal SIGTERM (15)",)),
        (-99, False, "", ("was ended by signal 99",)),
        (3, True, "panic: no", ("the Pulumi engine ended with exit code 3: panic: no",)),
        (255, False, "error: no bucket", ("could not begin: no bucket; check the backend",)),
    ],
)
def test_an_engine_that_ended_without_an_error_is_reported_with_signal_or_exit_code(
    code: int, begun: bool, said: str, parts: tuple[str, ...]
) -> None:
    notes, _ = feed(*([step("resourcePreEvent")] if begun else []))
    text = str(notes.error("a:b", "launched", said, code=code))
    assert all(part in text for part in parts)
    assert ("backend" in text) is (code == 255)


def test_what_a_killed_engine_reported_before_is_in_its_error() -> None:
    notes, _ = feed({"diagnosticEvent": {"severity": "error", "message": "no queue", "urn": "u"}})
    assert "SIGKILL (9); before that it reported: no queue; find out" in str(notes.error("a:b", "launched", code=-9))
