"""The builder without a daemon in TorchX's own scheduler `kubernetes`, and in schedulers of others."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from torchx import specs
from torchx.runner import Runner
from torchx.schedulers.kubernetes_scheduler import KubernetesScheduler
from torchx.workspace.docker_workspace import DockerWorkspaceMixin
from torchx_pulumi.images.reference import parse_reference
from torchx_pulumi.images.registry import RegistryClient, push_image
from torchx_pulumi.model.errors import ImageError, ImageOptionError
from torchx_pulumi.torchx_adapter.kubernetes_scheduler import create_scheduler
from torchx_pulumi.torchx_adapter.workspace_types import RegistryWorkspace

from tests.doc_blocks import block
from tests.layered_images import image_of, layer
from tests.unit.images.fake_registry import FakeRegistry

from .conftest import World, role

NIGHTLY = hasattr(specs, "Workspace")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What TorchX's own builder is asked for."""
    found: list[tuple[Any, ...]] = []

    def build(self: Any, role: Any, workspace: str, cfg: Mapping[str, Any]) -> None:
        found.append((role.image, workspace))
        role.image = "sha256:built"

    monkeypatch.setattr(DockerWorkspaceMixin, "build_workspace_and_update_role", build)
    return found


def test_it_is_the_scheduler_of_torchx_with_more_options() -> None:
    scheduler, own = create_scheduler("s", unknown="ignored"), KubernetesScheduler("s")
    assert isinstance(scheduler, KubernetesScheduler)
    assert (scheduler.backend, scheduler.session_name) == (own.backend, own.session_name)
    ours, theirs = dict(scheduler.run_opts()), dict(own.run_opts())
    assert set(ours) - set(theirs) == {"workspace_type", "dockerfile", "build_args", "platform", "ignore_rules"}
    assert {name: vars(ours[name]) for name in theirs} == {name: vars(theirs[name]) for name in theirs}
    assert ours["workspace_type"].default == "docker"


@pytest.mark.parametrize("config", [{}, {"workspace_type": "docker"}, {"workspace_type": None}])
def test_without_the_option_torchx_builds_and_its_request_is_the_same(
    asked: list[tuple[Any, ...]], config: dict[str, Any]
) -> None:
    scheduler, given = create_scheduler("s"), role(image="base:1")
    config = {"queue": "q", "image_repo": "r/app", **config}
    scheduler.build_workspace_and_update_role(given, "code", config)
    assert asked == [("base:1", "code")]
    app = specs.AppDef(name="a", roles=[given])
    assert scheduler.dryrun_push_images(app, config) == {"sha256:built": ("r/app", "built")}


@pytest.mark.skipif(not NIGHTLY, reason="TorchX 0.7.0 has no workspaces of roles")
def test_workspaces_of_roles_go_to_torchx_too(asked: list[tuple[Any, ...]]) -> None:
    given = role(image="base:1")
    given.workspace = specs.Workspace.from_str("code")
    create_scheduler("s").build_workspaces([given], {"image_repo": "r/app"})
    assert asked == [("base:1", "code")]


def test_another_type_is_refused() -> None:
    with pytest.raises(ImageError, match=r"workspace_type.* is 'dir', must be one of docker, reg"):
        create_scheduler("s").build_workspace_and_update_role(role(), "code", {"workspace_type": "dir"})


def test_options_are_read_from_the_command_line(asked: list[tuple[Any, ...]]) -> None:
    opts = create_scheduler("s").run_opts()
    words = "queue=q,image_repo=r/app,workspace_type=registry,build_args=A:1,B:2,platform=linux/arm64"
    read = opts.resolve(opts.cfg_from_str(words))
    assert (read["workspace_type"], read["platform"]) == ("registry", "linux/arm64")
    assert read["build_args"] == {"A": "1", "B": "2"}


@pytest.mark.parametrize("make", [RegistryWorkspace, lambda: create_scheduler("s")])
def test_without_a_repository_it_says_what_to_set(make: Any, asked: list[tuple[Any, ...]], tmp_path: Path) -> None:
    with pytest.raises(ImageOptionError, match="image_repo does not say where to push"):
        make().build_workspace_and_update_role(role(), str(tmp_path), {"workspace_type": "registry"})
    assert asked == []


@pytest.mark.skipif(not NIGHTLY, reason="TorchX 0.7.0 has no MultiWorkspaceMixin")
def test_it_is_one_of_several_builders_of_nightly(asked: list[tuple[Any, ...]], tmp_path: Path) -> None:
    names: dict[str, Any] = {}
    exec(block("docs/image-builders.md", "multi-workspace"), names)
    kind = type("Whole", (names["MyScheduler"],), {"__abstractmethods__": frozenset()})
    kind.__abstractmethods__ = frozenset()
    scheduler, given = kind("s"), role(image="base:1")
    given.workspace = specs.Workspace.from_str(str(tmp_path))
    assert {"workspace_type", "image_repo", "build_args"} <= set(dict(scheduler.workspace_opts()))
    scheduler.build_workspaces([given], {"image_repo": "r/app"})
    assert asked == [("base:1", str(tmp_path))]
    app = specs.AppDef(name="a", roles=[given])
    # The image is pushed when it is built, so that there is nothing to push later.
    assert scheduler.dryrun_push_images(app, {"workspace_type": "registry"}) == ("registry", None)
    with pytest.raises(ImageOptionError):
        scheduler.build_workspaces([given], {"workspace_type": "registry"})


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeRegistry]:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no.sock")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made = FakeRegistry()
    target = parse_reference(f"{made.host}/base:1")
    push_image(RegistryClient(), image_of([layer(100)]), target, progress=lambda _: None)
    yield made
    made.close()


@pytest.fixture
def code(tmp_path: Path) -> str:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text("print('one')\n")
    return str(tmp_path / "code")


def test_an_image_is_pushed_without_a_daemon(registry: FakeRegistry, code: str, asked: list[tuple[Any, ...]]) -> None:
    scheduler, given = create_scheduler("s"), role(image=f"{registry.host}/base:1")
    config = {"workspace_type": "registry", "image_repo": f"{registry.host}/app"}
    scheduler.build_workspace_and_update_role(given, code, config)
    name, _, digest = given.image.partition("@")
    assert re.fullmatch(rf"{registry.host}/app:patched-[0-9a-f]{{40}}", name)
    assert registry.repository("app").tags == {name.rpartition(":")[2]: digest}
    assert asked == []
    # There is nothing left to push.
    assert scheduler.dryrun_push_images(specs.AppDef(name="a", roles=[given]), config) == {}


@pytest.mark.skipif(not NIGHTLY, reason="TorchX 0.7.0 has no Runner.build_workspace")
def test_one_push_serves_several_schedulers_and_trials(
    registry: FakeRegistry, code: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torchx.workspace.api import pin_workspace_images

    factories = {
        "kubernetes": create_scheduler,
        "pulumi_volcano": lambda session, **_: world.scheduler("volcano", session),
    }
    config = {"queue": "test", "image_repo": f"{registry.host}/app"}
    options = {"kubernetes": {**config, "workspace_type": "registry"}, "pulumi_volcano": config}
    workspace = specs.Workspace.from_str(code)
    roles = [role(name=name, image=f"{registry.host}/base:1") for name in ("trainer", "reader")]
    for each in roles:
        each.workspace = workspace
    app = specs.AppDef(name="a", roles=roles)
    with Runner("torchx", factories) as runner:
        built = {name: runner.build_workspace(app, name, cfg) for name, cfg in options.items()}
        assert built["kubernetes"] == built["pulumi_volcano"]
        assert len(built["kubernetes"]) == 1
        puts = [each for each in registry.asked if each.startswith("PUT /v2/app/manifests/")]
        assert len(puts) == 1
        pin_workspace_images(app, built["kubernetes"])
        (image,) = {each.image for each in app.roles}
        assert registry.repository("app").tags[image.partition("@")[0].rpartition(":")[2]] == image.partition("@")[2]
        for name, cfg in options.items():
            for _ in range(2):
                info = runner.dryrun(app, name, {**cfg, "validate_spec": False})
                assert image in str(info.request)
    assert [each for each in registry.asked if each.startswith("PUT /v2/app/manifests/")] == puts


def test_a_dockerfile_that_needs_the_daemon_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile.torchx").write_text("ARG IMAGE\nFROM $IMAGE\nRUN make\n")
    given = role(image="127.0.0.1:1/base@sha256:" + "1" * 64)
    with pytest.raises(ImageError, match=r"line 3: RUN"):
        RegistryWorkspace().build_workspace_and_update_role(given, str(tmp_path), {"image_repo": "127.0.0.1:1/app"})
