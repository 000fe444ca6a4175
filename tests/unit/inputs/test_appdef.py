from __future__ import annotations

import copy
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.inputs.appdef import read_app
from torchx_pulumi.model.errors import InvalidJobError, UnknownMountError
from torchx_pulumi.model.job_spec import MountSpec, ResourceSpec, SecretRef


class RetryPolicy(str, Enum):
    REPLICA = "REPLICA"


@dataclass
class Resource:
    cpu: Any = -1
    gpu: Any = -1
    memMB: Any = -1


@dataclass
class BindMount:
    src_path: str = "/a"
    dst_path: str = "/b"
    read_only: bool = True


@dataclass
class VolumeMount:
    src: str = "claim"
    dst_path: str = "/b"
    read_only: bool = False


@dataclass
class OurVolumeMount(VolumeMount):
    pass


@dataclass
class DeviceMount:
    src_path: str = "/dev/a"
    dst_path: str = "/b"
    permissions: str = "r"


@dataclass
class TmpfsMount:
    dst_path: str = "/b"


@dataclass
class Role:
    name: Any = "trainer"
    image: Any = "img:1"
    entrypoint: Any = "main"
    args: Any = field(default_factory=list)
    env: Any = field(default_factory=dict)
    num_replicas: Any = 1
    min_replicas: Any = None
    max_retries: Any = 0
    retry_policy: Any = RetryPolicy.REPLICA
    resource: Any = field(default_factory=Resource)
    port_map: Any = field(default_factory=dict)
    metadata: Any = field(default_factory=dict)
    mounts: Any = field(default_factory=list)


@dataclass
class AppDef:
    name: Any = "app"
    roles: Any = field(default_factory=lambda: [Role()])
    metadata: Any = field(default_factory=dict)


def the_role(**changes: Any) -> Any:
    return read_app(AppDef(roles=[Role(**changes)])).roles[0]


def test_every_field_is_read() -> None:
    made = the_role(args=["a"], env={"A": "b"}, num_replicas=3, min_replicas=1, max_retries=2, port_map={"http": 80})
    assert (made.name, made.image, made.entrypoint, made.args, made.env) == (
        "trainer",
        "img:1",
        "main",
        ["a"],
        {"A": "b"},
    )
    assert (made.num_replicas, made.min_replicas, made.max_retries, made.port_map) == (3, 1, 2, {"http": 80})
    assert made.retry_policy == "REPLICA"
    assert made.resource == ResourceSpec(cpu=-1, gpu=-1, memory_mb=-1)


def test_resource_of_0_7_0_and_of_nightly_is_read() -> None:
    made = Resource(1, 2, 3)
    assert the_role(resource=made).resource == ResourceSpec(cpu=1, gpu=2, memory_mb=3)
    made.devices = {"a.io/b": 1}  # type: ignore[attr-defined]
    made.tags = {"ignored": object()}  # type: ignore[attr-defined]
    assert the_role(resource=made).resource.devices == {"a.io/b": 1}


def test_mounts_are_told_by_their_class_or_a_class_they_derive_from() -> None:
    made = the_role(mounts=[BindMount(), OurVolumeMount(), DeviceMount()]).mounts
    assert made == [
        MountSpec(kind="bind", src="/a", dst="/b", read_only=True),
        MountSpec(kind="volume", src="claim", dst="/b"),
        MountSpec(kind="device", src="/dev/a", dst="/b", permissions="r"),
    ]


def test_unknown_mount_is_named_and_is_a_type_error_as_in_torchx() -> None:
    with pytest.raises(UnknownMountError) as error:
        read_app(AppDef(roles=[Role(mounts=[TmpfsMount()])]))
    assert "unknown kind 'TmpfsMount'" in str(error.value.problems[0])
    assert isinstance(error.value, TypeError)


def test_app_is_not_changed() -> None:
    app = AppDef(roles=[Role(metadata={"kubernetes": {"V1Pod": {"spec": {}}}, "torchx_pulumi": {"secret_env": {}}})])
    before = copy.deepcopy(app)
    read_app(app)
    assert app == before


def test_extras_are_read_from_metadata() -> None:
    made = the_role(
        mounts=[BindMount()],
        metadata={
            "torchx_pulumi": {
                "secret_env": {"TOKEN": {"name": "s", "key": "k"}},
                "secret_mounts": [{"src": "s", "dst": "/s"}],
                "node_selector": {"zone": "a"},
                "tolerations": [{"operator": "Exists"}],
            }
        },
    )
    assert made.secret_env == {"TOKEN": SecretRef(name="s", key="k")}
    assert made.mounts[1] == MountSpec(kind="secret", src="s", dst="/s", read_only=True)
    assert made.node_selector == {"zone": "a"}
    assert made.tolerations == [{"operator": "Exists"}]


@pytest.mark.parametrize(
    ("extras", "path"),
    [
        ({"node_selectors": {}}, ".node_selectors"),
        ({"secret_mounts": "s"}, ".secret_mounts"),
        ({"secret_mounts": ["s"]}, ".secret_mounts[0]"),
        ({"secret_mounts": [{"src": "s", "dst": "/s", "mode": 1}]}, ".secret_mounts[0].mode"),
        ("text", ""),
    ],
)
def test_wrong_extras_are_refused_by_name(extras: Any, path: str) -> None:
    with pytest.raises(InvalidJobError) as error:
        the_role(metadata={"torchx_pulumi": extras})
    assert f"roles[0].metadata['torchx_pulumi']{path}" in [problem.path for problem in error.value.problems]


def test_wrong_extras_are_reported_with_all_other_problems() -> None:
    with pytest.raises(InvalidJobError) as error:
        the_role(num_replicas=0, metadata={"torchx_pulumi": {"x": 1}})
    assert len(error.value.problems) == 2


def test_overlay_is_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "overlay.yaml"
    file.write_text("V1Pod:\n  spec:\n    volumes: !!python/tuple\n    - name: a\n")
    expected = {"spec": {"volumes": ({"name": "a"},)}}
    assert the_role(metadata={"kubernetes": str(file)}).pod_overlay == expected
    assert the_role(metadata={"kubernetes": file.as_uri()}).pod_overlay == expected


def test_overlay_file_that_is_not_there_is_a_problem(tmp_path: Path) -> None:
    with pytest.raises(InvalidJobError, match="cannot be read"):
        the_role(metadata={"kubernetes": str(tmp_path / "none.yaml")})


@pytest.mark.parametrize("app", [None, 5, "app", object(), [], AppDef(roles=None), AppDef(roles=[None, 5, "x"])])
def test_anything_else_than_an_app_gives_problems(app: Any) -> None:
    with pytest.raises(InvalidJobError):
        read_app(app)
