"""What a local cluster may have, and what follows from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.bootstrap.parts import part_named
from tools.local_cluster.__main__ import _parser
from tools.local_cluster.app_wrappers import app_wrapper_operator, mcad
from tools.local_cluster.default_scheduler import configuration, default_scheduler
from tools.local_cluster.errors import LocalClusterError
from tools.local_cluster.features import DEFAULT, FEATURES, chosen, grown, parts_of
from tools.local_cluster.kueue import kueue
from tools.local_cluster.layout import Layout
from tools.local_cluster.settings import Settings, load_settings
from tools.local_cluster.volcano import volcano


def plain(**changes: object) -> Settings:
    given = {"ports": {}, "pod_subnet": "10.213.7.0/24", "kwok_nodes": 0, "parts": {}, **changes}
    return Settings(**given)  # type: ignore[arg-type]


def test_features_come_in_the_order_of_the_table() -> None:
    assert chosen(["mcad", "volcano", "mcad"]) == ("volcano", "mcad")
    assert chosen([]) == ()
    assert chosen(DEFAULT) == DEFAULT


def test_a_feature_that_nobody_knows_is_refused_by_name() -> None:
    with pytest.raises(
        LocalClusterError,
        match="no feature is called 'yarn'; there are: volcano, mcad, appwrapper, kueue, coscheduling",
    ):
        chosen(["yarn"])


def test_two_definitions_of_one_custom_resource_are_refused() -> None:
    with pytest.raises(LocalClusterError, match="choose one, or use two clusters"):
        chosen(["mcad", "appwrapper"])


def test_every_feature_is_made_of_parts_that_can_be_had() -> None:
    wanted = {*parts_of(FEATURES), *parts_of(["mcad"])}
    assert {part_named(part).name for part in wanted} == wanted


def test_plain_pods_have_one_default_scheduler() -> None:
    assert parts_of(["mcad"]) == ("mcad", "kube-scheduler")
    assert parts_of(["coscheduling", "appwrapper"]) == ("appwrapper", "scheduler-plugins")
    assert parts_of(["volcano"]) == ("volcano",)
    assert parts_of(["volcano", "appwrapper", "kueue"]) == ("volcano", "appwrapper", "kueue", "kube-scheduler")


@pytest.mark.parametrize(
    ("having", "more", "then"),
    [
        (("volcano",), ("mcad",), ("volcano", "mcad")),
        (("volcano",), DEFAULT, DEFAULT),
        (("volcano", "mcad"), ("volcano",), ("volcano", "mcad")),
        # The default scheduler that runs would be another one.
        (("mcad",), ("coscheduling",), None),
        (("mcad",), ("appwrapper",), None),
    ],
)
def test_a_running_cluster_gets_features_that_replace_nothing(
    having: tuple[str, ...], more: tuple[str, ...], then: tuple[str, ...] | None
) -> None:
    assert grown(having, more) == then


def test_a_cluster_without_features_has_no_parts_of_theirs(tmp_path: Path) -> None:
    layout, settings = Layout(name="one", root=tmp_path), plain(features=())
    for family in (volcano, default_scheduler, mcad, app_wrapper_operator, kueue):
        assert list(family(layout, settings)) == []


def test_features_are_remembered_and_a_cluster_of_before_has_volcano(tmp_path: Path) -> None:
    layout = Layout(name="one", root=tmp_path)
    plain(features=("volcano", "mcad")).save(layout)
    found = load_settings(layout)
    assert found is not None
    assert found.features == ("volcano", "mcad")
    layout.settings.write_text('{"ports": {}, "pod_subnet": "10.213.7.0/24", "kwok_nodes": 0, "parts": {}}')
    old = load_settings(layout)
    assert old is not None
    assert old.features == ("volcano",)


def test_both_profiles_of_the_scheduler_sort_their_queue_alike(tmp_path: Path) -> None:
    first, second = configuration(Layout(name="one", root=tmp_path), gangs=True)["profiles"]
    assert (first["schedulerName"], second["schedulerName"]) == ("default-scheduler", "coscheduler")
    assert first["plugins"]["queueSort"] == second["plugins"]["queueSort"]
    assert first["pluginConfig"] == second["pluginConfig"]
    (only,) = configuration(Layout(name="one", root=tmp_path), gangs=False)["profiles"]
    assert only == {"schedulerName": "default-scheduler"}


def test_the_command_line_takes_features_with_commas() -> None:
    assert _parser().parse_args(["up", "--features", "volcano,mcad"]).features == ("volcano", "mcad")
    assert _parser().parse_args(["up", "--features", ""]).features == ()
    assert _parser().parse_args(["up"]).features == DEFAULT
