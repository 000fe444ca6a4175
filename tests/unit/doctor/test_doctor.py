"""Each check says ok, or what to do; none of them keeps the others from ending."""

from __future__ import annotations

import errno
import json
import stat
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.cli.main import main
from torchx_pulumi.doctor import DoctorClients, DoctorScope, Finding, Verdict, examine, finding_values, to_lines
from torchx_pulumi.doctor.examining import run_all
from torchx_pulumi.doctor.machine import check_passphrase, check_state_folder, run_program
from torchx_pulumi.kube import kinds
from torchx_pulumi.model import labels
from torchx_pulumi.model.errors import ClusterError, ImageError
from torchx_pulumi.model.finding import ok
from torchx_pulumi.model.versions import PROVIDER_ADVICE, VERSIONS
from torchx_pulumi.schedulers.installed import DEPLOYMENT
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB, VOLCANO_QUEUE

from tests.fakes import KNOWN, FakeCluster


def plugin(*versions: str) -> str:
    return json.dumps([{"name": "kubernetes", "kind": "resource", "version": version} for version in versions])


PRINTED = {
    ("pulumi", "version"): f"v{VERSIONS['pulumi'].tested}\n",
    ("pulumi", "plugin ls --json"): plugin("4.34.2"),
}


def volcano(state: str = "Open") -> list[dict[str, Any]]:
    queue = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "default"}}
    webhook = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "volcano-admission-service-jobs-validate"},
    }
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}
    return [{**queue, "status": {"state": state}}, webhook, namespace]


def seams(folder: Path, cluster: FakeCluster | None = None, printed: dict[Any, str] | None = None) -> DoctorClients:
    known = PRINTED if printed is None else printed
    folder.mkdir(exist_ok=True)
    folder.chmod(0o700)
    return DoctorClients(
        run=lambda program, words: known.get((program, words)),
        provider_on_path=lambda: None,
        provider_version="4.34.2",
        connect=lambda: cluster or FakeCluster(volcano()),
        ping_docker=lambda: None,
        ask_registry=lambda _: None,
        environment={},
        folder=folder,
        backend="file:///b",
    )


def found(asked: DoctorScope, given: DoctorClients) -> dict[str, Finding]:
    return {item.check: item for item in examine(asked, given)}


def test_all_is_well(tmp_path: Path) -> None:
    findings = examine(DoctorScope(image_repo="localhost:1/x"), seams(tmp_path / "state"))
    assert {item.check: item.verdict.value for item in findings} == dict.fromkeys(
        [
            "packages", "pulumi", "pulumi-sdk", "kubernetes-provider", "state-folder", "passphrase", "docker",
            "registry", "cluster", "namespace", "volcano", "mcad", "webhooks", "queue", "local-queue", "permissions",
            "edits",
        ],
        "ok",
    )  # fmt: skip
    assert finding_values(findings)["ok"]
    assert to_lines(findings)[-1] == "no problems"


@pytest.mark.parametrize(
    ("packages", "verdict", "detail", "resolution"),
    [
        ({"torchx-pulumi": "1.2.0"}, "ok", "torchx-pulumi 1.2.0", ""),
        (
            {"torchx-pulumi": "1.2.0", "torchx-pulumi-fleet": "1.2.0"},
            "ok",
            "torchx-pulumi 1.2.0, torchx-pulumi-fleet 1.2.0",
            "",
        ),
        (
            {"torchx-pulumi": "1.2.0", "torchx-pulumi-fleet": "1.3.0"},
            "problem",
            "torchx-pulumi-fleet 1.3.0 needs torchx-pulumi 1.3.0, found 1.2.0",
            "run `pip install 'torchx-pulumi[fleet]==1.2.0'`",
        ),
        ({}, "ok", "a checkout that is not installed", ""),
    ],
)
def test_the_packages_of_the_project_have_one_version(
    tmp_path: Path, packages: dict[str, str], verdict: str, detail: str, resolution: str
) -> None:
    finding = found(DoctorScope(), replace(seams(tmp_path / "s"), packages=packages))["packages"]
    assert (finding.verdict.value, finding.detail, finding.resolution) == (verdict, detail, resolution)


@pytest.mark.parametrize(
    ("printed", "check", "verdict", "said"),
    [
        ({}, "pulumi", "problem", "not on PATH"),
        ({("pulumi", "version"): "v3.220.1"}, "pulumi", "problem", "3.220 is too old"),
        ({("pulumi", "version"): "hello"}, "pulumi", "problem", "printed 'hello'"),
        ({}, "kubernetes-provider", "skipped", "downloads it"),
        ({("pulumi", "plugin ls --json"): "no JSON"}, "kubernetes-provider", "skipped", "not installed"),
    ],
)
def test_programs(tmp_path: Path, printed: dict[Any, str], check: str, verdict: str, said: str) -> None:
    finding = found(DoctorScope(), seams(tmp_path / "s", printed=printed))[check]
    assert finding.verdict.value == verdict
    assert said in finding.detail
    assert finding.resolution or verdict == "ok"


def test_a_newer_cli_gets_a_warning(tmp_path: Path) -> None:
    printed = {**PRINTED, ("pulumi", "version"): "v3.999.0"}
    finding = found(DoctorScope(), seams(tmp_path / "s", printed=printed))["pulumi"]
    assert finding.verdict is Verdict.OK
    assert "Pulumi CLI 3.999 is newer than" in finding.detail
    assert "tested-versions" in finding.resolution


class OldCluster(FakeCluster):
    """A cluster of another Kubernetes version."""

    printed = "v1.24.9"

    def version(self) -> str:
        return self.printed


@pytest.mark.parametrize(
    ("printed", "verdict", "said"), [("v1.24.9", "problem", "1.24.9"), ("v1.99.0", "ok", "is newer than")]
)
def test_the_version_of_kubernetes(tmp_path: Path, printed: str, verdict: str, said: str) -> None:
    cluster = OldCluster(volcano())
    cluster.printed = printed
    finding = found(DoctorScope(), seams(tmp_path / "s", cluster))["cluster"]
    assert (finding.verdict.value, said in finding.detail, bool(finding.resolution)) == (verdict, True, True)


def deployment(namespace: str, image: str) -> dict[str, Any]:
    pod = {"spec": {"containers": [{"name": "c", "image": image}]}}
    names = {"name": "controllers", "namespace": namespace}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": names, "spec": {"template": pod}}


@pytest.mark.parametrize(
    ("namespace", "image", "check", "said"),
    [
        ("volcano-system", "docker.io/volcanosh/vc-controller-manager:v1.14.1", "volcano", "; Volcano v1.14.1"),
        ("volcano-system", "r:5000/vc-controller-manager:v1.99.0@sha256:ab", "volcano", "Volcano 1.99 is newer than"),
        ("volcano-system", "volcanosh/vc-controller-manager:v1.2.0", "volcano", "Volcano 1.2 is older than"),
        ("volcano-system", "r:5000/vc-controller-manager:v1.14.1-arm64", "volcano", "; Volcano v1.14.1-arm64"),
        ("volcano-system", "r:5000/vc-controller-manager:1.99.0", "volcano", "Volcano 1.99 is newer than"),
        ("appwrapper-system", "r:5000/appwrapper:1.2.0", "mcad", "; AppWrapper operator 1.2.0"),
        ("volcano-system", "r:5000/vc-controller-manager:2026.1.31", "volcano", "unknown version"),
        ("volcano-system", "volcanosh/vc-controller-manager:latest", "volcano", "unknown version, with the image tag"),
        ("volcano-system", "r:5000/vc-controller-manager:20260101.1", "volcano", "unknown version"),
        ("volcano-system", "r:5000/vc-controller-manager:main-7.2024", "volcano", "unknown version"),
        ("volcano-system", "r:5000/vc-controller-manager:v2026.1", "volcano", "unknown version"),
        ("volcano-system", "r:5000/vc-controller-manager:build-v1.99.0", "volcano", "unknown version"),
        ("elsewhere", "volcanosh/vc-controller-manager:v1.14.1", "volcano", ""),
        ("appwrapper-system", "quay.io/ibm/appwrapper:v1.2.0", "mcad", "; AppWrapper operator v1.2.0"),
    ],
)
def test_the_version_of_a_scheduler_is_that_of_its_image(
    tmp_path: Path, namespace: str, image: str, check: str, said: str
) -> None:
    cluster = FakeCluster([*volcano(), deployment(namespace, image)], served=(*KNOWN, DEPLOYMENT))
    finding = found(DoctorScope(), seams(tmp_path / "s", cluster))[check]
    assert finding.verdict is Verdict.OK
    assert (said in finding.detail, ";" in finding.detail) == (True, bool(said))
    assert bool(finding.resolution) is ("er than" in said)


def test_nothing_is_said_about_a_version_that_cannot_be_seen(tmp_path: Path) -> None:
    image = deployment("volcano-system", "volcanosh/vc-controller-manager:v1.14.1")
    cluster = FakeCluster([*volcano(), image], served=(*KNOWN, DEPLOYMENT), denied=[("list", DEPLOYMENT)])
    finding = found(DoctorScope(), seams(tmp_path / "s", cluster))["volcano"]
    assert (finding.verdict, finding.resolution, "1.14.1" in finding.detail) == (Verdict.OK, "", False)


@pytest.mark.parametrize(
    ("version", "verdict", "said"),
    [
        ("4.33.0", "ok", "version 4.33.0 on PATH"),
        ("4.28.1", "problem", "before 4.29 it takes over"),
        ("", "problem", "gives '' as its version"),
        ("4.35.0", "ok", "newer than 4.34, the newest one that was tested"),
    ],
)
def test_the_provider_on_path_comes_before_plugins(tmp_path: Path, version: str, verdict: str, said: str) -> None:
    finding = found(DoctorScope(), replace(seams(tmp_path / "s"), provider_on_path=lambda: version))[
        "kubernetes-provider"
    ]
    assert (finding.verdict.value, said in finding.detail) == (verdict, True)
    assert bool(finding.resolution) is (version != "4.33.0")


@pytest.mark.parametrize(
    ("installed", "plugins", "verdict", "said"),
    [
        ("4.34.2", ["4.28.0", "4.34.2", "4.35.0"], "ok", "plugin version 4.34.2"),
        ("4.35.0", ["4.34.2", "4.35.0"], "ok", "newer than 4.34, the newest one that was tested"),
        ("4.34.2", ["4.28.0"], "skipped", "version 4.34.2 is not installed yet; Pulumi downloads it"),
        ("4.34.2", ["4.35.0"], "skipped", "version 4.34.2 is not installed yet; Pulumi downloads it"),
        ("4.28.0", ["4.28.0", "4.34.2"], "problem", "before 4.29 it takes over"),
    ],
)
def test_the_provider_is_the_one_that_a_launch_takes(
    tmp_path: Path, installed: str, plugins: list[str], verdict: str, said: str
) -> None:
    printed = {**PRINTED, ("pulumi", "plugin ls --json"): plugin(*plugins)}
    given = replace(seams(tmp_path / "s", printed=printed), provider_version=installed)
    finding = found(DoctorScope(), given)["kubernetes-provider"]
    assert (finding.verdict.value, said in finding.detail) == (verdict, True)
    assert ("newer" in finding.detail) is (installed == "4.35.0")
    if verdict == "problem":
        assert finding.resolution == PROVIDER_ADVICE


def test_an_sdk_outside_the_range_is_a_problem(tmp_path: Path) -> None:
    finding = found(DoctorScope(), replace(seams(tmp_path / "s"), sdk_version="4.0.0"))["pulumi-sdk"]
    assert finding.verdict is Verdict.PROBLEM
    assert "pulumi 4.0.0 is not supported" in finding.detail
    assert "pip install 'pulumi>=" in str(finding.resolution)


def test_an_sdk_that_changed_what_programs_need_gets_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = replace(seams(tmp_path / "s"), sdk_version="3.300.0")
    assert found(DoctorScope(), given)["pulumi-sdk"] == ok("pulumi-sdk", "version 3.300.0")
    monkeypatch.setattr("torchx_pulumi.model.pulumi_pieces._sdk_folder", lambda: tmp_path)
    finding = found(DoctorScope(), replace(given, sdk_version="3.300.1"))["pulumi-sdk"]
    assert (finding.verdict, "pulumi 3.300.1 was not tested" in finding.detail) == (Verdict.OK, True)


def denied(*items: tuple[str, kinds.Kind]) -> FakeCluster:
    return FakeCluster(volcano(), denied=items)


def edited_job() -> dict[str, Any]:
    ours = {"manager": "pulumi-kubernetes", "operation": "Update", "fieldsV1": {"f:spec": {}}}
    fields = {"f:metadata": {"f:labels": {"f:team": {}}}}
    edit = {"manager": "kubectl-label", "operation": "Update", "time": "2026-03-01T10:00:00Z", "fieldsV1": fields}
    made = {"labels": {labels.LAUNCH: "x", "team": "ops"}, "managedFields": [ours, edit]}
    return {
        "apiVersion": VOLCANO_JOB.api_version,
        "kind": VOLCANO_JOB.kind,
        "metadata": {"name": "train", "namespace": "default", **made},
    }


@pytest.mark.parametrize(
    ("cluster", "asked", "check", "verdict", "said"),
    [
        (FakeCluster(error=ClusterError("no answer")), DoctorScope(), "cluster", "problem", "no answer"),
        (FakeCluster(volcano()), DoctorScope(queue="big"), "queue", "problem", "no queue 'big'"),
        (FakeCluster(volcano("Closed")), DoctorScope(), "queue", "problem", "is Closed"),
        (FakeCluster(volcano()[:2]), DoctorScope(), "namespace", "problem", "no namespace 'default'"),
        (FakeCluster(served=[kinds.POD]), DoctorScope(scheduler="volcano"), "volcano", "problem", "does not serve"),
        (FakeCluster(served=[kinds.POD]), DoctorScope(), "volcano", "skipped", "not installed"),
        (FakeCluster(served=[kinds.POD]), DoctorScope(), "webhooks", "skipped", "no Volcano"),
        (FakeCluster(served=[kinds.POD]), DoctorScope(scheduler="mcad"), "mcad", "problem", "no AppWrapper"),
        (FakeCluster(served=[kinds.POD]), DoctorScope(), "permissions", "skipped", "no scheduler"),
        (FakeCluster([]), DoctorScope(), "webhooks", "problem", "no ValidatingWebhookConfiguration"),
        (denied(("create", VOLCANO_JOB)), DoctorScope(), "permissions", "problem", "create jobs.batch.volcano.sh"),
        (denied(("create", VOLCANO_JOB)), DoctorScope(), "webhooks", "skipped", "could not be tried"),
        (denied(("list", kinds.VALIDATING_WEBHOOK)), DoctorScope(), "webhooks", "ok", "cannot be seen"),
        (denied(("get", VOLCANO_QUEUE)), DoctorScope(), "queue", "skipped", "cannot be looked at"),
        (
            FakeCluster([*volcano(), edited_job()]),
            DoctorScope(),
            "edits",
            "ok",
            "1 outside Pulumi in namespace default: Job train: metadata.labels.team, set by kubectl-label at 2026",
        ),
        (denied(("list", VOLCANO_JOB)), DoctorScope(), "edits", "skipped", "cannot be read"),
    ],
)
def test_clusters(
    tmp_path: Path, cluster: FakeCluster, asked: DoctorScope, check: str, verdict: str, said: str
) -> None:
    finding = found(asked, seams(tmp_path / "s", cluster))[check]
    assert finding.verdict.value == verdict
    assert said in finding.detail
    assert finding.resolution or verdict != "problem"


class HiddenKinds(FakeCluster):
    """A cluster whose users may not see which kinds it serves."""

    def serves(self, kind: kinds.Kind) -> bool:
        path = f"/apis/{kind.group}/{kind.version}"
        raise ClusterError(f'the cluster forbids it: cannot get path "{path}"', reason="Forbidden")


def test_what_these_credentials_may_not_see_is_a_problem_that_names_the_page_of_permissions(tmp_path: Path) -> None:
    findings = found(DoctorScope(), seams(tmp_path / "s", HiddenKinds(volcano())))
    for name in ("volcano", "mcad", "webhooks", "queue", "permissions"):
        assert findings[name].verdict is Verdict.PROBLEM
        assert "the cluster forbids it" in findings[name].detail
        assert "docs/permissions.md" in findings[name].resolution
    assert findings["cluster"].verdict is Verdict.OK


def test_without_a_cluster_the_machine_is_still_looked_at(tmp_path: Path) -> None:
    def connect() -> FakeCluster:
        raise ClusterError("no kubeconfig")

    verdicts = found(DoctorScope(), replace(seams(tmp_path / "s"), connect=connect))
    assert verdicts["cluster"].verdict is Verdict.PROBLEM
    assert verdicts["queue"].verdict is Verdict.SKIPPED
    assert verdicts["pulumi"].verdict is Verdict.OK


def test_a_registry_is_needed_only_where_images_are_patched_and_a_daemon_not_then(tmp_path: Path) -> None:
    def refuse(*_: str) -> None:
        raise ImageError("no daemon")

    given = replace(seams(tmp_path / "s"), ping_docker=refuse, ask_registry=refuse)
    assert found(DoctorScope(), given)["docker"].verdict is Verdict.SKIPPED
    with_images = found(DoctorScope(image_repo="r/x"), given)
    assert with_images["registry"].verdict is Verdict.PROBLEM
    assert with_images["docker"].verdict is Verdict.SKIPPED
    assert "no daemon" in with_images["docker"].detail


def test_only_the_asked_scheduler_is_looked_at(tmp_path: Path) -> None:
    assert "mcad" not in found(DoctorScope(scheduler="volcano"), seams(tmp_path / "s"))
    assert not {"volcano", "queue", "webhooks"} & found(DoctorScope(scheduler="mcad"), seams(tmp_path / "s")).keys()


def test_files_that_others_may_read_and_a_full_disk_are_problems(tmp_path: Path) -> None:
    given = seams(tmp_path / "s")
    passphrase = given.folder / "passphrase"
    passphrase.write_text("x")
    passphrase.chmod(0o644)
    assert "chmod 600" in found(DoctorScope(), given)["passphrase"].resolution
    passphrase.chmod(0o600)
    given.folder.chmod(0o755)
    findings = found(DoctorScope(), given)
    assert findings["passphrase"].verdict is Verdict.OK
    assert "chmod 700" in findings["state-folder"].resolution
    given.folder.chmod(stat.S_IRWXU)
    assert "MB left" in check_state_folder(given.folder, lambda _: 1).detail


def test_the_passphrase_may_come_from_elsewhere(tmp_path: Path) -> None:
    given = seams(tmp_path / "s")
    for change, verdict, said in (
        ({"environment": {"PULUMI_CONFIG_PASSPHRASE": ""}}, "ok", "is set"),
        ({"environment": {"PULUMI_CONFIG_PASSPHRASE_FILE": str(tmp_path / "gone")}}, "problem", "gone: no such file"),
        ({"environment": {"PULUMI_CONFIG_PASSPHRASE_FILE": "~nobodyx/x"}}, "problem", "~nobodyx/x: no such file"),
        ({"backend": "https://api.example.com"}, "skipped", "keeps secrets by itself"),
    ):
        finding = found(DoctorScope(), replace(given, **change))["passphrase"]
        assert (finding.verdict.value, said in finding.detail) == (verdict, True)


def test_a_check_that_hangs_or_breaks_is_said_and_the_others_are_heard() -> None:
    released = threading.Event()

    def hang() -> Finding:
        released.wait(10)
        return ok("hangs", "")

    def fail() -> Finding:
        raise RuntimeError("odd")

    (hangs,) = run_all([("hangs", hang)], 0.05)
    released.set()
    assert "no answer in 0.05 s" in hangs.detail
    breaks, fine = run_all([("breaks", fail), ("fine", lambda: ok("fine", "yes"))], 30)
    assert "RuntimeError: odd" in breaks.detail
    assert fine.verdict is Verdict.OK


def test_programs_are_found_run_and_their_failures_are_no_error() -> None:
    assert run_program("sh", "-c true") == ""
    assert run_program("sh", "-c false") is None
    assert run_program("no-such-program-of-anybody", "") is None


def test_a_cli_that_answers_too_late_is_not_said_to_be_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "pulumi"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    given = replace(seams(tmp_path / "s"), run=partial(run_program, timeout_s=0.05))
    finding = found(DoctorScope(), given)["pulumi"]
    assert finding.verdict is Verdict.PROBLEM
    assert "`pulumi version` did not answer in 0.05 s" in finding.detail


def test_the_command_prints_and_says_by_its_exit_code_whether_all_is_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    absent = str(tmp_path / "absent")
    assert main(["doctor", "--kubeconfig", absent]) == 1
    printed = capsys.readouterr().out
    assert "problem  cluster" in printed
    assert "-> name a kubeconfig" in printed
    assert main(["doctor", "--kubeconfig", absent, "--json"]) == 1
    values = json.loads(capsys.readouterr().out)
    assert not values["ok"]
    assert {"check", "verdict", "detail", "resolution"} == values["findings"][0].keys()


def test_every_check_is_in_the_docs(tmp_path: Path) -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "fleet.md").read_text()
    assert not [name for name in found(DoctorScope(), seams(tmp_path / "s")) if f"`{name}`" not in page]


def test_what_cannot_be_looked_at_is_a_problem_and_not_absent(
    tmp_path: Path, unreadable: Callable[[Path, int], None]
) -> None:
    for path in (tmp_path / "state", tmp_path / "state/passphrase"):
        unreadable(path, errno.EACCES)
    found = [
        check_state_folder(tmp_path / "state"),
        check_passphrase(tmp_path / "state", {}, "file:///b"),
    ]
    assert ["cannot be read: Permission denied" in str(finding) for finding in found] == [True, True]
