"""Patched images between the dry run and the launch, over a registry of the test's own and a daemon in memory."""

from __future__ import annotations

import json
import logging
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.model import labels
from torchx_pulumi.model.errors import ImageError
from torchx_pulumi.runs.eject import project_files
from torchx_pulumi.runs.index import RunIndex
from torchx_pulumi.torchx_adapter import compat
from torchx_pulumi.torchx_adapter.scheduler import PulumiScheduler

from tests.unit.images.fake_docker import FakeDocker
from tests.unit.images.fake_registry import FakeRegistry

from .conftest import World, app, role

BASE_DIGEST, PUSHED, LOCAL = f"sha256:{'1' * 64}", f"sha256:{'e' * 64}", f"sha256:{'5' * 64}"


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeRegistry]:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made = FakeRegistry()
    yield made
    made.close()


@pytest.fixture
def docker(registry: FakeRegistry) -> FakeDocker:
    made = FakeDocker()
    made.remote[f"{registry.host}/base@{BASE_DIGEST}"] = BASE_DIGEST
    return made


@pytest.fixture
def config(registry: FakeRegistry) -> dict[str, Any]:
    return {"queue": "test", "image_repo": f"{registry.host}/app", "builder": "docker"}


@pytest.fixture
def code(tmp_path: Path) -> str:
    (tmp_path / "code").mkdir()
    (tmp_path / "code/train.py").write_text("print('one')\n")
    return str(tmp_path / "code")


@pytest.fixture
def process(world: World, docker: FakeDocker) -> Callable[..., PulumiScheduler]:
    """Return a scheduler of another process: nothing is known of what was planned before."""

    def make(kind: str = "volcano") -> PulumiScheduler:
        return PulumiScheduler(kind, "torchx", world.context(), docker_client=docker)

    return make


@pytest.fixture
def based(registry: FakeRegistry) -> Any:
    return role(image=f"{registry.host}/base@{BASE_DIGEST}")


def test_what_was_planned_is_made_by_the_launch(
    process: Callable[..., PulumiScheduler], docker: FakeDocker, config: dict[str, Any], code: str, based: Any
) -> None:
    scheduler = process()
    scheduler.build_workspace_and_update_role(based, code, config)
    assert (docker.built, docker.pushed) == ([], [])
    scheduler.submit(app(based), config)
    assert docker.pushed == [based.image]


def test_roles_that_are_not_patched_beside_one_that_is_are_named(
    process: Callable[..., PulumiScheduler],
    registry: FakeRegistry,
    config: dict[str, Any],
    code: str,
    based: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    scheduler = process()
    scheduler.submit_dryrun(app(based, role(name="reader")), config)
    assert "the workspace is in" not in caplog.text
    # As `Runner.dryrun` of both releases of TorchX does with its argument `workspace`.
    scheduler.build_workspace_and_update_role(based, code, config)
    scheduler.submit_dryrun(app(based, role(name="reader")), config)
    assert (
        "the workspace is in the image of role 'trainer' only; role 'reader': the image is run as it is" in caplog.text
    )
    caplog.clear()
    scheduler.submit_dryrun(app(based, role(name="reader", image=based.image)), config)
    assert "the workspace is in" not in caplog.text


def test_a_pickled_dry_run_is_built_in_another_process(
    world: World,
    process: Callable[..., PulumiScheduler],
    docker: FakeDocker,
    config: dict[str, Any],
    code: str,
    based: Any,
) -> None:
    first = process()
    first.build_workspace_and_update_role(based, code, config)
    written = pickle.dumps(first.submit_dryrun(app(based), config))
    app_id = process().schedule(pickle.loads(written))
    assert (len(docker.built), docker.pushed) == (1, [based.image])
    head = world.head(app_id)
    assert head is not None
    digests = json.loads(head["metadata"]["annotations"][labels.IMAGE_DIGESTS])
    assert digests == {"trainer": PUSHED}
    # A program that goes on with the app says the same of it.
    entry = RunIndex().find(app_id, "volcano")
    assert entry is not None
    program = project_files(entry)["__main__.py"]
    assert labels.IMAGE_DIGESTS in program
    assert f"export_outputs(job, digests={{'{based.image}': '{PUSHED}'}})" in program


def test_a_request_that_lost_its_build_plan_is_refused_and_nothing_is_launched(
    world: World,
    process: Callable[..., PulumiScheduler],
    registry: FakeRegistry,
    docker: FakeDocker,
    config: dict[str, Any],
    code: str,
    based: Any,
) -> None:
    first = process()
    first.build_workspace_and_update_role(based, code, config)
    info = first.submit_dryrun(app(based), config)
    info.request.image_plans.clear()
    with pytest.raises(ImageError, match=r"has no build plan for it; make the dry run again"):
        process().schedule(info)
    assert RunIndex().all() == []
    assert (docker.built, docker.pushed) == ([], [])
    registry.digests[f"app:{based.image.rpartition(':')[2]}"] = PUSHED
    assert process().schedule(info)
    assert (docker.built, docker.pushed) == ([], [])


def test_a_running_app_stays_where_the_images_of_its_replacement_cannot_be_built(
    world: World, process: Callable[..., PulumiScheduler], registry: FakeRegistry, config: dict[str, Any]
) -> None:
    scheduler = process()
    info = scheduler.submit_dryrun(app(), {**config, "on_running_change": "replace"})
    first = scheduler.schedule(info)
    before = world.head(first)
    info.request.images_to_push["gone:1"] = (f"{registry.host}/app", "gone")
    with pytest.raises(ImageError, match="'gone:1': the Docker daemon does not have it"):
        scheduler.schedule(info)
    assert before is not None
    assert world.head(first) == before
    assert RunIndex().find(first, "volcano") is not None


def test_images_to_push_may_be_set_by_the_caller_as_for_torchx(
    process: Callable[..., PulumiScheduler], registry: FakeRegistry, docker: FakeDocker, config: dict[str, Any]
) -> None:
    scheduler = process()
    docker.images |= {"mine:1": {"Id": LOCAL}, "sha256:abc": {"Id": "sha256:abc0"}}
    info = scheduler.submit_dryrun(app(role(image="sha256:abc")), config)
    repository = f"{registry.host}/app"
    assert info.request.images_to_push == {"sha256:abc": (repository, "abc")}
    info.request.images_to_push["mine:1"] = (repository, "mine")
    scheduler.schedule(info)
    assert sorted(docker.pushed) == [f"{repository}:abc", f"{repository}:mine"]
    info = scheduler.submit_dryrun(app(), config)
    info.request.images_to_push["gone:1"] = (repository, "gone")
    with pytest.raises(ImageError, match="'gone:1': the Docker daemon does not have it"):
        scheduler.schedule(info)


def test_an_image_of_the_callers_own_that_is_tagged_with_a_commit_is_pushed(
    process: Callable[..., PulumiScheduler], registry: FakeRegistry, docker: FakeDocker, config: dict[str, Any]
) -> None:
    commit = "ab" * 20
    image = f"{config['image_repo']}:{commit}"
    docker.images[image] = {"Id": LOCAL, "Config": {"Labels": None}}
    # What the registry has may be of an earlier state of the commit's folder.
    registry.digests = {f"app:{commit}": f"sha256:{'7' * 64}"}
    info = process().submit_dryrun(app(role(image=image)), config)
    info.request.images_to_push[image] = (config["image_repo"], commit)
    process().schedule(info)
    assert docker.pushed == [image]


def test_an_app_that_was_patched_elsewhere_and_not_built_is_refused(
    process: Callable[..., PulumiScheduler],
    registry: FakeRegistry,
    config: dict[str, Any],
    code: str,
    based: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    process().build_workspace_and_update_role(based, code, config)
    with pytest.raises(ImageError, match="no registry has it, and the request has no build plan for it"):
        process().submit(app(based), config)
    assert RunIndex().all() == []
    # What cannot be known is no mistake: the cluster may reach the registry.
    registry.failures = [403]
    assert process().submit(app(based), config)
    assert "whether it is in its registry is not known" in caplog.text
    registry.digests[f"app:{based.image.rpartition(':')[2]}"] = PUSHED
    assert process().submit(app(based), config)


def test_a_patched_image_goes_nowhere_else(
    process: Callable[..., PulumiScheduler], config: dict[str, Any], code: str, based: Any
) -> None:
    scheduler = process()
    scheduler.build_workspace_and_update_role(based, code, config)
    info = scheduler.submit_dryrun(app(based), config)
    info.request.images_to_push[based.image] = ("other/app", "1")
    with pytest.raises(ImageError, match=r"images_to_push sends it to 'other/app:1'"):
        scheduler.schedule(info)


def test_the_app_of_a_dry_run_names_images_as_pods_do(
    process: Callable[..., PulumiScheduler], docker: FakeDocker, config: dict[str, Any]
) -> None:
    scheduler, given = process(), app(role(image=LOCAL), role(name="other"))
    info = scheduler.submit_dryrun(given, config)
    remote = f"{config['image_repo']}:{'5' * 64}"
    assert [each.image for each in compat.app_of(info).roles] == [remote, "img:1"]
    assert [each.image for each in given.roles] == [LOCAL, "img:1"]
    assert info.request.images_to_push == scheduler.submit_dryrun(given, config).request.images_to_push
    docker.images[LOCAL] = {"Id": LOCAL}
    entry = RunIndex().find(scheduler.schedule(info), "volcano")
    assert entry is not None
    assert [each["image"] for each in entry.app["roles"]] == [remote, "img:1"]
    assert docker.pushed == [remote]


def test_with_a_shared_daemon_local_images_stay_where_they_are(process: Callable[..., PulumiScheduler]) -> None:
    info = process().submit_dryrun(app(role(image=LOCAL)), {"queue": "test", "shared_daemon": True})
    assert (compat.app_of(info).roles[0].image, info.request.images_to_push) == (LOCAL, {})


@pytest.mark.parametrize("quiet", [True, False])
def test_every_line_of_a_build_is_told_unless_quiet(
    process: Callable[..., PulumiScheduler],
    docker: FakeDocker,
    config: dict[str, Any],
    code: str,
    based: Any,
    caplog: pytest.LogCaptureFixture,
    quiet: bool,
) -> None:
    caplog.set_level(logging.INFO)
    docker.build_events = [{"stream": "Step 1/1 : RUN make\n"}, *({"stream": f"line {n}\n"} for n in range(9))]
    scheduler = process()
    scheduler.build_workspace_and_update_role(based, code, config)
    scheduler.submit(app(based), {**config, "quiet": quiet})
    told = [record.message.rpartition(": ")[2] for record in caplog.records if ": line " in record.message]
    assert told == ([] if quiet else [f"line {n}" for n in range(9)])


def test_what_is_left_out_by_default_is_told_in_the_dry_run(
    process: Callable[..., PulumiScheduler],
    config: dict[str, Any],
    code: str,
    based: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    (Path(code) / ".git").mkdir()
    process().build_workspace_and_update_role(based, code, config)
    assert "left out by default: .git (a line `!.git` in .dockerignore keeps it)" in caplog.text


@pytest.fixture
def runner(process: Callable[..., PulumiScheduler]) -> Iterator[Callable[[], Any]]:
    from torchx.runner import Runner

    made = []

    def make() -> Any:
        made.append(Runner("torchx", {"pulumi_volcano": lambda session, **_: process()}))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.mark.skipif(not compat.ROLE_WORKSPACES, reason="TorchX 0.7.0 has no Runner.build_workspace")
def test_a_built_workspace_is_pushed_and_may_be_pinned_elsewhere(
    runner: Callable[[], Any], docker: FakeDocker, config: dict[str, Any], code: str, based: Any
) -> None:
    from torchx.workspace import pin_workspace_images

    based.workspace = compat.make_workspace({code: ""})
    made = runner().build_workspace(app(based), "pulumi_volcano", config)
    (image,) = made.values()
    assert (len(docker.built), docker.pushed) == (1, [image])
    pinned = app(based)
    pin_workspace_images(pinned, made)
    info = runner().dryrun(pinned, "pulumi_volcano", config)
    assert (compat.app_of(info).roles[0].image, info.request.images_to_push) == (image, {})


@pytest.mark.skipif(not compat.ROLE_WORKSPACES, reason="TorchX 0.7.0 has no workspaces of roles")
def test_a_dry_run_of_a_role_with_a_workspace_builds_nothing(
    runner: Callable[[], Any], docker: FakeDocker, config: dict[str, Any], code: str, based: Any
) -> None:
    based.workspace = compat.make_workspace({code: ""})
    torchx = runner()
    info = torchx.dryrun(app(based), "pulumi_volcano", config)
    assert (docker.built, docker.pushed) == ([], [])
    torchx.schedule(info)
    assert docker.pushed == [compat.app_of(info).roles[0].image]
