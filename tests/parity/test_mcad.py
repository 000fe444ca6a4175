"""Our AppWrapper against the one of TorchX 0.7.0, the last that had MCAD; the nightly is skipped."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
from torchx.specs import AppDef
from torchx_pulumi import InvalidJobError, render

from tests.parity.apps import CASES as VOLCANO_CASES
from tests.parity.apps import Case, one, role, several
from tests.parity.differences import Pair, compare
from tests.parity.mcad_differences import DIFFERENCES, explain

theirs = pytest.importorskip("torchx.schedulers.kubernetes_mcad_scheduler")

APP_ID = "app-x1"

OURS_ALONE = ("reserved_millicpu", "reserved_memmb", "efa_device_count")
"""Options that TorchX never had for MCAD."""

ELASTIC = {"elastic", "elastic in one role", "dist.ddp, elastic"}
"""Refused by us: MCAD has no elasticity, and TorchX drops what it was asked for."""

CASES: dict[str, Case] = {
    **{name: case for name, case in VOLCANO_CASES.items() if not set(OURS_ALONE) & set(case.options)},
    "priority": Case(one(), {"priority": 7}),
    "priority zero": Case(one(), {"priority": 0}),
    "negative priority": Case(one(), {"priority": -1}),
    "priority class name": Case(one(), {"priority_class_name": "high"}),
    "image secret": Case(one(), {"image_secret": "pull"}),
    "network": Case(one(num_replicas=2), {"network": "fast-net"}),
    "coscheduler": Case(
        several({"name": "a", "num_replicas": 3}, {"name": "b", "num_replicas": 2}), {"coscheduler_name": "co"}
    ),
    "coscheduler with old PodGroups": Case(
        several({"name": "a", "num_replicas": 3}, {"name": "b"}),
        {"coscheduler_name": "co", "pod_group_api": "scheduling.sigs.k8s.io/v1alpha1"},
    ),
    "ports of several roles": Case(
        several({"name": "a", "port_map": {"x": 1, "y": 2}}, {"name": "b", "port_map": {"z": 3}}, {"name": "c"})
    ),
    "port out of range": Case(one(port_map={"bad": 70000})),
    "port zero": Case(one(port_map={"bad": 0})),
    "everything": Case(
        lambda: AppDef("my-app", [role(name="my-train", num_replicas=2, max_retries=2), role(name="b", max_retries=1)]),
        {
            "namespace": "team-a",
            "service_account": "runner",
            "priority": 3,
            "priority_class_name": "high",
            "image_secret": "pull",
            "coscheduler_name": "co",
            "network": "net",
        },
    ),
}


def torchx_manifest(case: Case, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(theirs, "make_unique", lambda name, length: case.options.get("app_id", APP_ID))
    options = case.options
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        resource = theirs.app_to_resource(
            app=case.app(),
            namespace=options.get("namespace", "default"),
            service_account=options.get("service_account"),
            image_secret=options.get("image_secret"),
            coscheduler_name=options.get("coscheduler_name"),
            priority_class_name=options.get("priority_class_name") or options.get("priority_class"),
            network=options.get("network"),
            priority=options.get("priority"),
        )
        manifest: dict[str, Any] = theirs.sanitize_for_serialization(resource)
    return manifest


def ours(case: Case) -> dict[str, Any]:
    options = dict(case.options)
    return render(case.app(), "mcad", options, app_id=options.pop("app_id", APP_ID))


def found_differences(case: Case, monkeypatch: pytest.MonkeyPatch) -> list[Pair]:
    return list(compare(torchx_manifest(case, monkeypatch), ours(case)))


@pytest.mark.parametrize("name", sorted(CASES.keys() - ELASTIC))
def test_manifest_agrees_with_torchx_but_for_declared_differences(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = found_differences(CASES[name], monkeypatch)
    assert [pair for pair in pairs if explain(pair) is None] == []


def test_every_declared_difference_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [CASES[name] for name in CASES.keys() - ELASTIC]
    assert {explain(pair) for case in cases for pair in found_differences(case, monkeypatch)} == DIFFERENCES.keys()


@pytest.mark.parametrize("name", sorted(ELASTIC))
def test_elasticity_is_refused(name: str) -> None:
    with pytest.raises(InvalidJobError, match="min_replicas"):
        ours(CASES[name])


def test_rendering_leaves_the_app_as_it_was() -> None:
    for name in CASES.keys() - ELASTIC:
        app, options = CASES[name].app(), dict(CASES[name].options)
        before = copy.deepcopy(app)
        render(app, "mcad", options, app_id=options.pop("app_id", APP_ID))
        assert app == before, name
