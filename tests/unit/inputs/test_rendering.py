from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torchx_pulumi
from hypothesis import given
from hypothesis import strategies as st
from torchx.specs import AppDef, Role
from torchx_pulumi import InvalidJobError, MissingOptionError, UnknownMountError, render
from torchx_pulumi.inputs.rendering import plan_app
from torchx_pulumi.model.job_spec import JobSpec, MountSpec, ResourceSpec, RoleSpec

from tests.unit.builders import job, role

APP = {"name": "app", "roles": [{"name": "trainer", "image": "i", "entrypoint": "m"}]}


def test_spec_and_mapping_render_alike() -> None:
    made = render(
        job(torchx_version=None, roles=[role(image="i", entrypoint="m")]), "volcano", {"queue": "q"}, app_id="a"
    )
    other = render(APP, "volcano", {"queue": "q"}, app_id="a")
    other["spec"]["tasks"][0]["template"]["metadata"]["labels"].pop("torchx.pytorch.org/version", None)
    assert made == other


@pytest.mark.parametrize("scheduler", ["volcano", "mcad"])
@pytest.mark.parametrize("key", ["kubernetes", "torchx_pulumi"])
@pytest.mark.parametrize("form", [dict, lambda app: AppDef(**{**app, "roles": [Role(**app["roles"][0])]})])
def test_metadata_of_the_app_that_is_read_of_roles_only_is_a_warning(scheduler: str, key: str, form: Any) -> None:
    options = {"queue": "q"} if scheduler == "volcano" else {}

    def warnings(**metadata: Any) -> list[str]:
        app = form({**APP, "metadata": metadata})
        return [each for each in plan_app(app, scheduler, options, app_id="a").warnings if "metadata" in each]

    (said,) = warnings(**{key: "file:///overlay.yaml", "team": "ml"})
    assert f"metadata[{key!r}] of the app has no effect" in said
    assert f"Put it into metadata[{key!r}] of each role" in said
    assert warnings(team="ml") == []


@pytest.mark.parametrize("scheduler", ["slurm", "", None, "Volcano"])
def test_other_schedulers_are_refused_by_name(scheduler: Any) -> None:
    with pytest.raises(InvalidJobError, match="must be volcano"):
        render(APP, scheduler, {"queue": "q"}, app_id="a")


def test_missing_queue_and_unknown_mount_are_type_errors_too() -> None:
    with pytest.raises(MissingOptionError):
        render(APP, "volcano", {}, app_id="a")
    with pytest.raises(UnknownMountError):
        render(
            job(roles=[role(mounts=[MountSpec(kind="x", src="a", dst="/b")])]), "volcano", {"queue": "q"}, app_id="a"
        )


def test_problems_of_app_options_scheduler_and_id_come_together() -> None:
    app = {"name": "app", "roles": [{"name": "a", "image": "i", "entrypoint": "m", "num_replicas": 0, "x": 1}]}
    with pytest.raises(InvalidJobError) as error:
        render(app, "slurm", {"gang": "both"}, app_id="-")
    paths = sorted({problem.path for problem in error.value.problems})
    assert paths == ["app_id", "options.gang", "options.queue", "roles[0].num_replicas", "roles[0].x", "scheduler"]


def test_import_loads_few_modules_and_no_heavy_one() -> None:
    code = "import sys; before = set(sys.modules); import torchx_pulumi; print(*set(sys.modules) - before)"
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": ":".join(sys.path)}
    )
    loaded = ran.stdout.split()
    assert not {"yaml", "torchx", "kubernetes", "pulumi"}.intersection(loaded)
    assert len(loaded) < 100


def test_public_names_are_there() -> None:
    assert torchx_pulumi.__all__ == sorted(torchx_pulumi.__all__)
    assert all(getattr(torchx_pulumi, name) for name in torchx_pulumi.__all__)
    with pytest.raises(AttributeError):
        _ = torchx_pulumi.nothing


ANY: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.binary(max_size=3),
    st.lists(
        st.none() | st.integers() | st.text(max_size=3) | st.dictionaries(st.text(max_size=3), st.none()), max_size=2
    ),
    st.dictionaries(st.text(max_size=5) | st.integers(), st.none() | st.text(max_size=3) | st.integers(), max_size=2),
    st.just(object()),
    st.just({"V1Pod": {"spec": 5}}),
)

FEW = {"num_replicas": st.integers(-2, 3) | st.none() | st.text(max_size=2)}
"""Numbers that would only take long."""


def fields_of(kind: Any, **known: Any) -> st.SearchStrategy[Any]:
    """Make instances of a dataclass whose fields are anything, now and then."""
    base = {"name": "a", "image": "i", "entrypoint": "m", "kind": "bind", "src": "/a", "dst": "/b", "roles": []}
    needed = {name: base[name] for name in kind.__dataclass_fields__ if name in base}
    optional = {name: FEW.get(name, ANY) for name in kind.__dataclass_fields__}
    return st.fixed_dictionaries({}, optional={**optional, **known}).map(lambda given: kind(**{**needed, **given}))


MOUNTS = ANY | st.lists(fields_of(MountSpec), max_size=2)
ROLES = fields_of(RoleSpec, mounts=MOUNTS, resource=ANY | fields_of(ResourceSpec))
APPS = fields_of(JobSpec, roles=ANY | st.lists(ROLES | ANY, max_size=3))
OPTIONS = ANY | st.dictionaries(
    st.sampled_from(["queue", "namespace", "gang", "plugins", "labels", "network_topology", "efaDeviceCount", "x"]), ANY
).map(lambda given: {"queue": "q", **given})


ONE_WRONG = st.sampled_from([name for name in RoleSpec.__dataclass_fields__ if name not in FEW]).flatmap(
    lambda name: st.builds(lambda value: JobSpec(name="app", roles=[role(**{name: value})]), ANY | MOUNTS)
)
"""One field of a good job is anything: gets further than a job in which all is wrong."""


@given(APPS | ONE_WRONG, OPTIONS, st.just("app-x1") | ANY)
def test_whatever_is_handed_in_gives_a_manifest_or_one_clear_error(app: Any, options: Any, app_id: Any) -> None:
    try:
        made = render(app, "volcano", options, app_id=app_id)
    except InvalidJobError:
        return
    assert made["kind"] in ("Job", "List")


MCAD_OPTIONS = ANY | st.dictionaries(
    st.sampled_from(["priority", "namespace", "api_version", "pod_group_api", "suspend", "networks", "imageSecret"]),
    ANY,
)


@given(APPS | ONE_WRONG, MCAD_OPTIONS, st.just("app-x1") | ANY)
def test_whatever_is_handed_in_gives_an_app_wrapper_or_one_clear_error(app: Any, options: Any, app_id: Any) -> None:
    try:
        made = render(app, "mcad", options, app_id=app_id)
    except InvalidJobError:
        return
    assert made["kind"] == "AppWrapper"


MAPPINGS = st.recursive(
    ANY,
    lambda inner: st.dictionaries(
        st.sampled_from(["name", "roles", *RoleSpec.__dataclass_fields__]), inner, max_size=6
    ),
)


@given(MAPPINGS | st.fixed_dictionaries({"name": ANY, "roles": st.lists(MAPPINGS, max_size=2)}))
def test_any_mapping_gives_a_manifest_or_one_clear_error(app: Any) -> None:
    for role_ in app.get("roles", ()) if isinstance(app, dict) and isinstance(app.get("roles"), list) else ():
        if isinstance(role_, dict):
            role_.pop("num_replicas", None)
    try:
        render(app, "volcano", {"queue": "q"}, app_id="app-x1")
    except InvalidJobError:
        return


@pytest.mark.parametrize("wrong", [{"options": {"priority": 1 << 40}}, {"options": {"nothing": 1}}, {"app_id": "A B"}])
def test_a_port_that_mcad_tolerates_is_never_a_problem(wrong: dict[str, Any]) -> None:
    given: dict[str, Any] = {"options": {}, "app_id": "a", **wrong}
    tolerated = job(roles=[role(port_map={"x": 70000})])
    render(tolerated, scheduler="mcad", app_id="a")
    with pytest.raises(InvalidJobError) as caught:
        render(tolerated, scheduler="mcad", **given)
    assert "70000" not in str(caught.value)


def paths_of(options: dict[str, Any]) -> list[str]:
    with pytest.raises(InvalidJobError) as error:
        render(APP, "volcano", {"queue": "q", **options}, app_id="a")
    return sorted(problem.path for problem in error.value.problems)


@pytest.mark.parametrize("scheduler", ["volcano", "mcad"])
def test_a_job_without_a_name_for_its_object_is_refused(scheduler: str) -> None:
    unnamed: Any = None
    with pytest.raises(InvalidJobError) as error:
        render(APP, scheduler, {"queue": "q"} if scheduler == "volcano" else {}, app_id=unnamed)
    assert [problem.path for problem in error.value.problems] == ["app_id"]


def test_an_option_in_camel_case_that_cannot_be_read_is_one_problem() -> None:
    assert paths_of({"schedulerName": 5}) == ["options.schedulerName"]


def test_a_part_of_an_option_that_cannot_be_read_hides_no_problem_of_the_whole() -> None:
    assert paths_of({"gang": "pods", "plugins": {"svc": "a"}}) == ["options.plugins", "options.plugins['svc']"]
