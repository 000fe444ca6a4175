"""An app as its stack or its entry knows it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from torchx_pulumi.apps.app import LATER, App, read_apps
from torchx_pulumi.model import labels
from torchx_pulumi.model.app_entry import StackRef, Stage
from torchx_pulumi.model.cluster_identity import ClusterIdentity, Match
from torchx_pulumi.model.errors import DeployError
from torchx_pulumi.model.run_record import json_digest
from torchx_pulumi.planning.names import owner_digest
from torchx_pulumi.schedulers.appwrapper.objects import APP_WRAPPER_V1BETA2
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB
from torchx_pulumi.stack_state.checkpoint import SECRET, parse_components

from tests.fleet.tracker.states import STASH, checkpoint, output
from tests.unit.builders import run_entry

PLACE = StackRef(backend="file:///b", project="p", stack="s")
HERE = ClusterIdentity(uid="c1", address="https://c1")
ENTRY = run_entry(cluster_identity=HERE, log_options={"log_archive": "/logs"}, queue="big", launch="mark")


def apps_in(state: dict[str, Any], place: StackRef = PLACE) -> list[App]:
    return read_apps(parse_components(json.dumps(state, indent=4)), place)


def resources(state: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = state["checkpoint"]["latest"]["resources"]
    return found


def test_the_app_of_an_entry_is_known_before_its_launch_has_ended() -> None:
    app = App.of(run_entry(stage=Stage.LAUNCHING, launch="mark", pods={"trainer": ["p"]}))
    made = {"kind": "Job", "metadata": {"name": "train-1", "namespace": "default", "labels": {labels.LAUNCH: "mark"}}}
    assert (app.app_id, app.uid, app.run.expected) == ("default:train-1", None, None)
    assert app.owns(made)
    assert app.launched(made)
    assert not app.owns({**made, "metadata": {**made["metadata"], "labels": {}}})  # type: ignore[dict-item]
    with pytest.raises(DeployError, match="its scheduler is 'flux'"):
        App.of(run_entry(scheduler="flux"))


def test_a_stack_of_torchx_and_its_entry_give_the_same_app() -> None:
    state = checkpoint({**output("train-1"), "app": {"id": ENTRY.app_id, "scheduler": "volcano"}}, entry=ENTRY)
    resources(state)[0]["outputs"] = {}
    resources(state)[1]["outputs"] |= {"declared": {}, "observed": {}}
    (read,) = apps_in(state)
    noted = App.of(ENTRY)
    assert read.run.launches == {"mark", owner_digest("organization", "p", "s", read.urn)}
    for name in ("app_id", "uid", "cluster", "context", "log_archive", "launched_at", "declared"):
        assert getattr(read, name) == getattr(noted, name), name
    assert {**read.output, "observed": {}} == {**noted.output, "observed": {}}
    assert noted.log_archive == "/logs"
    assert [app.match(HERE) for app in (read, noted)] == [Match.SAME] * 2


def test_a_job_that_a_program_does_not_export_is_what_its_component_says() -> None:
    state = checkpoint({**output("a"), "app": {"id": "team:a", "scheduler": "volcano"}})
    resources(state)[0]["outputs"] = {"torchx": "mine"}
    component, kind = resources(state)[1], VOLCANO_JOB
    component["outputs"] |= {"uid": "u1", "declared": {"spec_hash": "h"}}
    made = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "a"}, "spec": {"queue": "big"}}
    token = f"kubernetes:{kind.api_version}:{kind.kind}"
    resources(state).append({"urn": f"urn:pulumi:s::p::{token}::a", "type": token, "inputs": made})
    resources(state).append({**component, "urn": f"{component['urn']}-2", "outputs": {}})
    resources(state).append({**component, "urn": f"{component['urn']}-3", "delete": True})
    (app,) = apps_in(state)
    assert app.output["app"] == {
        "id": "team:a", "handle": "pulumi_volcano://torchx/team:a", "name": "train", "scheduler": "volcano",
        "namespace": "team", "queue": "big",
    }  # fmt: skip
    assert (app.uid, app.entry, app.cluster, app.log_archive) == ("u1", None, None, None)
    assert app.declared == {"spec_hash": "h", "created_by": "p/s"}
    assert app.answer.observed["state"] == app.state.value == "RUNNING"
    assert app.output["observed"] is app.answer.observed
    assert app.match(HERE) is Match.UNDECIDED


def test_a_queue_of_kueue_is_that_of_the_launch_or_of_the_job_object() -> None:
    options = {"api_version": "v1beta2", "local_queue": "team"}
    entry = run_entry(scheduler="mcad", choice="v1beta2", queue=None, options=options)
    app = {"id": entry.app_id, "scheduler": "mcad", "queue": None}
    (exported,) = apps_in(checkpoint({**output("train-1"), "app": app}, entry=entry))
    state, kind = checkpoint({**output("train-1"), "app": app}), APP_WRAPPER_V1BETA2
    resources(state)[0]["outputs"] = {}
    metadata = {"name": "train-1", "labels": {"kueue.x-k8s.io/queue-name": "team"}}
    token, made = f"kubernetes:{kind.api_version}:{kind.kind}", {"apiVersion": kind.api_version, "kind": kind.kind}
    record = {"version": 1, "identity_version": 2, "job_name": "train-1", "namespace": "default", "hash": "h"}
    digests = {"api_version": json_digest("v1beta2")}
    resources(state)[1]["outputs"]["record"] = {**record, "attempt": 1, "launched": {"trainer": 1}, "digests": digests}
    resources(state).append(
        {"urn": f"urn:pulumi:s::p::{token}::a", "type": token, "inputs": {**made, "metadata": metadata}}
    )
    (unexported,) = apps_in(state)
    assert unexported.run.variant.name == "v1beta2"
    assert [one.output["app"]["queue"] for one in (App.of(entry), exported, unexported)] == ["team"] * 3


def test_what_a_later_release_or_a_user_changed_is_left_alone_and_secrets_are_noted() -> None:
    (later,) = apps_in(checkpoint({**output("a"), "schema_version": 99}))
    assert later.left_alone == LATER
    state = checkpoint(output("a"), entry=ENTRY)
    resources(state)[-1]["inputs"]["input"]["version"] = 99
    (unread,) = apps_in(state)
    assert "install the release that wrote it" in unread.left_alone
    assert (unread.entry, unread.has_secrets) == (None, False)
    state = checkpoint(output("a"))
    resources(state)[1]["outputs"]["images"] = {SECRET: "1b47"}
    (secret,) = apps_in(state)
    assert secret.has_secrets
    assert not secret.changing
    operation = {"type": "updating", "resource": {"type": STASH, "urn": "u"}}
    state["checkpoint"]["latest"]["pending_operations"] = [operation]
    assert apps_in(state)[0].changing


@pytest.mark.parametrize("quotes", [None, True])
def test_a_record_says_that_messages_may_quote_a_secret(quotes: bool | None) -> None:
    state = checkpoint(output("a"))
    record = {"version": 1, "identity_version": 2, "job_name": "a", "namespace": "team", "hash": "h"}
    noted = {"attempt": 1, "launched": {"trainer": 1}, "quotes_secrets": quotes}
    resources(state)[1]["outputs"]["record"] = {**record, **noted}
    (app,) = apps_in(state)
    assert app.quotes_secrets is (quotes is True)
