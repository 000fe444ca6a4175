"""Our Volcano Job against TorchX's own `app_to_resource`, for whichever TorchX is installed."""

from __future__ import annotations

import copy
import inspect
import warnings
from typing import Any

import kubernetes
import pytest
import torchx
from torchx.schedulers import kubernetes_scheduler
from torchx_pulumi import render

from tests.parity.apps import CASES, Case
from tests.parity.differences import DIFFERENCES, Pair, compare, explain

VERSION = "0.7.0" if torchx.__version__ == "0.7.0" else "nightly"

NIGHTLY_OPTIONS = ("reserved_millicpu", "reserved_memmb", "efa_device_count")


def torchx_manifest(case: Case, app_id: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(kubernetes_scheduler, "make_unique", lambda name: app_id)
    options = case.options
    arguments = {name: options[name] for name in NIGHTLY_OPTIONS if name in options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        resource = kubernetes_scheduler.app_to_resource(
            case.app(), "test", options.get("service_account"), options.get("priority_class"), **arguments
        )
    manifest: dict[str, Any] = kubernetes_scheduler.sanitize_for_serialization(resource)  # type: ignore[assignment]
    return manifest


def found_differences(case: Case, monkeypatch: pytest.MonkeyPatch) -> list[Pair]:
    options = {"queue": "test", **case.options}
    app_id = options.pop("app_id", "app-x1")
    theirs = torchx_manifest(case, app_id, monkeypatch)
    return list(compare(theirs, render(case.app(), "volcano", options, app_id=app_id)))


def runs_here(case: Case) -> bool:
    """Tell whether the installed TorchX has the options of a case, and its Kubernetes client takes the values."""
    if not case.typed and int(kubernetes.__version__.split(".")[0]) >= 37:
        return False
    parameters = inspect.signature(kubernetes_scheduler.app_to_resource).parameters
    return all(name in parameters for name in case.options if name in NIGHTLY_OPTIONS)


@pytest.mark.parametrize("name", CASES)
def test_manifest_agrees_with_torchx_but_for_declared_differences(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if not runs_here(CASES[name]):
        pytest.skip("this TorchX has no such option, or its client refuses the values")
    pairs = found_differences(CASES[name], monkeypatch)
    assert [pair for pair in pairs if explain(pair, VERSION) is None] == []


def test_every_declared_difference_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {
        explain(pair, VERSION)
        for case in CASES.values()
        if runs_here(case)
        for pair in found_differences(case, monkeypatch)
    }
    assert seen == {name for name, difference in DIFFERENCES.items() if VERSION in difference.versions}


def test_rendering_leaves_the_app_as_it_was_and_gives_the_same_twice() -> None:
    for name, case in CASES.items():
        app, options = case.app(), {"queue": "test", **case.options}
        before, app_id = copy.deepcopy(app), options.pop("app_id", "app-x1")
        first, second = (render(app, "volcano", options, app_id=app_id) for _ in range(2))
        assert app == before, name
        assert repr(first) == repr(second), name
