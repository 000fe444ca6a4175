"""The builder without a daemon in TorchX's own scheduler `kubernetes`, and in schedulers of others."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from torchx import specs
from torchx.schedulers.kubernetes_scheduler import KubernetesScheduler
from torchx.workspace.docker_workspace import DockerWorkspaceMixin
from torchx_pulumi.model.errors import ImageOptionError
from torchx_pulumi.torchx_adapter.kubernetes_scheduler import create_scheduler
from torchx_pulumi.torchx_adapter.workspace_types import RegistryWorkspace

from .conftest import role

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


def test_another_type_is_refused_as_torchx_refuses_options() -> None:
    with pytest.raises(specs.InvalidRunConfigException, match=r"workspace_type.* is 'dir', must be one of docker, reg"):
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
