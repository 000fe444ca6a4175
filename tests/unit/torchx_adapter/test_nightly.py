"""What TorchX nightly (0.8) has by name and 0.7.0 does not, with our schedulers."""

from __future__ import annotations

import dataclasses
import json
import logging
from typing import Any

import pytest
from torchx import specs
from torchx.runner import Runner
from torchx_pulumi.runs.index import RunIndex

from .conftest import CONFIG, ECHO, World, app, role, run

pytestmark = pytest.mark.skipif(not hasattr(specs, "Workspace"), reason="TorchX 0.7.0 has none of it")


@pytest.fixture
def runner(world: World, kind: str) -> Runner:
    return Runner("torchx", {f"pulumi_{kind}": lambda session, **_: world.scheduler(kind, session)})


def words(kind: str) -> list[str]:
    return ["-s", f"pulumi_{kind}", *(["-cfg", "queue=test"] if kind == "volcano" else []), "--workspace", ""]


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    """Run a command and read its output, which is one JSON object."""
    capsys.readouterr()
    run(*arguments)
    return json.loads(capsys.readouterr().out)


def test_json_has_the_keys_of_torchx(installed: World, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    dry = said(capsys, "run", *words(kind), "--dryrun", "--json", *ECHO)
    assert list(dry) == ["scheduler", "cfg", "app", "request"]
    assert list(dry["request"]) == ["images_to_push", "resource"]
    assert dry["app"]["name"] == "echo"
    launched = said(capsys, "run", *words(kind), "--json", *ECHO)
    assert list(launched) == ["handle", "app_id", "scheduler", "state", "ui_url"]
    status = said(capsys, "status", "--json", launched["handle"])
    assert set(status) == {
        "handle", "app_id", "scheduler", "state", "num_restarts", "roles", "msg", "structured_error_msg", "url",
        "ui_url",
    }  # fmt: skip
    assert (status["app_id"], status["state"]) == (launched["app_id"], launched["state"])
    run("delete", launched["handle"])
    assert RunIndex().all() == []


def test_list_takes_options(installed: World, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    handle = said(capsys, "run", *words(kind), "--json", *ECHO)["handle"]
    for namespace, there in (("default", True), ("other", False)):
        run("list", "-s", f"pulumi_{kind}", "-cfg", f"namespace={namespace}")
        assert (handle in capsys.readouterr().out) is there


def test_an_app_that_is_described_has_its_roles_by_name(runner: Runner, kind: str) -> None:
    given = app(role(), role(name="reader", num_replicas=1))
    handle = runner.run(given, f"pulumi_{kind}", CONFIG[kind])
    runner._apps.clear()
    described = runner.describe(handle)
    assert described is not None
    assert described.get_role("reader").num_replicas == described["reader"].num_replicas == 1
    native = runner.describe_native(handle)
    assert native is not None
    assert native.app.get_role("trainer").args == given.roles[0].args
    assert native.cfg["namespace"] == "default"
    assert list(dataclasses.asdict(native.request)) == ["images_to_push", "resource"]
    runner.delete(handle)
    assert runner.describe_native(handle) is None


def test_a_dry_run_has_its_app_and_its_options(runner: Runner, kind: str) -> None:
    info = runner.dryrun(app(), f"pulumi_{kind}", CONFIG[kind])
    assert (info.app.name, info.cfg["namespace"], info._scheduler) == ("train", "default", f"pulumi_{kind}")
    again = runner.dryrun(info.app, f"pulumi_{kind}", info.cfg)
    for request in (info.request, again.request):
        request.resource["metadata"]["name"] = "same"
    assert again.app == info.app
    assert info.cfg == again.cfg


def test_overlays_of_a_role_reach_its_pods(world: World) -> None:
    from torchx.specs.overlays import JOIN, set_overlay

    given = role()
    set_overlay(given, "kubernetes", "V1Pod", {"spec": {"nodeSelector": {"pool": "a"}}})
    set_overlay(given, "kubernetes", "V1Pod", {"spec": {"tolerations": [{"key": "gpu", "operator": "Exists"}]}})
    set_overlay(given, "other", "Thing", {"spec": {"nodeSelector": {"pool": "b"}}})
    key = JOIN("containers", on="name")
    set_overlay(given, "kubernetes", "V1Pod", {"spec": {key: [{"name": "side", "image": "side:1"}]}})
    info = world.scheduler().submit_dryrun(app(given), CONFIG["volcano"])
    pod = info.request.resource["spec"]["tasks"][0]["template"]["spec"]
    assert pod["nodeSelector"] == {"pool": "a"}
    assert pod["tolerations"] == [{"key": "gpu", "operator": "Exists"}]
    assert [item["name"] for item in pod["containers"]][-1] == "side"


def test_handlers_of_events_get_what_ours_do(runner: Runner, kind: str) -> None:
    seen: list[str] = []

    class Audit(logging.Handler):
        """An audit of a team, as `@register.event_handler` makes it."""

        def emit(self, record: logging.LogRecord) -> None:
            seen.append(record.getMessage())

    logger, handler = logging.getLogger("torchx-events-null"), Audit()
    logger.addHandler(handler)
    try:
        handle = runner.run(app(), f"pulumi_{kind}", CONFIG[kind])
        with pytest.raises(Exception, match="quue"):
            runner.dryrun(app(), f"pulumi_{kind}", {**CONFIG[kind], "quue": "a"})
    finally:
        logger.removeHandler(handler)
    events = [json.loads(text) for text in seen]
    launched = next(event for event in events if event["api"] == "schedule")
    assert launched["app_id"] == handle.rpartition("/")[2]
    assert events[-1]["exception_type"] == "InvalidRunConfigException"


def test_unknown_options_are_refused_wherever_they_come_from(runner: Runner, kind: str) -> None:
    options = runner.scheduler_run_opts(f"pulumi_{kind}")
    for refused in (
        lambda: options.resolve({**CONFIG[kind], "quue": None}),
        lambda: options.cfg_from_str("quue=a"),
        lambda: options.cfg_from_json_repr('{"quue": "a"}'),
        lambda: options.cfg_from_json_repr('{"serviceAccount": "a", "service_account": "b"}'),
        lambda: options.resolve({**CONFIG[kind], "serviceAccount": "a", "service_account": "b"}),
        lambda: options.cfg_from_str("workspace_type=dir"),
    ):
        with pytest.raises(specs.InvalidRunConfigException, match=r"quue|service_account|workspace_type"):
            refused()
    assert options.cfg_from_json_repr('{"quue": "a", "labels": {"a": 1}}', ignore_unknown=True) == {
        "labels": {"a": "1"}
    }
    assert options.resolve({**CONFIG[kind], "quue": "a"}, ignore_unknown=True)["quue"] == "a"
