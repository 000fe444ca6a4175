"""An app of `torchx run` goes over to the program that `torchx-pulumi program` writes: the same objects, the same run.

The launch and the written program run on one mock engine, the program on the state that the launch has left.
`TORCHX_PULUMI_CASES=all` hands over every job with both schedulers, else each scheduler has every sixth one; that a
program reads every job as it was launched shows `tests/unit/runs/test_eject.py`.
"""

from __future__ import annotations

import copy
import json
import os
import runpy
from collections.abc import Callable, Mapping
from contextlib import closing
from enum import Enum
from pathlib import Path
from typing import Any

import pulumi
import pytest
from torchx_pulumi.model.app_entry import read_entry, write_entry
from torchx_pulumi.runs.eject import project_files
from torchx_pulumi.runs.registration import Registration, plan_registration
from torchx_pulumi.testing import cluster_for_tests
from torchx_pulumi.torchx_adapter.context import AdapterContext
from torchx_pulumi.torchx_adapter.scheduler import PulumiScheduler
from torchx_pulumi_components import prerendered
from torchx_pulumi_components.prerendered import register_app

from tests.fakes import KNOWN, FakeCluster, FakeDriver
from tests.parity.apps import CASES, Case, one, resource, several
from tests.unit.images.fake_docker import FakeDocker
from tests.unit.images.fake_registry import FakeRegistry

STASH = "pulumi:index:Stash"

ELASTIC = ("elastic", "elastic in one role", "dist.ddp, elastic")
"""Refused by MCAD."""

STEP = 1 if os.environ.get("TORCHX_PULUMI_CASES") == "all" else 6


class RememberingDriver(FakeDriver):
    """Keeps the order of the last launch."""

    def __init__(self, cluster: FakeCluster) -> None:
        super().__init__(cluster)
        self.orders: list[Registration] = []

    def launch(self, order: Registration, *given: Any, **named: Any) -> str | None:
        self.orders.append(order)
        return super().launch(order, *given, **named)


class Handover:
    """Launches apps, and runs the programs that go on with them."""

    def __init__(self, engine: Any, folder: Path) -> None:
        self.engine = engine
        self.folder = folder
        self.cluster = FakeCluster()
        self.driver = RememberingDriver(self.cluster)
        self.said: list[str] = []
        """Messages of the programs."""

    def launch(self, scheduler: str, app: Any, options: Mapping[str, Any], docker: Any = None) -> Any:
        """Launch an app as `torchx run` does; return what its stack holds."""
        context = AdapterContext(make_driver=lambda: self.driver, connect=lambda *_: self.cluster)
        runner = PulumiScheduler(scheduler, "torchx", context, docker_client=docker)
        app_id = runner.submit(app, dict(options))
        self.entry = context.index.find(app_id, scheduler)
        assert self.entry is not None
        ready = plan_registration(self.driver.orders[-1])
        place = self.entry.place
        made = self._run(lambda: register_app(ready))
        prefix = f"urn:pulumi:{place.stack}::{place.project}::torchx:index:"
        component = next(item.typ for item in made if item.typ.endswith("TrainingJob")).rpartition(":")[2]
        self.engine.mocks.state |= self.engine.records()
        for item in made:
            state = {**copy.deepcopy(item.inputs), **({"uid": "u"} if item.typ.endswith("TrainingJob") else {})}
            if "metadata" in state:
                state["metadata"]["uid"] = f"uid-of-{item.name}"
            self.engine.mocks.state[f"{prefix}{component}${item.typ}::{item.name}"] = state
        head = copy.deepcopy(ready.objects[0])
        head["metadata"]["uid"] = f"uid-of-{ready.name}"
        head["status"] = {"state": {"phase": "Running"}} if scheduler == "volcano" else {"state": "Running"}
        self.cluster.put(head)
        return made

    def take_over(self) -> Any:
        """Write the program and run it; return what it registers."""
        for name, text in project_files(self.entry).items():
            (self.folder / name).write_text(text, encoding="utf-8")
        with cluster_for_tests(self.cluster), pytest.MonkeyPatch.context() as patch:
            patch.setattr(pulumi.log, "info", lambda text, *_: self.said.append(text))
            return self._run(lambda: runpy.run_path(str(self.folder / "__main__.py"), run_name="__main__"))

    def _run(self, program: Callable[[], Any]) -> Any:
        place = self.entry.place
        self.engine.run(program, stack=place.stack, project=place.project)
        return list(self.engine.mocks.resources)


@pytest.fixture
def handover(engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Handover:
    # Every spec bypasses the SDK's conversion; in recordings none does.
    monkeypatch.setattr(prerendered, "LARGE_SPEC", 0)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.delenv("PULUMI_BACKEND_URL", raising=False)
    monkeypatch.delenv("TORCHXCONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return Handover(engine, tmp_path)


def registered(made: Any) -> dict[str, Any]:
    """Return the registration without its times.

    The labels by which `torchx list` finds an app are in the digests of a launch, and are no part of its hash. A
    Service keeps the labels and annotations that it was made with (`gangs.STORED_POD_FIELDS`).
    """
    found: dict[str, Any] = {}
    for item in made:
        inputs = copy.deepcopy(item.inputs)
        if item.typ == STASH:
            for name in ("launched_at", "uid"):
                inputs["input"].pop(name, None)
            inputs["input"].get("digests", {}).pop("labels", None)
        if item.typ.endswith(":Service"):
            inputs["metadata"] = {"name": inputs["metadata"]["name"], "namespace": inputs["metadata"]["namespace"]}
        found[f"{item.typ}::{item.name}"] = inputs
    return found


def check(handover: Handover, scheduler: str, case: Case) -> None:
    options = {name: value for name, value in case.options.items() if name != "app_id"}
    options |= {"queue": "test"} if scheduler == "volcano" else {}
    launched = registered(handover.launch(scheduler, case.app(), options))
    taken = registered(handover.take_over())
    assert taken == launched
    assert handover.said == []


@pytest.mark.parametrize("name", [*CASES][::STEP])
def test_a_program_goes_on_with_every_job_on_volcano(handover: Handover, name: str) -> None:
    check(handover, "volcano", CASES[name])


def mcad(case: Case) -> Case:
    names = {"priority_class": "priority_class_name"}
    return Case(case.app, {names.get(name, name): value for name, value in case.options.items()})


@pytest.mark.parametrize("name", [name for name in CASES if name not in ELASTIC][STEP // 2 :: STEP])
def test_a_program_goes_on_with_every_job_on_mcad(handover: Handover, name: str) -> None:
    check(handover, "mcad", mcad(CASES[name]))


class Level(str, Enum):
    """A value as a user's own component may put it into an AppDef."""

    HIGH = "high"


class Model:
    """An object of a library where an overlay may stand, which neither TorchX nor this package takes for one."""


SECRET = {"name": "s", "key": "k"}
TOLERATION = {"operator": "Exists"}
SECRETS = {
    "secret_env": {"TOKEN": {"name": "s", "key": "k", "optional": True}},
    "secret_mounts": [{"src": "keys", "dst": "/keys"}],
    "node_selector": {"zone": "a"},
    "tolerations": [{"operator": "Exists", "key": None}],
}

VOLCANO: dict[str, Case] = {
    "no plugins": Case(one(), {"plugins": {}}),
    "no plugins, as text": Case(one(), {"plugins": "{}"}),
    "plugins as text": Case(one(), {"plugins": '{"svc": ["--publish-not-ready-addresses=true"], "ssh": []}'}),
    "network topology by its mode": Case(one(), {"network_topology": "soft"}),
    "network topology as text": Case(one(), {"network_topology": '{"mode": "hard", "highestTierAllowed": 2}'}),
    "lists and mappings": Case(one(), {"image_secrets": ["a", "b"], "labels": {"t": "x"}, "annotations": {"a": "1"}}),
    "empty lists and mappings": Case(one(), {"image_secrets": [], "labels": {}}),
    "other options": Case(one(), {"scheduler_name": "other", "ttl_seconds_after_finished": 0}),
    "gang of pods": Case(several({"name": "a", "num_replicas": 2}, {"name": "b"}), {"gang": "pods"}),
    "extras in metadata": Case(one(metadata={"torchx_pulumi": SECRETS, "other": [None, {1: "one", "n": None}]})),
    "tuples": Case(one(args=("a", "b"), metadata={"kubernetes": {"V1Pod": {"spec": {"__put__:tolerations": ()}}}})),
    "enums": Case(one(env={"LEVEL": Level.HIGH}, metadata={"kubernetes": {"metadata": {"labels": {"l": Level.HIGH}}}})),
    "enums as keys": Case(one(metadata={"kubernetes": {"metadata": {"labels": {Level.HIGH: "l"}}}})),
    "sets": Case(one(resource=resource(capabilities={"kinds": {"a", "b", "c"}}), metadata={"other": {1, 2}})),
    "what is no overlay": Case(one(metadata={"kubernetes": Model(), "other": Model()})),
    "annotations of our names": Case(one(), {"annotations": {"torchx-pulumi/image-digests": "not JSON"}}),
    "letters of all kinds": Case(one(args=["\U0001f600", "a\u2028b\x85c", "\x7f\ufffe", "tab\tnew\nline\\"])),
    "numbers in texts": Case(one(args=["1e5", "0x10", "1_000", "no", "~", "<<"], env={"A": "0.10", "B": "="})),
    "devices": Case(one(resource=resource(devices={"a.io/b": 2}, capabilities={"c": [1, (2, None)]}))),
}

LOCAL_QUEUE = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "LocalQueue",
    "metadata": {"name": "team", "namespace": "default"},
}
MCAD: dict[str, Case] = {
    "coscheduler": Case(several({"name": "a", "num_replicas": 2}, {"name": "b"}), {"coscheduler_name": "co"}),
    "v1beta2": Case(one(num_replicas=2), {"api_version": "v1beta2", "local_queue": "team"}),
    "v1beta2, suspended": Case(one(), {"api_version": "v1beta2", "suspend": True}),
    "all options": Case(
        one(port_map={"bad": 70000}),
        {"priority": 0, "priority_class_name": "high", "image_secret": "pull", "network": "net",
         "requeuing_time_s": 0, "requeuing_max_time_s": 10, "requeuing_growth": "linear", "labels": {"a": "b"}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", VOLCANO)
def test_a_program_goes_on_with_every_option_of_volcano(handover: Handover, name: str) -> None:
    check(handover, "volcano", VOLCANO[name])


@pytest.mark.parametrize("name", MCAD)
def test_a_program_goes_on_with_every_option_of_mcad(handover: Handover, name: str) -> None:
    handover.cluster.put(LOCAL_QUEUE)
    check(handover, "mcad", MCAD[name])


ORDERED = {
    "variables": one(env={"Z": "1", "A": "${app_id}", "M": "3"}),
    "secrets": one(metadata={"torchx_pulumi": {"secret_env": {"Z": SECRET, "A": SECRET}}}),
    "operators": one(metadata={"kubernetes": {"spec": {"tolerations": [TOLERATION], "__put__:tolerations": []}}}),
    "numbers and nulls": one(
        env={"B": "1", "A": "2"}, port_map={"b": 80, "a": 81},
        metadata={"kubernetes": {"spec": {"priority": 3, "hostNetwork": None, "dnsConfig": {"searches": ("a",)}}}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("scheduler", ["volcano", "mcad"])
@pytest.mark.parametrize("name", ORDERED)
def test_an_app_that_a_stack_told_of_goes_over_as_it_was_launched(
    handover: Handover, name: str, scheduler: str
) -> None:
    """The index of a colleague has it from there: mappings are sorted in it, and nulls are not."""
    options = {"queue": "test"} if scheduler == "volcano" else {}
    launched = registered(handover.launch(scheduler, ORDERED[name](), options))
    note = json.dumps(_without_nulls(write_entry(handover.entry)), sort_keys=True)
    handover.entry = read_entry(json.loads(note), "the stack")
    assert registered(handover.take_over()) == launched


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, (list, tuple)) else value


def test_an_overlay_that_was_read_from_a_file_goes_over_with_the_app(handover: Handover, tmp_path: Path) -> None:
    file = tmp_path / "overlay.yaml"
    file.write_text("spec:\n  tolerations: !!python/tuple [{operator: Exists}]\n  __del__:nodeSelector:\n")
    launched = registered(handover.launch("volcano", one(metadata={"kubernetes": file.name})(), {"queue": "test"}))
    # The file may be another one by now, and is elsewhere for a program.
    file.unlink()
    assert registered(handover.take_over()) == launched


def test_a_workspace_of_a_role_is_in_its_image(handover: Handover) -> None:
    launched = registered(handover.launch("volcano", one()(), {"queue": "test"}))
    (role,) = handover.entry.app["roles"]
    role |= {"workspace": {"file:///src": ""}, "base_image": "img:0", "field_of_tomorrow": [1]}
    assert registered(handover.take_over()) == launched


def test_an_image_of_this_machines_daemon_has_the_name_that_it_was_pushed_under(
    handover: Handover, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    docker, app = FakeDocker(), one(image="sha256:abc")()
    docker.images["sha256:abc"] = {"Id": "sha256:abc0"}
    with closing(FakeRegistry()) as registry:
        options = {"queue": "test", "image_repo": f"{registry.host}/train"}
        launched = registered(handover.launch("volcano", app, options, docker))
    assert docker.pushed == [f"{registry.host}/train:abc"]
    assert registered(handover.take_over()) == launched
    assert "/train:abc" in repr(launched)


@pytest.mark.parametrize("explicit", [None, "scheduling.sigs.k8s.io/v1alpha1"])
def test_pod_groups_that_were_found_on_the_cluster_stay_what_they_are(handover: Handover, explicit: str | None) -> None:
    older = [kind for kind in KNOWN if kind.group != "scheduling.x-k8s.io"]
    handover.cluster = FakeCluster(served=older)
    handover.driver = RememberingDriver(handover.cluster)
    options = {"coscheduler_name": "co", **({} if explicit is None else {"pod_group_api": explicit})}
    launched = registered(handover.launch("mcad", one()(), options))
    assert "scheduling.sigs.k8s.io/v1alpha1" in repr(launched)
    assert registered(handover.take_over()) == launched
