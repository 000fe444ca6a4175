"""The command `torchx-pulumi prune`: what it refuses, all at once, what it prints, and how it ends."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from torchx_pulumi.cli.main import EXIT_INVALID, _parser, main
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.kube.kinds import POD
from torchx_pulumi.model.cluster_identity import HOME_NAMESPACE
from torchx_pulumi.model.errors import DeployError
from torchx_pulumi.schedulers import find_backend, scheduler_names
from torchx_pulumi_fleet.cli.prune import EXIT_FAILED, check_words

from tests.doc_blocks import ROOT
from tests.fleet.writer.old_apps import ALL, OldApps

CRON_JOB = ROOT / "examples" / "prune" / "cronjob.yaml"


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OldApps:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    made = OldApps(tmp_path)
    monkeypatch.setattr(KubernetesCluster, "connect", lambda *_: made.world.cluster)
    return made


def prune(old: OldApps, *words: str) -> int:
    given = ["prune", "--backend", old.world.backend, *words]
    return main(given, make_driver=lambda: old.engine)


def test_all_problems_are_named_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--ended-before", "soon", "--state", "RUNNING", "--namespace", "No", "--log-archive", "logs"]
    assert main(["prune", "--backend", f"file://{tmp_path}/absent", *words]) == EXIT_INVALID
    said = capsys.readouterr().err
    assert "the arguments have 6 problems:" in said
    for text in (
        "--ended-before: found 'soon', allowed is an age such as 12h, 30d or 8w",
        "--state: found 'RUNNING', allowed is SUCCEEDED, FAILED, CANCELLED or UNKNOWN",
        "--namespace: found 'No'",
        "--log-archive: no logs are deleted without --with-logs",
        "--log-archive: found 'logs', allowed is an absolute path",
        "/absent: ",
    ):
        assert text in said
    assert main(["prune", "--backend", "postgres://me:hunter2@db/state"]) == EXIT_INVALID
    said = capsys.readouterr().err
    assert "--ended-before: is missing, allowed is" in said
    assert "--backend postgres://me:***@db/state: which stacks are those of programs is not known" in said
    assert "hunter2" not in said


def test_it_prints_a_line_for_each_app_and_a_summary(old: OldApps, capsys: pytest.CaptureFixture[str]) -> None:
    app, active = old.launch("old-1"), old.launch("old-2", end={"state": "RUNNING", "finished_at": None})
    old.world.phase(active, "Running", running=1)
    young = old.launch("new-1", end={"queued_at": "2099-01-01T00:00:00Z"})
    words = ["--ended-before", "30d", "--with-logs", "--log-archive", str(old.logs)]
    for word, did in (("--dry-run", "would be pruned"), ("", "pruned")):
        assert prune(old, *words, *([word] if word else [])) == 0
        assert sorted(capsys.readouterr().out.splitlines()[:-1]) == sorted(
            [
                "left alone: default:old-2: it is RUNNING",
                f"{did}: default:old-1: SUCCEEDED since 2026-01-01T00:01:00Z, Job default/old-1, 1 archived log",
            ]
        )
        assert old.left(app) == (ALL if word else ["entry"]), "the index of this test is not that of the user"
    assert (old.left(active), old.left(young)) == (ALL, ALL)


def test_the_folder_of_a_user_who_has_launched_nothing_may_be_absent(
    old: OldApps, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("PULUMI_BACKEND_URL", raising=False)
    assert main(["prune", "--ended-before", "30d"], make_driver=lambda: old.engine) == 0
    assert capsys.readouterr().out == "0 pruned, 0 left alone, 0 failed, 0 younger or of other states\n"


def test_a_failure_is_an_exit_code(old: OldApps, capsys: pytest.CaptureFixture[str]) -> None:
    old.launch("old-1")
    old.engine.failure = DeployError("no passphrase")
    assert prune(old, "--ended-before", "30d") == EXIT_FAILED
    assert capsys.readouterr().out.splitlines() == [
        "failed: default:old-1: no passphrase",
        "0 pruned, 0 left alone, 1 failed, 0 younger or of other states",
    ]
    assert prune(old, "--ended-before", "30d", "--state", "failed") == 0
    assert capsys.readouterr().out == "0 pruned, 0 left alone, 0 failed, 1 younger or of other states\n"
    assert old.engine.closed == 2


def test_the_cron_job_of_the_examples_has_what_the_command_needs() -> None:
    found = {each["kind"]: each for each in yaml.safe_load_all(CRON_JOB.read_text())}
    pod = found["CronJob"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    given = _parser(["prune"]).parse_args(container["args"])
    namespace = found["CronJob"]["metadata"]["namespace"]
    assert (given.ended_before, given.namespace, given.with_logs) == ("30d", [namespace], True)
    assert not [*check_words(given)]
    env = {each["name"]: each["value"] for each in container["env"]}
    assert env["PULUMI_BACKEND_URL"].startswith("s3://")
    assert {mount["mountPath"] for mount in container["volumeMounts"]} == {env["HOME"]}
    secret = found["Secret"]
    assert container["envFrom"] == [{"secretRef": {"name": secret["metadata"]["name"]}}]
    assert "PULUMI_CONFIG_PASSPHRASE" in secret["stringData"]
    assert pod["serviceAccountName"] == found["ServiceAccount"]["metadata"]["name"]
    for name in ("RoleBinding", "ClusterRoleBinding"):
        (subject,) = found[name]["subjects"]
        assert (subject["name"], subject["namespace"]) == (pod["serviceAccountName"], namespace)
        assert found[name]["roleRef"]["name"] == found[name.removesuffix("Binding")]["metadata"]["name"]
    assert all(each["metadata"].get("namespace", namespace) == namespace for each in found.values())


def test_the_role_of_the_cron_job_has_each_kind_that_a_launch_creates() -> None:
    found = {each["kind"]: each for each in yaml.safe_load_all(CRON_JOB.read_text())}
    variants = [variant for name in scheduler_names() for variant in find_backend(name).variants.values()]
    made = {POD, *(kind for variant in variants for kind in (variant.job_object, *variant.companions))}
    assert {
        (group, resource): {*rule["verbs"]}
        for rule in found["Role"]["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    } == {(kind.group, kind.plural): {"get", "list", "delete"} for kind in made}
    (rule,) = found["ClusterRole"]["rules"]
    assert (rule["resources"], rule["resourceNames"], rule["verbs"]) == (["namespaces"], [HOME_NAMESPACE], ["get"])
