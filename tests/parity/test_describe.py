"""A Volcano Job of TorchX's own scheduler, as the cluster stores it, is described so that ours renders it again."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torchx.specs import BindMount, Resource, VolumeMount
from torchx_pulumi.cli.main import EXIT_INVALID, main
from torchx_pulumi.inputs.appfile import read_app_file
from torchx_pulumi.inputs.rendering import render_app
from torchx_pulumi.model import labels
from torchx_pulumi.model.errors import InvalidJobError
from torchx_pulumi.planning.quantities import canonical
from torchx_pulumi.schedulers.volcano.describe import describe_job
from torchx_pulumi.stack_state.backend import stack_name
from torchx_pulumi.testing import FakeCluster

from tests.parity.apps import CASES, Case, one, several
from tests.parity.differences import compare, explain
from tests.parity.test_volcano import VERSION, runs_here, torchx_manifest

UNSAID = {
    # A role without a usable letter has no name by which its replicas could find rank 0.
    "role without a usable letter": r"replicas differ by more than their number: args\[3\], args\[4\]",
    "overlay with PUT": r"containers\[0\]\.volumeMounts: is a field that an app cannot describe",
    "overlay with a tuple": r"containers\[0\]\.volumeMounts: is a field that an app cannot describe",
    "overlay with JOIN": r"containers\[0\]\.tty: is a field that an app cannot describe",
}
"""Case to the reason for which the job of TorchX nightly, which has overlays, is not described."""

OTHERWISE = {"replica retries": "spec.maxRetry", "role that ends in a dash": "name"}
"""Case to the end of the paths that differ: retries that no policy asks for have no effect, and a name is no label."""


def stored(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return a job as the cluster has it: Volcano's webhook writes each task again, without what is empty."""

    def without_empty(value: Any) -> Any:
        if isinstance(value, dict):
            parts = {key: without_empty(part) for key, part in value.items()}
            kept = {key: part for key, part in parts.items() if key == "env" or part not in (None, {}, [], "", False)}
            return {key: canonical(part) if key in ("cpu", "memory") else part for key, part in kept.items()}
        return [without_empty(part) for part in value] if isinstance(value, list) else value

    job = copy.deepcopy(manifest)
    job["metadata"] |= {"namespace": "ml", "uid": "u"}
    tasks = [{"minAvailable": 1, "maxRetry": 3} | task for task in job["spec"]["tasks"]]
    written = [{**without_empty(task), "minAvailable": task["minAvailable"]} for task in tasks]
    job["spec"] |= {"minAvailable": 1, "tasks": written}
    return job


@pytest.mark.parametrize("name", CASES)
def test_a_described_job_renders_what_runs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[name]
    if not runs_here(case):
        pytest.skip("this TorchX has no such option, or its client refuses the values")
    app_id = case.options.get("app_id", "app-x1")
    live = stored(torchx_manifest(case, app_id, monkeypatch))
    before = copy.deepcopy(live)
    if VERSION == "nightly" and name in UNSAID:
        with pytest.raises(InvalidJobError, match=UNSAID[name]):
            describe_job(live)
        return
    app, options = describe_job(live)
    assert live == before
    assert options["namespace"] == "ml"
    ours = stored(render_app(app, "volcano", options, app_id=app_id))
    pairs = compare(live["spec"], ours["spec"], "spec")
    unexplained = [pair for pair in pairs if explain(pair, VERSION) is None]
    assert [pair for pair in unexplained if not pair.path.endswith(OTHERWISE.get(name, "\0"))] == []


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    return stored(torchx_manifest(CASES["several roles"], "app-x1", monkeypatch))


def test_all_fields_that_no_app_can_say_are_named_at_once(live: dict[str, Any]) -> None:
    live["spec"]["volumes"] = [{"mountPath": "/data"}]
    first, second, third, _ = live["spec"]["tasks"]
    first["dependsOn"] = {"name": ["b-0"]}
    second["template"]["spec"]["containers"][0] |= {"image": "img:9", "workingDir": "/w"}
    third["policies"] = [{"event": "TaskCompleted", "action": "CompleteJob"}]
    third["template"]["spec"]["containers"][0]["env"] = [
        {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}
    ]
    with pytest.raises(InvalidJobError) as caught:
        describe_job(live)
    assert [problem.path for problem in caught.value.problems] == [
        "spec.tasks[0].dependsOn",
        "spec.tasks[1].template.spec.containers[0].workingDir",
        "spec.tasks[2].policies",
        "spec.tasks[2].template.spec.containers[0].env",
        "spec.volumes",
        "spec.tasks[0]",
    ]
    assert re.search("replicas differ by more than their number: .*image", str(caught.value))


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("volumeMounts", lambda _, container: container["volumeMounts"][-1].update(subPath="team")),
        ("volumeMounts", lambda pod, _: pod["volumes"][-1]["persistentVolumeClaim"].update(readOnly=True)),
        ("volumeMounts", lambda pod, _: pod["volumes"][-2]["hostPath"].update(type="Directory")),
        ("ports", lambda _, container: container["ports"][0].update(protocol="UDP")),
        ("ports", lambda _, container: container["ports"][0].update(hostPort=80)),
    ],
)
def test_more_of_a_mount_or_port_than_an_app_can_say_is_refused(
    field: str, change: Callable[[Any, Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = one(mounts=[BindMount("/a", "/b"), VolumeMount("claim", "/c")], port_map={"http": 80})
    live = stored(torchx_manifest(Case(app), "app-x1", monkeypatch))
    pod = live["spec"]["tasks"][0]["template"]["spec"]
    pod["containers"][0]["ports"][0]["protocol"] = "TCP"
    described, _ = describe_job(live)
    assert described["roles"][0]["port_map"] == {"http": 80}
    change(pod, pod["containers"][0])
    with pytest.raises(InvalidJobError) as caught:
        describe_job(live)
    (problem,) = caught.value.problems
    assert problem.path == f"spec.tasks[0].template.spec.containers[0].{field}"


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("limits", "ephemeral-storage", "10Gi"),
        ("requests", "ephemeral-storage", "10Gi"),
        ("requests", "vpc.amazonaws.com/efa", "1"),
        ("limits", "memory", "1Gi"),
        ("requests", "cpu", "1m"),
        ("limits", "cpu", None),
        ("requests", "memory", None),
    ],
)
def test_a_resource_that_no_app_can_say_is_named_where_it_is(
    part: str, name: str, value: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    role = {"num_replicas": 2, "resource": Resource(cpu=2, gpu=1, memMB=4000)}
    live = stored(torchx_manifest(Case(several(role)), "app-x1", monkeypatch))
    assert describe_job(live)[0]["roles"][0]["resource"] == {"cpu": 2, "gpu": 1, "memory_mb": 4000, "devices": {}}
    resources = live["spec"]["tasks"][1]["template"]["spec"]["containers"][0]["resources"]
    resources[part] = {key: text for key, text in {**resources[part], name: value}.items() if text is not None}
    with pytest.raises(InvalidJobError) as caught:
        describe_job(live)
    where = "spec.tasks[1].template.spec.containers[0].resources"
    # Without a limit, it is the request that no app can say.
    expected = f"{where}.requests.cpu" if (part, value) == ("limits", None) else f"{where}.{part}.{name}"
    assert expected in [problem.path for problem in caught.value.problems]
    others = {problem.path for problem in caught.value.problems} - {expected}
    assert others <= {"spec.tasks[0]", f"{where}.requests.{name}"}


def test_a_claim_of_a_device_is_not_lost(live: dict[str, Any]) -> None:
    live["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
    with pytest.raises(InvalidJobError, match=r"spec\.tasks\[0\].*containers\[0\]\.resources\.claims: is a field"):
        describe_job(live)


def test_what_the_tasks_of_a_role_have_is_said_once(live: dict[str, Any]) -> None:
    for task in live["spec"]["tasks"][:3]:
        task["template"]["spec"]["containers"][0]["workingDir"] = "/w"
    live["spec"]["tasks"][2]["dependsOn"] = {"name": ["b-0"]}
    with pytest.raises(InvalidJobError) as caught:
        describe_job(live)
    said = "is a field that an app cannot describe"
    assert [str(problem) for problem in caught.value.problems] == [
        f"spec.tasks[0].template.spec.containers[0].workingDir: {said}; the same in 1 other task of the role",
        f"spec.tasks[2].dependsOn: {said}",
        f"spec.tasks[2].template.spec.containers[0].workingDir: {said}",
    ]


def test_each_role_whose_replicas_differ_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    app = several({"num_replicas": 2}, {"name": "eval", "num_replicas": 2})
    live = stored(torchx_manifest(Case(app), "app-x1", monkeypatch))
    for place in (1, 3):
        live["spec"]["tasks"][place]["template"]["spec"]["containers"][0]["image"] = "img:9"
    with pytest.raises(InvalidJobError) as caught:
        describe_job(live)
    assert [problem.path for problem in caught.value.problems] == ["spec.tasks[0]", "spec.tasks[2]"]


@pytest.mark.parametrize(
    ("odd", "others"), [(0, "1750m"), (1, "1750m"), (0, "1900m")], ids=["first", "second", "of two, with the default"]
)
def test_the_task_that_reserves_another_amount_is_named(odd: int, others: str, monkeypatch: pytest.MonkeyPatch) -> None:
    role = {"num_replicas": 2 if others == "1900m" else 3, "resource": Resource(cpu=2, gpu=0, memMB=4000)}
    live = stored(torchx_manifest(Case(several(role)), "app-x1", monkeypatch))
    for place, task in enumerate(live["spec"]["tasks"]):
        requests = task["template"]["spec"]["containers"][0]["resources"]["requests"]
        requests["cpu"] = "500m" if place == odd else others
    with pytest.raises(InvalidJobError) as caught:
        describe_job(live)
    (problem,) = caught.value.problems
    assert problem.path == f"spec.tasks[{odd}].template.spec.containers[0].resources.requests.cpu"


@pytest.mark.parametrize("milli", [1001, 128003])
def test_a_limit_in_millicores_that_no_float_meets_is_rendered_again(
    milli: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    role = {"resource": Resource(cpu=milli / 1000 + 1e-5, gpu=0, memMB=4000)}
    live = stored(torchx_manifest(Case(several(role)), "app-x1", monkeypatch))
    resources = live["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["resources"]
    assert resources["limits"]["cpu"] == f"{milli}m"
    app, options = describe_job(live)
    (task,) = stored(render_app(app, "volcano", options, app_id="app-x1"))["spec"]["tasks"]
    assert task["template"]["spec"]["containers"][0]["resources"] == resources


@pytest.mark.parametrize("containers", [[], [{"name": "c"}]])
def test_a_task_without_an_image_is_refused_by_its_path(live: dict[str, Any], containers: list[Any]) -> None:
    live["spec"]["tasks"][3]["template"]["spec"]["containers"] = containers
    with pytest.raises(InvalidJobError) as caught:
        describe_job(live)
    (problem,) = caught.value.problems
    assert problem.path == "spec.tasks[3].template.spec.containers[0].image"


@pytest.mark.parametrize(
    "text", ["$$VC_TRAINER_0_HOSTS", "$$TORCHX_RANK0_HOST", "$${replica_id}", "$$${rank0_env} $${x}"]
)
def test_a_text_that_looks_like_a_macro_renders_as_it_is(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    roles = [{"args": [text], "num_replicas": 2}, {"name": "eval", "args": [text]}]
    live = stored(torchx_manifest(Case(several(*roles)), "app-x1", monkeypatch))
    app, options = describe_job(live)
    ours = stored(render_app(app, "volcano", options, app_id="app-x1"))
    commands = [
        [task["template"]["spec"]["containers"][0]["command"] for task in job["spec"]["tasks"]] for job in (live, ours)
    ]
    assert commands[0] == commands[1]


def test_a_job_that_torchx_did_not_create_is_refused(live: dict[str, Any]) -> None:
    live["spec"]["tasks"][1]["replicas"] = 2
    with pytest.raises(InvalidJobError, match=r"spec\.tasks\[1\]: is not one replica of TorchX's scheduler"):
        describe_job(live)
    del live["spec"]["tasks"][0]["template"]["metadata"]["labels"]["app.kubernetes.io/managed-by"]
    with pytest.raises(InvalidJobError, match=r"spec\.tasks\[0\]: is not one replica of TorchX's scheduler"):
        describe_job(live)
    for spec in ({}, {"tasks": []}):
        with pytest.raises(InvalidJobError, match=r"spec\.tasks: has no task"):
            describe_job({**live, "spec": spec})


def test_the_command_writes_a_program_that_imports_the_job(
    live: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("PULUMI_BACKEND_URL", raising=False)
    cluster = FakeCluster([live])
    monkeypatch.setattr("torchx_pulumi.kube.KubernetesCluster.connect", lambda *_: cluster)

    def run(name: str) -> int:
        return main(["program", f"kubernetes://torchx/ml:{name}", "--to", str(tmp_path / "there")])

    assert run("gone") == EXIT_INVALID
    assert "there is no Job ml:gone (batch.volcano.sh" in capsys.readouterr().err
    assert run("app-x1") == 0
    stack = stack_name("ml", "app-x1", "volcano", cluster.identity)
    steps = capsys.readouterr().out.splitlines()
    assert f"pulumi stack init {stack}" in steps
    assert steps[-3:-1] == ["pulumi preview", "pulumi up  # imports the job"]
    program = (tmp_path / "there/__main__.py").read_text()
    assert "opts=pulumi.ResourceOptions(import_='ml/app-x1'),\n" in program
    assert "app_id='app-x1',\n    queue='test',\n    namespace='ml',\n" in program
    described = read_app_file(tmp_path / "there/app.json")
    assert [(role.name, role.num_replicas) for role in described.roles] == [("a", 2), ("b", 1), ("c", 1)]
    live["metadata"]["labels"] = {labels.LAUNCH: "of-a-stack"}
    cluster.put(live)
    assert run("app-x1") == EXIT_INVALID
    assert "is of a stack of torchx-pulumi already" in capsys.readouterr().err
