"""Each missing permission removes only what depends on it, is reported once, and is not asked for at each look."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from torchx_pulumi.kube.kinds import POD
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.status import JobState, Reason
from torchx_pulumi.schedulers import permissions
from torchx_pulumi.schedulers.appwrapper.cluster_checks import LIST_JOBS, WRAPPED, of_app_wrapper
from torchx_pulumi.schedulers.appwrapper.kueue_observe import PERMISSIONS as KUEUE
from torchx_pulumi.schedulers.appwrapper.objects import APP_WRAPPER, APP_WRAPPER_V1BETA2
from torchx_pulumi.schedulers.permissions import READING, Permission
from torchx_pulumi.schedulers.volcano.cluster_checks import PERMISSIONS as VOLCANO
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB, VOLCANO_POD_GROUP
from torchx_pulumi_fleet.watch.watching import watch_list

from tests.doc_blocks import block
from tests.unit.schedulers.diagnosis.objects import (
    BACKOFF,
    JOB,
    MCAD,
    PODS,
    ended,
    group,
    job,
    node,
    pod,
    queue,
    wrapper,
)
from tests.unit.schedulers.test_observe import Counting

DOCS = Path(__file__).resolve().parents[3] / "docs/permissions.md"
OPTIONAL = [item for item in VOLCANO if item.without]
OPTIONAL_MCAD = [item for item in of_app_wrapper(APP_WRAPPER) if item.without]


def refused(*items: Permission) -> set[Any]:
    return {(one.verb, one.kind, one.part) if one.part else (one.verb, one.kind) for one in items}


def counts(**phases: str) -> dict[str, Any]:
    return {"taskStatusCount": {f"trainer-{name[1:]}": {"phase": {phase: 1}} for name, phase in phases.items()}}


def waiting_job(**more: Any) -> Counting:
    return Counting(job(status=counts(_0="Pending", _1="Pending")), group(), queue(state="Closed"), node(), **more)


@pytest.mark.parametrize("item", OPTIONAL, ids=str)
def test_without_one_permission_a_waiting_and_a_failed_job_keep_their_state(
    item: Permission, caplog: pytest.LogCaptureFixture
) -> None:
    failed = Counting(
        job("Failed", 1, status=counts(_0="Failed")),
        pod(phase="Failed", containerStatuses=ended(3)),
        logs={("team", "app-trainer-0-0"): ["ValueError"]},
        denied=refused(item),
    )
    for cluster in (waiting_job(denied=refused(item)), failed):
        looks = [JOB.read_status(JOB.observe(cluster, "team", "app")) for _ in range(3)]
        assert {status.state for status in looks} == {JobState.FAILED if cluster is failed else JobState.PENDING}
        said = [record.getMessage() for record in caplog.records]
        assert len(said) == len(set(said)), said
        caplog.clear()


def test_nothing_but_the_job_is_enough_for_its_state(caplog: pytest.LogCaptureFixture) -> None:
    for phase, status, state in (
        ("Running", counts(_0="Running", _1="Running"), JobState.RUNNING),
        ("Failed", counts(_0="Failed", _1="Succeeded"), JobState.FAILED),
        ("Completed", counts(_0="Succeeded", _1="Succeeded"), JobState.SUCCEEDED),
        ("Pending", counts(_0="Pending"), JobState.PENDING),
    ):
        caplog.clear()
        cluster = Counting(job(phase, status=status), group(), denied=refused(*OPTIONAL))
        with caplog.at_level(logging.WARNING):
            read = [JOB.read_status(JOB.observe(cluster, "team", "app")) for _ in range(3)]
        assert {one.state for one in read} == {state}
        assert sum("list pods in namespace team" in text for text in caplog.messages) == 1
        assert cluster.asked.count("list Pod") == 1
    assert cluster.asked.count("list Event") <= 1


def test_a_refusal_is_asked_about_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Counting(job("Running"), denied=refused(*OPTIONAL))
    monkeypatch.setattr(permissions, "REFUSED_S", 0.0)
    for _ in range(3):
        JOB.observe(cluster, "team", "app")
    assert cluster.asked.count("list Pod") == 3


def test_a_refusal_that_passes_is_forgotten_soon_and_one_that_stays_is_asked_about_seldom(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1000.0
    monkeypatch.setattr(permissions.time, "monotonic", lambda: now)
    passing = Counting(job("Running"), denied=refused(*OPTIONAL))
    staying = Counting(job("Running"), denied=refused(*OPTIONAL))
    for _ in range(600):
        JOB.observe(passing, "team", "app")
        JOB.observe(staying, "team", "app")
        passing.denied.clear()
        now += 1
    assert passing.asked.count("list Pod") == 600 - 5 + 1
    # After 5, 25, 105 and 405 s.
    assert staying.asked.count("list Pod") == 5


def test_pods_that_may_not_be_listed_are_asked_for_by_name_where_they_tell_something() -> None:
    status = counts(_0="Running", _1="Failed", _2="Succeeded", _3="Pending")
    cluster = Counting(
        job("Running", 4, status=status),
        *(pod(index, "Running") for index in (0, 2)),
        pod(1, "Failed", containerStatuses=ended(3)),
        pod(3, "Pending"),
        denied={("list", POD)},
    )
    seen = JOB.observe(cluster, "team", "app")
    assert sorted(cluster.asked) == ["get Job", "get Pod", "get Pod", "list Pod", "log"]
    read = JOB.read_status(seen)
    assert (read.reason, read.exit_code) == (Reason.EXIT_CODE, 3)
    assert [one.state.value for one in read.roles[0].replicas] == ["RUNNING", "FAILED", "SUCCEEDED", "PENDING"]


@pytest.mark.parametrize("item", [None, *OPTIONAL_MCAD], ids=str)
def test_an_app_wrapper_without_permissions_keeps_its_state(
    item: Permission | None, caplog: pytest.LogCaptureFixture
) -> None:
    denied = refused(*(OPTIONAL_MCAD if item is None else [item]))
    over = {
        **pod(phase="Failed", containerStatuses=ended(3)),
        "metadata": {"name": "app-trainer-0", "namespace": "team"},
    }
    for objects, state in (
        ((wrapper(status=BACKOFF), wrapper("Running", "other"), node(cpu="1")), JobState.PENDING),
        ((wrapper("Running"), over), JobState.FAILED if item else JobState.RUNNING),
    ):
        cluster = Counting(*objects, denied=denied)
        looks = [MCAD.read_status(MCAD.observe(cluster, "team", "app")) for _ in range(3)]
        assert {one.state for one in looks} == {state}
        assert cluster.asked.count("list Pod") == (1 if ("list", POD) in denied else 3)
        assert len(caplog.messages) == len(set(caplog.messages))
        caplog.clear()
    if item is None:
        assert "only they show when it ends" in looks[0].message


def test_a_gang_of_pods_that_may_not_be_listed_is_read_by_their_names() -> None:
    own = {**group("Running"), "metadata": {**group()["metadata"], "name": "app"}}
    cluster = Counting(own, pod(0, "Running"), pod(1, "Running"), denied={("list", POD)})
    names = {"trainer": ["app-trainer-0-0", "app-trainer-1-0"]}
    assert PODS.read_status(PODS.observe(cluster, "team", "app", names)).state is JobState.RUNNING
    seen = PODS.observe(cluster, "team", "app")
    assert (seen.pods, PODS.read_status(seen).state) == (None, JobState.SUBMITTED)


@pytest.mark.parametrize(("form", "kind"), [(JOB, VOLCANO_JOB), (PODS, VOLCANO_POD_GROUP), (MCAD, APP_WRAPPER)])
def test_the_object_of_the_job_itself_must_be_readable(form: Any, kind: Any) -> None:
    with pytest.raises(ClusterError, match="forbids") as caught:
        form.observe(Counting(denied={("get", kind)}), "team", "app")
    assert caught.value.reason == "Forbidden"


def test_the_documented_verbs_are_those_of_the_table() -> None:
    text = DOCS.read_text()
    more = (LIST_JOBS, *WRAPPED)
    assert set(of_app_wrapper(APP_WRAPPER_V1BETA2)) >= {*more}
    tables = {
        "## Volcano": VOLCANO,
        "## MCAD": of_app_wrapper(APP_WRAPPER),
        "## AppWrappers v1beta2": more,
        "## Kueue": KUEUE,
    }
    for heading, table in tables.items():
        part = text.split(heading)[1].split("\n## ")[0]
        rows = re.findall(r"^\| `(.+?)` \| (.+?) \|", part, re.M)
        listed = {(verb, name): without for names, without in rows for verb, _, name in [names.partition(" ")]}
        needed = {(one.verb, one.resource): one.without for one in table}
        assert {key for key in listed if listed[key] == "**needed**"} == {key for key in needed if not needed[key]}
        assert listed.keys() == needed.keys()
        for key, without in needed.items():
            assert listed[key].lower().startswith(without.lower() or "**needed**"), key


def granted(rules: list[dict[str, Any]]) -> set[tuple[str, str, str]]:
    return {
        (verb, group, resource)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def grant_of(one: Permission) -> tuple[str, str, str]:
    return one.verb, one.kind.group, f"{one.kind.plural}/{one.part}" if one.part else one.kind.plural


def watched() -> set[tuple[str, str, str]]:
    """Return the kinds that a process that watches reads."""
    kinds = {(verb, kind.group, kind.plural) for kind, _ in watch_list() for verb in ("get", "list", "watch")}
    return kinds | {grant_of(one) for one in READING}


def test_the_documented_role_of_a_watcher_has_all_that_is_watched() -> None:
    assert granted(yaml.safe_load(block("docs/permissions.md", "watching"))["rules"]) == watched()
